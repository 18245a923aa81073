//! `netvale-cni` connects containers to netvale's switches, as a CNI plugin (CNI 0.3.0 to 1.1.0) and as a plugin of
//! netavark, podman's network stack.
//!
//! A container runtime starts the plugin for each operation, and reads a result or an error, as JSON, from standard
//! output. A CNI runtime passes the parameters in the environment and the network's configuration on standard input.
//! netavark passes the operation as the first argument, which distinguishes it from CNI. The plugin keeps no state
//! between runs: the name of a container's port is derived from the network, the container and the interface
//! ([`name`]), so a later run finds the port that an earlier run has created.
//!
//! | module | contents |
//! |---|---|
//! | [`call`] | CNI's parameters |
//! | [`config`] | the network's configuration |
//! | [`result`] | results in the format of each version of the specification |
//! | [`error`] | errors and their codes |
//! | [`commands`] | ADD, DEL, CHECK, GC, STATUS, VERSION |
//! | [`netavark`] | netavark's operations: create, setup, teardown, info |
//! | [`attachment`] | attaching and detaching a container's port |
//! | [`ipam`] | the address plugin |
//! | [`policies`] | VLANs, address checks and rate limits of the port |
//! | [`kinds`] | the container's interface, or a vhost-user socket in its place |
//! | [`kata`] | the file that describes a sandbox's devices to Kata Containers |
//! | [`folder`] | safe access, as root, to folders of the daemon's user |
//! | [`name`] | names of ports |

pub mod attachment;
pub mod call;
pub mod commands;
pub mod config;
pub mod error;
pub mod folder;
pub mod ipam;
pub mod kata;
pub mod kinds;
pub mod name;
pub mod netavark;
pub mod policies;
pub mod result;

use std::io::{Read, Write};
use std::process::ExitCode;

use serde_json::Value;

use call::NEWEST;
use error::{CniError, Code};

/// Maximum length of a configuration in bytes.
const LONGEST: u64 = 1 << 20;

/// Runs the plugin. Without arguments, it acts as a CNI plugin, otherwise as a plugin of netavark.
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let done = if words.is_empty() { by_cni() } else { netavark::run(&words, input) };
    let (text, code) = match done {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(result)) => (result, ExitCode::SUCCESS),
        Err(error) => (error, ExitCode::FAILURE),
    };
    // An error is ignored, since it could be reported only on standard output, too.
    let _ = writeln!(std::io::stdout(), "{text}");
    code
}

/// Carries out the operation that the environment requests.
fn by_cni() -> Result<Option<Value>, Value> {
    let mut version = NEWEST.to_owned();
    let done = input().and_then(|input| {
        let said = input.get("cniVersion").and_then(Value::as_str);
        version = said.unwrap_or(&version).to_owned();
        commands::run(&input)
    });
    done.map_err(|error| error.json(&version))
}

/// Reads the configuration from standard input.
fn input() -> Result<Value, CniError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|e| CniError::new(Code::Io, format!("cannot read the configuration: {e}")))?;
    if bytes.len() as u64 > LONGEST {
        return Err(CniError::new(Code::Decode, format!("the configuration is longer than {LONGEST} bytes")));
    }
    if bytes.trim_ascii().is_empty() {
        // Some runtimes send no configuration with VERSION.
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes)
        .map_err(|e| CniError::new(Code::Decode, format!("the configuration is not JSON: {e}")))
}
