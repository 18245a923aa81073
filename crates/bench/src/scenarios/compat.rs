//! Unmodified programs: netmap's API and libpcap under `netvale run`, against programs of our own on the same ports.

mod roles;
mod sessions;

pub use roles::ROLES;

use super::{Scenario, Variant};
use crate::case::Case;
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::{pin, sys};
use sessions::{Receiving, Running, Sending};

/// The scenario. Over a switch bytes are left alone, as pkt-gen does; over a pipe the first line is written and read.
pub const SCENARIO: Scenario = Scenario {
    name: "compat",
    about: "programs for netmap and libpcap as they are, against ours on the same ports; sender, switch and receiver on two cores",
    variants: &[
        Variant { name: "netmap-vale-untouched", frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS },
        Variant { name: "netmap-pipe", frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS },
        Variant { name: "pcap-vale", frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS },
        Variant { name: "pcap-pipe", frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS },
    ],
    ours: Some(|| Box::new(UnderRun)),
};

fn is_pcap(case: &Case) -> bool {
    case.variant.starts_with("pcap")
}

fn over_pipe(case: &Case) -> bool {
    case.variant.ends_with("pipe")
}

/// Programs under `netvale run`.
pub struct UnderRun;

impl Contender for UnderRun {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "under `netvale run`: a netmap-API sender and receiver; a libpcap receiver of what a netvale program sends"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let how = if is_pcap(case) { (Sending::Own, Receiving::Pcap) } else { (Sending::Netmap, Receiving::Netmap) };
        Ok(Box::new(Running::on_daemon(case, env, how)?))
    }
}

/// Our own programs on the same ports: pkt-gen across the switch, the loops of the `pipe` scenario over a pipe.
#[derive(Clone, Copy, Debug)]
pub struct Native;

impl Contender for Native {
    fn name(&self) -> &str {
        "netvale-native"
    }

    fn about(&self) -> &str {
        "the same ports with our own API: the receiver (and sender) of `netvale pkt-gen`"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        Ok(Box::new(Running::on_daemon(case, env, (Sending::Own, Receiving::Own))?))
    }
}

/// The same libpcap program with the system's libpcap on a veth.
#[derive(Clone, Copy, Debug)]
pub struct SystemPcap;

impl Contender for SystemPcap {
    fn name(&self) -> &str {
        "pcap-veth"
    }

    fn about(&self) -> &str {
        "the same libpcap receiver with the system's libpcap on a veth, fed by an AF_PACKET sender"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name && is_pcap(case)
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        sys::need_root("network namespaces")?;
        sys::need_program("ip", "iproute2")?;
        pin::need(2, &env.cores)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        Ok(Box::new(Running::on_veth(case, env)?))
    }
}
