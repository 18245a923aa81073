//! Computes the latency of frames from two readings of all counters.

use netvale_control::types::{AllStats, Latency, PortDetails};

/// Latency of the frames of a port that were timed between two readings or, after a single reading, of all timed frames
/// of the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyRow {
    /// The sending port.
    pub port: String,
    pub frames: u64,
    /// Mean in nanoseconds; never `None`, since there is no row without frames.
    pub mean_ns: Option<u64>,
    /// Upper bound, in nanoseconds, of the histogram bucket with the median; `None` for the last bucket, which has no
    /// upper bound.
    pub half_ns: Option<u64>,
    /// Upper bound, in nanoseconds, of the bucket with the 99th percentile; `None` for the last bucket.
    pub p99_ns: Option<u64>,
    /// Upper bound, in nanoseconds, of the bucket with the maximum; `None` for the last bucket.
    pub most_ns: Option<u64>,
}

/// Returns the ports with timed frames, slowest first.
pub fn rows(earlier: Option<&AllStats>, later: &AllStats) -> Vec<LatencyRow> {
    let mut rows: Vec<_> = later.ports.iter().filter_map(|port| row(earlier, port)).collect();
    let key = |row: &LatencyRow| row.p99_ns.unwrap_or(u64::MAX);
    rows.sort_by(|a, b| key(b).cmp(&key(a)).then(b.mean_ns.cmp(&a.mean_ns)).then_with(|| a.port.cmp(&b.port)));
    rows
}

fn row(earlier: Option<&AllStats>, port: &PortDetails) -> Option<LatencyRow> {
    let later = port.latency.as_ref()?;
    let before = earlier.and_then(|all| all.ports.iter().find(|before| before.name == port.name));
    let timed = since(before.and_then(|before| before.latency.as_ref()), later);
    let frames = timed.frames();
    let mean_ns = Some(timed.sum_ns.checked_div(frames)?);
    let [half_ns, p99_ns, most_ns] = [50, 99, 100].map(|percent| within(&timed, percent));
    Some(LatencyRow { port: port.name.clone(), frames, mean_ns, half_ns, p99_ns, most_ns })
}

/// Returns the difference of two readings. If the later count of frames is lower, it belongs to a new port of the same
/// name, whose counters began at zero.
fn since(earlier: Option<&Latency>, later: &Latency) -> Latency {
    let mut since = later.clone();
    let Some(earlier) = earlier.filter(|earlier| earlier.frames() <= later.frames()) else { return since };
    since.sum_ns = later.sum_ns.saturating_sub(earlier.sum_ns);
    for part in &mut since.parts {
        let known = earlier.parts.iter().find(|known| known.up_to_ns == part.up_to_ns);
        part.frames = part.frames.saturating_sub(known.map_or(0, |known| known.frames));
    }
    since
}

/// Returns the smallest bucket bound that at least `percent` % of the frames do not exceed; `None` if this is the bound
/// of the last bucket, which has no upper bound.
fn within(timed: &Latency, percent: u64) -> Option<u64> {
    let all = timed.frames();
    let mut seen = 0;
    let part = timed.parts.iter().filter(|part| part.frames > 0).find(|part| {
        seen += part.frames;
        seen * 100 >= all * percent
    });
    part?.up_to_ns
}

#[cfg(test)]
mod tests {
    use netvale_control::types::LatencyPart;

    use super::*;

    fn sample(sum_ns: u64, parts: &[(Option<u64>, u64)]) -> AllStats {
        let parts = parts.iter().map(|&(up_to_ns, frames)| LatencyPart { up_to_ns, frames }).collect();
        let latency = Some(Latency { sum_ns, parts });
        let port = PortDetails { name: "vale0:a".into(), latency, ..PortDetails::default() };
        let plain = PortDetails { name: "vale0:b".into(), ..PortDetails::default() };
        AllStats { ports: vec![port, plain], ..AllStats::default() }
    }

    /// Objective: a single reading yields all timed frames, and two readings yield the difference; the counters of a
    /// new port count from zero; a port without timed frames has no row.
    #[test]
    fn two_readings_yield_the_difference() {
        let early = sample(1000, &[(Some(500), 2)]);
        let late = sample(99_000, &[(Some(500), 2), (Some(1000), 97), (None, 1)]);
        let row = |frames, mean, half_ns, p99_ns, most_ns| {
            vec![LatencyRow { port: "vale0:a".into(), frames, mean_ns: Some(mean), half_ns, p99_ns, most_ns }]
        };
        assert_eq!(rows(None, &early), row(2, 500, Some(500), Some(500), Some(500)));
        assert_eq!(rows(None, &late), row(100, 990, Some(1000), Some(1000), None));
        assert_eq!(rows(Some(&early), &late), row(98, 1000, Some(1000), None, None));
        assert_eq!(rows(Some(&late), &early), row(2, 500, Some(500), Some(500), Some(500)));
        assert_eq!(rows(Some(&late), &late), []);
    }
}
