//! Tests of a queue that a worker does not return, and of a queue that is repeatedly set up anew under traffic.

#![allow(unsafe_code)]

use crate::common;
use crate::common::raw;

use std::os::fd::OwnedFd;
use std::time::Instant;

use common::until;
use netvale_mem::lent::LIMIT;
use netvale_port::{Batch, Ingress};
use netvale_vhost::proto::message::request;
use raw::{Raw, Rig, file, put, rig, whole};

/// Connects a front end that the test controls message by message, and starts its transmit queue, which contains one
/// frame.
fn start(rig: &Rig, memory: &OwnedFd) -> Raw {
    let raw = Raw::new(&rig.path);
    raw.number(request::SET_FEATURES, 1 << 32);
    raw.memory(&[whole()], vec![memory.try_clone().unwrap()]);
    // A descriptor for a frame with its header, and an available ring that lists this descriptor.
    put(memory, 0x1000, &[0x2000, 72]);
    put(memory, 0x1100, &[1 << 16]);
    raw.start(1, 0x1000);
    raw
}

/// Returns the used index of the transmit queue.
fn used(memory: &OwnedFd) -> u16 {
    let mut index = [0; 2];
    assert_eq!(rustix::io::pread(memory, &mut index, 0x1202), Ok(2));
    u16::from_le_bytes(index)
}

fn take(ingress: &mut dyn Ingress) -> Batch {
    let mut batch = Batch::new();
    until("a frame", || {
        // SAFETY: the frames taken are read before the ingress releases them.
        unsafe { ingress.take(&mut batch) };
        !batch.is_empty()
    });
    batch
}

/// Objective: a front end that stops a queue while a worker holds a batch gets its answer when the batch is released;
/// the worker is notified that the control thread waits.
#[test]
fn a_stopped_queue_is_answered_after_its_batch() {
    let mut rig = rig();
    let memory = file();
    let raw = start(&rig, &memory);
    let batch = take(&mut *rig.end.ingress);
    assert!(!rig.end.ingress.is_wanted());
    raw.number(request::GET_VRING_BASE, 1);
    until("the worker is waited for", || rig.end.ingress.is_wanted());
    assert_eq!((batch.len(), used(&memory)), (1, 0));
    drop(batch);
    rig.end.ingress.release();
    assert_eq!(raw.hear().payload, [1, 0, 0, 0, 1, 0, 0, 0], "queue 1 stopped behind its first descriptor");
    assert_eq!(used(&memory), 1);
    until("the queue is stopped", || rig.device.state().now.queues == 0);
}

/// Objective: if a worker does not release its batch in time, only the front end of that queue loses its connection.
/// The next front end is refused while the worker holds the batch, and served once the worker has released it; the old
/// queue is not used any more.
#[test]
fn a_batch_never_handed_back_costs_the_connection() {
    let mut rig = rig();
    let memory = file();
    let raw = start(&rig, &memory);
    let batch = take(&mut *rig.end.ingress);
    let began = Instant::now();
    raw.number(request::GET_VRING_BASE, 1);
    let is_refused = |rig: &Rig| rig.device.state().last_error.is_some_and(|e| e.contains("queue 1: a worker did not"));
    until("disconnected", || is_refused(&rig));
    assert!(began.elapsed() >= LIMIT);
    drop(raw);
    let again = file();
    let raw = start(&rig, &again);
    until("the next one is there", || rig.device.state().connections == 2);
    until("and disconnected, too", || is_refused(&rig));
    assert!(began.elapsed() < LIMIT * 3, "nobody waits for what is known to be held");
    drop((raw, batch));
    rig.end.ingress.release();
    let raw = start(&rig, &again);
    drop(take(&mut *rig.end.ingress));
    rig.end.ingress.release();
    until("the next one is served", || used(&again) == 1);
    assert_eq!(rig.device.state().last_error, None);
    drop(raw);
}

/// Objective: under full traffic, 10,000 changes of a queue's call descriptor and memory, each of which removes the
/// queue and puts it back, lose and duplicate no frame; all buffers are returned.
#[test]
fn set_again_and_again() {
    let mut rig = rig();
    let memory = file();
    let raw = start(&rig, &memory);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|s| {
        let worker = s.spawn(|| {
            let mut frames = 0u64;
            let mut batch = Batch::new();
            while !stop.load(relaxed) || frames < u64::from(u16::MAX) {
                batch.clear();
                // SAFETY: none of the batch's frames is read.
                unsafe { rig.end.ingress.take(&mut batch) };
                let count = batch.len() as u64;
                rig.end.ingress.release();
                frames += count;
                if count > 0 {
                    // The driver has only one frame, and sends it again whenever the device returns the buffer.
                    assert_eq!(u64::from(used(&memory)), frames & 0xffff);
                    put(&memory, 0x1100, &[((frames + 1) & 0xffff) << 16]);
                }
            }
            frames
        });
        for _ in 0..10_000 {
            raw.memory(&[whole()], vec![memory.try_clone().unwrap()]);
            raw.say(request::SET_VRING_CALL, (1u64 | 1 << 8).to_le_bytes().to_vec(), Vec::new());
            raw.sync();
        }
        stop.store(true, relaxed);
        assert!(worker.join().unwrap() >= u64::from(u16::MAX));
    });
    assert_eq!(rig.device.state().last_error, None);
}
