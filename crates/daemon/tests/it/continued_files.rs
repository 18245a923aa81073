//! Daemons that are replaced during captures and replays: no frame is lost, duplicated or reordered.

use crate::common;

use std::time::{Duration, Instant};

use common::ports::{attach, numbered, numbers, open};
use common::users::Captures;
use common::{Daemon, until};
use netvale::Interest;
use netvale_pcapport::{PcapFormat, PcapWriter};
use serde_json::json;

const FRAMES: u32 = 2000;
/// A user that the daemon does not trust.
const USER: u32 = 61_123;

/// Objective: captures that continue across several daemons are complete in both formats, even after a failed
/// successor. The frame count continues.
#[test]
fn captures_across_daemons_are_complete() {
    let d = Daemon::start("");
    let files = ["out.pcap", "out.pcapng"].map(|name| d.path(name));
    for file in &files {
        attach(&d, &format!("pcap:out={}", file.display()), json!({"name": file.extension().unwrap().to_str()}));
    }
    let mut port = open(&d, "vale0:a");
    let mut sent = 0;
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            for _ in 0..4 {
                d.is_robbed();
                d.is_succeeded();
            }
        });
        while !others.is_finished() || sent < FRAMES {
            if port.tx()[0].send(&numbered(sent)) {
                sent += 1;
            }
            port.tx()[0].sync();
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    for (name, file) in ["pcap", "pcapng"].into_iter().zip(files) {
        until("all is written", || d.notes(&format!("vale0:{name}")).contains(&format!("{sent} frames written")));
        d.call("port.detach", json!({"switch": "vale0", "port": name}));
        assert!(numbers(&file) == (0..sent).collect::<Vec<_>>(), "{name}");
    }
}

/// Objective: a replay continues at its position and at the recorded times, and reaches its end only once.
#[test]
fn a_replay_continues_at_its_position() {
    let d = Daemon::start("");
    let file = d.path("in.pcapng");
    let mut writer = PcapWriter::create(&file, PcapFormat::PcapNg).unwrap();
    (0..FRAMES).for_each(|i| writer.write(Duration::from_micros(500) * i, &numbered(i)).unwrap());
    writer.finish().unwrap();
    let mut port = open(&d, "vale0:a");
    let begun = Instant::now();
    attach(&d, &format!("pcap:in={}", file.display()), json!({"name": "file"}));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                d.is_robbed();
                d.is_succeeded();
            }
        });
        let mut place = vec![0; 2048];
        for i in 0..FRAMES {
            while port.rx()[0].space() == 0 {
                assert!(port.wait(Interest::Rx, Some(common::LIMIT)).unwrap(), "no frame {i}");
            }
            let n = port.rx()[0].recv(&mut place).unwrap();
            assert_eq!(place[..n], numbered(i), "frame {i}");
            assert!(begun.elapsed() >= Duration::from_micros(500) * i, "frame {i} came too early");
            let _ = port.rx()[0].sync();
        }
    });
    until("its end", || d.notes("vale0:file").contains("at its end, 1 passes done"));
    d.is_succeeded();
    assert!(d.notes("vale0:file").contains("at its end, 1 passes done"));
    assert_eq!(port.rx()[0].space(), 0);
}

mod as_root {
    use super::*;

    /// Objective: a user's capture quota holds across successors: portions of finished and running captures count, and
    /// are returned when the files are removed; the limit of a single file also holds.
    #[test]
    fn capture_limits_hold_across_successors() {
        let start = |dir, more: &str| Daemon::start_as(0, dir, more);
        let Some(captures) = Captures::two(USER, start) else { return };
        for _ in 0..2 {
            captures.daemon.is_succeeded();
            captures.are_exhausted();
        }
        captures.remove("one");
        // Data that a slow disk has not stored yet still counts towards the quota for a while.
        let allowed = |name: &str| until(name, || captures.start(name)["error"].is_null());
        allowed("three");
        captures.stop("two");
        captures.remove("two");
        allowed("four");
    }
}
