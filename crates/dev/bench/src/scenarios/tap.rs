//! TCP between two network namespaces, each with a TAP on the daemon's switch.

use super::*;
use crate::peers::iperf::{self, Iperf};

/// The scenario: iperf3 between two TAPs of a VALE switch.
pub const SCENARIO: Scenario = Scenario {
    name: "tap",
    about: "iperf3 TCP between two network namespaces, one stream",
    variants: variants![Variant { unit: Unit::Gbps, ..Variant::TWO_PORTS } => "tcp"],
    needs: &[iperf::NEEDS, TWO],
    start: |_, cores| start(cores),
};

fn start(cores: Cores) -> Result<Session> {
    let hub = Netns::new()?;
    let daemon = Daemon::start(Some(&hub), cores.1, "")?;
    let stations = [attached(&daemon, &hub, 1)?, attached(&daemon, &hub, 2)?];
    let iperf = Iperf::start(stations, "10.77.0.2", cores, vec![daemon.pid()])?;
    let words = format!("client on CPU {}, server on CPU {}, worker on CPU {}", cores.0, cores.1, cores.1);
    // The daemon removes its TAPs when it ends, so the daemon must run as long as the session.
    Ok(iperf.session(words).keeping(daemon).keeping(hub))
}

/// Creates a namespace with a TAP of `daemon`, which runs in `hub`, and the address 10.77.0.`host`.
fn attached(daemon: &Daemon, hub: &Netns, host: u8) -> Result<Netns> {
    let namespace = Netns::new()?;
    let tap = format!("nv{host}");
    daemon.attach(VALE, format!("tap:{tap}"), PortOptions::default())?;
    hub.ip(&format!("link set {tap} netns {}", namespace.path()))?;
    namespace.set_up(&tap, &format!("10.77.0.{host}/24"))?;
    Ok(namespace)
}
