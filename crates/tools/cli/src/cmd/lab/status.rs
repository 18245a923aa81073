//! The state of a running lab, and its output for `netvale lab status`.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use netvale_gateway::control;
use netvale_gateway::control::call::GatewayControl;
use netvale_gateway::control::message::ControlRequest;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::gateways::{port_name, texts};
use crate::kinds::member::MemberSocket;
use crate::{CliError, grid, out};

/// The state of a lab, which `netvale lab up` writes for the other commands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LabState {
    /// The process of `netvale lab up`.
    pub pid: i32,
    /// Switches with gateways.
    pub gateways: Vec<String>,
    pub members: Vec<MemberState>,
}

/// A member's part of the state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MemberState {
    pub name: String,
    pub switch: String,
    pub address: Option<Ipv4Addr>,
    /// PID of the member's first process.
    pub pid: i32,
    /// How the member's program is connected; `None` if the member is in namespaces.
    pub socket: Option<MemberSocket>,
    pub command: Vec<String>,
    /// The file with the output of the member's command.
    pub log: PathBuf,
}

impl MemberState {
    /// Returns whether the member's first process still runs.
    pub fn runs(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // In the file, the process's state follows the program's name, which is in parentheses. `Z` means a zombie.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }
}

/// Returns the published ports of a switch's gateway; `None` if the gateway does not answer.
pub(super) fn published(dir: &Path, switch: &str) -> Option<Vec<String>> {
    let mut gateway = GatewayControl::connect(&control::path_in(dir, &port_name(switch))).ok()?;
    Some(texts(&gateway.ask(&ControlRequest::Published).ok()?, "published"))
}

/// Prints members and published ports.
///
/// # Errors
/// Standard output is closed.
pub(super) fn print(dir: &Path, state: &LabState, as_json: bool) -> Result<(), CliError> {
    let of = |switch: &String| published(dir, switch).unwrap_or_default();
    let ports: Vec<(&String, Vec<String>)> = state.gateways.iter().map(|switch| (switch, of(switch))).collect();
    if as_json {
        let members = state.members.iter().map(|member| {
            let mut value = json!(member);
            value["runs"] = member.runs().into();
            value
        });
        let published: serde_json::Map<_, _> = ports.into_iter().map(|(at, list)| (at.clone(), list.into())).collect();
        return out::json(&json!({
            "run_dir": dir, "members": members.collect::<Vec<_>>(), "published": published,
        }));
    }
    let row = |member: &MemberState| {
        let address = member.address.map(|address| address.to_string()).unwrap_or_default();
        let state = if member.runs() { "runs" } else { "ended" };
        let words = [&member.name, &member.switch, &address, state, &member.command.join(" ")];
        words.map(str::to_owned)
    };
    let heads = ["MEMBER", "SWITCH", "ADDRESS", "STATE", "COMMAND"].map(|head| (head, grid::Align::Left));
    out::text(grid::render_within(heads, state.members.iter().map(row), &["COMMAND"], out::width()))?;
    ports.iter().flat_map(|(_, list)| list).try_for_each(|rule| out::line(format_args!("published: {rule}")))
}
