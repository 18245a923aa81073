//! Helpers for tests: ports on `vale0`, and numbered frames.

use std::path::Path;
use std::time::{Duration, Instant};

use netvale::{Options, Port};
use netvale_harness::attacks::filters::Listeners;
use netvale_pcapport::PcapReader;
use serde_json::{Value, json};

use super::{Daemon, frame, receive, send, until};

/// Attaches a port to `vale0`. Returns the result.
#[track_caller]
pub fn attach(d: &Daemon, port: &str, options: Value) -> Value {
    let mut reply = d.call("port.attach", json!({"switch": "vale0", "port": port, "options": options}));
    assert!(reply["error"].is_null(), "{reply}");
    reply["result"].take()
}

/// Opens a port that has room for all frames that may arrive together.
pub fn open(d: &Daemon, name: &str) -> Port {
    Port::open_with(name, &Options { slots: 1024, ..d.options() }).unwrap()
}

/// Attaches a device of `kind` for a guest. Returns the path of the device's socket.
pub fn attach_guest(d: &Daemon, kind: &str, options: Value) -> std::path::PathBuf {
    attach_device(d, kind, "guest", options)
}

/// Attaches a device of `kind` as port `name` of `vale0`. Returns the path of the device's socket.
pub fn attach_device(d: &Daemon, kind: &str, name: &str, mut options: Value) -> std::path::PathBuf {
    let path = d.path(&format!("{name}.sock"));
    options["name"] = json!(name);
    assert_eq!(attach(d, &format!("{kind}:{}", path.display()), options)["kind"], kind);
    path
}

/// Creates a frame with the number `number`.
pub fn numbered(number: u32) -> Vec<u8> {
    let mut bytes = frame(255, 1, 0).to_vec();
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Returns the number of a frame.
pub fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// Returns the numbers of the frames in a capture file.
pub fn numbers(path: &Path) -> Vec<u32> {
    let mut reader = PcapReader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        all.push(number(frame.bytes));
    }
    all
}

/// Sends frames to a port without pause, first without and then with `listeners`, which are sockets that make each
/// frame very slow. Other ports must keep a share of the worker's time: without a limit, slow frames would leave them
/// only a few round trips per second. On a busy machine, a worker with slow frames also waits longer for a processor.
/// After the listeners are closed, the port must accept all frames again.
pub fn beside_slow_frames(d: &Daemon, port: &str, listeners: impl FnOnce() -> Listeners) {
    let mut others = ["vale1:a", "vale1:b"].map(|name| d.open(name).unwrap());
    let mut sender = d.open("vale0:s").unwrap();
    let dropped = || d.show(port)["drops"]["device"].as_u64().unwrap_or_default();
    let before = trips(&mut others, &mut sender);
    assert_eq!(dropped(), 0, "beside {before} round trips");
    let listeners = listeners();
    let beside = trips(&mut others, &mut sender);
    let drops = dropped();
    println!("{before} round trips, {beside} beside the sockets, {drops} drops");
    assert!(beside * 20 > before, "{beside} round trips beside the sockets, {before} without, {drops} drops");
    assert!(drops > 0);
    drop(listeners);
    let all_pass = || {
        let at_first = dropped();
        trips(&mut others, &mut sender);
        dropped() == at_first
    };
    until("the port takes all frames again", all_pass);
}

/// Counts the round trips of a frame between two ports on another switch in one second, while `sender` sends without
/// pause.
fn trips(others: &mut [Port; 2], sender: &mut Port) -> u32 {
    let begun = Instant::now();
    let mut trips = 0;
    while begun.elapsed() < Duration::from_secs(1) {
        // Send until the ring is full.
        while sender.tx()[0].send(&frame(255, 9, 0)) {}
        sender.tx()[0].sync();
        let tag = trips as u8;
        for (from, to) in [(0, 1), (1, 0)] {
            send(&mut others[from], &frame(255, from as u8, tag));
            while receive(&mut others[to]) != frame(255, from as u8, tag) {}
        }
        trips += 1;
    }
    trips
}
