//! `netvale demo`: a demonstration in under a minute.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::{CliContext, CliError};

mod stage;
mod tour;

/// Run a demonstration, in under a minute.
///
/// Shows TCP between two namespaces, pkt-gen across a switch and over a pipe, a capture that is read back, HTTP through
/// a gateway, and a table of the results. The demonstration has a daemon of its own, needs no root if user namespaces
/// are allowed, and removes everything at its end.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Seconds for each measurement.
    #[arg(long, value_name = "S", default_value = "3", value_parser = crate::values::seconds)]
    pub seconds: f64,

    /// Keep the capture in this file.
    #[arg(long, value_name = "FILE")]
    pub keep_capture: Option<PathBuf>,

    /// Print the figures as one JSON object instead of the tour.
    #[arg(long)]
    pub json: bool,

    /// Set if the command already runs inside the namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// A step fails.
pub fn run(args: &DemoArgs, _ctx: &CliContext) -> Result<ExitCode, CliError> {
    if args.inside { tour::run(args).map(|()| ExitCode::SUCCESS) } else { enter(args) }
}

/// Runs this program again in network, mount and process namespaces of its own. The program changes nothing outside
/// these namespaces, and the kernel removes them when the program ends.
fn enter(args: &DemoArgs) -> Result<ExitCode, CliError> {
    let failed = |e: std::io::Error| CliError::failed(format!("cannot start unshare(1): {e}"), "install util-linux");
    let me = std::env::current_exe().map_err(failed)?;
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare
        .args(["--net", "--mount-proc", "--pid", "--fork", "--kill-child=KILL", "--"])
        .arg(me)
        .args(["demo", "--inside"]);
    unshare.arg("--seconds").arg(args.seconds.to_string());
    if let Some(file) = &args.keep_capture {
        unshare.arg("--keep-capture").arg(file);
    }
    if args.json {
        unshare.arg("--json");
    }
    let status = unshare.status().map_err(failed)?;
    match status.code() {
        // The inner run has printed its error already, unless unshare itself failed.
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        None => {
            let what = format!("the demo was killed by signal {}", status.signal().unwrap_or(0));
            Err(CliError::failed(what, "start it again"))
        }
    }
}
