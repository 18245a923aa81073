//! The `netvale` command line.
//!
//! Each subcommand is one file in [`cmd`] with a struct of its arguments, from which the help, the manual page and the
//! shell completions are made, and a `run` function. Start reading at [`cli`], then [`cmd::list`].
//!
//! | file | holds |
//! |---|---|
//! | `capture` | copies of ports' frames, and the files into which they are written |
//! | `cli.rs` | the command line as a whole, and the parts common to all subcommands |
//! | `complete` | completion in a shell |
//! | `ctx.rs` | the context of a subcommand: the run directory, the connection to the daemon |
//! | `error.rs` | errors of two lines, and the exit codes |
//! | `gateways.rs` | requests to running gateways |
//! | `grid.rs` | aligned columns |
//! | `groups.rs` | the groups of subcommands in the help |
//! | `headers.rs` | a description of a frame's headers |
//! | `out.rs` | standard output, whose reader may close |
//! | `own_daemon.rs` | a daemon that a drop-in starts for itself |
//! | `progress.rs` | the progress line on standard error |
//! | `rates.rs`, `units.rs` | rates computed from counters, and their notation |
//! | `values.rs` | values that several subcommands take |
//! | [`gvproxy`], [`vde`] | the drop-ins for `gvproxy` and `vde_switch` |

pub mod capture;
pub mod cli;
pub mod cmd;
pub mod complete;
pub mod ctx;
pub mod error;
pub mod forward;
pub mod gateways;
pub mod grid;
pub mod groups;
pub mod gvproxy;
pub mod headers;
pub mod kinds;
mod libpcap;
pub mod out;
mod own_daemon;
pub mod progress;
pub mod rates;
pub mod signals;
pub mod units;
pub mod values;
pub mod vde;

pub use cli::main;
pub use ctx::CliContext;
pub use error::CliError;
