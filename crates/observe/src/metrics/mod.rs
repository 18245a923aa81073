//! Metrics of a daemon: its counters as *families* with names that stay, each documented in docs/reference/metrics.md.
//!
//! | module | what it is |
//! |---|---|
//! | [`families`] | the table: name, type, unit, labels and meaning of each family |
//! | [`collect`] | a daemon's answer as samples of these families |
//! | [`mod@format`] | which of the two text formats a client asks for |

pub mod collect;
pub mod families;
pub mod format;
