//! `netvale-cni`: a CNI plugin that puts containers on netvale's switches (CNI 0.3.0 to 1.1.0).
//!
//! A container runtime starts the plugin for each operation, with parameters in the environment and the network's
//! configuration as JSON on standard input, and reads a result or an error from standard output. Nothing is kept
//! between two runs: a container's port on the switch has a name that is made from the network, the container and the
//! interface ([`name`]), so that a later run finds what an earlier one left, whatever became of it.
//!
//! | module | what it is |
//! |---|---|
//! | [`call`] | the parameters |
//! | [`config`] | the network's configuration |
//! | [`result`] | results, as each version of the specification writes them |
//! | [`error`] | errors and their codes |
//! | [`commands`] | ADD, DEL, CHECK, GC, STATUS, VERSION |
//! | [`ipam`] | the plugin that hands out addresses |
//! | [`policies`] | VLANs, checks and rates of its port |
//! | [`kinds`] | the container's interface; a vhost-user socket in place of one |
//! | [`kata`] | the file that Kata reads |
//! | [`folder`] | folders of the daemon's user, in which root works |
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

/// Longest configuration in bytes.
const LONGEST: u64 = 1 << 20;

/// Runs the plugin: parameters, configuration and result are where the specification says.
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
    // Nobody is left to be told.
    let _ = writeln!(std::io::stdout(), "{text}");
    code
}

/// The configuration on standard input.
fn input() -> Result<Value, CniError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|e| CniError::new(Code::Io, format!("the configuration cannot be read: {e}")))?;
    if bytes.len() as u64 > LONGEST {
        return Err(CniError::new(Code::Decode, format!("the configuration is longer than {LONGEST} bytes")));
    }
    if bytes.trim_ascii().is_empty() {
        // Some runtimes say nothing when they ask for the version.
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes)
        .map_err(|e| CniError::new(Code::Decode, format!("the configuration is not JSON: {e}")))
}
