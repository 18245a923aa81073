//! Frames and TCP between two hosts over VXLAN, and what encapsulation costs a frame beside the system call.

pub mod encapsulate;
mod frames;
mod hosts;

use netvale_control::types::PortOptions;

use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::peers::across::Stream;
use crate::peers::{iperf, underlay};
use crate::scenarios::{Scenario, Variant};
use crate::sys::netns::Netns;
use encapsulate::Encapsulate;
use frames::Frames;
use hosts::Hosts;

const SHORT: Variant = Variant { frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS };
/// TCP's variant.
const TCP: &str = "tcp";
/// The variant of a single thread.
const ENCAPSULATE: &str = "encapsulate";

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "vxlan",
    about: "frames and TCP between two hosts' switches over VXLAN, and what encapsulation costs beside the system call",
    variants: &[
        Variant { name: "frames", ..SHORT },
        Variant { name: underlay::CUT, ..SHORT },
        Variant { name: TCP, unit: Unit::Gbps, ..Variant::TWO_PORTS },
        Variant { name: ENCAPSULATE, unit: Unit::Nanos, ..SHORT },
    ],
    ours: Some(|| Box::new(Vxlan)),
};

/// Switches with tunnels.
struct Vxlan;

impl Contender for Vxlan {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "a VALE switch with a VXLAN tunnel on each of two hosts"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        match case.variant.as_str() {
            ENCAPSULATE => return Ok(Box::new(Encapsulate::start(case, cores.0)?)),
            TCP => iperf::available(env)?,
            _ => underlay::available()?,
        }
        let hosts = Hosts::start(case, cores)?;
        if case.variant == TCP {
            let stations = [attached(&hosts, 0)?, attached(&hosts, 1)?];
            Ok(Box::new(Stream::start(hosts, stations, cores)?.with("tap", "gro")))
        } else {
            Ok(Box::new(Frames::start(case, hosts, cores)?))
        }
    }
}

/// A namespace with a TAP of a host's daemon.
fn attached(hosts: &Hosts, host: usize) -> Result<Netns> {
    let namespace = Netns::new()?;
    hosts.attach(host, "tap:nv0", PortOptions { gro: true, ..PortOptions::default() })?;
    hosts.namespace(host).ip(&format!("link set nv0 netns {}", namespace.path()))?;
    underlay::set_up_station(&namespace, host, "nv0")?;
    Ok(namespace)
}
