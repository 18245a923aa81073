//! The daemon's registries. Each registry owns one map and the map's invariants, and does not depend on kinds of ports
//! or on requests.
//!
//! | module | contents |
//! |---|---|
//! | [`switches`] | switches by name, and their ageing |
//! | [`regions`] | regions by number |
//! | [`ports`] | ports of any kind by full name |
//! | [`persistent`] | persistent ports, and the names under which [`ports`] has them |
//! | [`pipes`] | pipes by name |
//! | [`interfaces`] | network interfaces in use, and the rings of these that programs have opened |
//! | [`guests`] | ptnet devices of the virtual machine that the daemon runs in |
//! | [`workers`] | worker threads and their tasks; `balance` chooses the task to move |
//! | `mirrors` | rings for copies of frames that bypass the daemon |
//! | [`watches`] | the targets of monitors |
//! | [`traces`] | traces of frames, by connection |
//! | `evictions` | programs that lost their port |
//! | [`events`], [`looks`] | subscriptions to events; last polled state, whose changes become events |
//! | [`changes`] | pending changes to the state that the service manager keeps |
//! | `refusals` | refused requests of each user |
//! | `captures` | capture files that are being written, and users' finished files on the disk |
//! | [`groups`] | groups of ports that share a rate |
//! | [`snoops`] | multicast group membership |
//! | [`tunnels`] | UDP sockets that tunnels share |
//! | [`exchanges`] | listeners and directories through which peers reach socket ports |

mod balance;
pub(crate) mod captures;
pub mod changes;
pub mod events;
pub(crate) mod evictions;
pub mod exchanges;
pub mod groups;
pub mod guests;
pub mod interfaces;
pub mod looks;
pub(crate) mod mirrors;
pub mod persistent;
pub mod pipes;
pub mod ports;
pub mod refusals;
pub mod regions;
pub mod snoops;
pub mod switches;
pub mod traces;
pub mod tunnels;
pub mod watches;
pub mod workers;
