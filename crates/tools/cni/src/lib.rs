//! `netvale-cni`: a CNI plugin that puts containers on netvale's switches (CNI 0.3.0 to 1.1.0).
//!
//! A container runtime starts the plugin for each operation. Parameters are in the environment, the network's
//! configuration is JSON on standard input, and the result or error goes to standard output. The plugin keeps no state
//! between runs. A container's port is named after the network, the container and the interface ([`name`]), so that a
//! later run always finds what an earlier one left.
//!
//! | module | what it is |
//! |---|---|
//! | [`call`] | the parameters |
//! | [`config`] | the network's configuration |
//! | [`result`] | results in the format of each version of the specification |
//! | [`error`] | errors and their codes |
//! | [`commands`] | ADD, DEL, CHECK, GC, STATUS, VERSION |
//! | [`ipam`] | the address plugin |
//! | [`policies`] | VLANs, checks and rates of the port |
//! | [`kinds`] | the container's interface, or a vhost-user socket in its place |
//! | [`kata`] | the file for Kata |
//! | [`folder`] | folders of the daemon's user in which root works |
//! | [`name`] | names of ports |

pub mod call;
pub mod commands;
pub mod config;
pub mod error;
pub mod folder;
pub mod ipam;
pub mod kata;
pub mod kinds;
pub mod name;
pub mod policies;
pub mod result;

use std::io::{Read, Write};
use std::process::ExitCode;

use serde_json::Value;

use call::NEWEST;
use error::{CniError, Code};

/// Maximum bytes of a configuration.
const LONGEST: u64 = 1 << 20;

/// Runs the plugin with parameters, configuration and result as the specification defines.
pub fn main() -> ExitCode {
    let mut version = NEWEST.to_owned();
    let done = input().and_then(|input| {
        let said = input.get("cniVersion").and_then(Value::as_str);
        version = said.unwrap_or(&version).to_owned();
        commands::run(&input)
    });
    let (text, code) = match done {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(result)) => (result, ExitCode::SUCCESS),
        Err(error) => (error.json(&version), ExitCode::FAILURE),
    };
    // There is no one to whom an error here could be reported.
    let _ = writeln!(std::io::stdout(), "{text}");
    code
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
