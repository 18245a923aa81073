//! `netvale detach`: detaches a port from its switch.

use std::process::ExitCode;

use crate::{CliError, Ctx, out};

/// Detach a port from its switch.
///
/// What the port created ends with it: a TAP device is removed, a capture file is closed. A local program that has the
/// port open sees it closed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The switch, e.g. vale0; or a port's full name, as `netvale list` shows it: vale0:web, netmap:eth0.
    pub switch: String,

    /// The port's name on the switch.
    pub port: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or there is no such port.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let (switch, port) = match &args.port {
        // Both `vale0 a` and `vale0 vale0:a` are accepted.
        Some(port) => (&*args.switch, port.strip_prefix(&format!("{}:", args.switch)).unwrap_or(port)),
        None => args.switch.split_once(':').ok_or_else(|| {
            let name = &args.switch;
            CliError::usage(format!("{name} alone names no port"), format!("netvale detach SWITCH {name}"))
        })?,
    };
    ctx.daemon()?.ask(|client| client.detach(switch, port))?;
    out::line(format_args!("{switch}:{port} detached"))?;
    Ok(ExitCode::SUCCESS)
}
