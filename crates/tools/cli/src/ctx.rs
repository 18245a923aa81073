//! The context that all subcommands get besides their own arguments.

use std::path::PathBuf;
use std::time::Duration;

use netvale::{Options, Port};
use netvale_control::client::{Client, ClientError, ClientErrorKind};
use netvale_control::dirs;

use crate::CliError;

/// The run directory of the daemon, and the definition of the command line.
#[derive(Clone, Debug)]
pub struct CliContext {
    /// Folder of the daemon's sockets, from `--run-dir`; `None` for the default folder.
    pub run_dir: Option<PathBuf>,
    /// The definition of the command line, from which manual pages and completions are made.
    pub definition: fn() -> clap::Command,
}

impl CliContext {
    /// Returns the folder of the daemon's sockets.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.run_dir.clone().unwrap_or_else(|| dirs::daemon_run_dir(dirs::CONTROL_SOCKET))
    }

    /// Opens a control connection to the daemon.
    ///
    /// # Errors
    /// [`CliError::unreachable`] if no daemon answers.
    pub fn daemon(&self) -> Result<DaemonClient, CliError> {
        let client = Client::connect(&self.dir()).map_err(to_cli)?;
        Ok(DaemonClient { client })
    }

    /// Opens a port of the daemon.
    ///
    /// # Errors
    /// As [`port_error`].
    pub fn open_port(&self, name: &str, options: Options) -> Result<Port, CliError> {
        let options = Options { run_dir: self.run_dir.clone(), ..options };
        Port::open_with(name, &options).map_err(|error| port_error(name, &error))
    }
}

/// A control connection whose errors have the command line's form.
#[derive(Debug)]
pub struct DaemonClient {
    client: Client,
}

impl DaemonClient {
    /// Sends one request and returns its result: `daemon.ask(Client::stats)`.
    ///
    /// # Errors
    /// [`CliError::refused`] with the daemon's message, or [`CliError::unreachable`] if the connection fails.
    pub fn ask<T>(&mut self, question: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, CliError> {
        question(&mut self.client).map_err(to_cli)
    }

    /// Returns the daemon's process id; `None` if it is not visible from this PID namespace.
    pub fn pid(&mut self) -> Option<u32> {
        self.client.daemon_pid()
    }

    /// Waits until the daemon closes the connection, as it does when it ends.
    ///
    /// # Errors
    /// The connection is still open after `limit`.
    pub fn wait_closed(self, limit: Duration) -> Result<(), CliError> {
        self.client.wait_closed(limit).map_err(to_cli)
    }
}

/// Converts an error of the control client to the command line's form.
pub fn to_cli(error: ClientError) -> CliError {
    let kind = match error.failure() {
        ClientErrorKind::Unreachable => CliError::unreachable,
        ClientErrorKind::Refused => CliError::refused,
        ClientErrorKind::Protocol => CliError::failed,
    };
    let hint = Some(error.hint()).filter(|hint| !hint.is_empty());
    kind(error.what(), hint.unwrap_or_else(|| "see the daemon's log".to_owned()))
}

/// Returns the error for a port that cannot be opened.
pub fn port_error(name: &str, error: &netvale::Error) -> CliError {
    let what = format!("cannot open {name}: {error}");
    match error {
        netvale::Error::Name(_) => CliError::usage(what, "`netvale attach --help` has examples of names"),
        netvale::Error::NoDaemon(why) => {
            CliError::unreachable(format!("cannot open {name}: {}", why.what()), why.hint())
        }
        netvale::Error::Refused { .. } => CliError::refused(what, "`netvale list` shows the existing ports"),
        netvale::Error::Device(_) | netvale::Error::Passthrough(_) | netvale::Error::Pci(_) => CliError::failed(
            what,
            "the guide (ptnet.md, in /usr/share/doc/netvale/guide) lists what devices in virtual machines require",
        ),
        _ => CliError::failed(what, "see the daemon's log"),
    }
}
