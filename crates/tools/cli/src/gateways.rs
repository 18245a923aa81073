//! Running gateways: where their control sockets are, and requests to them.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use netvale_control::dirs;
use netvale_gateway::control;
use netvale_gateway::control::call::{ControlCallError, GatewayControl};
use netvale_gateway::control::message::ControlRequest;
use rustix::fs::Access;
use serde_json::Value;

use crate::{CliContext, CliError};

/// What the commands for a running gateway take.
#[derive(Debug, clap::Args)]
pub struct GatewayChoice {
    /// The gateway's switch, or its port's whole name; without one, the port is called gateway.
    #[arg(value_name = "SWITCH[:PORT]")]
    port: String,

    /// The gateway's control socket, as given to `netvale gateway --control`.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Returns the full name of a gateway's port: `port` itself, or `port:gateway` if it is only a switch.
#[must_use]
pub fn port_name(port: &str) -> String {
    if port.contains(':') { port.to_owned() } else { format!("{port}:gateway") }
}

/// Returns the path of a new gateway's control socket: in the daemon's run directory or, if this user may not write
/// there, in the user's own run directory.
///
/// # Errors
/// The user's own directory cannot be created, or belongs to another user.
pub fn new_path(ctx: &CliContext, name: &str) -> Result<PathBuf, CliError> {
    let dir = ctx.dir();
    if rustix::fs::access(&dir, Access::WRITE_OK).is_ok() {
        return Ok(control::path_in(&dir, name));
    }
    let own = dirs::default_run_dir();
    let failed = |why: String| CliError::failed(why, "name the socket with --control PATH");
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&own)
        .map_err(|error| failed(format!("cannot create {} for the control socket: {error}", own.display())))?;
    if dirs::is_foreign(&own) {
        return Err(failed(format!("{} belongs to another user", own.display())));
    }
    Ok(control::path_in(&own, name))
}

/// A connection to a running gateway, whose errors have the command line's form.
pub struct GatewayCaller(GatewayControl);

impl GatewayChoice {
    /// Connects to the gateway.
    ///
    /// # Errors
    /// [`CliError::unreachable`] if the gateway does not answer.
    pub fn connect(&self, ctx: &CliContext) -> Result<GatewayCaller, CliError> {
        let path = self.control.clone().unwrap_or_else(|| known_path(ctx, &port_name(&self.port)));
        GatewayControl::connect(&path).map(GatewayCaller).map_err(to_cli)
    }
}

fn known_path(ctx: &CliContext, name: &str) -> PathBuf {
    let path = control::path_in(&ctx.dir(), name);
    let own = control::path_in(&dirs::default_run_dir(), name);
    if is_there(&path) || !is_there(&own) { path } else { own }
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

impl GatewayCaller {
    /// Sends a request, and returns the answer's object.
    ///
    /// # Errors
    /// [`CliError::refused`] with the gateway's message, or [`CliError::failed`] if the connection ends.
    pub fn ask(&mut self, request: &ControlRequest) -> Result<Value, CliError> {
        self.0.ask(request).map_err(to_cli)
    }

    /// Returns the next line; `None` once the gateway has ended.
    ///
    /// # Errors
    /// The connection fails.
    pub fn next_line(&mut self) -> Result<Option<String>, CliError> {
        self.0.next_line().map_err(to_cli)
    }
}

fn to_cli(error: ControlCallError) -> CliError {
    let what = error.to_string();
    match error {
        ControlCallError::Unreachable { .. } => {
            CliError::unreachable(what, "start one with `netvale gateway SWITCH ADDRESSES`, or name its --control PATH")
        }
        ControlCallError::Refused(_) => match what.rsplit_once("; ") {
            Some((what, next)) => CliError::refused(what, next),
            None => CliError::refused(what, "see the gateway's log"),
        },
        ControlCallError::Broken { .. } => CliError::failed(what, "see the gateway's log"),
    }
}

/// Returns the strings in the answer's array `list`; empty if there is no such array.
#[must_use]
pub fn texts(answer: &Value, list: &str) -> Vec<String> {
    let list = answer.get(list).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateways_words_become_an_error_of_two_lines() {
        let error = to_cli(ControlCallError::Refused("no rule; a, b; list the rules".into()));
        assert_eq!((error.to_string().as_str(), error.next(), error.code()), ("no rule; a, b", "list the rules", 4));
    }

    #[test]
    fn a_gateways_port_is_called_gateway_unless_it_is_named() {
        assert_eq!((port_name("vale0").as_str(), port_name("vale0:out").as_str()), ("vale0:gateway", "vale0:out"));
    }
}
