//! Helpers that pass batches through a port's queues.
#![allow(unsafe_code, dead_code, reason = "each test program uses a part")]

pub mod processes;
pub mod raw;

use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_port::{Batch, Egress, Ingress, Scratch};
use netvale_virtio::VirtioQueues;
use netvale_wire::offload::Offload;

pub const LIMIT: Duration = Duration::from_secs(60);

pub fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(netvale_harness::until(LIMIT, Duration::from_millis(1), done), "time is up: {what}");
}

/// A queue pair, at one end of a connection.
pub struct End {
    pub egress: Arc<dyn Egress>,
    pub ingress: Box<dyn Ingress>,
}

impl End {
    /// The first pair of a port's queues.
    pub fn first((mut egress, mut ingress): VirtioQueues) -> End {
        End { egress: egress.remove(0), ingress: ingress.remove(0) }
    }
}

/// Waits until the worker of an end would be woken.
#[track_caller]
pub fn wait(end: &mut End) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = end.ingress.wake_fd().expect("something to wait on");
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "no wake-up");
    end.ingress.woken();
}

/// Takes one batch of frames, passes each frame with its offload to `f`, and releases the frames. Returns the number of
/// frames.
pub fn take(end: &mut End, mut f: impl FnMut((Vec<u8>, Offload))) -> usize {
    let mut batch = Batch::new();
    // SAFETY: the batch is read before `release`, and ends here.
    unsafe { end.ingress.take(&mut batch) };
    for frame in batch.iter() {
        let mut bytes = vec![0; frame.len()];
        assert_eq!(frame.copy_out(0, &mut bytes), frame.len());
        f((bytes, frame.offload()));
    }
    let n = batch.len();
    batch.clear();
    end.ingress.release();
    n
}

/// Delivers frames as one batch. Returns the number of frames sent or dropped.
pub fn give(end: &End, frames: &[(Vec<u8>, Offload)]) -> usize {
    give_with(&mut Scratch::new(), end, frames)
}

/// Delivers frames as one batch, with this scratch memory.
pub fn give_with(scratch: &mut Scratch, end: &End, frames: &[(Vec<u8>, Offload)]) -> usize {
    let mut batch = Batch::new();
    for (bytes, offload) in frames {
        // SAFETY: the frames outlive the batch.
        assert!(unsafe { batch.push(bytes.as_ptr(), bytes.len() as u32) });
        batch.set_offload(*offload);
    }
    let picks: Vec<u16> = (0..frames.len() as u16).collect();
    end.egress.deliver(&batch, &picks, scratch)
}

/// Sends all of `frames` from one end to the other, in batches of `batch`. Returns the received frames.
pub fn cross(from: &End, to: &mut End, frames: &[(Vec<u8>, Offload)], batch: usize) -> Vec<(Vec<u8>, Offload)> {
    let mut sent = 0;
    let mut got = Vec::new();
    let start = Instant::now();
    while got.len() < frames.len() {
        assert!(start.elapsed() < LIMIT, "{sent} sent, {} received", got.len());
        let end = frames.len().min(sent + batch);
        sent += give(from, &frames[sent..end]);
        take(to, |frame| got.push(frame));
    }
    got
}

pub fn frame(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}
