//! TCP between two network namespaces, each with a TAP on the daemon's switch.

use std::time::Duration;

use netvale_control::types::{AttachParams, PortOptions};

use super::own::{Daemon, failed};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::error::{Result, Skip};
use crate::peers::iperf::{self, Iperf};
use crate::scenarios::{Scenario, Variant};
use crate::sys::netns::Netns;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "tap",
    about: "iperf3 TCP between two network namespaces, one stream",
    variants: &[Variant { name: "tcp", unit: Unit::Gbps, ..Variant::TWO_PORTS }],
    ours: Some(|| Box::new(Taps)),
};

/// Two TAPs on a switch.
pub struct Taps;

impl Contender for Taps {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "iperf3 TCP between two namespaces, each with a TAP on a VALE switch"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        iperf::available(env)
    }

    fn start(&self, _case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (client_core, server_core) = env.two_cores()?;
        let hub = Netns::new()?;
        let daemon = Daemon::start_in(&hub, server_core, "")?;
        let client = attached(&daemon, &hub, 1)?;
        let server = attached(&daemon, &hub, 2)?;
        let iperf = Iperf::start(client, server, "10.77.0.2", (client_core, server_core))?;
        let cores = format!("client {client_core}, server {server_core}, worker {server_core}");
        Ok(Box::new(Running { iperf: iperf.beside(daemon.worker.pid()), cores, _daemon: daemon, _hub: hub }))
    }
}

/// A namespace with a TAP of `daemon`, which runs in `hub`, and the address 10.77.0.`host`.
fn attached(daemon: &Daemon, hub: &Netns, host: u8) -> Result<Netns> {
    let (namespace, tap) = (Netns::new()?, format!("nv{host}"));
    let params = AttachParams { switch: "vale0".into(), port: format!("tap:{tap}"), options: PortOptions::default() };
    daemon.control()?.attach(params).map_err(|error| failed(&error))?;
    hub.ip(&format!("link set {tap} netns {}", namespace.path()))?;
    namespace.ip(&format!("addr add 10.77.0.{host}/24 dev {tap}"))?;
    namespace.ip(&format!("link set {tap} up"))?;
    Ok(namespace)
}

struct Running {
    iperf: Iperf,
    cores: String,
    // The TAPs go with the daemon.
    _daemon: Daemon,
    _hub: Netns,
}

impl Session for Running {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        self.iperf.measure(window)
    }

    fn cores(&self) -> String {
        self.cores.clone()
    }

    fn touched(&self) -> bool {
        true
    }
}
