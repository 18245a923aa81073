//! The rates that a new user gets on a machine that other programs also use: programs with default options and without
//! pinning, beside busy threads.
//!
//! All programs of a contender run throughout the measurement, and the scheduler shares the CPUs among them and the
//! foreign threads. netvale's programs are the commands of the [performance
//! figures](../../../../docs/reference/performance.md), exactly as written there.

mod programs;

use self::programs::{PktGen, Up};
use super::latency::ends;
use super::*;
use crate::peers::pingpong::{self, Game};

const FOREIGN: Variant = Variant { frame_bytes: &[60], foreign: &[0, 1, 2, 4, 8], ..Variant::TWO_PORTS };
const PING: Variant = Variant { unit: Unit::Micros, batch: &[1], ..FOREIGN };

/// The scenario: unpinned programs beside busy threads.
pub const SCENARIO: Scenario = Scenario {
    name: "crowded",
    about: "default options, nothing pinned, beside busy foreign threads: frames received over a switch and a pipe, \
        and a ping-pong of sleeping programs",
    variants: variants![FOREIGN => "switch", "pipe"; PING => "ping", "ping-p99"],
    needs: &[&[Need::Found(|| sys::netvale().map(drop))]],
    start: |case, _| if case.unit == Unit::Micros { pinging(case) } else { generating(case) },
};

/// Starts two pkt-gen processes: one process sends, the other process receives.
fn generating(case: &Case) -> Result<Session> {
    let daemon = Up::start()?;
    let (from, to) = if case.is_crowded("pipe") { ("netmap:p{1", "netmap:p}1") } else { ("vale0:tx", "vale0:rx") };
    let receiver = PktGen::start(&daemon, to, "rx", case.frame_bytes)?;
    let sender = PktGen::start(&daemon, from, "tx", case.frame_bytes)?;
    receiver.wait_for_frames()?;
    let own = case.clone();
    let child = Rc::clone(&receiver.child);
    let measuring = move |window| Ok(Sample::new(own.rate(receiver.rate(window)?), Disturbance::default()));
    let session = Session::new("sender, daemon and receiver not pinned", false, measuring);
    session.with(&sender.child).with(&child).with(&Rc::new(daemon)).idle()
}

/// Starts two threads with a port each, which sleep until a frame arrives.
fn pinging(case: &Case) -> Result<Session> {
    let daemon = Up::start()?;
    let options = Options { run_dir: Some(daemon.dir()), ..Options::default() };
    let open = |name: &str| Port::open_with(name, &options).map_err(|error| failed(&error));
    let (near, far) = ends(open, case.frame_bytes)?;
    let processes = [ThisProcess.pids(), daemon.pids()].concat();
    let game = Game { who: "netvale", cores: None, processes };
    let session = Session::new("two threads and the daemon, not pinned", true, pingpong::between(game, near, far));
    session.with(&Rc::new(ThisProcess)).with(&Rc::new(daemon)).idle()
}
