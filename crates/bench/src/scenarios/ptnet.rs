//! Guests on ptnet ports, played by a process on the same shared memory: the sender and the receiver on one core, the
//! switch on the other.

use netvale::Port;
use netvale_control::types::{AttachParams, PortOptions};

use super::own::{Daemon, failed};
use super::stations::Plan;
use super::traffic::SLOTS;
use super::vale::{Running, ports};
use super::vhost::Pairing;
use super::vhost::guests::Guests;
use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};

const SHORT: Variant = Variant { frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS };
/// Each the double of the one before.
const BATCHES: &[u32] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "ptnet",
    about: "guests on ptnet ports of a switch (played by a process on their memory), with and without virtio-net header, by batch; vhost beside it; a pipe passed through",
    variants: &[
        Variant { name: "guests", ..SHORT },
        Variant { name: "guests-header", ..SHORT },
        Variant { name: "guests-untouched", ..SHORT },
        Variant { name: "guests-large", unit: Unit::Gbps, frame_bytes: &[1500], ..SHORT },
        Variant { name: "batches", batch: BATCHES, ..SHORT },
        Variant { name: "pipe", ..SHORT },
        Variant { name: "pipe-untouched", ..SHORT },
    ],
    ours: Some(|| Box::new(Rings::Ptnet)),
};

/// Whether a peer's path from guest to guest is compared here.
#[must_use]
pub fn has_peers(case: &Case) -> bool {
    case.scenario == SCENARIO.name && case.variant == "guests"
}

/// The port whose rings are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rings {
    /// Rings of ptnet ports.
    Ptnet,
    /// Rings of local ports, which show what it costs to reach the others.
    Local,
}

impl Contender for Rings {
    fn name(&self) -> &str {
        match self {
            Rings::Ptnet => "netvale",
            Rings::Local => "netvale-local",
        }
    }

    fn about(&self) -> &str {
        match self {
            Rings::Ptnet => "ptnet ports on a VALE switch, one worker; a process plays both guests",
            Rings::Local => "local ports on a VALE switch, one worker",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name && (*self == Rings::Ptnet || has_peers(case))
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        let hdr_len = if case.variant == "guests-header" { 12 } else { 0 };
        let daemon = Daemon::start(cores.1, "")?;
        let open = |name: &str| match self {
            Rings::Ptnet if case.variant.starts_with("pipe") => passed_pipe(&daemon, name),
            Rings::Ptnet => guest(&daemon, name, hdr_len),
            Rings::Local => daemon.open(&format!("vale0:{name}"), SLOTS),
        };
        let ports = ports(Plan::of(case), open)?;
        Ok(Box::new(Running::start((case, hdr_len), cores, daemon, ports)?))
    }
}

/// A guest on a ptnet port of its own.
fn guest(daemon: &Daemon, name: &str, hdr_len: u32) -> Result<Port> {
    let socket = daemon.dir().join(format!("{name}.sock"));
    let options = PortOptions { name: Some(name.into()), slots: SLOTS, vnet_hdr: hdr_len, ..PortOptions::default() };
    let attach = AttachParams { switch: "vale0".into(), port: format!("ptnet:{}", socket.display()), options };
    daemon.control()?.attach(attach).map_err(|e| failed(&e))?;
    Port::as_guest(&socket, hdr_len).map_err(|e| failed(&e))
}

/// The sender is a guest at one end of a pipe, the receiver a program at the other.
fn passed_pipe(daemon: &Daemon, name: &str) -> Result<Port> {
    if name != "from0" {
        return daemon.open("netmap:bench}1", SLOTS);
    }
    let socket = daemon.dir().join("pipe.sock");
    let options = PortOptions { backend: Some("netmap:bench{1".into()), slots: SLOTS, ..PortOptions::default() };
    let attach = AttachParams { switch: String::new(), port: format!("ptnet:{}", socket.display()), options };
    daemon.control()?.attach(attach).map_err(|e| failed(&e))?;
    Port::as_guest(&socket, 0).map_err(|e| failed(&e))
}

/// Contenders of the scenarios with virtio that are measured beside ptnet, too.
pub fn virtio() -> Vec<Box<dyn Contender>> {
    vec![
        Box::new(Beside(Box::new(Guests::Both), "netvale-vhost")),
        Box::new(Beside(Box::new(Pairing::Dpdk), "dpdk-vhost")),
    ]
}

/// A contender of another scenario under a name of its own.
struct Beside(Box<dyn Contender>, &'static str);

impl Contender for Beside {
    fn name(&self) -> &str {
        self.1
    }

    fn about(&self) -> &str {
        self.0.about()
    }

    fn fits(&self, case: &Case) -> bool {
        has_peers(case)
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        self.0.available(env)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        // The names by which those scenarios know what to do: all that goes one way through mergeable queues.
        let case = Case { variant: "to-host mergeable".into(), ..case.clone() };
        self.0.start(&case, env)
    }
}
