//! `netvale detach`: detaches a port from its switch.

use crate::{CliContext, CliError, out};

/// Detach a port from its switch.
///
/// What the port created is removed: a TAP device is deleted, a capture file is closed. For a local program that has
/// the port open, the port closes.
#[derive(Debug, clap::Args)]
pub struct DetachArgs {
    /// The switch, e.g. vale0; or a port's full name as shown by `netvale list`: vale0:web, netmap:eth0.
    pub switch: String,

    /// The port's name on the switch.
    pub port: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or there is no such port.
pub fn run(args: &DetachArgs, ctx: &CliContext) -> Result<(), CliError> {
    let (switch, port) = match &args.port {
        // The port may be given with or without its switch: `vale0 a` or `vale0 vale0:a`.
        Some(port) => (&*args.switch, port.strip_prefix(&format!("{}:", args.switch)).unwrap_or(port)),
        None => args.switch.split_once(':').ok_or_else(|| {
            let name = &args.switch;
            CliError::usage(format!("{name} is not a port's full name"), format!("netvale detach SWITCH {name}"))
        })?,
    };
    ctx.daemon()?.ask(|client| client.detach(switch, port))?;
    out::line(format_args!("{switch}:{port} detached"))
}
