//! The daemon's registries. Each owns one map and its invariants, and knows nothing of kinds of ports or of requests.
//!
//! | module | what it keeps |
//! |---|---|
//! | [`switches`] | switches by name, and their ageing |
//! | [`regions`] | regions by number |
//! | [`ports`] | ports of any kind by full name |
//! | [`persistent`] | where the record of a persistent port is |
//! | [`pipes`] | pipes by name |
//! | [`interfaces`] | network interfaces in use, and those that programs have open |
//! | [`guests`] | ptnet devices of the virtual machine that the daemon runs in |
//! | [`workers`] | the worker threads, and the tasks of each; `balance` says which task should move |
//! | `mirrors` | rings for copies of frames that pass without the daemon |
//! | [`watches`] | what each monitor watches |
//! | [`traces`] | traces of frames, by connection |
//! | `evictions` | programs that lost their port |
//! | [`events`], [`looks`] | who is told of what happens; what of it was found by looking |
//! | [`changes`] | what may have changed that the service manager keeps |
//! | `refusals` | how many requests of each user were refused |
//! | `captures` | capture files that are being written, and those that users have left on the disk |
//! | [`groups`] | groups of ports that share a rate |
//! | [`snoops`] | who wants which multicast groups |
//! | [`tunnels`] | UDP sockets that tunnels share |
//! | [`exchanges`] | what peers of socket ports connect through |

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
