//! Two guests on one switch: a process with two virtio ports, each a guest's, sends back through the switch what came
//! to it.

use netvale_control::types::{AttachParams, PortOptions};

use super::super::own::{Daemon, failed};
use super::super::{Scenario, Variant};
use super::process::Process;
use super::roles::{End, Work};
use super::session::Pair;
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::peers::ovs::Ovs;
use crate::peers::testpmd::{self, Place};

const SHORT: Variant = Variant { frame_bytes: &[64], ..Variant::TWO_PORTS };
const LONG: Variant = Variant { frame_bytes: &[1518], unit: Unit::Gbps, ..Variant::TWO_PORTS };

/// The scenario, by the drivers' path. The figure is both directions together.
pub const SCENARIO: Scenario = Scenario {
    name: "guests",
    about: "guest, switch, guest: two virtio ports in one process, a learning switch on the other core; both directions",
    variants: &[
        Variant { name: "mergeable", ..SHORT },
        Variant { name: "in-order", ..SHORT },
        Variant { name: "mergeable", ..LONG },
        Variant { name: "in-order", ..LONG },
    ],
    ours: Some(|| Box::new(Guests::OurSwitch)),
};

/// The drivers that are connected to our switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guests {
    /// DPDK's.
    OurSwitch,
    /// Ours.
    Both,
}

impl Contender for Guests {
    fn name(&self) -> &str {
        match self {
            Guests::OurSwitch => "netvale",
            Guests::Both => "netvale-both",
        }
    }

    fn about(&self) -> &str {
        match self {
            Guests::OurSwitch => "a VALE switch with two vhost ports; testpmd with two virtio-user ports",
            Guests::Both => "a VALE switch with two vhost ports; our driver twice",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        testpmd::available(env, 2)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (ports_core, switch_core) = env.two_cores()?;
        let place = Place::new(1, 0)?;
        let daemon = Daemon::start(switch_core, &format!("allow_dirs = [{:?}]\n", place.path()))?;
        let sockets = ["v0", "v1"].map(|name| place.file(name));
        for socket in &sockets {
            let (switch, port) = ("vale0".to_owned(), format!("vhost:{socket}"));
            let attach = AttachParams { switch, port, options: PortOptions::default() };
            daemon.control()?.attach(attach).map_err(|e| failed(&e))?;
        }
        let ports = match self {
            Guests::Both => Process::Ours(End::Driver.spawn(case, &sockets, Work::Between, ports_core)?),
            Guests::OurSwitch => {
                let kind = if case.variant == "in-order" { Ovs::InOrder } else { Ovs::Mergeable };
                let mut testpmd = kind.ports(case, ports_core, &sockets, &place)?;
                testpmd.command("start tx_first 16")?;
                Process::Dpdk(testpmd, None)
            }
        };
        let words = format!("switch {switch_core}, both guests {ports_core}");
        let processes = [ports, Process::Switch(daemon)];
        Ok(Box::new(Pair::settled(case, processes, words, Box::new(place))?))
    }
}
