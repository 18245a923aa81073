//! How the time of sending a frame is distributed: over the parts of the kernel's path from a socket to the end of a
//! cable, and of netvale's paths. Each path is the work of one thread from end to end, whose instructions are sampled
//! before each measurement of the rate.
//!
//! ```text
//!   socket ─► system call ─► buffers, copy, stack ─► driver ─► far end, which drops      a sender of `generators`
//!   program: fills ─► sync ─► switch: copies ─► notifies ─► sync ─► program: reads       one thread
//! ```

mod rows;

use netvale_switch::{PortId, Switch};

use super::generators::ONE_SENDER;
use super::*;
use crate::counted::counted;
use crate::sys::profile;

/// Name of the worker role [`on_vale`], a program with a switch inside it.
pub const ON_VALE: &str = "lane-vale";
/// Name of the worker role [`on_pipe`], a program with both ends of a pipe.
pub const ON_PIPE: &str = "lane-pipe";
/// Number of rounds between two updates of the counter.
const ROUNDS: u32 = 32;

/// The scenario: netvale's sender sends into a cable (a veth pair).
pub const SCENARIO: Scenario = Scenario {
    name: "parts",
    about: "frames sent by one thread, and the share of the thread's time in each part of their path",
    variants: variants![ONE_SENDER => "send"],
    needs: &[NETWORKS, profile::NEEDS, TWO],
    start: |case, cores| generators::start("netvale", case, cores, generators::on_cables),
};

/// Returns netvale's paths without the kernel. Other senders are in `generators`.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "netvale-vale", "sender, VALE switch and receiver in one thread";
        &[profile::NEEDS, ONE], |case| SCENARIO.has(case), |case, cores| lane("netvale-vale", ON_VALE, case, cores);
        "netvale-pipe", "both ends of a pipe in one thread";
        &[profile::NEEDS, ONE], |case| SCENARIO.has(case), |case, cores| lane("netvale-pipe", ON_PIPE, case, cores);
    }
}

/// Adds to the session's samples the share of the process's time that each part of the path takes.
pub fn by_parts(session: Session, who: &'static str, pid: u32) -> Result<Session> {
    need(&[profile::NEEDS], 0)?;
    Ok(session.wrapped(move |inner, window| {
        let places = profile::sample(pid, window)?;
        let mut sample = inner(window)?;
        for (part, share) in rows::shares(&places) {
            sample = sample.fact(&format!("{who} {part}"), format!("{share:.1}"));
        }
        // The sample's value is in millions of frames per second.
        let nanos = format!("{:.0}", 1e3 / sample.value);
        Ok(sample.fact(&format!("{who} ns"), nanos))
    }))
}

/// Creates a session of a process whose single thread sends, forwards and receives.
fn lane(who: &'static str, role: &str, case: &Case, cores: Cores) -> Result<Session> {
    let worker = Worker::spawn(Wrapper::None, role, Some(cores.0), case)?;
    let pid = worker.pid();
    let threads = vec![(pid, pid)];
    let how = CountOptions { settle: SETTLE, pids: Some(vec![pid]), threads, asks: false, who: Some(who) };
    let counts = Rc::clone(&worker);
    let words = format!("all in one thread on CPU {}", cores.0);
    let session = Session::new(words, true, counted(case, how, move || Ok(counts.tally()))).with(&worker);
    by_parts(session, who, pid)?.idle()
}

/// Sends, forwards and receives in turn.
pub fn on_vale(context: &Context) -> Result<()> {
    let case: Case = context.arguments()?;
    let switch = Switch::new(VALE);
    let mut lane = embedded::pair(&case, &switch)?;
    // Port ids begin at 0, and the sender's port was attached first.
    embedded::learn(&switch, Plan::of(&case), |index| index as PortId + 1);
    go_round(context, || lane.round())
}

/// Sends and receives in turn.
pub fn on_pipe(context: &Context) -> Result<()> {
    let case: Case = context.arguments()?;
    let (mut from, mut to) = Port::pipe_pair(SLOTS, 0).map_err(|error| failed(&error))?;
    let tx = from.take_rings().0;
    let rx = to.take_rings().1;
    let mut stations = Stations::new(Plan::of(&case), &case, 0, Touch::of(&case), tx, rx);
    go_round(context, || stations.round())
}

fn go_round(context: &Context, mut round: impl FnMut() -> u64) -> Result<()> {
    context.ready()?;
    let mut done = 0;
    loop {
        done += (0..ROUNDS).map(|_| round()).sum::<u64>();
        publish(context.counter(FRAMES), done);
    }
}
