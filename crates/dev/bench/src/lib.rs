//! The measurement harness: `netvale-bench`.
//!
//! A `contender::Contender` — netvale or a peer — sets up a `contender::Session` for a `case::Case`. The `runner`
//! measures the sessions in turn and makes `record::Record`s: one JSON object a line, a table, or, by `report`,
//! Markdown and plots. Scenarios are rows of `scenarios::ALL`, peers rows of `rivals::all`. Start reading at
//! `contender`, then `runner`, then the shortest scenario, `scenarios/copy.rs`.
//!
//! | folder | holds |
//! |---|---|
//! | `scenarios/` | what is measured, and netvale's side of it |
//! | `peers/` | those we are compared with, one file each |
//! | `sys/` | child processes, namespaces, hugepages, pinned threads: all taken down on drop |
//! | `report/` | Markdown and SVG |
//! | `papers/` | the papers' experiments, and the page with their figures and ours |

mod ab;
mod case;
pub mod cli;
mod contender;
mod cost;
mod counted;
mod crowd;
mod disturb;
mod error;
mod frames;
mod interrupt;
mod measure;
mod options;
mod papers;
mod peers;
mod pin;
mod prelude;
mod progress;
mod record;
mod report;
mod rivals;
mod runner;
mod scenarios;
mod stats;
mod sys;
mod table;
