//! Computes rates from two readings of the counters. The interval is measured by the daemon's clock.
//!
//! "In" counts frames from a port into the switch; "out" counts frames from the switch to the port.

use netvale_control::types::{AllStats, PortDetails, WorkerStats};
use serde::Serialize;

/// The rates between two readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DaemonRates {
    /// Seconds between the readings.
    pub seconds: f64,
    /// The rates of each port in the later reading, in the order of that reading.
    pub ports: Vec<PortRates>,
    /// Each worker's busy time in percent.
    pub workers_busy: Vec<f64>,
    /// Each worker's lost time in percent: other threads used the worker's CPU, or frames waited for room at a receiver
    /// that had no CPU.
    pub workers_lost: Vec<f64>,
}

/// The rates of a port's frames, bits and drops.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortRates {
    /// `SWITCH:PORT`.
    pub port: String,
    /// Frames per second into the switch.
    pub in_pps: f64,
    /// Bits per second into the switch; preamble, CRC and gap are not counted.
    pub in_bps: f64,
    /// Frames per second out of the switch.
    pub out_pps: f64,
    /// Bits per second out of the switch.
    pub out_bps: f64,
    /// Drops per second.
    pub drops_ps: f64,
    /// Number of kicks (notifications), sent and received, divided by the number of frames in both directions; `None`
    /// if no frame passed.
    pub kicks_per_packet: Option<f64>,
}

impl PortRates {
    /// Returns the frames per second in both directions.
    #[must_use]
    pub fn pps(&self) -> f64 {
        self.in_pps + self.out_pps
    }
}

/// Computes the rates between two readings; `None` if no time passed, as after a restart of the daemon.
///
/// The counters of a port that is missing in the earlier reading count from zero. The same applies if a counter is
/// lower than before, because it then belongs to a new port of the same name.
#[must_use]
pub fn between(earlier: &AllStats, later: &AllStats) -> Option<DaemonRates> {
    let passed_ns = later.now_ns.checked_sub(earlier.now_ns).filter(|&passed| passed > 0)?;
    let seconds = passed_ns as f64 / 1e9;
    let ports = later.ports.iter().map(|port| {
        let before = earlier.ports.iter().find(|before| before.name == port.name);
        port_rates(before, port, seconds)
    });
    let percent = |nanos: fn(&WorkerStats) -> u64| {
        let share = |worker: &WorkerStats| {
            let before = earlier.workers.iter().find(|before| before.index == worker.index).map_or(0, nanos);
            (100.0 * nanos(worker).saturating_sub(before) as f64 / passed_ns as f64).min(100.0)
        };
        later.workers.iter().map(share).collect()
    };
    Some(DaemonRates {
        seconds,
        ports: ports.collect(),
        workers_busy: percent(|worker| worker.busy_ns),
        workers_lost: percent(|worker| worker.preempted_ns.saturating_add(worker.waited_ns)),
    })
}

fn port_rates(before: Option<&PortDetails>, port: &PortDetails, seconds: f64) -> PortRates {
    let fresh = PortDetails::default();
    let before = before.filter(|before| same_life(before, port)).unwrap_or(&fresh);
    let passed = |count: fn(&PortDetails) -> u64| count(port).saturating_sub(count(before)) as f64;
    let in_frames = passed(|port| port.sent().frames);
    let out_frames = passed(|port| port.got().frames);
    let frames = in_frames + out_frames;
    PortRates {
        port: port.name.clone(),
        in_pps: in_frames / seconds,
        in_bps: 8.0 * passed(|port| port.sent().bytes) / seconds,
        out_pps: out_frames / seconds,
        out_bps: 8.0 * passed(|port| port.got().bytes) / seconds,
        drops_ps: passed(PortDetails::drops) / seconds,
        kicks_per_packet: (frames > 0.0).then(|| passed(kicks) / frames),
    }
}

fn kicks(port: &PortDetails) -> u64 {
    port.kicks_sent.saturating_add(port.kicks_received)
}

/// Returns whether the two readings are of the same port, which is assumed if no counter has fallen: counters never
/// fall while a port exists.
fn same_life(before: &PortDetails, port: &PortDetails) -> bool {
    before.sent().frames <= port.sent().frames
        && before.got().frames <= port.got().frames
        && before.drops() <= port.drops()
}

#[cfg(test)]
mod tests {
    use netvale_control::types::RingStats;

    use super::*;

    fn port(name: &str, frames: u64) -> PortDetails {
        // The frames are divided among the port's two rings in each direction.
        let rings = |frames| {
            let ring = |frames| RingStats { frames, bytes: frames * 60, batches: 1 };
            vec![ring(frames / 8), ring(frames - frames / 8)]
        };
        PortDetails {
            name: name.into(),
            ingress: rings(frames),
            egress: rings(frames / 2),
            in_drops: [("rate".to_owned(), frames / 8)].into(),
            out_drops: [("no-room".to_owned(), frames / 8)].into(),
            kicks_sent: frames / 16,
            kicks_received: frames / 16,
            ..PortDetails::default()
        }
    }

    fn sample(now_ns: u64, ports: Vec<PortDetails>) -> AllStats {
        AllStats {
            now_ns,
            ports,
            workers: vec![WorkerStats {
                busy_ns: now_ns / 4,
                waited_ns: now_ns / 10,
                preempted_ns: now_ns / 20,
                ..WorkerStats::default()
            }],
            ..AllStats::default()
        }
    }

    /// Objective: every rate is the difference of a counter, divided by the time that passed on the daemon's clock.
    #[test]
    fn rates_are_differences() {
        let rates =
            between(&sample(1_000, vec![port("vale0:a", 800)]), &sample(2_000_001_000, vec![port("vale0:a", 2400)]));
        let rates = rates.expect("time passed");
        assert_eq!(rates.seconds, 2.0);
        assert_eq!((rates.workers_busy, rates.workers_lost), (vec![25.0], vec![15.0]));
        let expected = PortRates {
            port: "vale0:a".into(),
            in_pps: 800.0,
            in_bps: 800.0 * 480.0,
            out_pps: 400.0,
            out_bps: 800.0 * 240.0,
            drops_ps: 200.0,
            kicks_per_packet: Some(200.0 / 2400.0),
        };
        assert_eq!(rates.ports, [expected]);
    }

    /// Objective: the counters of a new port count from zero, even if the port has the name of an earlier one; a
    /// removed port is not shown.
    #[test]
    fn ports_come_and_go() {
        let before = sample(0, vec![port("vale0:gone", 1), port("vale0:again", 1000)]);
        let after = sample(1_000_000_000, vec![port("vale0:again", 80), port("vale0:new", 160)]);
        let rates = between(&before, &after).expect("time passed");
        let pps: Vec<_> = rates.ports.iter().map(|port| (port.port.as_str(), port.in_pps)).collect();
        assert_eq!(pps, [("vale0:again", 80.0), ("vale0:new", 160.0)]);
    }

    /// Objective: if no time passed, or the clock restarted, there are no rates, and no division by zero.
    #[test]
    fn rates_need_a_time_difference() {
        let early = sample(5, vec![port("a", 1)]);
        let late = sample(9, vec![port("a", 1)]);
        assert_eq!(between(&early, &early), None);
        assert_eq!(between(&late, &early), None);
        let idle = between(&early, &late).expect("time passed");
        assert_eq!(idle.ports.first().and_then(|port| port.kicks_per_packet), None);
    }
}
