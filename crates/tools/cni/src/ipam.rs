//! Runs the address plugin (IPAM), which is found through `CNI_PATH`. It gets the environment and the configuration of
//! this plugin.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::{CniError, Code};

/// Runs the address plugin for `command`. Returns its result; `None` if it prints nothing.
///
/// # Errors
/// [`CniError::Delegated`] with the plugin's own error; another error if the plugin cannot be run.
pub fn run(kind: &str, command: &str, input: &Value) -> Result<Option<Value>, CniError> {
    let program = find(kind)?;
    let failed = |e: std::io::Error| CniError::new(Code::Io, format!("cannot run {}: {e}", program.display()));
    let mut child = Command::new(&program)
        .env("CNI_COMMAND", command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // An error here is ignored: if the address plugin does not get its input, the plugin reports that in its own
        // result.
        let _ = stdin.write_all(input.to_string().as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    let said = output.stdout.trim_ascii();
    let value = if said.is_empty() { None } else { Some(serde_json::from_slice::<Value>(said)) };
    match (output.status.success(), value) {
        (true, None) => Ok(None),
        (true, Some(Ok(value))) => Ok(Some(value)),
        (false, Some(Ok(error))) if error.get("code").is_some() => Err(CniError::Delegated(named(kind, error))),
        (true, Some(Err(e))) => Err(CniError::new(Code::Decode, format!("plugin {kind} did not return JSON: {e}"))),
        (false, _) => Err(CniError::new(Code::Io, format!("plugin {kind} failed: no message ({})", output.status))),
    }
}

/// Returns the plugin's own error with the plugin's name added.
fn named(kind: &str, mut error: Value) -> Value {
    let msg = error.get("msg").and_then(Value::as_str).unwrap_or("no reason given");
    error["msg"] = format!("the address plugin {kind}: {msg}").into();
    error
}

fn find(kind: &str) -> Result<PathBuf, CniError> {
    let path = std::env::var_os("CNI_PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(kind)).find(|file| file.is_file());
    found.ok_or_else(|| {
        let text = format!("ipam.type: no plugin {kind} in CNI_PATH ({})", path.to_string_lossy());
        let advice = "install the plugins (Debian: containernetworking-plugins), or correct the name";
        CniError::advised(Code::Config, text, advice)
    })
}
