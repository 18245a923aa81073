//! Checks of a running daemon: how its workers spent their time, and which receivers were too slow.

use serde_json::json;

use super::row::{CheckRow, rounded};
use super::watched::{RoomDrops, WorkerLoad};
use crate::units;

/// Judges how the workers spent their time during the watch; `idle` is the number of idle CPUs.
pub fn workers(loads: &[WorkerLoad], idle: f64) -> CheckRow {
    const CHECK: &str = "workers";
    let percent = |share: f64| share * 100.0;
    let about = |load: &WorkerLoad| {
        let shares = [load.busy, load.polled, load.asleep()].map(percent);
        format!("worker {}: {:.0} % busy, {:.0} % polling, {:.0} % asleep", load.index, shares[0], shares[1], shares[2])
    };
    let figure = |load: &WorkerLoad| {
        json!({
            "index": load.index, "cpu": load.cpu, "ingresses": load.ingresses, "busy": rounded(load.busy),
            "polled": rounded(load.polled), "asleep": rounded(load.asleep()),
        })
    };
    let texts: Vec<_> = loads.iter().map(about).collect();
    let row = CheckRow::ok(CHECK, texts.join("; ")).figure("workers", loads.iter().map(figure).collect::<Vec<_>>());
    advise(row, loads, idle)
}

fn advise(row: CheckRow, loads: &[WorkerLoad], idle: f64) -> CheckRow {
    /// A worker that is busy for more than this share of its time has no reserve.
    const FULL: f64 = 0.9;
    /// Minimum number of idle CPUs for which a further worker is useful.
    const SPARE: f64 = 0.5;
    let full: Vec<_> = loads.iter().filter(|load| load.busy > FULL).collect();
    let more = loads.len() + 1;
    if full.is_empty() {
        row
    } else if idle < SPARE {
        row.advise(
            format!("A busy worker limits its ports' rate. Only {idle:.1} CPUs are idle: too few for another worker."),
            "more CPUs, or fewer programs on them (neighbours), then `netvale up --workers N`; larger batches cost a \
             worker less",
        )
    } else if full.iter().all(|load| load.ingresses <= 1) {
        row.advise(
            "A busy worker limits its ports' rate. This one serves a single ring, which cannot be divided.",
            format!(
                "more rings for the sender (`netvale attach --rings 2`), and `netvale up --workers {more}` \
                 (`workers = {more}`)"
            ),
        )
    } else {
        row.advise(
            format!("A busy worker limits its ports' rate, and {idle:.1} CPUs are idle."),
            format!(
                "`netvale up --workers {more}` (`workers = {more}` in the configuration) divides the ports among more"
            ),
        )
    }
}

/// Judges the ports that dropped frames for lack of room.
pub fn receivers(ports: &[RoomDrops]) -> CheckRow {
    const CHECK: &str = "receivers";
    /// Maximum number of ports that are listed by name; for all other ports, only their number is shown.
    const NAMED: usize = 5;
    if ports.is_empty() {
        return CheckRow::ok(CHECK, "no frame was dropped for lack of room").figure("no_room", Vec::<String>::new());
    }
    let about =
        |port: &RoomDrops| format!("{} ({})", port.port.replace(char::is_control, "?"), units::pps(port.per_second));
    let mut texts: Vec<_> = ports.iter().take(NAMED).map(about).collect();
    if ports.len() > NAMED {
        texts.push(format!("{} more", ports.len() - NAMED));
    }
    let figure = |port: &RoomDrops| json!({"port": port.port, "per_second": rounded(port.per_second)});
    let row = CheckRow::ok(CHECK, format!("frames had no room at {}", texts.join(", ")))
        .figure("no_room", ports.iter().map(figure).collect::<Vec<_>>());
    row.advise(
        "These receivers are slower than their senders: frames are dropped (`no-room`).",
        "a faster receiver, or more rings and threads for it (`--rings`); a larger ring for bursts (`--slots`); \
         `--lossless` holds the senders back",
    )
}

#[cfg(test)]
mod tests {
    use super::super::row::CheckState;
    use super::*;

    fn load(busy: f64, ingresses: u64) -> WorkerLoad {
        WorkerLoad { index: 0, cpu: None, busy, polled: 0.05, ingresses }
    }

    /// Objective: a worker without reserve yields advice: depending on the situation, more workers, more rings or more
    /// CPUs.
    #[test]
    fn a_full_worker_yields_advice() {
        let row = workers(&[load(0.2, 4)], 0.0);
        assert_eq!((row.state, &*row.found), (CheckState::Ok, "worker 0: 20 % busy, 5 % polling, 75 % asleep"));
        assert!(workers(&[load(0.95, 4)], 2.0).what_to_do.contains("`workers = 2`"));
        assert!(workers(&[load(0.95, 1)], 2.0).what_to_do.contains("--rings 2"));
        assert!(workers(&[load(0.95, 4)], 0.2).what_to_do.contains("more CPUs"));
    }

    /// Objective: receivers that lack room are named with their rate of drops; at most five are named.
    #[test]
    fn receivers_without_room_are_named_with_their_rate() {
        assert_eq!(receivers(&[]).state, CheckState::Ok);
        let port = |number: usize| RoomDrops { port: format!("vale0:{number}"), per_second: 1000.0 };
        let row = receivers(&(0..7).map(port).collect::<Vec<_>>());
        let begin = "frames had no room at vale0:0 (1.000 Kpps), vale0:1 (1.000 Kpps), ";
        assert!(row.found.starts_with(begin) && row.found.ends_with(", 2 more"), "{row:?}");
        assert_eq!(row.figures["no_room"].as_array().map(Vec::len), Some(7));
        assert!(row.what_to_do.contains("--lossless"));
    }
}
