//! The measurement harness: `netvale-bench`.
//!
//! A `contender::Contender` — netvale or a peer — sets up a `contender::Session` for a `case::Case`. The `runner`
//! measures the sessions in turn and makes `record::Record`s, which are printed as lines of JSON or as a table;
//! `report` turns them into Markdown and plots. Scenarios are rows of `scenarios::ALL`, peers are rows of
//! `rivals::all`. Start reading at `contender`, then `runner`, then the shortest scenario, `scenarios/copy.rs`.
//!
//! | folder | holds |
//! |---|---|
//! | `scenarios/` | the scenarios, with netvale's side of each |
//! | `peers/` | the peers with which netvale is compared, one file each |
//! | `sys/` | child processes, namespaces, hugepages, pinned threads: all are removed when dropped |
//! | `report/` | Markdown and SVG |
//! | `papers/` | the papers' experiments, and the page with published and measured figures |

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
mod hop;
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
mod targets;
