//! Policies of the two namespaces' ports: VLANs, and a link with a delay of 50 ms.

use netvale_harness::net::NamespaceHost;
use serde_json::json;

use super::guide::{Figure, Guide};
use super::stage::{DemoDaemon, failed, run_on};
use crate::CliError;

const PING: [&str; 7] = ["-c", "3", "-i", "0.2", "-W", "1", "10.99.0.2"];

/// Moves one of two ports into another VLAN, joins the ports again, and delays a link. The configuration of the hosts
/// stays unchanged.
pub(super) fn policies(guide: &Guide, daemon: &DemoDaemon, hosts: &[NamespaceHost; 2]) -> Result<Figure, CliError> {
    guide.station("Policies, while frames pass: a VLAN separates the two hosts and joins them again")?;
    set(guide, daemon, &["port", "set", "vale0:nv0", "access", "10"])?;
    guide.command("ping -c 3 10.99.0.2")?;
    if let Ok(answered) = run_on(&hosts[0], "ping", &PING) {
        return Err(failed("separate two ports by a VLAN", &answered));
    }
    guide.output("no answer: nv1 is in VLAN 1")?;
    set(guide, daemon, &["port", "set", "vale0:nv1", "access", "10"])?;
    ping(guide, hosts)?;
    guide.station("A link with a delay, in netem's notation")?;
    set(guide, daemon, &["link", "vale0:nv0", "delay", "50ms"])?;
    let late = ping(guide, hosts)?;
    set(guide, daemon, &["link", "vale0:nv0", "off"])?;
    Ok(Figure { what: "ping over a link of 50 ms", value: format!("{late} ms"), json: json!(late.parse::<f64>().ok()) })
}

fn set(guide: &Guide, daemon: &DemoDaemon, words: &[&str]) -> Result<(), CliError> {
    guide.command(&format!("netvale {}", words.join(" ")))?;
    daemon.run(words).map(drop)
}

/// Pings the second host from the first. Returns the mean round-trip time in milliseconds, as text.
fn ping(guide: &Guide, hosts: &[NamespaceHost; 2]) -> Result<String, CliError> {
    guide.command("ping -c 3 10.99.0.2")?;
    let ping = run_on(&hosts[0], "ping", &PING)?;
    let summary = ping.lines().last().unwrap_or_default();
    guide.output(summary)?;
    Ok(summary.split('/').nth(4).unwrap_or("?").to_owned())
}
