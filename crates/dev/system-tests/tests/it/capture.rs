//! `dump` and `replay` against a daemon.

use crate::common;
use crate::common::up;

use std::path::Path;

use common::{stderr, stdout};
use netvale_pcapport::{PcapReader, PcapWriter};
use rustix::process::Signal;
use up::{Up, last_json, until};

fn frame(tag: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![tag; len];
    bytes[..12].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9]);
    bytes
}

fn record(path: &Path, frames: u8) {
    let mut writer = PcapWriter::create(path, netvale_pcapport::PcapFormat::of(path)).expect("room");
    for tag in 0..frames {
        let time = std::time::Duration::from_micros(u64::from(tag) * 100);
        writer.write(time, &frame(tag, 60 + usize::from(tag) * 20)).expect("room");
    }
    writer.finish().expect("room");
}

fn read(path: &Path) -> Vec<(Vec<u8>, u32)> {
    let mut reader = PcapReader::open(path).expect("a capture");
    let mut all = Vec::new();
    while let Some(frame) = reader.next_frame().expect("whole") {
        all.push((frame.bytes.to_vec(), frame.orig_len));
    }
    all
}

/// Objective: `dump` writes exactly the frames that `replay` sends, in both formats and at any speed.
#[test]
fn dump_writes_what_replay_sends() {
    let up = Up::start(&[]);
    for (name, how) in [("a.pcap", ""), ("b.pcapng", "--speed 0"), ("c.pcap", "-R 5000 -b 1")] {
        let from = up.path(&format!("from-{name}"));
        let to = up.path(name);
        record(&from, 100);
        let dump = up.start_program(&format!("dump vale0:d -w {} -c 100 --json", to.display()));
        up.wait_for_port("vale0:d");
        let sent = last_json(&up.run(&format!("replay {} vale0:r {how} --json", from.display())));
        assert_eq!(sent["frames"], 100);
        assert_eq!(last_json(&dump.output())["frames"], 100);
        assert_eq!(read(&to), read(&from));
    }
}

/// Objective: `replay` sends a file several times, stops after a count, and reads standard input.
#[test]
fn replay_obeys_its_options() {
    let up = Up::start(&[]);
    let from = up.path("from.pcapng");
    record(&from, 10);
    let line = format!("replay {} vale0:r --speed 0 --json", from.display());
    assert_eq!(last_json(&up.run(&format!("{line} --loop 7")))["frames"], 70);
    assert_eq!(last_json(&up.run(&format!("{line} --loop 0 -c 33")))["frames"], 33);
    let input = std::fs::File::open(&from).expect("there");
    let piped = up.command(["replay", "-", "vale0:r", "--json"]).stdin(input).output().expect("starts");
    assert_eq!(last_json(&piped)["frames"], 10);
    let looped = up.run("replay - vale0:r --loop 2");
    assert_eq!((looped.status.code(), stderr(&looped).contains("only once")), (Some(2), true));
}

/// Objective: a truncated capture is sent up to the damage, the damage is reported, and the exit code is 1.
#[test]
fn a_cut_capture_is_sent_up_to_the_cut() {
    let up = Up::start(&[]);
    let from = up.path("from.pcap");
    let cut = up.path("cut.pcap");
    record(&from, 10);
    let bytes = std::fs::read(&from).expect("there");
    std::fs::write(&cut, &bytes[..bytes.len() - 5]).expect("room");
    let output = up.run(&format!("replay {} vale0:r --speed 0 --json", cut.display()));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("truncated in the record") && stderr(&output).contains("9 whole frames"));
    let sum: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the sum is printed nevertheless");
    assert_eq!(sum["frames"], 9);
    let missing = up.run("replay /nonexistent.pcap vale0:r");
    assert_eq!((missing.status.code(), stderr(&missing).contains("cannot open")), (Some(1), true));
}

/// Objective: on a full disk, `dump` ends with exit code 1 and advice, without a panic, and the daemon is unaffected.
#[test]
fn a_full_disk_ends_dump_with_advice() {
    let up = Up::start(&[]);
    // /dev/full refuses even the file's header.
    let output = up.start_program("dump vale0:d -w /dev/full -c 100").output();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("No space left on device") && text.contains("make room") && !text.contains("panicked"),
        "{text}"
    );
    assert!(up.run("list").status.success());
}

/// Objective: -s keeps the beginning of each frame and its original length; after SIGINT, the file is complete.
#[test]
fn cut_frames_and_interrupt() {
    let up = Up::start(&[]);
    let from = up.path("from.pcap");
    let to = up.path("to.pcap");
    record(&from, 20);
    let dump = up.start_program(&format!("dump vale0:d -w {} -s 64 --json", to.display()));
    up.wait_for_port("vale0:d");
    stdout(&up.run(&format!("replay {} vale0:r --speed 0", from.display())));
    until("all is delivered", || up.frames("vale0:d", "out") == 20 && up.show("vale0:d")["rings"][1]["head"] == 20);
    dump.signal(Signal::INT);
    assert_eq!(last_json(&dump.output())["frames"], 20);
    let whole = read(&from);
    for ((cut, length), (bytes, _)) in read(&to).iter().zip(&whole) {
        assert_eq!((&cut[..], *length as usize), (&bytes[..bytes.len().min(64)], bytes.len()));
    }
}
