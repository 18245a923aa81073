//! Tests of migrating guests (the dirty log, the announcement) and of front ends that outlive the device (the in-flight
//! record).

use crate::common;
use crate::common::raw;

use std::os::fd::OwnedFd;
use std::path::Path;

use common::{frame, give, take, until};
use netvale_vhost::features::LOG_ALL;
use netvale_vhost::proto::message::{put_region, request};
use netvale_virtio::driver::ram::{DriverRam, QueueRam};
use netvale_virtio::driver::{DriverFeatures, DriverQueue, addresses};
use netvale_virtio::features::{RING_PACKED, VERSION_1};
use netvale_virtio::queue::QueueFeatures;
use netvale_wire::offload::Offload;
use raw::{Raw, SIZE, file, open, put, rig, whole};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

fn log_of(log: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::pread(log, &mut bytes, 0), Ok(8));
    assert_eq!(rustix::io::pwrite(log, &[0; 8], 0), Ok(8));
    u64::from_le_bytes(bytes)
}

/// Gives the device a log, which is the first `len` bytes of a new file of `size` bytes. Returns the file.
fn has_log(raw: &Raw, size: u64, len: u64) -> OwnedFd {
    let log = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&log, size).unwrap();
    let words = [len, 0];
    let fds = vec![log.try_clone().unwrap()];
    raw.say(request::SET_LOG_BASE, words.iter().flat_map(|w| w.to_le_bytes()).collect(), fds);
    assert_eq!(raw.hear().request, request::SET_LOG_BASE);
    log
}

/// Objective: while the log is on, exactly the written pages of buffers and of the used ring are marked; while the log
/// is off, no page is marked.
#[test]
fn written_pages_are_logged() {
    let mut rig = rig();
    let raw = Raw::new(&rig.path);
    let memory = file();
    raw.number(request::SET_FEATURES, VERSION_1);
    raw.memory(&[whole()], vec![memory.try_clone().unwrap()]);
    // A receive queue at 0x1000, with its available ring at 0x1100 and its used ring at 0x1200. Each buffer is in one
    // of the pages 4 to 11, except one buffer that spans pages 12 and 13.
    for i in 0..8 {
        put(&memory, 0x1000 + 16 * i, &[0x4000 + 0x1000 * i, 256 | 2 << 32]);
    }
    put(&memory, 0x1000 + 16 * 2, &[0xcff0, 256 | 2 << 32]);
    put(&memory, 0x1100, &[8 << 16 | 1 << 48, 2 | 3 << 16 | 4 << 32 | 5 << 48]);
    raw.start(0, 0x1000);
    let one = [(frame(60, 1), Offload::None)];
    until("the queue runs", || rig.device.state().now.queues == 1);
    assert_eq!(give(&rig.end, &one), 1);

    let log = has_log(&raw, SIZE / 4096 / 8 + 8, 8);
    assert_eq!(log_of(&log), 0);
    raw.number(request::SET_FEATURES, VERSION_1 | LOG_ALL);
    raw.addresses(0, 0x1000, 1);
    raw.sync();
    // The frames go to the second buffer, in page 5, and the third buffer, which spans two pages. The used ring is in
    // page 1.
    assert_eq!(give(&rig.end, &one), 1);
    assert_eq!(log_of(&log), 1 << 5 | 1 << 1);
    assert_eq!(give(&rig.end, &one), 1);
    assert_eq!(log_of(&log), 1 << 12 | 1 << 13 | 1 << 1);
    raw.number(request::SET_FEATURES, VERSION_1);
    raw.sync();
    assert_eq!(give(&rig.end, &one), 1);
    assert_eq!(log_of(&log), 0);
    take(&mut rig.end, |_| ());
}

/// Objective: a log whose file is truncated ends the front end's connection, with a reason.
#[test]
fn a_log_cut_short_ends_the_connection() {
    let rig = rig();
    let raw = Raw::new(&rig.path);
    let memory = file();
    raw.memory(&[whole()], vec![memory.try_clone().unwrap()]);
    put(&memory, 0x1000, &[0x4000, 256 | 2 << 32]);
    put(&memory, 0x1100, &[1 << 16]);
    let log = has_log(&raw, 4096, 4096);
    raw.number(request::SET_FEATURES, VERSION_1 | LOG_ALL);
    raw.start(0, 0x1000);
    raw.sync();
    ftruncate(&log, 0).unwrap();
    give(&rig.end, &[(frame(60, 1), Offload::None)]);
    until("the front end is gone", || rig.device.state().last_error.is_some_and(|e| e.contains("cut short")));
}

/// Objective: a guest that has migrated here is announced to the switch once, even if its queue starts after the
/// request to announce it.
#[test]
fn an_arrived_guest_is_announced_once() {
    let mut rig = rig();
    let raw = Raw::new(&rig.path);
    let memory = file();
    raw.number(request::SET_FEATURES, VERSION_1);
    raw.memory(&[whole()], vec![memory]);
    raw.number(request::SEND_RARP, u64::from_le_bytes([2, 0, 0, 0, 0, 9, 0, 0]));
    raw.start(1, 0x1000);
    let mut got = Vec::new();
    until("announced", || {
        take(&mut rig.end, |(bytes, _)| got.push(bytes));
        !got.is_empty()
    });
    raw.sync();
    take(&mut rig.end, |(bytes, _)| got.push(bytes));
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].len(), 60);
    assert_eq!(got[0][..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 0x80, 0x35]);
    raw.number(request::SEND_RARP, 5);
    until("announced again", || take(&mut rig.end, |_| ()) == 1);
}

/// A front end with a transmit queue of its own, which outlives the device.
struct Survivor {
    ram: DriverRam,
    queue_ram: QueueRam,
    queue: DriverQueue,
    packed: bool,
    inflight: Option<(Vec<u8>, OwnedFd)>,
}

impl Survivor {
    fn new(packed: bool) -> Survivor {
        let (ram, mut queues) = DriverRam::new(&[8, 8]).unwrap();
        let queue_ram = queues.remove(1);
        let queue = DriverQueue::new(
            &queue_ram,
            DriverFeatures { queue: QueueFeatures { packed, ..QueueFeatures::default() }, ..DriverFeatures::default() },
        );
        Survivor { ram, queue_ram, queue, packed, inflight: None }
    }

    /// Connects, and starts the transmit queue at the base of an empty queue, the only base that the front end knows.
    fn connect(&mut self, path: &Path) -> Raw {
        let raw = Raw::new(path);
        raw.number(request::SET_FEATURES, VERSION_1 | if self.packed { RING_PACKED } else { 0 });
        let (shape, fd) = self.inflight.get_or_insert_with(|| {
            let ask = [0u64, 0, 2 | 8 << 16].iter().flat_map(|w| w.to_le_bytes()).collect();
            raw.say(request::GET_INFLIGHT_FD, ask, Vec::new());
            let mut answer = raw.hear();
            (answer.payload, answer.fds.remove(0))
        });
        raw.say(request::SET_INFLIGHT_FD, shape.clone(), vec![fd.try_clone().unwrap()]);
        let mut table = vec![1, 0, 0, 0, 0, 0, 0, 0];
        put_region(&mut table, &self.ram.spec());
        raw.say(request::SET_MEM_TABLE, table, vec![self.ram.file().unwrap()]);
        raw.number(request::SET_VRING_NUM, 1 | 8 << 32);
        raw.number(request::SET_VRING_BASE, 1 | if self.packed { 0x8000_8000 << 32 } else { 0 });
        let at = addresses(&self.queue_ram);
        let words = [1, at.desc, at.used, at.avail, 0];
        raw.say(request::SET_VRING_ADDR, words.iter().flat_map(|w| w.to_le_bytes()).collect(), Vec::new());
        let kick = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        raw.say(request::SET_VRING_KICK, 1u64.to_le_bytes().to_vec(), vec![kick]);
        raw.sync();
        raw
    }

    /// Sends `count` frames of `len` bytes each, and reclaims used buffers.
    fn send(&mut self, count: usize, len: u32) {
        while let Some(used) = self.queue.next_used().unwrap() {
            self.queue.recycle([used.id]);
        }
        for _ in 0..count {
            let id = self.queue.take(1).expect("the device gave buffers back");
            self.queue.post(&self.queue_ram, id, |_| false, |_| 12 + len);
        }
        self.queue.publish();
    }
}

/// Objective: after an end without notice, the next device resumes at the right position: every frame arrives once,
/// although the front end always starts the queue at the base of an empty queue.
fn goes_on(packed: bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut front = Survivor::new(packed);
    let mut len = 60;
    let mut got = Vec::new();
    for _ in 0..9 {
        let (device, mut end) = open(&path);
        let raw = front.connect(&path);
        until("the queue runs", || device.state().now.queues == 1);
        // Three frames arrive at this device; the next two arrive only at the next device.
        front.send(3, len);
        while take(&mut end, |(bytes, _)| got.push(bytes.len() as u32)) > 0 {}
        front.send(2, len + 1);
        len += 2;
        drop((device, end, raw));
    }
    let (device, mut end) = open(&path);
    let _raw = front.connect(&path);
    until("the queue runs", || device.state().now.queues == 1);
    while take(&mut end, |(bytes, _)| got.push(bytes.len() as u32)) > 0 {}
    let expected: Vec<u32> =
        (0..9).flat_map(|i| [60 + 2 * i, 60 + 2 * i, 60 + 2 * i, 61 + 2 * i, 61 + 2 * i]).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_split_queue_goes_on_in_the_next_device() {
    goes_on(false);
}

#[test]
fn a_packed_queue_goes_on_in_the_next_device() {
    goes_on(true);
}
