//! What a newcomer gets on a machine that others use, too: programs with default options, nothing pinned, beside busy
//! threads.
//!
//! All programs of a contender run all the time while it is measured; the scheduler shares the CPUs out among them and
//! the foreign threads. Ours are the commands of the [performance figures](../../../../docs/reference/performance.md),
//! typed as they stand there.

mod programs;

use std::time::Duration;

use netvale::{Options, Port};

use self::programs::{PktGen, Up};
use super::latency::{End, ends};
use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::Disturbance;
use crate::error::{Result, Skip};
use crate::peers::{frames, pingpong};
use crate::scenarios::own::failed;
use crate::{crowd, sys};

const FOREIGN: Variant = Variant { frame_bytes: &[60], foreign: &[0, 1, 2, 4, 8], ..Variant::TWO_PORTS };
const PING: Variant = Variant { unit: Unit::Micros, batch: &[1], ..FOREIGN };

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "crowded",
    about: "default options, nothing pinned, beside busy foreign threads: frames received over a switch and a pipe, and a ping-pong of sleeping programs",
    variants: &[
        Variant { name: "switch", ..FOREIGN },
        Variant { name: "pipe", ..FOREIGN },
        Variant { name: "ping", ..PING },
        Variant { name: "ping-p99", ..PING },
    ],
    ours: Some(|| Box::new(Newcomer)),
};

/// Netvale as it comes.
pub struct Newcomer;

impl Contender for Newcomer {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "`netvale up` and two `netvale pkt-gen`, or a ping-pong on two of its ports"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, _env: &Env) -> std::result::Result<(), Skip> {
        sys::netvale().map(drop)
    }

    fn start(&self, case: &Case, _env: &Env) -> Result<Box<dyn Session>> {
        let daemon = Up::start()?;
        let session: Box<dyn Session> = if case.unit == Unit::Micros {
            Box::new(Pinging::start(case, daemon)?)
        } else {
            Box::new(Generating::start(case, daemon)?)
        };
        crowd::beside(case, session)
    }
}

/// Two pkt-gen, one sends, the other receives.
struct Generating {
    case: Case,
    sender: PktGen,
    receiver: PktGen,
    daemon: Up,
}

impl Generating {
    fn start(case: &Case, daemon: Up) -> Result<Self> {
        let (from, to) = if case.is_crowded("pipe") { ("netmap:p{1", "netmap:p}1") } else { ("vale0:tx", "vale0:rx") };
        let receiver = PktGen::start(&daemon, to, "rx", case.frame_bytes)?;
        let sender = PktGen::start(&daemon, from, "tx", case.frame_bytes)?;
        receiver.wait_for_frames()?;
        let mut this = Self { case: case.clone(), sender, receiver, daemon };
        this.pause()?;
        Ok(this)
    }
}

impl Session for Generating {
    fn resume(&mut self) -> Result<()> {
        self.daemon.child.thaw()?;
        self.receiver.child.thaw()?;
        self.sender.child.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.sender.child.freeze()?;
        self.receiver.child.freeze()?;
        self.daemon.child.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let rate = self.receiver.rate(window)?;
        Ok(Sample::new(frames::in_unit(&self.case, rate), Disturbance::default()))
    }

    fn cores(&self) -> String {
        "sender, daemon and receiver not pinned".into()
    }

    fn touched(&self) -> bool {
        false
    }

    fn processes(&self) -> Vec<u32> {
        [&self.sender.child, &self.receiver.child, &self.daemon.child].map(|child| child.pid()).to_vec()
    }
}

/// Two threads with a port each, which sleep until a frame comes.
struct Pinging {
    near: End,
    far: End,
    // After the ports.
    daemon: Up,
}

impl Pinging {
    fn start(case: &Case, daemon: Up) -> Result<Self> {
        let options = Options { run_dir: Some(daemon.dir()), ..Options::default() };
        let open = |name: &str| Port::open_with(name, &options).map_err(|error| failed(&error));
        let (near, far) = ends(open, case.frame_bytes)?;
        daemon.child.freeze()?;
        Ok(Self { near, far, daemon })
    }
}

impl Session for Pinging {
    fn resume(&mut self) -> Result<()> {
        self.daemon.child.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.daemon.child.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let processes = self.processes();
        pingpong::play("netvale", &mut self.near, &mut self.far, None, &processes, window)
    }

    fn cores(&self) -> String {
        "two threads and the daemon, not pinned".into()
    }

    fn touched(&self) -> bool {
        true
    }

    fn processes(&self) -> Vec<u32> {
        vec![std::process::id(), self.daemon.child.pid()]
    }
}
