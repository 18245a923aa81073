//! Two socket peers on one switch: frames in one direction, round trips, and TCP between two namespaces behind the
//! peers.
//!
//! One thread has both peers of the one-way variants, and the switch has the other CPU. The thread never sleeps, and
//! moves up to 64 frames in each system call, so that the switch is the bottleneck. For round trips, every program
//! sleeps until a frame arrives. With six ports, four more peers are plugged and idle.

mod ends;
mod others;
mod switch;
mod tcp;

pub use others::{FORWARDER, forward, peers};
pub use switch::SocketKind;
pub use tcp::{BRIDGE, bridge, joined};

use self::ends::PeerEnd;
use self::switch::{RunningSwitch, SocketPlace};
use super::*;
use crate::peers::pingpong::{self, Game};
use crate::sys::rawsock::MAX_BATCH;

/// Numbers of ports: two busy peers, alone and beside four idle peers.
const IDLE: &[u32] = &[2, 6];
const FRAMES_ONE_WAY: Variant = Variant { frame_bytes: &[64, 1500], ports: IDLE, ..Variant::TWO_PORTS };
const ROUND_TRIP: Variant = Variant { unit: Unit::Micros, frame_bytes: &[64], ports: IDLE, ..Variant::TWO_PORTS };
const TCP: Variant = Variant { unit: Unit::Gbps, ..Variant::TWO_PORTS };
/// Time limit for the first frame.
const FIRST_FRAME: Duration = Duration::from_secs(10);
/// Time in which the last frames of a run arrive.
const LAST_FRAMES: Duration = Duration::from_millis(20);

/// The scenario: two socket ports of a VALE switch.
pub const SCENARIO: Scenario = Scenario {
    name: "sockets",
    about: "two socket peers on one switch, of each kind of socket port: frames one way, round trips, iperf3 TCP",
    variants: variants![
        FRAMES_ONE_WAY => "stream", "dgram", "seqpacket", "vde";
        ROUND_TRIP => "stream-round-trip", "dgram-round-trip", "seqpacket-round-trip", "vde-round-trip";
        TCP => "stream-tcp", "dgram-tcp", "seqpacket-tcp", "vde-tcp"
    ],
    needs: &[TWO, NETWORKS],
    start: |case, cores| measured("netvale", case, cores, ours),
};

/// Starts netvale's side: a daemon whose switch has a socket port for each peer.
fn ours(kind: SocketKind, place: &SocketPlace) -> Result<RunningSwitch> {
    let daemon = Daemon::start(Some(&place.space), place.core, "")?;
    let port = |text: String| daemon.attach(VALE, text, PortOptions::default());
    let path = place.path("port");
    match kind {
        SocketKind::Dgram => (0..place.count).try_for_each(|index| {
            let [own, other] = [place.path(&format!("port{index}")), place.path(&format!("peer{index}"))];
            port(format!("dgram:{},remote={}", own.display(), other.display()))
        })?,
        SocketKind::Vde => {
            std::fs::create_dir(&path).map_err(BenchError::io("creating a folder"))?;
            port(format!("vde:{}", path.display()))?;
        }
        kind => port(format!("{}:{}", kind.word(), path.display()))?,
    }
    Ok(RunningSwitch::of(&daemon))
}

/// A function that starts a switch's program, given the kind of the switch's sockets and where they are.
type StartSwitch = fn(SocketKind, &SocketPlace) -> Result<RunningSwitch>;

/// Starts a switch, and returns a session that measures a case with it.
fn measured(who: &'static str, case: &Case, cores: Cores, start: StartSwitch) -> Result<Session> {
    let kind = SocketKind::of(case);
    let place = SocketPlace::new(case, cores)?;
    let mut switch = start(kind, &place)?;
    if case.unit == Unit::Gbps {
        return tcp::session(kind, switch, place, cores);
    }
    let mut ends = switch.take_ends(kind, &place)?;
    let idle = ends.split_off(2);
    let (Some(far), Some(near)) = (ends.pop(), ends.pop()) else { return Err(no_frames(who)) };
    let pair = meet(who, case, near, far)?;
    let session = if case.unit == Unit::Micros {
        round_trips(who, cores, pair, switch.pids())?
    } else {
        one_way(who, case, cores, pair, &switch)
    };
    let session = session.fact("queued_datagrams", switch::QUEUE);
    session.with_all(switch.parts).keeping(idle).keeping(switch.kept).keeping(place).idle()
}

fn no_frames(who: &str) -> BenchError {
    BenchError::NoTraffic(who.to_owned())
}

/// Exchanges frames until both directions work, so that a switch has learned the addresses.
fn meet(who: &str, case: &Case, mut near: PeerEnd, mut far: PeerEnd) -> Result<[PeerEnd; 2]> {
    near.sending(frame(1, 0, case.frame_bytes));
    far.sending(frame(0, 1, case.frame_bytes));
    near.never_wait()?;
    far.never_wait()?;
    let mut has_come = [false; 2];
    // A switch may drop a frame for an address that it has not learned.
    let both = interrupt::poll_until(FIRST_FRAME, || {
        near.send(1)?;
        far.send(1)?;
        has_come = [has_come[0] || near.drain()? > 0, has_come[1] || far.drain()? > 0];
        Ok((has_come == [true; 2]).then_some(()))
    })?;
    both.ok_or_else(|| no_frames(who))?;
    interrupt::sleep(SETTLE)?;
    near.drain()?;
    far.drain()?;
    Ok([near, far])
}

/// Sends from one end to the other. Without a switch process, each end has a CPU of its own; with a switch process,
/// both ends share a CPU.
fn one_way(
    who: &'static str,
    case: &Case,
    cores: Cores,
    [mut near, mut far]: [PeerEnd; 2],
    switch: &RunningSwitch,
) -> Session {
    let pids = switch.pids();
    let is_link = pids.is_empty();
    let own = case.clone();
    let measuring = move |window| {
        let mut sent = 0u64;
        let mut received = 0u64;
        let mut receive = || far.receive(MAX_BATCH).inspect(|came| received += came);
        let mut send = || near.send(MAX_BATCH).map(|taken| sent += taken);
        let jobs = if is_link {
            vec![Job::new(cores.0, || send().map(|()| 0)), Job::new(cores.1, receive)]
        } else {
            vec![Job::new(cores.0, || send().and_then(|()| receive()))]
        };
        let (done, beside) = run_pinned_with(jobs, window, &pids, &[])?;
        interrupt::sleep(LAST_FRAMES)?;
        received += far.drain()?;
        let lost = 100.0 * sent.saturating_sub(received) as f64 / (sent as f64).max(1.0);
        let sample = Sample::new(own.rate(total_rate(who, &done)?), beside);
        Ok(sample.fact(&format!("{who}_lost_percent"), format!("{lost:.3}")))
    };
    Session::new(words(cores, is_link), true, measuring)
}

fn words(cores: Cores, is_link: bool) -> String {
    let Cores(first, second) = cores;
    if is_link {
        format!("sender on CPU {first}, receiver on CPU {second}")
    } else {
        format!("sender and receiver on CPU {first}, switch on CPU {second}")
    }
}

fn round_trips(who: &'static str, cores: Cores, [near, far]: [PeerEnd; 2], processes: Vec<u32>) -> Result<Session> {
    near.wait_for_peer()?;
    far.wait_for_peer()?;
    let Cores(first, second) = cores;
    let mut words = format!("one thread each on CPUs {first} and {second}");
    if !processes.is_empty() {
        words.push_str(&format!(", switch on CPU {second}"));
    }
    let game = Game { who, cores: Some(cores), processes };
    Ok(Session::new(words, true, pingpong::round_trips(game, near, far)))
}
