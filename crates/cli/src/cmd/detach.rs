//! `netvale detach`: a port less on a switch.

use std::process::ExitCode;

use crate::{CliError, Ctx, out};

/// Detach a port from its switch.
///
/// What the port made goes with it: a TAP device is removed, a capture file is closed. A local program that has it open sees it
/// closed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The switch, e.g. vale0.
    pub switch: String,

    /// The port's name on it, as `netvale list` shows it.
    pub port: String,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or there is no such port.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    // `netvale list` shows vale0:a; both that and a will do.
    let port = args.port.strip_prefix(&format!("{}:", args.switch)).unwrap_or(&args.port);
    ctx.daemon()?.ask(|client| client.detach(&args.switch, port))?;
    out::line(format_args!("{}:{port} detached", args.switch))?;
    Ok(ExitCode::SUCCESS)
}
