//! Tests of netvale's device and driver at the two ends of a socket: every layout, frames of all kinds, ends that
//! disconnect and return.

use crate::common;

use common::{End, cross, frame, give, give_with, take, until, wait};
use netvale_vhost::frontend::BackEnd;
use netvale_vhost::port::{VhostMode, VhostOptions, VhostPort};
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;
use netvale_wire::offload::{Gso, GsoKind, Offload};
use proptest::prelude::*;

struct Rig {
    device: VhostPort,
    device_end: End,
    driver: VirtioPort,
    driver_end: End,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new(options: DriverOptions) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mode = VhostMode::Server;
        let offered = VhostOptions { site: path.clone().into(), mode, pairs: options.pairs, mac: [2; 6], mtu: 1500 };
        let (device, queues) = VhostPort::new(&offered).unwrap();
        let device_end = End::first(queues);
        let (driver, queues) = VirtioPort::new(BackEnd(path.into()), options).unwrap();
        let mut driver_end = End::first(queues);
        until("both run", || driver.state().now.running && device.state().now.queues == 2 * usize::from(options.pairs));
        // The driver posts its buffers with its first poll.
        take(&mut driver_end, |_| ());
        Rig { device, device_end, driver, driver_end, _dir: dir }
    }
}

fn all_options() -> Vec<DriverOptions> {
    let mut all = Vec::new();
    for bits in 0..64u16 {
        let on = |bit: u16| bits & bit != 0;
        let size = if on(8) { 8 } else { 256 };
        let in_order = on(16);
        let vector = on(32);
        let options = DriverOptions {
            packed: on(1),
            mergeable: on(2),
            event_idx: on(4),
            size,
            in_order,
            vector,
            ..DriverOptions::default()
        };
        // The vector path requires empty headers.
        all.push(DriverOptions { offloads: !vector, ..options });
    }
    all
}

/// Objective: in every combination of layout, buffers and notification, frames pass in both directions unchanged and in
/// order, while the rings wrap around many times.
#[test]
fn frames_cross_both_ways_in_every_combination() {
    for options in all_options() {
        let mut rig = Rig::new(options);
        let frames: Vec<_> =
            (0..2000u32).map(|i| (frame(14 + (i as usize * 7) % 1500, i as u8), Offload::None)).collect();
        for batch in [1, 5, 64] {
            let got = cross(&rig.driver_end, &mut rig.device_end, &frames, batch);
            assert!(got == frames, "{options:?} to the device, batch {batch}");
            let got = cross(&rig.device_end, &mut rig.driver_end, &frames, batch);
            assert!(got == frames, "{options:?} to the driver, batch {batch}");
        }
        assert_eq!(rig.device.state().last_error, None);
        assert_eq!(rig.driver.state().last_error, None);
    }
}

/// Returns a TCP segment over IPv4 with `payload` bytes, and the offload that cuts it into segments of 1448 bytes.
fn segment(payload: usize) -> (Vec<u8>, Offload) {
    let mut bytes = frame(54 + payload, 9);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    bytes[20..22].copy_from_slice(&[0, 0]);
    bytes[23] = 6;
    bytes[46] = 0x50;
    bytes[47] = 0x10;
    let kind = GsoKind::Tcp4;
    let gso_size = 1448;
    let hdr_len = 54;
    (bytes, Offload::Gso(Gso { kind, gso_size, hdr_len, csum_start: 34, csum_offset: 16, ecn: false }))
}

/// Objective: a 64 KiB segment crosses whole and with its offload if both ends negotiated it; otherwise it is cut into
/// segments of the requested size.
#[test]
fn large_segments_cross_whole_if_negotiated() {
    for packed in [false, true] {
        let mut rig = Rig::new(DriverOptions { packed, ..DriverOptions::default() });
        let large = vec![segment(60_000)];
        assert!(cross(&rig.driver_end, &mut rig.device_end, &large, 1) == large, "to the device");
        assert!(cross(&rig.device_end, &mut rig.driver_end, &large, 1) == large, "to the driver");

        let mut rig = Rig::new(DriverOptions { packed, offloads: false, ..DriverOptions::default() });
        for (from, to) in [(&rig.driver_end, &mut rig.device_end)] {
            assert_eq!(give(from, &large), 1);
            let mut lens = Vec::new();
            while lens.len() < 42 {
                take(to, |(bytes, offload)| {
                    assert_eq!(offload, Offload::None);
                    lens.push(bytes.len() - 54);
                });
            }
            assert_eq!(lens.iter().sum::<usize>(), 60_000);
            assert!(lens.iter().rev().skip(1).all(|n| *n == 1448));
        }
    }
}

/// Objective: if frames may wait, the segments of a frame are sent only once there is room for all of them, so no
/// segment is lost. A frame for which there can never be enough room loses segments instead of waiting forever.
#[test]
fn segments_that_wait_are_not_lost() {
    let large = vec![segment(60_000)];
    let mut scratch = netvale_port::Scratch::new();
    scratch.may_wait(true);
    for bits in 0..8 {
        let on = |bit: u16| bits & bit != 0;
        let options = DriverOptions { packed: on(1), mergeable: on(2), offloads: false, ..DriverOptions::default() };
        let mut rig = Rig::new(DriverOptions { size: 64, ..options });
        let (from, to) = match on(4) {
            true => (&rig.device_end, &mut rig.driver_end),
            false => (&rig.driver_end, &mut rig.device_end),
        };
        let mut lens = Vec::new();
        let mut sent = 0;
        let mut waited = 0;
        while lens.len() < 10 * 42 {
            let done = if sent < 10 { give_with(&mut scratch, from, &large) } else { 0 };
            waited += usize::from(sent < 10 && done == 0);
            sent += done;
            if done == 0 {
                take(to, |(bytes, _)| lens.push(bytes.len() - 54));
            }
        }
        assert!(waited > 0, "{bits}: there was not room for all");
        assert_eq!((sent, lens.iter().sum::<usize>()), (10, 600_000), "{bits}");
        assert_eq!(from.egress.counters().drops(netvale_port::DropReason::NoRoom), 0, "{bits}");
        let rig = Rig::new(DriverOptions { size: 16, ..options });
        let from = if on(4) { &rig.device_end } else { &rig.driver_end };
        assert_eq!(give_with(&mut scratch, from, &large), 1, "{bits}: 42 segments never fit into 16 buffers");
        assert_eq!(from.egress.counters().drops(netvale_port::DropReason::NoRoom), 1, "{bits}");
    }
}

/// Objective: without mergeable buffers, a frame that is longer than a buffer is dropped, and the next frame arrives.
#[test]
fn too_long_for_one_buffer() {
    let mut rig = Rig::new(DriverOptions { mergeable: false, ..DriverOptions::default() });
    let frames = vec![(frame(3000, 1), Offload::None), (frame(100, 2), Offload::None)];
    assert_eq!(give(&rig.device_end, &frames), 2);
    let mut got = Vec::new();
    until("the short one", || take(&mut rig.driver_end, |frame| got.push(frame)) > 0);
    assert!(got == frames[1..]);
    assert_eq!(rig.device_end.egress.counters().drops(netvale_port::DropReason::TooLong), 1);
}

/// Objective: a frame wakes the receiving end if that end sleeps; an end that is awake is not notified.
#[test]
fn a_frame_wakes_only_a_sleeping_end() {
    for packed in [false, true] {
        for event_idx in [false, true] {
            let mut rig = Rig::new(DriverOptions { packed, event_idx, ..DriverOptions::default() });
            let one = vec![(frame(60, 1), Offload::None)];
            for _ in 0..300 {
                assert!(!rig.device_end.ingress.arm());
                assert_eq!(give(&rig.driver_end, &one), 1);
                wait(&mut rig.device_end);
                rig.device_end.ingress.disarm();
                assert_eq!(take(&mut rig.device_end, |_| ()), 1);
                assert!(!rig.driver_end.ingress.arm());
                assert_eq!(give(&rig.device_end, &one), 1);
                wait(&mut rig.driver_end);
                rig.driver_end.ingress.disarm();
                assert_eq!(take(&mut rig.driver_end, |_| ()), 1);
            }
            let before = rig.device.notifications().0;
            cross(&rig.device_end, &mut rig.driver_end, &vec![one[0].clone(); 1000], 8);
            let calls = rig.device.notifications().0 - before;
            assert!(calls <= 4, "{calls} calls to a driver that polls (packed {packed}, event index {event_idx})");
        }
    }
}

/// Objective: a driver that disconnects and returns finds a new device each time.
#[test]
fn drivers_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let options = VhostOptions { site: path.clone().into(), mode: VhostMode::Server, pairs: 1, mac: [2; 6], mtu: 1500 };
    let (device, queues) = VhostPort::new(&options).unwrap();
    let mut device_end = End::first(queues);
    let frames: Vec<_> = (0..100).map(|i| (frame(60, i), Offload::None)).collect();
    for round in 0..10 {
        let options = DriverOptions { packed: round % 2 == 1, ..DriverOptions::default() };
        let (driver, queues) = VirtioPort::new(BackEnd(path.clone().into()), options).unwrap();
        let mut driver_end = End::first(queues);
        until("both run", || driver.state().now.running && device.state().now.queues == 2);
        take(&mut driver_end, |_| ());
        assert!(cross(&driver_end, &mut device_end, &frames, 10) == frames);
        assert!(cross(&device_end, &mut driver_end, &frames, 10) == frames);
        drop((driver_end, driver));
        until("the device noticed", || !device.state().connected);
        assert_eq!(device.state().last_error, None);
        assert_eq!(give(&device_end, &frames[..1]), 1, "dropped, not held");
    }
    drop(device);
    assert!(!path.exists(), "the socket is gone");
}

/// Objective: a driver reconnects to its device after the device has restarted.
#[test]
fn devices_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let options = VhostOptions { site: path.clone().into(), mode: VhostMode::Server, pairs: 1, mac: [2; 6], mtu: 1500 };
    let (driver, queues) = VirtioPort::new(BackEnd(path.into()), DriverOptions::default()).unwrap();
    let mut driver_end = End::first(queues);
    let frames: Vec<_> = (0..100).map(|i| (frame(60, i), Offload::None)).collect();
    for _ in 0..3 {
        let (device, queues) = VhostPort::new(&options).unwrap();
        let mut device_end = End::first(queues);
        until("both run", || driver.state().now.running && device.state().now.queues == 2);
        take(&mut driver_end, |_| ());
        assert!(cross(&driver_end, &mut device_end, &frames, 10) == frames);
        assert!(cross(&device_end, &mut driver_end, &frames, 10) == frames);
        drop((device_end, device));
        until("the driver noticed", || !driver.state().now.running);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Objective: frames of any length and number, in any batches, over small rings, arrive unchanged.
    #[test]
    fn any_frames_arrive_unchanged(
        bits in 0u16..8,
        lens in proptest::collection::vec(14usize..9000, 1..200),
        batch in 1usize..40,
    ) {
        let on = |bit: u16| bits & bit != 0;
        let size = if on(4) { 16 } else { 128 };
        let options = DriverOptions { packed: on(1), event_idx: on(2), size, ..DriverOptions::default() };
        let mut rig = Rig::new(options);
        let frames: Vec<_> = lens.iter().enumerate().map(|(i, n)| (frame(*n, i as u8), Offload::None)).collect();
        prop_assert!(cross(&rig.driver_end, &mut rig.device_end, &frames, batch) == frames);
        prop_assert!(cross(&rig.device_end, &mut rig.driver_end, &frames, batch) == frames);
    }
}
