//! ptnet ports, and guests of all kinds: good ones, mute ones, and those that write nonsense everywhere.

mod common;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Daemon, frame, receive, send, until};
use netvale::Port;
use netvale::guest::Guest;
use netvale_abi::ptnet::{COMMAND_START, COMMAND_STOP, FEATURE_VNET_HDR};
use netvale_mem::words::Words;
use rustix::io::Errno;
use rustix::net::SendFlags;
use serde_json::{Value, json};

/// A port on switch vale0. Returns its socket.
fn attach(d: &Daemon, name: &str, mut options: Value) -> PathBuf {
    let path = d.path(&format!("{name}.sock"));
    options["name"] = json!(name);
    let port = format!("ptnet:{}", path.display());
    let reply = d.call("port.attach", json!({"switch": "vale0", "port": port, "options": options}));
    assert_eq!(reply["result"]["kind"], "ptnet", "{reply}");
    path
}

fn notes(d: &Daemon, name: &str) -> String {
    d.call("port.show", json!({"port": format!("vale0:{name}")}))["result"]["notes"].to_string()
}

fn ping(a: &mut Port, b: &mut Port, tag: u8) {
    send(a, &frame(255, 1, tag));
    assert_eq!(receive(b), frame(255, 1, tag));
}

/// Objective: frames go from guest to guest and to local ports, woken where they sleep.
#[test]
fn guests_and_programs() {
    let d = Daemon::start("workers = 2");
    let (one, two) = (attach(&d, "one", json!({"rings": 2})), attach(&d, "two", json!({"slots": 64})));
    let mut local = d.open("vale0:local").unwrap();
    let (mut a, mut b) = (Port::as_guest(&one, 0).unwrap(), Port::as_guest(&two, 0).unwrap());
    for i in 0..200 {
        ping(&mut a, &mut b, i);
        assert_eq!(receive(&mut local), frame(255, 1, i));
        send(&mut b, &frame(255, 2, i));
        assert_eq!(receive(&mut a), frame(255, 2, i));
        receive(&mut local);
    }
    let shown = d.call("port.show", json!({"port": "vale0:one"}));
    assert_eq!(shown["result"]["rings"].as_array().unwrap().len(), 4, "{shown}");
    assert!(shown["result"]["ptnet"]["vectors"] == 5, "{shown}");
}

/// Objective: with a header, what a stack left undone is done or passed on, and a header is never seen by those without.
#[test]
fn headers() {
    let d = Daemon::start("");
    let path = attach(&d, "one", json!({"vnet_hdr": 12}));
    let mut local = d.open("vale0:local").unwrap();
    let mut guest = Port::as_guest(&path, 12).unwrap();
    for i in 0..100 {
        let framed = [&[0; 12][..], &frame(255, 1, i)].concat();
        send(&mut guest, &framed);
        assert_eq!(receive(&mut local), frame(255, 1, i));
        send(&mut local, &frame(255, 2, i));
        assert_eq!(receive(&mut guest), [&[0; 12][..], &frame(255, 2, i)].concat());
    }
    drop(guest);
    until("the port is free", || notes(&d, "one").contains("waits"));
    // The same port for a driver that wants none.
    let mut guest = Port::as_guest(&path, 0).unwrap();
    ping(&mut guest, &mut local, 7);
}

/// Objective: commands that there are not are refused by their numbers, those that there are can be given again and again.
#[test]
fn commands() {
    let d = Daemon::start("");
    let path = attach(&d, "one", json!({"slots": 128}));
    let guest = Guest::connect(&path).unwrap();
    let invalid = Errno::INVAL.raw_os_error().cast_unsigned();
    assert_eq!(guest.command(0, 0, 0).unwrap(), invalid);
    assert_eq!(guest.command(77, 0, 0).unwrap(), invalid);
    let unsupported = Errno::OPNOTSUPP.raw_os_error().cast_unsigned();
    assert_eq!(guest.command(COMMAND_START, FEATURE_VNET_HDR, 0).unwrap(), unsupported);
    assert_eq!(guest.command(COMMAND_START, !0, 0).unwrap(), unsupported);
    for _ in 0..50 {
        assert_eq!(guest.command(COMMAND_START, 0, u32::MAX).unwrap(), 0);
        assert_eq!(guest.command(COMMAND_STOP, 0, 0).unwrap(), 0);
        assert_eq!(guest.command(COMMAND_STOP, 0, 0).unwrap(), 0);
    }
    assert_eq!(guest.command(COMMAND_START, 0, 3).unwrap(), 0);
    let mut port = guest.into_port(0).unwrap();
    let mut local = d.open("vale0:local").unwrap();
    ping(&mut port, &mut local, 1);
}

/// Sizes that make no device, and sockets that cannot be.
#[test]
fn refusals() {
    let d = Daemon::start("");
    let refused = |port: &str, options: Value| {
        let reply = d.call("port.attach", json!({"switch": "vale0", "port": port, "options": options}));
        reply["error"].to_string()
    };
    let path = d.path("x.sock").display().to_string();
    let port = format!("ptnet:{path}");
    assert!(refused(&port, json!({"rings": 17})).contains("1 to 16"));
    assert!(refused(&port, json!({"slots": 1})).contains("slots"));
    assert!(refused(&port, json!({"slots": 1 << 20})).contains("slots"));
    assert!(refused(&port, json!({"buf_size": 100})).contains("buffer size 100"));
    assert!(refused(&port, json!({"vnet_hdr": 10})).contains("12 bytes"));
    std::fs::write(&path, "a file").unwrap();
    assert!(refused(&port, json!({})).contains("is no socket"));
}

/// Objective: a guest that says something is shown out with a reason; the next one finds the port, and memory in which nobody has written.
#[test]
fn those_who_talk() {
    let d = Daemon::start("");
    let path = attach(&d, "one", json!({}));
    let guest = Guest::connect(&path).unwrap();
    let mark = Words::new(guest.memory(), 1 << 16, 1).unwrap();
    mark.store(0, 0xdead_beef);
    rustix::net::send(guest.connection().unwrap(), b"hello", SendFlags::NOSIGNAL).unwrap();
    until("it is shown out", || notes(&d, "one").contains("no ivshmem client does"));
    let next = Guest::connect(&path).unwrap();
    assert_eq!(Words::new(next.memory(), 1 << 16, 1).unwrap().load(0), 0);
    // One at a time: a second one waits, and hears nothing.
    let waiting = UnixStream::connect(&path).unwrap();
    assert_eq!(next.command(COMMAND_START, 0, 0).unwrap(), 0);
    drop(waiting);
    drop(next);
    let mut port = Port::as_guest(&path, 0).unwrap();
    let mut local = d.open("vale0:local").unwrap();
    ping(&mut port, &mut local, 1);
}

/// A cheap generator of numbers.
fn noise(state: &mut u64) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as u32
}

/// Objective: nonsense all over the memory (header, status blocks, rings, slots), doorbells without end and commands in between cost the
/// others nothing; when the guest starts its rings anew, they work.
#[test]
fn nonsense_everywhere() {
    let d = Daemon::start("workers = 1");
    let path = attach(&d, "mad", json!({"slots": 64, "rings": 2, "vnet_hdr": 12}));
    let (mut a, mut b) = (d.open("vale0:a").unwrap(), d.open("vale0:b").unwrap());
    let mad = Guest::connect(&path).unwrap();
    let whole = Words::new(mad.memory(), 0, mad.memory().len() / 4).unwrap();
    // Everything but buffers: those are opaque anyway.
    let structures = 16 * 1024;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 0x9e37_79b9_7f4a_7c15;
            while !over.load(Ordering::Relaxed) {
                for _ in 0..500 {
                    let value = noise(&mut state);
                    // Small numbers are more often believed.
                    let value = if value.is_multiple_of(3) { value >> 24 } else { value };
                    whole.store(noise(&mut state) as usize % structures, value);
                }
                mad.doorbells().iter().for_each(netvale_mem::notify::Doorbell::ring);
                if noise(&mut state).is_multiple_of(64) {
                    let _ = mad.command(COMMAND_START, FEATURE_VNET_HDR, noise(&mut state));
                }
            }
        });
        for i in 0..3_000u32 {
            // Its frames may be flooded to everybody: only ours are looked at.
            send(&mut a, &frame(255, 1, i as u8));
            while receive(&mut b) != frame(255, 1, i as u8) {}
        }
        over.store(true, Ordering::Relaxed);
    });
    let mut port = mad.into_port(0).unwrap();
    send(&mut port, &frame(255, 9, 9));
    while receive(&mut b) != frame(255, 9, 9) {}
    until("an idle daemon", || notes(&d, "mad").contains("rings run"));
}
