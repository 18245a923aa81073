//! The e1000: in guests that are really booted, as the paper's figure has it, and between guests that a process plays.

pub mod roles;

use netvale_control::types::{AttachParams, PortOptions};

use super::guest;
use super::guest::interface::{Interface, ROWS, Row};
use super::own::{Daemon, failed};
use super::vhost::process::Process;
use super::vhost::session::Pair;
use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::sys::worker::Worker;

const SHORT: Variant = Variant { frame_bytes: &[60], batch: &[32], ..Variant::TWO_PORTS };
const SMALL: Variant = Variant { unit: Unit::PerSecond, frame_bytes: &[60], ..Variant::TWO_PORTS };
const LARGE: Variant = Variant { unit: Unit::Gbps, frame_bytes: &[1502], ..Variant::TWO_PORTS };
const STREAM: Variant = Variant { unit: Unit::Gbps, ..Variant::TWO_PORTS };

/// The scenario: the paper's columns from a guest to the host, datagrams the other way and between guests; then guests
/// that are played.
pub const SCENARIO: Scenario = Scenario {
    name: "e1000",
    about: "the e1000 in a booted guest (QEMU, emulated), by the paper's rows BASE, ITR, ITR+SC, CSB, CSB+ITR; and played by a process",
    variants: &[
        Variant { name: "udp-small", ..SMALL },
        Variant { name: "udp-large", ..LARGE },
        Variant { name: "udp-small-tap", ..SMALL },
        Variant { name: "udp-large-tap", ..LARGE },
        Variant { name: "tcp", ..STREAM },
        Variant { name: "tcp-wide", ..STREAM },
        Variant { name: "tcp-rr", unit: Unit::PerSecond, ..STREAM },
        Variant { name: "udp-small-in", ..SMALL },
        Variant { name: "udp-large-in", ..LARGE },
        Variant { name: "udp-small-between", ..SMALL },
        Variant { name: "udp-large-between", ..LARGE },
        Variant { name: "played", ..SHORT },
        Variant { name: "played-large", unit: Unit::Gbps, frame_bytes: &[1502], ..SHORT },
    ],
    ours: Some(|| Box::new(Ours)),
};

fn is_played(case: &Case) -> bool {
    case.variant.starts_with("played")
}

/// The best netvale configuration: status block, and moderation where there are interrupts.
pub struct Ours;

const BEST: Interface = Interface::E1000(Row::CsbItr);

impl Contender for Ours {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        BEST.about()
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        if is_played(case) {
            return Played::Csb.start(case, env);
        }
        guest::available(env)?;
        guest::start((BEST, BEST.name(BEST)), case, env)
    }
}

/// The other rows, QEMU's own card, and virtio-net.
pub fn booted() -> Vec<Box<dyn Contender>> {
    let rows = ROWS.into_iter().map(Interface::E1000).filter(|row| *row != BEST);
    let others = [Interface::QemuE1000, Interface::Vhost];
    rows.chain(others).map(|interface| Box::new(Beside(interface)) as Box<dyn Contender>).collect()
}

/// A guest with another interface.
struct Beside(Interface);

impl Contender for Beside {
    fn name(&self) -> &str {
        self.0.name(BEST)
    }

    fn about(&self) -> &str {
        self.0.about()
    }

    fn fits(&self, case: &Case) -> bool {
        let reaches = self.0.is_ours() || !case.variant.ends_with("-between");
        case.scenario == SCENARIO.name && !is_played(case) && reaches
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        guest::available(env)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        guest::start((self.0, self.0.name(BEST)), case, env)
    }
}

/// Packets that may wait with Send Combining.
const COMBINE: u32 = 256;

/// The way in which the driver tells the card of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Played {
    /// By TDT, each time.
    Base,
    /// By TDT, when what was told before is sent.
    Combining,
    /// By the status block.
    Csb,
}

impl Contender for Played {
    fn name(&self) -> &str {
        match self {
            Played::Base => "netvale-base",
            Played::Combining => "netvale-sc",
            Played::Csb => "netvale",
        }
    }

    fn about(&self) -> &str {
        match self {
            Played::Base => "e1000 ports on a VALE switch; the driver writes TDT for each batch",
            Played::Combining => "the same with Send Combining",
            Played::Csb => "the same with the status block",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name && is_played(case)
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (guests_core, switch_core) = env.two_cores()?;
        let daemon = Daemon::start(switch_core, "")?;
        let paths = ["e0", "e1"].map(|name| daemon.dir().join(name).display().to_string());
        for path in &paths {
            let (switch, port) = ("vale0".to_owned(), format!("e1000:{path}"));
            let attach = AttachParams { switch, port, options: PortOptions::default() };
            daemon.control()?.attach(attach).map_err(|e| failed(&e))?;
        }
        let combine = if *self == Played::Combining { COMBINE } else { 0 };
        let (frame_bytes, burst) = (case.frame_bytes, case.batch.clamp(1, netvale_port::BATCH as u32));
        let task = roles::Task { paths, csb: *self == Played::Csb, combine, frame_bytes, burst };
        let guests = Process::Ours(Worker::spawn(roles::GUESTS, guests_core, &task)?);
        let words = format!("switch {switch_core}, both guests {guests_core}");
        Ok(Box::new(Pair::settled(case, [guests, Process::Switch(daemon)], words, Box::new(()))?))
    }
}
