//! Set-ups of testpmd processes: memif between two processes, and `net_ring` within one process.
//!
//! With `net_ring`, there are two ports, each a ring: thread A moves frames from port 0 to port 1, and thread B moves
//! them back. Each hop takes every frame from one core to the other core; the figure is the sum of the hops in both
//! directions. With `io`, only pointers move; with `macswap`, each side reads and writes the frame's first line, as an
//! application does.

use crate::peers::testpmd::{Arguments, NEEDS, Place, Testpmd};
use crate::prelude::*;

/// Best burst of memif. Measured on two cores, with copy / zero-copy: 34 / 40 Mpps with bursts of 32, 36 / 49 with 64,
/// 23 / 18 with 256.
const MEMIF_BURST: u32 = 64;
/// Best burst of `net_ring` if only pointers move: 270, 415 and 725 Mpps with bursts of 32, 64 and 256.
const IO_BURST: u32 = 512;
/// Best burst of `net_ring` if frames are touched: 76, 91 and 88 Mpps with bursts of 32, 64 and 256.
const MACSWAP_BURST: u32 = 64;

/// Returns the peers of pipes: within one process, with frames touched or with pointers only; and between two
/// processes, with or without a copy.
pub fn peers() -> Vec<Contender> {
    let is_pipe = |case: &Case| case.scenario == "pipe" && case.touches();
    let is_between = move |case: &Case| is_pipe(case) || case.is_crowded("pipe");
    let is_untouched = |case: &Case| case.scenario == "pipe" && !case.touches();
    contenders! {
        "dpdk-ring", "DPDK net_ring between two threads, frames touched (macswap); hops of both directions";
        &[NEEDS], is_pipe, |case, cores| ring("dpdk-ring", "macswap", MACSWAP_BURST, case, cores);
        "dpdk-ring-io", "DPDK net_ring between two threads, pointers only; hops of both directions";
        &[NEEDS], is_untouched, |case, cores| ring("dpdk-ring-io", "io", IO_BURST, case, cores);
        "dpdk-memif", "DPDK memif between two processes, copying";
        &[NEEDS], is_between, |case, cores| memif("dpdk-memif", "", case, cores);
        "dpdk-memif-zc", "DPDK memif between two processes, zero-copy";
        &[NEEDS], is_between, |case, cores| memif("dpdk-memif-zc", ",zero-copy=yes", case, cores);
    }
}

/// Creates a session of testpmd processes that share one place. The figure is the number of frames that one of these
/// processes receives.
pub fn session(
    who: &'static str,
    case: &Case,
    place: Place,
    cores: String,
    counted: &Rc<Testpmd>,
    others: Vec<Rc<dyn Part>>,
) -> Result<Session> {
    let parts = [vec![Rc::clone(counted) as Rc<dyn Part>], others].concat();
    let counts = Rc::clone(counted);
    let set = ProcessSet { who, is_strict: true, settle: Duration::ZERO, parts };
    Ok(set.session(case, cores, true, move || counts.received(None))?.keeping(place))
}

fn ring(who: &'static str, forward: &str, best: u32, case: &Case, Cores(first, second): Cores) -> Result<Session> {
    let place = Place::new(1, 0)?;
    let burst = case.burst(best);
    let rings = ["net_ring0", "net_ring1"].map(str::to_owned);
    let arguments = Arguments { burst, ..Arguments::new("ring", case, &[first, second], &rings, forward) };
    let process = Testpmd::start(&arguments, &place, &["start tx_first 32"])?;
    let words = format!("one thread each on CPUs {first} and {second}, both directions");
    let mut session = session(who, case, place, words, &process, Vec::new())?;
    session.touched = forward == "macswap";
    Ok(session.fact("peer_burst", burst))
}

/// Starts a memif server and a client, and measures frames from the server to the client, the faster direction. Frames
/// are copied into and out of the shared ring's buffers, unless the buffers are the client's own (`zero-copy=yes`).
fn memif(who: &'static str, zero_copy: &str, case: &Case, Cores(first, second): Cores) -> Result<Session> {
    let place = Place::new(2, 0)?;
    let burst = case.burst(MEMIF_BURST);
    let start = |role: &str, more: &str, core: usize, forward: &str| {
        let socket = place.file("memif.sock");
        let device = format!("net_memif0,role={role},id=0,socket={socket},socket-abstract=no,rsize=10{more}");
        let arguments = Arguments { burst, ..Arguments::new(role, case, &[core], &[device], forward) };
        Testpmd::start(&arguments, &place, &[])
    };
    let sender = start("server", "", first, "txonly")?;
    let receiver = start("client", zero_copy, second, "rxonly")?;
    receiver.command("start")?;
    sender.command("start")?;
    let mut words = format!("sender on CPU {first}, receiver on CPU {second}");
    if case.foreign.is_some() {
        sender.pids().into_iter().chain(receiver.pids()).try_for_each(pin::release)?;
        words = "sender and receiver poll, not pinned".into();
    }
    Ok(session(who, case, place, words, &receiver, vec![sender])?.fact("peer_burst", burst))
}
