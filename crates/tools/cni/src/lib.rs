//! `netvale-cni`: puts containers on netvale's switches, as a CNI plugin (CNI 0.3.0 to 1.1.0) and as a plugin of
//! netavark, podman's network stack.
//!
//! A container runtime starts the plugin for each operation, and reads a result or an error, as JSON, from standard
//! output. By CNI, the parameters are in the environment and the network's configuration is on standard input; netavark
//! gives an operation as the first argument, by which the two are told apart. The plugin keeps no state between runs: a
//! container's port on the switch is named after the network, the container and the interface ([`name`]), so that a
//! later run finds the remains of an earlier one in any case.
//!
//! | module | what it is |
//! |---|---|
//! | [`call`] | CNI's parameters |
//! | [`config`] | the network's configuration |
//! | [`result`] | results in the format of each version of the specification |
//! | [`error`] | errors and their codes |
//! | [`commands`] | ADD, DEL, CHECK, GC, STATUS, VERSION |
//! | [`netavark`] | the same for netavark: create, setup, teardown, info |
//! | [`attachment`] | a container's port, made and removed |
//! | [`ipam`] | the address plugin |
//! | [`policies`] | VLANs, checks and rates of the port |
//! | [`kinds`] | the container's interface, or a vhost-user socket in its place |
//! | [`kata`] | the file that describes a sandbox's devices to Kata Containers |
//! | [`folder`] | folders of the daemon's user in which root works |
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

/// Maximum bytes of a configuration.
const LONGEST: u64 = 1 << 20;

/// Runs the plugin with parameters, configuration and result as CNI's specification or netavark defines.
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let done = if words.is_empty() { by_cni() } else { netavark::run(&words, input) };
    let (text, code) = match done {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(result)) => (result, ExitCode::SUCCESS),
        Err(error) => (error, ExitCode::FAILURE),
    };
    // An error here could not be reported to anyone.
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
    read.map_err(|e| CniError::new(Code::Io, format!("the configuration cannot be read: {e}")))?;
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
