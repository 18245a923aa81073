//! The measurement harness: `netvale-bench`.
//!
//! A [`contender::Contender`] — netvale or a peer — sets up a [`contender::Session`] for a [`case::Case`]. The
//! [`runner`] measures the sessions in turn and makes [`record::Record`]s: one JSON object a line, a table, or, by
//! [`mod@report`], Markdown and plots. Start reading at [`contender`], then [`runner`], then the shortest contender,
//! [`scenarios::copy`].
//!
//! | folder | holds |
//! |---|---|
//! | `scenarios/` | what is measured, and netvale's side of it |
//! | `peers/` | those we are compared with, one file each |
//! | `sys/` | child processes, namespaces, hugepages, pinned threads: all taken down on drop |
//! | `report/` | Markdown and SVG |

pub mod ab;
pub mod case;
pub mod cli;
pub mod contender;
pub mod cost;
pub mod crowd;
pub mod disturb;
pub mod error;
pub mod interrupt;
pub mod options;
pub mod peers;
pub mod pin;
pub mod progress;
pub mod record;
pub mod report;
pub mod rivals;
pub mod runner;
pub mod scenarios;
pub mod stats;
pub mod sys;
pub mod table;

pub use error::{BenchError, Result};
pub use options::{Options, Outcome, Rivals, list, run};
pub use report::report;
