//! Capture files as ports.

use crate::common;

use std::path::Path;
use std::time::Duration;

use common::{Daemon, crosses, frame, passed, receive, send, stats, until};
use netvale::{Options, Port};
use netvale_pcapport::{PcapFormat, PcapReader, PcapWriter};
use serde_json::{Value, json};

const FRAMES: u8 = 50;

fn record(path: &Path, format: PcapFormat) {
    let mut writer = PcapWriter::create(path, format).unwrap();
    for tag in 0..FRAMES {
        writer.write(Duration::from_millis(tag.into()), &frame(255, 9, tag)).unwrap();
    }
    writer.finish().unwrap();
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        all.push(frame.bytes.to_vec());
    }
    all
}

fn attach(d: &Daemon, port: &str, options: Value) -> Value {
    d.call("port.attach", json!({"switch": "vale0", "port": port, "options": options}))
}

/// Objective: every frame of a file, in either format, reaches a port, in order and unchanged; after that, the
/// replaying port reports the end of the file.
#[test]
fn every_frame_of_a_file_reaches_a_port() {
    for (name, format) in [("in.pcap", PcapFormat::Pcap), ("in.pcapng", PcapFormat::PcapNg)] {
        let d = Daemon::start("");
        let mut a = d.open("vale0:a").unwrap();
        let file = d.path(name);
        record(&file, format);
        let reply = attach(&d, &format!("pcap:in={}", file.display()), json!({"speed": 4.0, "name": "file"}));
        assert_eq!(reply["result"]["kind"], "pcap", "{reply}");
        for tag in 0..FRAMES {
            assert_eq!(receive(&mut a), frame(255, 9, tag));
        }
        until("the replay is at its end", || d.notes("vale0:file").contains("at its end, 1 passes done"));
    }
}

/// Attaches a port that replays a file repeatedly. Returns a lossless port on the same switch.
fn beside_a_replay(d: &Daemon) -> Port {
    let file = d.path("in.pcap");
    record(&file, PcapFormat::Pcap);
    let options = Options { lossless: true, ..d.options() };
    let port = Port::open_with("vale0:a", &options).unwrap();
    attach(d, &format!("pcap:in={}", file.display()), json!({"speed": 0.0, "loop": true, "name": "file"}));
    port
}

/// Objective: with `loop` and `speed` 0, the file is replayed repeatedly, as fast as the switch accepts the frames.
#[test]
fn replay_again_and_again() {
    let d = Daemon::start("");
    let mut a = beside_a_replay(&d);
    for round in 0..200u32 {
        assert_eq!(receive(&mut a), frame(255, 9, (round % u32::from(FRAMES)) as u8), "frame {round}");
    }
    d.detach("file");
}

/// Objective: the repetition of a file continues even if the daemon can no longer open files.
#[test]
fn a_file_is_repeated_without_descriptors() {
    let d = Daemon::start("");
    let mut a = beside_a_replay(&d);
    let _without = WithoutDescriptors::new(&d);
    // These are more frames than the daemon's buffers and the ring have room for.
    for round in 0..20_000u32 {
        assert_eq!(receive(&mut a), frame(255, 9, (round % u32::from(FRAMES)) as u8), "frame {round}");
    }
}

/// A guard that prevents the daemon from opening files until the guard is dropped. The drop restores the limit, because
/// the daemon needs new descriptors when it ends.
struct WithoutDescriptors(u32);

impl WithoutDescriptors {
    fn new(d: &Daemon) -> WithoutDescriptors {
        let without = WithoutDescriptors(d.id());
        without.set(3);
        without
    }

    fn set(&self, most: u64) {
        let process = rustix::process::Pid::from_raw(self.0 as i32);
        let limit = rustix::process::Rlimit { current: Some(most), maximum: Some(4096) };
        rustix::process::prlimit(process, rustix::process::Resource::Nofile, limit).unwrap();
    }
}

impl Drop for WithoutDescriptors {
    fn drop(&mut self) {
        self.set(1024);
    }
}

/// Objective: after the port is detached or the daemon has ended, the frames that were delivered are in the file,
/// unchanged.
#[test]
fn delivered_frames_are_in_the_file_unchanged() {
    for name in ["out.pcap", "out.pcapng"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        let d = Daemon::start("");
        let mut a = d.open("vale0:a").unwrap();
        attach(&d, &format!("pcap:out={}", file.display()), json!({"name": "file"}));
        for tag in 0..FRAMES {
            send(&mut a, &frame(255, 1, tag));
        }
        until("all is taken", || passed(&stats(&d)["ports"][1], "out") == u64::from(FRAMES));
        if name == "out.pcap" {
            d.call("port.detach", json!({"switch": "vale0", "port": "file"}));
        } else {
            drop(d);
        }
        assert_eq!(frames(&file), (0..FRAMES).map(|tag| frame(255, 1, tag).to_vec()).collect::<Vec<_>>());
    }
}

/// Objective: a port with two files replays one file and captures to the other; if the port is configured, it exists
/// from the start.
#[test]
fn both_from_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("in.pcap");
    let to = folder.path().join("out.pcap");
    record(&from, PcapFormat::Pcap);
    let port = format!("pcap:in={},out={}", from.display(), to.display());
    let d = Daemon::start(&format!(
        "[[port]]\nswitch = \"vale0\"\nport = \"{port}\"\nname = \"file\"\nspeed = 0\nloop = true"
    ));
    assert_eq!(d.ports(), ["vale0:file"]);
    let mut a = d.open("vale0:a").unwrap();
    receive(&mut a);
    send(&mut a, &frame(9, 1, 77));
    until("it is taken", || d.show("vale0:file")["rings"][1]["frames"] == 1);
    drop(d);
    assert_eq!(frames(&to), [frame(9, 1, 77).to_vec()]);
}

/// Objective: a truncated file is replayed up to the cut; the port reports the cut, and other ports continue.
#[test]
fn a_truncated_file_is_replayed_up_to_the_cut() {
    let d = Daemon::start("");
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    let file = d.path("in.pcap");
    record(&file, PcapFormat::Pcap);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 30]).unwrap();
    attach(&d, &format!("pcap:in={}", file.display()), json!({"speed": 0.0, "name": "file"}));
    for tag in 0..FRAMES - 1 {
        assert_eq!(receive(&mut a), frame(255, 9, tag));
    }
    until("the cut is seen", || d.notes("vale0:file").contains("ended early"));
    crosses(&mut b, &mut a, &frame(255, 2, 200));
}

/// Objective: missing files, files of other formats, and read-only files are refused with advice, and leave no port.
#[test]
fn unfit_files_are_refused_with_advice() {
    let d = Daemon::start("");
    let refused = |port: &str| {
        let reply = attach(&d, port, json!({}));
        reply["error"].to_string()
    };
    let missing = refused("pcap:in=/nonexistent/x.pcap");
    assert!(missing.contains("cannot open /nonexistent/x.pcap"), "{missing}");
    let text = d.path("text");
    std::fs::write(&text, "hello").unwrap();
    assert!(refused(&format!("pcap:in={}", text.display())).contains("text"));
    assert!(refused("pcap:in=relative.pcap").contains("absolute"));
    assert!(refused("pcap:in=/dev/zero").contains("not a regular file"));
    let link = d.path("link");
    std::os::unix::fs::symlink(d.path("elsewhere"), &link).unwrap();
    assert!(refused(&format!("pcap:out={}", link.display())).contains("cannot open"));
    assert!(!d.path("elsewhere").exists());
    assert!(d.ports().is_empty());
}

/// Objective: a full disk ends the capture with a reason, and affects no other port.
#[test]
fn a_full_disk_ends_the_capture_with_a_reason() {
    let d = Daemon::start("");
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    let full = attach(&d, "pcap:out=/dev/full", json!({"name": "file"}));
    let text = full["error"].to_string();
    assert!(text.contains("No space left") && text.contains("make room"), "{full}");
    crosses(&mut a, &mut b, &frame(255, 1, 1));
}
