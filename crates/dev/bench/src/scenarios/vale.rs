//! Frames across the switch: in the daemon, or embedded in the program that sends and receives.

use netvale::TxRing;
use netvale_control::types::{AllStats, PortDetails};

use super::*;

/// Number of rounds between two checks of the clock.
const ROUNDS: u32 = 32;
/// Time limit for sending the frames from which the switch learns its addresses.
const LEARNING: Duration = Duration::from_secs(10);
/// Numbers of ports, each twice the previous one.
const PORTS: &[u32] = &[2, 4, 8, 16, 32, 64];
/// Numbers of destination addresses.
const ADDRESSES: &[u32] = &[1, 512, 1024, 2048, 4096, 8192];

/// The scenario. Unless a variant ends in `untouched`, the sender writes the first cache line of each frame and the
/// receiver reads it. In `1-to-n` the destination port changes with each batch, in `1-to-n-mixed` with each frame.
pub const SCENARIO: Scenario = Scenario {
    name: "vale",
    about: "frames across a learning switch, embedded or in the daemon: 1 to 1, 1 to n, n to 1, n addresses",
    variants: variants![
        Variant::SHORT => "embedded", "embedded-untouched", "daemon", "daemon-untouched";
        Variant { unit: Unit::Gbps, frame_bytes: &[1500], ..Variant::SHORT } => "daemon-large";
        Variant { ports: PORTS, ..Variant::SHORT } => "1-to-n", "1-to-n-mixed", "n-to-1";
        Variant { addresses: ADDRESSES, ..Variant::SHORT } => "addresses"
    ],
    needs: &[TWO],
    start: |case, cores| {
        if case.variant.starts_with("embedded") {
            return embedded::start(case, cores);
        }
        across_local(case, cores, |_, _| Ok(()))
    },
};

/// Adds to a sample the worker's costs between two readings of its counters, and the kicks in both directions per
/// thousand frames.
fn with_costs(sample: Sample, before: &AllStats, after: &AllStats) -> Sample {
    let busy = |stats: &AllStats| stats.workers.iter().map(|worker| worker.busy_ns).sum::<u64>();
    let sum = |of: fn(&PortDetails) -> u64| {
        let all = |stats: &AllStats| stats.ports.iter().map(of).sum::<u64>();
        (all(after) - all(before)) as f64
    };
    let frames = sum(|port| port.sent().frames).max(1.0);
    let busy = (busy(after) - busy(before)) as f64;
    let kicks = 1000.0 * sum(|port| port.kicks_sent + port.kicks_received) / frames;
    let percent = 100.0 * busy / (after.now_ns - before.now_ns).max(1) as f64;
    sample
        .fact("worker_busy_percent", format!("{percent:.0}"))
        .fact("worker_ns_a_frame", format!("{:.1}", busy / frames))
        .fact("kicks_a_thousand_frames", format!("{kicks:.3}"))
}

/// The ports of a case.
pub struct Ends {
    /// The sending ports.
    pub senders: Vec<Port>,
    /// The receiving ports.
    pub receivers: Vec<Port>,
}

/// Measures applications on the first core, and a daemon's switch on the second. `open` opens a port by its name; then
/// `prepare` sets up all ports. A virtio-net header of `hdr_len` bytes is before each frame.
pub fn across(
    case: &Case,
    hdr_len: u32,
    cores: Cores,
    open: impl Fn(&Daemon, &str) -> Result<Port>,
    prepare: impl FnOnce(&Daemon, &Ends) -> Result<()>,
) -> Result<Session> {
    let plan = Plan::of(case);
    let daemon = Daemon::start(None, cores.1, "")?;
    let all = |kind: &str, count: u16| -> Result<Vec<Port>> {
        (0..count).map(|index| open(&daemon, &format!("{kind}{index}"))).collect()
    };
    let mut ends = Ends { senders: all("from", plan.senders)?, receivers: all("to", plan.receivers)? };
    prepare(&daemon, &ends)?;
    for (index, port) in (0..).zip(&mut ends.receivers) {
        announce(port, plan.behind(index), hdr_len)?;
    }
    daemon.wait_for_frames(u64::from(plan.receivers) * u64::from(plan.stations))?;
    let tx: Vec<TxRing> = ends.senders.iter_mut().flat_map(|port| port.take_rings().0).collect();
    let rx = ends.receivers.iter_mut().flat_map(|port| port.take_rings().1).collect();
    let slots = tx.first().map_or(SLOTS, TxRing::num_slots);
    let mut stations = Stations::new(plan, case, hdr_len, Touch::of(case), tx, rx);
    let drops_before = daemon.drops()?;
    // Frames that were flooded while addresses were unknown do not belong to the measurement.
    daemon.freeze()?;
    while stations.discard() > 0 {}
    let own = case.clone();
    let server = daemon.clone();
    let measuring = move |window| {
        stations.forget_lost();
        let before = server.stats()?;
        let round = || Ok((0..ROUNDS).map(|_| stations.round()).sum());
        let (done, beside) =
            run_pinned_with(vec![Job::new(cores.0, round)], window, &[server.pid()], &server.threads())?;
        let after = server.stats()?;
        let books = stations.books(server.drops()? - drops_before);
        books.check("netvale")?;
        // The closure keeps the ports, because rings must be dropped before their ports, and ports before the daemon.
        let _ = &ends;
        let sample = Sample::new(own.rate(total_rate("netvale", &done)?), beside);
        Ok(with_costs(sample, &before, &after).fact("drop_percent", format!("{:.3}", books.drop_percent())))
    };
    let words = format!("applications of all ports take turns on CPU {}, worker on CPU {}", cores.0, cores.1);
    let session = Session::new(words, case.touches(), measuring).with(&daemon);
    Ok(session.fact("slots", slots).fact("bytes", Touch::of(case).words()))
}

/// Like [`across`], with local ports and frames without headers.
pub fn across_local(case: &Case, cores: Cores, prepare: impl FnOnce(&Daemon, &Ends) -> Result<()>) -> Result<Session> {
    across(case, 0, cores, |daemon, name| daemon.port(name), prepare)
}

/// Sends a frame from each station, so that the switch learns where the stations are.
fn announce(port: &mut Port, stations: impl Iterator<Item = u16>, hdr_len: u32) -> Result<()> {
    // The destination is an address that no station has, so the frame is flooded.
    let nobody = u16::MAX;
    for station in stations {
        let bytes = [vec![0; hdr_len as usize], frame(nobody, station, 60)].concat();
        let sent = interrupt::poll_until(LEARNING, || {
            let sent = port.tx()[0].send(&bytes);
            port.sync();
            Ok(sent.then_some(()))
        })?;
        sent.ok_or_else(|| BenchError::NoTraffic("netvale's switch".into()))?;
    }
    Ok(())
}
