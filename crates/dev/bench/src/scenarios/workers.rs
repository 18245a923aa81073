//! Several workers of one switch. Each worker is a thread with a sending and a receiving port; it sends, forwards its
//! own port's frames, and receives.
//!
//! ```text
//!   worker 0: from0 ─► switch ─► to0, to1, …      apart: each worker's frames go to its own receiving port
//!   worker 1: from1 ─► switch ─► to0, to1, …      n-to-n: to all receiving ports in turn, whose rings workers share
//! ```
//!
//! Half of the ports send, so there are half as many workers as ports. The workers are spread over two cores. With more
//! than two workers, those of a core take turns, a batch each; the total rate then shows what sharing tables and rings
//! among that many threads costs, not how the switch scales to more cores.

use netvale_mem::appl::AppRing;
use netvale_switch::{AttachedPort, ForwardMemory, Forwarder, PassResult, PortId, Switch};

use super::*;

/// Numbers of ports: two for each of 1, 2, 4, 8 and 16 workers.
const PORTS: &[u32] = &[2, 4, 8, 16, 32];
/// Number of rounds between two checks of the clock, if a worker has a core to itself.
const ROUNDS: u32 = 8;

/// The scenario. In `n-to-n` the destination port changes with each batch, in `n-to-n-mixed` with each frame.
pub const SCENARIO: Scenario = Scenario {
    name: "workers",
    about: "several workers of one switch on two cores; each has a sending and a receiving port",
    variants: variants![Variant { ports: PORTS, ..Variant::SHORT } => "apart", "n-to-n", "n-to-n-mixed"],
    needs: &[TWO],
    start,
};

/// A worker's ports and memory.
struct WorkerLane {
    tx: AppRing,
    sender: Sender,
    forwarder: Forwarder,
    work: ForwardMemory,
    rx: AppRing,
    receiver: Receiver,
}

impl WorkerLane {
    /// Attaches the ports of worker `index` of `count`.
    fn new(case: &Case, switch: &Arc<Switch>, index: u16, count: u16) -> Result<WorkerLane> {
        let touch = Touch::of(case);
        let to = if case.variant == "apart" { (index, 1) } else { (0, count) };
        // Workers begin at different receivers, or they would fill the same ring at the same time.
        let sender = Sender::new(FIRST_SENDER + index, to, case.frame_bytes, touch).starting_at(index);
        let mut sender = if case.variant == "n-to-n" { sender.in_bursts() } else { sender };
        let (forwarder, tx, _) = embedded::port(switch, &format!("from{index}"), SLOTS, 0)?;
        // Frames wait for a receiver whose worker is not running.
        let to = AttachedPort { name: format!("to{index}"), lossless: true, ..AttachedPort::default() };
        let (_, _, rx) = embedded::port_like(switch, to, SLOTS, 0)?;
        sender.fill(&tx);
        Ok(WorkerLane { tx, sender, forwarder, work: ForwardMemory::default(), rx, receiver: Receiver::new(touch) })
    }

    /// Sends a batch, forwards it, and takes all frames that have arrived. Returns the number of frames taken.
    fn round(&mut self, batch: u32) -> u64 {
        self.sender.send(&mut self.tx, batch);
        while let PassResult::Frames(_) = self.forwarder.pass(&mut self.work) {}
        u64::from(self.receiver.receive(&mut self.rx, u32::MAX))
    }
}

fn start(case: &Case, cores: Cores) -> Result<Session> {
    let count = u16::try_from(case.ports / 2).unwrap_or(u16::MAX).max(1);
    let switch = Switch::new(VALE);
    let mut lanes = (0..count).map(|index| WorkerLane::new(case, &switch, index, count)).collect::<Result<Vec<_>>>()?;
    // Port numbers begin at 0, and each worker's sending port was attached before its receiving port.
    (0..count).for_each(|index| switch.fdb().learn(embedded::word(index), 2 * PortId::from(index) + 1));
    let own = case.clone();
    let measuring = move |window| {
        let batch = own.batch.max(1);
        let totals = |lanes: &[WorkerLane]| {
            let sent: u64 = lanes.iter().map(|lane| lane.sender.sent).sum();
            [sent, lanes.iter().map(|lane| lane.receiver.received).sum()]
        };
        let before = totals(&lanes);
        let jobs = lanes.iter_mut().zip([cores.0, cores.1].into_iter().cycle());
        let jobs = jobs.map(|(lane, core)| {
            let taking_turns = move || {
                let taken = if count > 2 { lane.round(batch) } else { (0..ROUNDS).map(|_| lane.round(batch)).sum() };
                if count > 2 {
                    std::thread::yield_now();
                }
                Ok(taken)
            };
            Job::new(core, taking_turns)
        });
        let (done, beside) = run_pinned(jobs.collect(), window)?;
        let [sent, received] = totals(&lanes).map(|all| all as f64);
        let [sent, received] = [sent - before[0] as f64, received - before[1] as f64];
        if let Some(wrong) = lanes.iter().map(|lane| lane.receiver.wrong).find(|wrong| *wrong > 0) {
            return Err(BenchError::WrongBytes { who: "netvale's switch".into(), frames: wrong });
        }
        let dropped = 100.0 * (1.0 - received / sent.max(1.0)).max(0.0);
        let sample = Sample::new(own.rate(total_rate("netvale", &done)?), beside);
        Ok(sample.fact("drop_percent", format!("{dropped:.1}")))
    };
    let words = format!("{count} workers, in turn on CPU {} and CPU {}", cores.0, cores.1);
    Ok(Session::new(words, case.touches(), measuring).fact("workers", count).fact("slots", SLOTS))
}
