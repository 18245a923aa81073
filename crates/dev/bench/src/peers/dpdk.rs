//! Set-ups of testpmd processes: memif between two, and `net_ring` inside one.
//!
//! With `net_ring`, two ports, each a ring: thread A moves frames from port 0 to port 1, thread B back. Every frame
//! crosses between the cores on each hop; the figure is hops of both directions together. With `io` only pointers move;
//! with `macswap` each side reads and writes the frame's first line, which is what an application does.

use crate::peers::testpmd::{Arguments, NEEDS, Place, Testpmd};
use crate::prelude::*;

/// Best bursts, measured on two cores. Memif: 32 gives 34 / 40 Mpps (copy / zero-copy), 64 gives 36 / 49, 256 gives 23
/// / 18. Rings: pointers only 270, 415 and 725 Mpps at 32, 64 and 256; touched 76, 91 and 88.
const MEMIF_BURST: u32 = 64;
const IO_BURST: u32 = 512;
const MACSWAP_BURST: u32 = 64;

/// The peers of pipes: inside one process, touching frames or moving pointers only; and between two, copying or not.
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

/// A session of a testpmd, whose received frames are the figure, and of others, in the place where all of them are.
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
    let arguments = Arguments {
        name: "ring",
        cores: &[first, second],
        vdevs: &["net_ring0".to_owned(), "net_ring1".to_owned()],
        forward,
        frame_bytes: case.frame_bytes,
        burst,
        ..Arguments::default()
    };
    let process = Testpmd::start(&arguments, &place, &["start tx_first 32"])?;
    let words = format!("one thread each on {first} and {second}, both directions");
    let mut session = session(who, case, place, words, &process, Vec::new())?;
    session.touched = forward == "macswap";
    Ok(session.fact("peer_burst", burst))
}

/// From the server to the client: the faster direction. Frames are copied into and out of the shared ring's buffers,
/// unless those are the client's own (`zero-copy=yes`).
fn memif(who: &'static str, zero_copy: &str, case: &Case, Cores(first, second): Cores) -> Result<Session> {
    let place = Place::new(2, 0)?;
    let burst = case.burst(MEMIF_BURST);
    let start = |role: &str, more: &str, core: usize, forward: &str| {
        let socket = place.file("memif.sock");
        let device = format!("net_memif0,role={role},id=0,socket={socket},socket-abstract=no,rsize=10{more}");
        let arguments = Arguments {
            name: role,
            cores: &[core],
            vdevs: &[device],
            single_file: true,
            forward,
            frame_bytes: case.frame_bytes,
            burst,
            ..Arguments::default()
        };
        Testpmd::start(&arguments, &place, &[])
    };
    let sender = start("server", "", first, "txonly")?;
    let receiver = start("client", zero_copy, second, "rxonly")?;
    receiver.command("start")?;
    sender.command("start")?;
    let mut words = format!("sender {first}, receiver {second}");
    if case.foreign.is_some() {
        sender.pids().into_iter().chain(receiver.pids()).try_for_each(pin::release)?;
        words = "sender and receiver poll, not pinned".into();
    }
    Ok(session(who, case, place, words, &receiver, vec![sender])?.fact("peer_burst", burst))
}
