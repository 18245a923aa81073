//! Daemons that are killed and restarted during captures and replays: captures continue in the same file, replays at
//! their position.

use crate::common;

use std::path::Path;
use std::time::Duration;

use common::ports::{attach, number, numbered, numbers, open};
use common::users::Captures;
use common::{Daemon, until};
use netvale::{Interest, Port};
use netvale_pcapport::{PcapFormat, PcapReader, PcapWriter};
use serde_json::json;

/// A user that the daemon does not trust.
const USER: u32 = 61_124;
/// Maximum number of frames in a batch.
const BATCH: u32 = 256;

/// Objective: frames captured before a kill stay whole in the file, and frames captured later follow them, for any
/// number of kills; frames are missing only around the time of a kill, and the port's frame count equals the number of
/// frames in the file.
#[test]
fn captured_frames_survive_kills_whole() {
    const KILLS: usize = 4;
    let d = Daemon::managed("");
    let files = ["out.pcap", "out.pcapng"].map(|name| d.path(name));
    for file in &files {
        attach(&d, &format!("pcap:out={}", file.display()), json!({"name": file.extension().unwrap().to_str()}));
    }
    let mut port = open(&d, "vale0:a");
    let mut sent = 0u32;
    let mut settled = Vec::new();
    let send = |port: &mut Port, sent: &mut u32, end: &dyn Fn(u32) -> bool| {
        while !end(*sent) {
            if port.tx()[0].send(&numbered(*sent)) {
                *sent += 1;
            }
            port.tx()[0].sync();
            std::thread::sleep(Duration::from_micros(50));
        }
    };
    for _ in 0..KILLS {
        let goal = sent + 500;
        send(&mut port, &mut sent, &|sent| sent >= goal);
        let written = |name: &str| d.notes(&format!("vale0:{name}")).contains(": 0 frames written");
        until("some is written", || !written("pcap") && !written("pcapng"));
        settled.push(files.each_ref().map(|file| numbers_so_far(file)));
        std::thread::scope(|scope| {
            let kill = scope.spawn(|| d.is_killed());
            send(&mut port, &mut sent, &|_| kill.is_finished());
        });
    }
    let last = sent;
    send(&mut port, &mut sent, &|sent| sent >= last + 10);
    for (i, (name, file)) in ["pcap", "pcapng"].into_iter().zip(&files).enumerate() {
        until("the last frame is written", || numbers_so_far(file).last() == Some(&(sent - 1)));
        let count = numbers(file).len();
        assert!(d.notes(&format!("vale0:{name}")).contains(&format!("{count} frames written")));
        d.call("port.detach", json!({"switch": "vale0", "port": name}));
        let all = numbers(file);
        for before in &settled {
            assert!(all.starts_with(&before[i]), "{name}: what was in the file is gone");
        }
        // After a kill, at most one batch of frames may be repeated.
        let mut again = 0;
        let mut gaps = 0;
        let mut next = 0;
        for &number in &all {
            again += usize::from(number < next);
            gaps += usize::from(number > next);
            next = next.max(number + 1);
        }
        assert!(again <= KILLS * BATCH as usize * 4 && gaps <= KILLS, "{name}: {again} again, {gaps} gaps");
        assert_eq!(all[all.len() - 10..], ((sent - 10)..sent).collect::<Vec<_>>());
    }
}

/// Returns the numbers of the complete frames in a file that is being written.
fn numbers_so_far(path: &Path) -> Vec<u32> {
    let mut reader = PcapReader::open(path).unwrap();
    let mut all = Vec::new();
    while let Ok(Some(frame)) = reader.next_frame() {
        all.push(number(frame.bytes));
    }
    all
}

/// Objective: a replay continues at its position after a kill: each frame arrives, in order, except that each kill may
/// repeat a batch. After that, the replay is at its end, and is still at its end in the next daemon.
#[test]
fn a_replay_continues_at_its_position_after_a_kill() {
    const KILLS: u32 = 4;
    const FRAMES: u32 = 8000;
    let d = Daemon::managed("");
    let file = d.path("in.pcapng");
    let mut writer = PcapWriter::create(&file, PcapFormat::PcapNg).unwrap();
    (0..FRAMES).for_each(|i| writer.write(Duration::from_micros(200) * i, &numbered(i)).unwrap());
    writer.finish().unwrap();
    // Frames that were due while no daemon ran arrive together.
    attach(&d, "a", json!({"lossless": true, "slots": 1024}));
    let mut port = open(&d, "vale0:a");
    attach(&d, &format!("pcap:in={}", file.display()), json!({"name": "file"}));
    let mut next = 0;
    let mut again = 0;
    let mut place = vec![0; 2048];
    let mut receive = |port: &mut Port, next: &mut u32| {
        let _ = port.wait(Interest::Rx, Some(Duration::from_millis(100))).unwrap();
        while let Some(n) = port.rx()[0].recv(&mut place) {
            let came = number(&place[..n]);
            assert!(came <= *next, "frames {next} to {came} are missing");
            again += u32::from(came < *next);
            *next = (*next).max(came + 1);
        }
        let _ = port.rx()[0].sync();
    };
    for kill in 0..KILLS {
        until("some more", || {
            receive(&mut port, &mut next);
            next >= (kill + 1) * FRAMES / (KILLS + 2)
        });
        std::thread::scope(|scope| {
            let kill = scope.spawn(|| d.is_killed());
            while !kill.is_finished() {
                receive(&mut port, &mut next);
            }
        });
    }
    until("all frames", || {
        receive(&mut port, &mut next);
        next == FRAMES
    });
    until("its end", || d.notes("vale0:file").contains("at its end, 1 passes done"));
    d.is_killed();
    until("its end again", || d.notes("vale0:file").contains("at its end, 1 passes done"));
    receive(&mut port, &mut next);
    assert!(next == FRAMES && again <= KILLS * BATCH, "{again} frames came again");
}

mod as_root {
    use super::*;

    /// Objective: a user's capture quota holds across kills: portions of finished and running captures count once, and
    /// are returned when the files are removed.
    #[test]
    fn a_capture_quota_holds_across_kills() {
        let Some(captures) = Captures::two(USER, Daemon::managed_in) else { return };
        for _ in 0..2 {
            captures.daemon.is_killed();
            captures.are_exhausted();
        }
        captures.remove("one");
        let reply = captures.start("three");
        assert!(reply["error"].is_null(), "{reply}");
    }
}
