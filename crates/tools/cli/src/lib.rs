//! The `netvale` command line.
//!
//! Each subcommand is one file in [`cmd`]: a struct of its arguments, the source of the help, the manual page and the
//! shell completions, and a `run` function. Start reading at [`cli`], then [`cmd::list`].
//!
//! | file | holds |
//! |---|---|
//! | `capture` | copies of ports' frames, and the files they go to |
//! | `cli.rs` | the command line as a whole, and the parts common to all subcommands |
//! | `complete` | completion in a shell |
//! | `ctx.rs` | the context of a subcommand: the run directory, the daemon's connection |
//! | `error.rs` | errors of two lines, and the exit codes |
//! | `grid.rs` | aligned columns |
//! | `groups.rs` | the subcommands in the help |
//! | `headers.rs` | a frame's headers in a few words |
//! | `out.rs` | standard output, whose reader may close |
//! | `progress.rs` | the progress line on standard error |
//! | `rates.rs`, `units.rs` | rates from counters, and their notation |
//! | `values.rs` | values that several subcommands take |
//! | [`vde`] | the drop-in for `vde_switch` |

pub mod capture;
pub mod cli;
pub mod cmd;
pub mod complete;
pub mod ctx;
pub mod error;
pub mod forward;
pub mod grid;
pub mod groups;
pub mod headers;
pub mod kinds;
mod libpcap;
pub mod out;
pub mod progress;
pub mod rates;
pub mod signals;
pub mod units;
pub mod values;
pub mod vde;

pub use cli::main;
pub use ctx::CliContext;
pub use error::CliError;
