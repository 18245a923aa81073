//! What the daemon keeps account of. Each registry owns one map and its invariants, and knows nothing of kinds of ports or of requests.
//!
//! | module | what it keeps |
//! |---|---|
//! | [`switches`] | switches by name, and their ageing |
//! | [`regions`] | regions by number |
//! | [`ports`] | ports by full name, whatever is behind them |
//! | [`persistent`] | where the record of a persistent port is |
//! | [`pipes`] | pipes by name |
//! | [`interfaces`] | network interfaces in use, and those that programs have open |
//! | [`guests`] | ptnet devices of the virtual machine that we run in |
//! | [`workers`] | the worker threads, and which task is where |
//! | `mirrors` | rings for copies of what passes without the daemon |
//! | [`watches`] | which monitor watches what |
//! | `evictions` | programs that lost their port |
//! | `captures` | capture files that are being written |

pub(crate) mod captures;
pub(crate) mod evictions;
pub mod guests;
pub mod interfaces;
pub(crate) mod mirrors;
pub mod persistent;
pub mod pipes;
pub mod ports;
pub mod regions;
pub mod switches;
pub mod watches;
pub mod workers;
