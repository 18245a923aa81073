//! The e1000: guests on a switch, played by a process that drives their cards.

pub mod roles;

use netvale_control::types::{AttachParams, PortOptions};

use super::own::{Daemon, failed};
use super::vhost::process::Process;
use super::vhost::session::Pair;
use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::sys::worker::Worker;

const SHORT: Variant = Variant { frame_bytes: &[60], batch: &[32], ..Variant::TWO_PORTS };

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "e1000",
    about: "guest, switch, guest by e1000 cards that a process drives: each batch a register, Send Combining, status block",
    variants: &[
        Variant { name: "played", ..SHORT },
        Variant { name: "played-large", unit: Unit::Gbps, frame_bytes: &[1502], ..SHORT },
    ],
    ours: Some(|| Box::new(Row::Csb)),
};

/// Packets that may wait with Send Combining.
const COMBINE: u32 = 256;

/// How the driver tells the card of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// By TDT, each time.
    Base,
    /// By TDT, when what was told before is sent.
    Combining,
    /// By the status block.
    Csb,
}

impl Contender for Row {
    fn name(&self) -> &str {
        match self {
            Row::Base => "netvale-base",
            Row::Combining => "netvale-sc",
            Row::Csb => "netvale",
        }
    }

    fn about(&self) -> &str {
        match self {
            Row::Base => "e1000 ports on a VALE switch; the driver writes TDT for each batch",
            Row::Combining => "the same with Send Combining",
            Row::Csb => "the same with the status block",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name && case.variant.starts_with("played")
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
        let combine = if *self == Row::Combining { COMBINE } else { 0 };
        let (frame_bytes, burst) = (case.frame_bytes, case.batch.clamp(1, netvale_port::BATCH as u32));
        let task = roles::Task { paths, csb: *self == Row::Csb, combine, frame_bytes, burst };
        let guests = Process::Ours(Worker::spawn(roles::GUESTS, guests_core, &task)?);
        let words = format!("switch {switch_core}, both guests {guests_core}");
        Ok(Box::new(Pair::settled(case, [guests, Process::Switch(daemon)], words, Box::new(()))?))
    }
}
