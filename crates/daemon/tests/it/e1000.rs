//! e1000 ports and their guests: simulated guests that drive their card by registers, with Send Combining or with the
//! status block, and guests that do what no driver does.
#![allow(unsafe_code)]

use crate::common;
use crate::common::card;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use card::{frames_at, send_from};
use common::ports::attach_device;
use common::{Daemon, crosses, frame, receive, send, until};
use netvale::{Interest, Port};
use netvale_e1000::driver::ram::GUEST;
use netvale_e1000::driver::remote::{SimulatedGuest, give};
use netvale_e1000::driver::{CardDriverOptions, CardRegisters};
use netvale_e1000::regs::{CTRL, CTRL_RST, ICR, IMS, RDLEN, STATUS, STATUS_LU, TDH, TDLEN, TDT};
use netvale_port::{Batch, Egress, Ingress, Scratch};
use netvale_vfio_user::client::VfioUserClient;
use serde_json::{Value, json};

/// Attaches a port to `vale0`. Returns the path of its socket.
fn attach(d: &Daemon, name: &str, options: Value) -> PathBuf {
    attach_device(d, "e1000", name, options)
}

/// Receives the next frames. If there are none, waits for an interrupt. Returns an empty list if no interrupt comes
/// within `limit`.
fn frames_within(guest: &mut SimulatedGuest, limit: Duration) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    until("a frame comes", || {
        let came = guest.ingress.arm() || is_interrupted(guest, limit);
        guest.ingress.woken();
        guest.ingress.disarm();
        frames = frames_at(guest);
        !frames.is_empty() || !came
    });
    frames
}

fn receive_at(guest: &mut SimulatedGuest) -> Vec<Vec<u8>> {
    let frames = frames_within(guest, INTERRUPT);
    assert_ne!(frames, Vec::<Vec<u8>>::new(), "no interrupt came");
    frames
}

const INTERRUPT: Duration = Duration::from_secs(5);

fn is_interrupted(guest: &SimulatedGuest, limit: Duration) -> bool {
    let fd = guest.ingress.wake_fd().unwrap();
    let limit = rustix::event::Timespec::try_from(limit).unwrap();
    let mut one = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut one, Some(&limit)) == Ok(1)
}

const WAYS: [CardDriverOptions; 3] = [
    CardDriverOptions { slots: 64, csb: false, combine: 0 },
    CardDriverOptions { slots: 64, csb: false, combine: 16 },
    CardDriverOptions { slots: 64, csb: true, combine: 0 },
];

fn ping(d: &Daemon, guest: &mut SimulatedGuest, local: &mut Port, tag: u8) {
    send_from(guest, &frame(255, 9, tag));
    // Send Combining delays the notification of a frame until further frames follow, or until the guest is interrupted.
    until("it arrives", || {
        guest.ingress.woken();
        local.wait(Interest::Rx, Some(Duration::from_millis(1))).unwrap()
    });
    assert_eq!(receive(local), frame(255, 9, tag));
    send(local, &frame(9, 1, tag));
    let mut frames = frames_within(guest, INTERRUPT);
    if frames.is_empty() {
        // On a busy machine, a delayed register access of the guest may cause the drop of a frame, which is counted
        // with its reason.
        let shown = d.show("vale0:card");
        assert!(shown["drops"]["no-room"].as_u64() > Some(0), "no interrupt came: {shown}");
        send(local, &frame(9, 1, tag));
        frames = receive_at(guest);
    }
    assert_eq!(frames, [frame(9, 1, tag)]);
}

/// Objective: frames pass in both directions and wake sleeping receivers, in each mode in which a driver can use the
/// card, for several guests one after another at the same port.
#[test]
fn played_guests_exchange_frames_both_ways() {
    let d = Daemon::start("workers = 2");
    let path = attach(&d, "card", json!({"mac": "02:00:00:00:00:09"}));
    let mut local = d.open("vale0:local").unwrap();
    for (k, options) in WAYS.into_iter().enumerate() {
        let mut guest = SimulatedGuest::new(&path, options).unwrap();
        assert_eq!((guest.mac, guest.has_block), ([2, 0, 0, 0, 0, 9], options.csb));
        (0..150).for_each(|i| ping(&d, &mut guest, &mut local, i));
        let shown = d.show("vale0:card");
        let notes = shown["notes"].to_string();
        assert!(
            notes.contains("link up; registers read ") && shown["e1000"]["register_writes"].as_u64().unwrap() > 10,
            "{shown}"
        );
        assert_eq!(
            shown["rings"].as_array().unwrap().iter().map(|r| r["frames"].as_u64().unwrap()).sum::<u64>(),
            300 * (k as u64 + 1)
        );
        drop(guest);
        until("the port is free", || d.notes("vale0:card").contains("waits"));
    }
}

/// Objective: addresses learned behind a guest are forgotten when the guest leaves; frames then go to the port that now
/// has the address.
#[test]
fn addresses_behind_a_leaving_guest_are_forgotten() {
    let d = Daemon::start("");
    let path = attach(&d, "card", json!({}));
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    let addresses = || d.call("switch.list", json!({}))["result"][0]["addresses"].as_u64().unwrap();
    for tag in 0..3 {
        let guest = SimulatedGuest::new(&path, CardDriverOptions::default()).unwrap();
        send_from(&guest, &frame(255, 9, tag));
        assert_eq!([receive(&mut a), receive(&mut b)], [frame(255, 9, tag); 2]);
        assert_eq!(addresses(), 1 + u64::from(tag > 0));
        drop(guest);
        until("it is forgotten", || addresses() == u64::from(tag > 0));
        crosses(&mut a, &mut b, &frame(9, 1, tag));
    }
}

/// Objective: the status block of a guest that is awake makes all register accesses and interrupts unnecessary, for any
/// number of frames.
#[test]
fn a_status_block_saves_all_register_accesses() {
    let d = Daemon::start("poll_always = true");
    let paths = ["one", "two"].map(|name| attach(&d, name, json!({})));
    let [one, mut two] = paths.map(|path| SimulatedGuest::new(&path, CardDriverOptions::default()).unwrap());
    send_from(&two, &frame(1, 2, 0));
    let crossings = |name| {
        let e = &d.show(&format!("vale0:{name}"))["e1000"];
        ["register_reads", "register_writes", "interrupts"].map(|what| e[what].as_u64().unwrap())
    };
    let mut got = Batch::new();
    let mut pass = |n: u32| {
        let mut sent = 0;
        let mut received = 0;
        until("all arrive", || {
            // Keep at most 500 frames in flight for each poll, because each poll may cost a time slice on a busy
            // machine.
            while sent < n && sent - received < 500 {
                send_from(&one, &frame(2, 1, sent as u8));
                sent += 1;
            }
            // SAFETY: the bytes of the frames are not read.
            unsafe { two.ingress.take(&mut got) };
            received += got.len() as u32;
            got.clear();
            two.ingress.release();
            received == n
        });
    };
    pass(100);
    let before = (crossings("one"), crossings("two"));
    pass(20_000);
    let after = (crossings("one"), crossings("two"));
    let moved: u64 = (0..3).map(|i| after.0[i] - before.0[i] + after.1[i] - before.1[i]).sum();
    assert!(moved <= 20, "{before:?} {after:?}");
}

/// Objective: if memory is unmapped while frames pass, nothing crashes; frames outside the mapped memory are dropped,
/// and counted by reason; once the memory is mapped again and the card restarted, traffic continues.
#[test]
fn memory_that_goes_away() {
    let d = Daemon::start("");
    let path = attach(&d, "card", json!({}));
    let mut local = d.open("vale0:local").unwrap();
    for options in WAYS {
        let mut guest = SimulatedGuest::new(&path, options).unwrap();
        ping(&d, &mut guest, &mut local, 1);
        let size = guest.ram.mapping().len() as u64;
        for round in 0..20 {
            let mut batch = Batch::new();
            let bytes = frame(3, 9, round);
            // SAFETY: the frame exists longer than the batch.
            unsafe { batch.push(bytes.as_ptr(), 60) };
            (0..40).for_each(|_| _ = guest.egress.deliver(&batch, &[0], &mut Scratch::new()));
            guest.remote.with(|client| client.unmap(GUEST, size)).unwrap();
            guest.remote.write(TDT, 63);
            send(&mut local, &frame(9, 1, round));
            guest.remote.with(|client| give(client, &guest.ram)).unwrap();
        }
        drop(guest);
        until("the port is free", || d.notes("vale0:card").contains("waits"));
        until("the ring is empty", || {
            let _ = local.rx()[0].sync();
            local.rx()[0].recv(&mut [0; 2048]).is_none()
        });
        let mut again = SimulatedGuest::new(&path, options).unwrap();
        send_from(&again, &frame(255, 9, 200));
        until("it goes on", || receive(&mut local) == frame(255, 9, 200));
        send(&mut local, &frame(255, 1, 9));
        until("the other way, too", || receive_at(&mut again).contains(&frame(255, 1, 9).to_vec()));
        drop(again);
        until("the port is free", || d.notes("vale0:card").contains("waits"));
    }
}

/// Objective: registers can also be accessed through I/O ports; narrow reads return the bytes at their offset; writes
/// that are narrower or wider than a register, or not aligned, are ignored; accesses outside the registers are refused.
#[test]
fn registers_are_also_reached_by_io_ports() {
    let d = Daemon::start("");
    let path = attach(&d, "card", json!({}));
    let guest = SimulatedGuest::new(&path, WAYS[0]).unwrap();
    let status = guest.remote.read(STATUS);
    assert!(status & STATUS_LU != 0);
    let by_port = |client: &mut VfioUserClient, at: u32| {
        let mut value = [0; 4];
        client.write(1, 0, &at.to_le_bytes())?;
        client.read(1, 4, &mut value)?;
        Ok(u32::from_le_bytes(value))
    };
    assert_eq!(guest.remote.with(|client| by_port(client, STATUS)).unwrap(), status);
    guest
        .remote
        .with(|client| client.write(1, 0, &IMS.to_le_bytes()).and_then(|()| client.write(1, 4, &[1, 0, 0, 0])))
        .unwrap();
    assert_eq!(guest.remote.read(IMS) & 1, 1);
    let mut narrow = [0; 2];
    guest.remote.with(|client| client.read(0, u64::from(TDLEN) + 1, &mut narrow)).unwrap();
    assert_eq!(u16::from_le_bytes(narrow), (guest.remote.read(TDLEN) >> 8) as u16);
    for (at, bytes) in [(TDLEN, 1usize), (TDLEN, 2), (TDLEN, 8), (TDLEN + 2, 4), (TDLEN + 3, 1)] {
        guest.remote.with(|client| client.write(0, at.into(), &vec![0xff; bytes])).unwrap();
    }
    assert_eq!(guest.remote.read(TDLEN), 1024, "whole registers only");
    for at in [0x2_0000u64, 0x1_fffe, u64::MAX - 1] {
        let refused = guest.remote.with(|client| client.read(0, at, &mut [0; 4])).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(22), "{at:#x}");
    }
    guest.remote.write(CTRL, CTRL_RST);
    assert_eq!([TDLEN, RDLEN, TDH, ICR].map(|at| guest.remote.read(at)), [0; 4]);
}

/// Objective: a peer that does not speak the protocol is disconnected, and the reason is reported, and the next guest
/// is served.
#[test]
fn a_stranger_is_disconnected_with_a_reason() {
    use std::io::{Read, Write};
    let d = Daemon::start("");
    let path = attach(&d, "card", json!({}));
    let mut stranger = UnixStream::connect(&path).unwrap();
    stranger.write_all(&[0xff; 64]).unwrap();
    assert_eq!(stranger.read(&mut [0; 64]).unwrap_or(0), 0);
    until("a reason", || d.notes("vale0:card").contains("was disconnected"));
    let mut local = d.open("vale0:local").unwrap();
    let mut guest = SimulatedGuest::new(&path, CardDriverOptions::default()).unwrap();
    (0..5).for_each(|i| ping(&d, &mut guest, &mut local, i));
}
