//! Computes drops by reason from two readings of all counters.

use netvale_control::types::{AllStats, Direction, PortDetails};

/// A port's drops for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct DropRow {
    /// The reason, as `netvale show` prints it.
    pub reason: String,
    pub dir: Direction,
    pub port: String,
    /// Number of frames that were dropped since the port was attached.
    pub frames: u64,
    /// Dropped frames per second; `None` before the second reading.
    pub rate: Option<f64>,
}

/// Returns the drops of all ports by reason: highest rate first, then highest count.
pub fn rows(earlier: Option<&AllStats>, later: &AllStats) -> Vec<DropRow> {
    let mut rows: Vec<_> = later.ports.iter().flat_map(|port| of_port(earlier, later, port)).collect();
    let key = |row: &DropRow| row.rate.unwrap_or_default();
    rows.sort_by(|a, b| key(b).total_cmp(&key(a)).then(b.frames.cmp(&a.frames)).then_with(|| a.port.cmp(&b.port)));
    rows
}

fn of_port(earlier: Option<&AllStats>, later: &AllStats, port: &PortDetails) -> Vec<DropRow> {
    let seconds = earlier.map(|all| later.now_ns.saturating_sub(all.now_ns) as f64 / 1e9).filter(|&s| s > 0.0);
    let before = earlier.and_then(|all| all.ports.iter().find(|before| before.name == port.name));
    let row = |dir: Direction, reason: &String, frames: u64| {
        let drops = before.map(|before| if dir == Direction::In { &before.in_drops } else { &before.out_drops });
        let known = drops.and_then(|drops| drops.get(reason)).copied().unwrap_or_default();
        // If the counter is lower than before, it belongs to a new port of the same name, whose counter began at zero.
        let passed = frames.checked_sub(known).unwrap_or(frames);
        let rate = seconds.map(|seconds| passed as f64 / seconds);
        DropRow { reason: reason.clone(), dir, port: port.name.clone(), frames, rate }
    };
    let sent = port.in_drops.iter().map(|(reason, &frames)| row(Direction::In, reason, frames));
    let got = port.out_drops.iter().map(|(reason, &frames)| row(Direction::Out, reason, frames));
    sent.chain(got).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(now_ns: u64, frames: u64) -> AllStats {
        let port = PortDetails {
            name: "vale0:a".into(),
            in_drops: [("rate".to_owned(), 5)].into(),
            out_drops: [("no-room".to_owned(), frames)].into(),
            ..PortDetails::default()
        };
        AllStats { now_ns, ports: vec![port], ..AllStats::default() }
    }

    /// Objective: rates are known from the second reading on; drops that are in progress are listed first; the counters
    /// of a new port count from zero.
    #[test]
    fn drops_in_progress_come_first() {
        let told = |rows: Vec<DropRow>| -> Vec<_> {
            rows.into_iter().map(|row| (row.reason, row.dir, row.frames, row.rate)).collect()
        };
        let rate = ("rate".to_owned(), Direction::In, 5, None);
        let early = sample(0, 1);
        let late = sample(2_000_000_000, 201);
        assert_eq!(told(rows(None, &early)), [rate.clone(), ("no-room".into(), Direction::Out, 1, None)]);
        let both = told(rows(Some(&early), &late));
        assert_eq!(both[0], ("no-room".into(), Direction::Out, 201, Some(100.0)));
        assert_eq!(both[1], ("rate".into(), Direction::In, 5, Some(0.0)));
        let anew = told(rows(Some(&sample(0, 500)), &late));
        assert_eq!(anew[0].3, Some(100.5));
    }
}
