//! What every subcommand gets beside its own arguments.

use std::path::PathBuf;

/// Where the daemon is.
#[derive(Clone, Debug)]
pub struct Ctx {
    /// `--run-dir`: the folder of the daemon's sockets; `None`: the default one.
    pub run_dir: Option<PathBuf>,
}
