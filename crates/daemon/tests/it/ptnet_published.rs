//! netmap's published devices, used in the order of netmap's own guest drivers, and in orders that no driver uses.
//!
//! The driver in these tests accesses the same registers in the same order as netmap's drivers: it computes the
//! positions of the rings before it starts them, and waits only for interrupts.

use crate::common;
use crate::common::published;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use common::ports::attach_device;
use common::{Daemon, frame, noise, receive, send, until};
use netvale::Port;
use netvale_wire::build;
use netvale_wire::vnet::VnetHdr;
use published::{CSB_AT, Driver, GUEST_AT, Plugged};
use rustix::io::Errno;
use serde_json::{Value, json};

const CREATE: u32 = 1;
const DELETE: u32 = 2;
const CONTROL: u64 = 4;
const HEADER_LEN: u64 = 44;

/// Attaches a port to `vale0`. Returns the path of its socket.
fn attach(d: &Daemon, name: &str, mut options: Value) -> PathBuf {
    options["vfio_user"] = json!(true);
    attach_device(d, "ptnet", name, options)
}

fn errno(e: Errno) -> u32 {
    e.raw_os_error().unsigned_abs()
}

/// Sends a frame in each direction through each pair of rings.
fn both_ways(driver: &mut Driver<'_>, local: &mut Port, tag: u8) {
    for queue in 0..driver.pairs() {
        driver.send(queue, &frame(255, 9, tag));
        assert_eq!(receive(local), frame(255, 9, tag));
        // The frame's flow determines the ring.
        send(local, &frame(255, 1, tag));
        assert_eq!(driver.receive(), frame(255, 1, tag));
    }
}

/// Sends more frames in each direction than the rings have slots, so that each ring wraps around.
fn round_the_rings(driver: &mut Driver<'_>, local: &mut Port) {
    for i in 0..100 {
        both_ways(driver, local, i);
    }
}

/// Objective: positions computed by netmap's drivers before the start of the rings are correct while the rings run,
/// with and without a header, after closing and reopening the device, and after reloading the driver; each time, frames
/// pass in both directions, and interrupts alone suffice to receive them.
#[test]
fn in_the_drivers_order() {
    let d = Daemon::start("");
    let path = attach(&d, "pub", json!({"slots": 64, "vnet_hdr": 12, "mac": "02:03:04:05:06:07"}));
    let mut local = d.open("vale0:local").unwrap();
    let mut plugged = Plugged::new(&path);
    for vnet_hdr in [true, false, true] {
        let mut driver = Driver::probe(&mut plugged, vnet_hdr);
        assert_eq!((driver.mac, driver.header_len), ([2, 3, 4, 5, 6, 7], if vnet_hdr { 12 } else { 0 }));
        for _ in 0..3 {
            driver.open();
            assert!(d.notes("vale0:pub").contains("rings run"));
            round_the_rings(&mut driver, &mut local);
            driver.close();
            assert!(!d.notes("vale0:pub").contains("rings run"));
        }
        driver.remove();
    }
    drop(plugged);
    until("the port is free", || d.notes("vale0:pub").contains("waits"));
}

/// Objective: two pairs of rings carry frames in both directions, even after the device is reopened.
#[test]
fn two_pairs_of_rings_carry_frames() {
    let d = Daemon::start("workers = 2");
    let path = attach(&d, "pub", json!({"slots": 64, "rings": 2, "vnet_hdr": 12}));
    let mut local = d.open("vale0:local").unwrap();
    let mut plugged = Plugged::new(&path);
    let mut driver = Driver::probe(&mut plugged, true);
    assert_eq!(driver.pairs(), 2);
    for _ in 0..2 {
        driver.open();
        round_the_rings(&mut driver, &mut local);
        driver.close();
    }
}

/// Objective: frames longer than a buffer take several slots in either direction, with the header in the first slot.
#[test]
fn long_frames_take_several_slots_either_way() {
    let d = Daemon::start("");
    let path = attach(&d, "pub", json!({"slots": 128, "vnet_hdr": 12, "mtu": 9000}));
    let mut a = d.open("vale0:a").unwrap();
    let mut b = Plugged::new(&path);
    let mut driver = Driver::probe(&mut b, true);
    driver.open();
    let long: Vec<u8> = frame(255, 9, 1).into_iter().chain((0..8_900u32).map(|i| i as u8)).collect();
    driver.send(0, &long);
    let mut got = Vec::new();
    until("a long frame", || {
        let _ = a.rx()[0].sync();
        let mut place = vec![0; 16_384];
        if let Some(n) = a.rx()[0].recv(&mut place) {
            got = place[..n].to_vec();
        }
        !got.is_empty()
    });
    let _ = a.rx()[0].sync();
    assert!(got == long, "{} bytes of {}", got.len(), long.len());
    assert!(a.tx()[0].send(&long));
    a.tx()[0].sync();
    assert!(driver.receive() == long);
}

/// Objective: all values that a driver reads before it starts the rings exist from the beginning, and survive starting,
/// stopping and resetting, whatever the guest writes over them between these steps.
#[test]
fn what_a_probe_reads() {
    let d = Daemon::start("");
    let path = attach(&d, "pub", json!({"slots": 64, "rings": 2}));
    let mut plugged = Plugged::new(&path);
    let at_first = plugged.picture();
    assert_eq!(at_first.registers[1..5], [2, 2, 64, 64], "rings and slots");
    assert_eq!(at_first.registers[5], plugged.memory_register(8), "one memory");
    for _ in 0..2 {
        let mut driver = Driver::probe(&mut plugged, false);
        driver.open();
        assert_eq!(driver.plugged.picture(), at_first);
        driver.plugged.scribble();
        driver.close();
        assert_eq!(driver.plugged.picture(), at_first);
        driver.plugged.scribble();
        plugged.client.reset().unwrap();
        assert_eq!(plugged.picture(), at_first);
    }
}

/// Objective: two devices of one guest have memories that drivers can tell apart.
#[test]
fn two_devices_in_a_guest() {
    let d = Daemon::start("");
    let paths = ["one", "two"].map(|name| attach(&d, name, json!({"slots": 64})));
    let mut local = d.open("vale0:local").unwrap();
    let mut plugged = paths.each_ref().map(|path| Plugged::new(path));
    let [one, two] = plugged.each_mut().map(|p| p.memory_register(8));
    assert!(one != two && one != 0 && two != 0 && one.max(two) <= u32::from(u16::MAX), "{one} {two}");
    let [mut a, mut b] = plugged.each_mut().map(|p| Driver::probe(p, false));
    a.open();
    b.open();
    for i in 0..100 {
        a.send(0, &frame(255, 1, i));
        assert_eq!((b.receive(), receive(&mut local)), (frame(255, 1, i).to_vec(), frame(255, 1, i).to_vec()));
        b.send(0, &frame(255, 2, i));
        assert_eq!((a.receive(), receive(&mut local)), (frame(255, 2, i).to_vec(), frame(255, 2, i).to_vec()));
    }
}

/// Objective: a header length is accepted only if netmap supports it and the device offers it; otherwise, the register
/// keeps its value. A new length also applies to running rings.
#[test]
fn only_header_lengths_on_offer_are_accepted() {
    let d = Daemon::start("");
    let path = attach(&d, "with", json!({"slots": 64, "vnet_hdr": 12}));
    let mut local = d.open("vale0:local").unwrap();
    let mut plugged = Plugged::new(&path);
    let mut driver = Driver::probe(&mut plugged, true);
    driver.open();
    for (wanted, got) in [(0, 0), (12, 12), (7, 12), (10, 10), (u32::MAX, 10), (16, 10), (0, 0), (12, 12)] {
        driver.plugged.set(HEADER_LEN, wanted);
        assert_eq!(driver.plugged.register(HEADER_LEN), got, "asked for {wanted}");
        driver.header_len = got;
        both_ways(&mut driver, &mut local, 5);
    }
    let path = attach(&d, "without", json!({"slots": 64}));
    let mut plugged = Plugged::new(&path);
    let driver = Driver::probe(&mut plugged, true);
    assert_eq!((driver.header_len, driver.plugged.register(0)), (0, 0));
}

/// Objective: TCP segmentation is left to a guest's driver, as netmap's drivers support it, but UDP segmentation is
/// not, as virtio added it later.
#[test]
fn datagrams_are_cut() {
    let d = Daemon::start("");
    let path = attach(&d, "pub", json!({"slots": 64, "vnet_hdr": 12}));
    let mut plugged = Plugged::new(&path);
    let mut driver = Driver::probe(&mut plugged, true);
    driver.open();
    let with_header = netvale::Options { hdr_len: 12, ..d.options() };
    let mut sender = Port::open_with("vale0:sender", &with_header).unwrap();
    const HEADERS: usize = build::UDP4_PAYLOAD;
    let mut datagram = vec![0; HEADERS + 4500];
    let params = build::Udp {
        src_mac: netvale_wire::MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: netvale_wire::MacAddr([255; 6]),
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        src_port: 1000,
        dst_port: 2000,
        ttl: 64,
        payload: b"0123456789",
    };
    build::udp4(&mut datagram, &params).unwrap();
    let header = VnetHdr {
        flags: 1,
        gso_type: netvale_wire::vnet::GSO_UDP_L4,
        hdr_len: HEADERS as u16,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 6,
        ..VnetHdr::default()
    };
    send(&mut sender, &[&header.to_bytes_mrg()[..], &datagram].concat());
    let pieces: Vec<usize> = (0..5).map(|_| driver.receive().len() - HEADERS).collect();
    assert_eq!(pieces, [1000, 1000, 1000, 1000, 500]);
    assert_eq!(driver.last_header, [0; 12]);
}

/// Objective: commands and addresses in orders that no driver uses are answered as netmap's host answers them, and
/// afterwards the rings can be started as usual.
#[test]
fn orders_that_no_driver_has() {
    let d = Daemon::start("");
    let path = attach(&d, "pub", json!({"slots": 64, "vnet_hdr": 12}));
    let mut local = d.open("vale0:local").unwrap();
    let mut p = Plugged::new(&path);
    let obeyed = |p: &mut Plugged, command| {
        p.set(CONTROL, command);
        p.register(CONTROL)
    };
    assert_eq!(obeyed(&mut p, DELETE), 0, "nothing runs, and nothing does");
    for at in [128, 132, 136, 252] {
        p.set(at, 0);
    }
    assert_eq!(obeyed(&mut p, CREATE), errno(Errno::NXIO), "no status blocks");
    assert_eq!(obeyed(&mut p, 0), errno(Errno::INVAL));
    assert_eq!(obeyed(&mut p, 77), errno(Errno::INVAL));
    // Invalid pairs of addresses: outside the memory, across the end of the memory, not aligned, with one address 0, at
    // the end of the address space.
    let gh = GUEST_AT + CSB_AT;
    let hg = GUEST_AT + CSB_AT + 4096;
    let end = GUEST_AT + published::GUEST_BYTES;
    for (gh, hg) in [(0xdead_0000, hg), (gh, end - 64), (gh + 4, hg), (gh, 0), (0, hg), (u64::MAX - 63, hg), (!0, !0)] {
        p.set_csb(gh, hg);
        assert_eq!(obeyed(&mut p, CREATE), errno(Errno::NXIO), "{gh:x} {hg:x}");
    }
    let mut driver = Driver::probe(&mut p, true);
    driver.open();
    both_ways(&mut driver, &mut local, 1);
    // Start the rings a second time: running rings must continue at their positions.
    assert_eq!(obeyed(driver.plugged, CREATE), 0);
    both_ways(&mut driver, &mut local, 2);
    // If the addresses of the status blocks are set to invalid values, the rings stop.
    driver.plugged.set_csb(0xdead_0000, !0);
    assert!(!d.notes("vale0:pub").contains("rings run"));
    assert_eq!(obeyed(driver.plugged, CREATE), errno(Errno::NXIO));
    driver.plugged.set_csb(gh, hg);
    driver.open();
    both_ways(&mut driver, &mut local, 3);
    // The same addresses are set again, as by a driver that is loaded after a driver that did not shut down.
    let mut driver = Driver::probe(&mut p, true);
    assert!(!d.notes("vale0:pub").contains("rings run"));
    driver.open();
    both_ways(&mut driver, &mut local, 4);
    driver.close();
    driver.close();
}

/// Objective: a machine that is reset while frames pass in both directions works again when it opens the device for the
/// first time.
#[test]
fn a_machine_reset_under_traffic_works_again() {
    let d = Daemon::start("workers = 1");
    let path = attach(&d, "pub", json!({"slots": 64, "vnet_hdr": 12}));
    let mut plugged = Plugged::new(&path);
    for _ in 0..20 {
        let mut local = d.open("vale0:local").unwrap();
        let mut driver = Driver::probe(&mut plugged, true);
        driver.open();
        both_ways(&mut driver, &mut local, 1);
        for i in 0..40 {
            driver.send(0, &frame(255, 9, i));
            send(&mut local, &frame(255, 1, i));
        }
        plugged.client.reset().unwrap();
        assert_eq!(plugged.register(HEADER_LEN), 0);
        assert!(!d.notes("vale0:pub").contains("rings run"));
    }
}

/// Objective: behind an IOMMU, the status blocks of the next driver may be in other memory at the same address; the
/// device no longer writes to the former memory.
#[test]
fn other_memory_at_the_same_address() {
    let d = Daemon::start("");
    let path = attach(&d, "pub", json!({"slots": 64}));
    let mut local = d.open("vale0:local").unwrap();
    let mut plugged = Plugged::new(&path);
    for _ in 0..3 {
        let mut driver = Driver::probe(&mut plugged, false);
        driver.open();
        round_the_rings(&mut driver, &mut local);
        // The device is not notified that different memory is now at this address.
        plugged.remap();
        assert!(!d.notes("vale0:pub").contains("rings run"));
    }
}

/// Objective: endless register writes in random order, with nonsense in the rings, in the `netmap_if` and in the status
/// blocks, do not affect other ports; afterwards, a driver is served as usual.
#[test]
fn nonsense_everywhere_costs_the_others_nothing() {
    let d = Daemon::start("workers = 1");
    let path = attach(&d, "mad", json!({"slots": 64, "rings": 2, "vnet_hdr": 12}));
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    let mut mad = Plugged::new(&path);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 0x9e37_79b9_7f4a_7c15;
            let places = [0, 4, 4, 4, 44, 52, 56, 60, 64, 128, 132, 136, 140, 252];
            while !over.load(Ordering::Relaxed) {
                for _ in 0..200 {
                    let value = noise(&mut state);
                    // Small numbers are more often valid indices than large numbers.
                    let value = if value.is_multiple_of(3) { value >> 24 } else { value };
                    mad.netmap.store(noise(&mut state) as usize % (16 * 1024), value);
                    mad.ram.store(CSB_AT as usize / 4 + noise(&mut state) as usize % 2048, value);
                }
                mad.set_csb(GUEST_AT + CSB_AT, GUEST_AT + CSB_AT + 4096);
                mad.set(CONTROL, CREATE);
                for _ in 0..8 {
                    let at = places[noise(&mut state) as usize % places.len()];
                    let value = noise(&mut state);
                    mad.set(at, if value.is_multiple_of(2) { value % 16 } else { value });
                }
                if noise(&mut state).is_multiple_of(64) {
                    mad.client.reset().unwrap();
                }
            }
        });
        for i in 0..2_000u32 {
            // The guest's frames may be flooded to all ports; only the frames of `a` are checked.
            send(&mut a, &frame(255, 1, i as u8));
            while receive(&mut b) != frame(255, 1, i as u8) {}
        }
        over.store(true, Ordering::Relaxed);
    });
    let mut driver = Driver::probe(&mut mad, true);
    driver.open();
    driver.send(1, &frame(255, 9, 9));
    while receive(&mut b) != frame(255, 9, 9) {}
}
