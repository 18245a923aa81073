//! ptnet ports, and guests of all kinds: guests that are correct, that are silent, and that write nonsense everywhere.

use crate::common;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use common::ports::attach_device;
use common::published::{Driver, GUEST_AT, GUEST_BYTES, Plugged, TAIL};
use common::{Daemon, crosses, frame, noise, receive, send, until};
use netvale::Port;
use netvale_abi::ptnet::{COMMAND_START, COMMAND_STOP, FEATURE_VNET_HDR};
use netvale_guest::BareGuest;
use netvale_mem::notify::Doorbell;
use netvale_mem::words::Words;
use rustix::io::Errno;
use rustix::net::SendFlags;
use serde_json::{Value, json};

/// Attaches a port to `vale0`. Returns the path of its socket.
fn attach(d: &Daemon, name: &str, options: Value) -> PathBuf {
    attach_device(d, "ptnet", name, options)
}

fn ping(a: &mut Port, b: &mut Port, tag: u8) {
    send(a, &frame(255, 1, tag));
    assert_eq!(receive(b), frame(255, 1, tag));
}

/// Objective: frames pass between guests, and between guests and programs, and wake sleeping receivers.
#[test]
fn guests_and_programs_exchange_frames() {
    let d = Daemon::start("workers = 2");
    let one = attach(&d, "one", json!({"rings": 2}));
    let two = attach(&d, "two", json!({"slots": 64}));
    let mut local = d.open("vale0:local").unwrap();
    let mut a = Port::as_guest(&one, 0).unwrap();
    let mut b = Port::as_guest(&two, 0).unwrap();
    for i in 0..200 {
        ping(&mut a, &mut b, i);
        assert_eq!(receive(&mut local), frame(255, 1, i));
        crosses(&mut b, &mut a, &frame(255, 2, i));
        receive(&mut local);
    }
    let shown = d.show("vale0:one");
    let rings = shown["rings"].as_array().unwrap();
    let sum = |of: &[Value], key: &str| of.iter().map(|ring| ring[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((rings.len(), sum(&rings[..2], "slots"), sum(&rings[2..], "slots")), (4, 1024, 1024), "{shown}");
    assert_eq!((sum(&rings[..2], "hwcur"), sum(&rings[2..], "hwtail")), (200, 200), "{shown}");
    assert!(shown["ptnet"]["vectors"] == 5, "{shown}");
}

/// Objective: with a virtio-net header, pending offloads of a guest's stack are completed or passed on; ports without
/// headers never get a header.
#[test]
fn headers_carry_pending_offloads() {
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
    until("the port is free", || d.notes("vale0:one").contains("waits"));
    // The same port also serves a driver that uses no header.
    let mut guest = Port::as_guest(&path, 0).unwrap();
    ping(&mut guest, &mut local, 7);
}

/// Objective: unknown commands are refused by their numbers, known commands can be repeated.
#[test]
fn unknown_commands_are_refused_by_number() {
    let d = Daemon::start("");
    let path = attach(&d, "one", json!({"slots": 128}));
    let guest = BareGuest::connect(&path).unwrap();
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
    let mut port = Port::of_guest(guest, 0).unwrap();
    let mut local = d.open("vale0:local").unwrap();
    ping(&mut port, &mut local, 1);
}

/// Objective: impossible sizes and sockets are refused.
#[test]
fn impossible_sizes_and_sockets_are_refused() {
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
    assert!(refused(&port, json!({"vnet_hdr": 10})).contains("expected 12"));
    std::fs::write(&path, "a file").unwrap();
    assert!(refused(&port, json!({})).contains("is not a socket"));
}

/// Objective: a guest that sends data on its connection is disconnected with a reason; the next guest finds the port,
/// and cleared memory.
#[test]
fn a_guest_that_sends_data_is_disconnected() {
    let d = Daemon::start("");
    let path = attach(&d, "one", json!({}));
    let guest = BareGuest::connect(&path).unwrap();
    let mark = Words::new(guest.memory(), 1 << 16, 1).unwrap();
    mark.store(0, 0xdead_beef);
    rustix::net::send(guest.connection().unwrap(), b"hello", SendFlags::NOSIGNAL).unwrap();
    until("it is shown out", || d.notes("vale0:one").contains("expected none from an ivshmem client"));
    let next = BareGuest::connect(&path).unwrap();
    assert_eq!(Words::new(next.memory(), 1 << 16, 1).unwrap().load(0), 0);
    // Guests are served one at a time: a second guest waits, and gets no answer.
    let waiting = UnixStream::connect(&path).unwrap();
    assert_eq!(next.command(COMMAND_START, 0, 0).unwrap(), 0);
    drop(waiting);
    drop(next);
    let mut port = Port::as_guest(&path, 0).unwrap();
    let mut local = d.open("vale0:local").unwrap();
    ping(&mut port, &mut local, 1);
}

/// Objective: nonsense all over the memory (header, status blocks, rings, slots), endless doorbells, and commands in
/// between do not affect other ports; after the guest restarts its rings, they work.
#[test]
fn nonsense_everywhere_costs_the_others_nothing() {
    let d = Daemon::start("workers = 1");
    let path = attach(&d, "mad", json!({"slots": 64, "rings": 2, "vnet_hdr": 12}));
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    let mad = BareGuest::connect(&path).unwrap();
    let whole = Words::new(mad.memory(), 0, mad.memory().len() / 4).unwrap();
    // All of the memory except the buffers, whose contents the device does not interpret.
    let structures = 16 * 1024;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 0x9e37_79b9_7f4a_7c15;
            while !over.load(Ordering::Relaxed) {
                for _ in 0..500 {
                    let value = noise(&mut state);
                    // Small numbers are more often valid indices than large numbers.
                    let value = if value.is_multiple_of(3) { value >> 24 } else { value };
                    whole.store(noise(&mut state) as usize % structures, value);
                }
                mad.doorbells().iter().for_each(Doorbell::ring);
                if noise(&mut state).is_multiple_of(64) {
                    let _ = mad.command(COMMAND_START, FEATURE_VNET_HDR, noise(&mut state));
                }
            }
        });
        for i in 0..3_000u32 {
            // The guest's frames may be flooded to all ports; only the frames of `a` are checked.
            send(&mut a, &frame(255, 1, i as u8));
            while receive(&mut b) != frame(255, 1, i as u8) {}
        }
        over.store(true, Ordering::Relaxed);
    });
    let mut port = Port::of_guest(mad, 0).unwrap();
    send(&mut port, &frame(255, 9, 9));
    while receive(&mut b) != frame(255, 9, 9) {}
    until("an idle daemon", || d.notes("vale0:mad").contains("rings run"));
}

/// Objective: a guest that makes its interrupt descriptors blocking, and fills them, delays no other port: frames of
/// other ports pass, the port can be detached, and the next guest is served.
#[test]
fn held_interrupts_delay_no_other_port() {
    let d = Daemon::start("workers = 1");
    let path = attach(&d, "one", json!({}));
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    for _ in 0..2 {
        let guest = BareGuest::connect(&path).unwrap();
        assert_eq!(guest.command(COMMAND_START, 0, 0).unwrap(), 0);
        let status = Words::new(guest.memory(), 0x1000, 32).unwrap();
        // Set nm_csb_atok.appl_need_kick, so that both rings need interrupts.
        [2, 18].into_iter().for_each(|word| status.store(word, 1));
        for vector in guest.vectors() {
            vector.drain();
            rustix::io::write(vector, &(u64::MAX - 1).to_ne_bytes()).unwrap();
            rustix::fs::fcntl_setfl(vector, rustix::fs::OFlags::empty()).unwrap();
        }
        // This wakes the control thread, and stops and restarts the rings, so that both threads use the blocked
        // vectors.
        guest.doorbells().last().unwrap().ring();
        let _ = guest.command(COMMAND_STOP, 0, 0).map(|_| guest.command(COMMAND_START, 0, 0));
        [2, 18].into_iter().for_each(|word| status.store(word, 1));
        for i in 0..500u32 {
            crosses(&mut a, &mut b, &frame(255, 1, i as u8));
        }
    }
    until("the port is free", || d.notes("vale0:one").contains("waits"));
    ping(&mut Port::as_guest(&path, 0).unwrap(), &mut a, 3);
    let guest = BareGuest::connect(&path).unwrap();
    d.detach("one");
    drop(guest);
}

/// Objective: registers, status blocks in the guest's memory, kicks and vectors of the published devices carry frames;
/// the rings stop when the memory is unmapped, and a reset restores the initial state.
#[test]
fn published_devices_carry_frames() {
    let d = Daemon::start("");
    let path = attach(&d, "pub", json!({"slots": 16, "vfio_user": true}));
    let mut local = d.open("vale0:local").unwrap();
    let mut plugged = Plugged::new(&path);
    plugged.apart = 0x400;
    let mut driver = Driver::probe(&mut plugged, false);
    driver.open();
    driver.send(0, &frame(255, 9, 5));
    assert_eq!(receive(&mut local), frame(255, 9, 5));
    send(&mut local, &frame(255, 1, 6));
    until("an interrupt", || driver.plugged.vectors()[1].drain());
    assert_eq!(driver.plugged.ram.load(driver.plugged.ktoa(1, TAIL)), 1, "hwtail");
    assert_eq!(driver.first_word(1).to_le_bytes(), [255; 4]);
    assert!(d.notes("vale0:pub").contains("rings run"));
    plugged.client.dma_unmap(GUEST_AT, GUEST_BYTES).unwrap();
    until("rings stop", || d.notes("vale0:pub").contains("rings stopped"));
    plugged.client.reset().unwrap();
    drop(plugged);
    until("the port is free", || d.notes("vale0:pub").contains("waits"));
    Driver::probe(&mut Plugged::new(&path), false).open();
}
