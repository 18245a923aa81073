//! Sending: -f tx and txseq.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netvale::TxRing;
use netvale_abi::slot::{NS_BUF_CHANGED, NS_MOREFRAG};

use super::frame::FrameSource;
use super::report::{ThreadCounts, watch};
use super::{PktGenJob, SPIN, pin};
use crate::CliError;

/// Offset of the 8-byte sequence number in a frame, after the Ethernet, IPv4 and UDP headers. Only a frame of at least
/// 50 bytes contains a sequence number.
pub const SEQUENCE_AT: usize = 42;

/// Sends on all rings, each in its own thread.
///
/// # Errors
/// An address is invalid, or the daemon has ended.
pub fn run(job: &PktGenJob<'_>, rings: Vec<TxRing>, sequence: bool, closed: &dyn Fn() -> bool) -> Result<(), CliError> {
    let counts: Vec<ThreadCounts> = rings.iter().map(|_| ThreadCounts::default()).collect();
    let sender = |(k, ring)| PktSender::new(job, ring, k as u64, sequence);
    let senders = rings.into_iter().enumerate().map(sender).collect::<Result<Vec<_>, _>>()?;
    let share = if job.count == 0 { 0 } else { job.count.div_ceil(senders.len() as u64) };
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (k, (mut sender, counts)) in senders.into_iter().zip(&counts).enumerate() {
            handles.push(scope.spawn(move || {
                pin(job.args, k);
                sender.run(share, counts);
            }));
        }
        watch(job, "Sent", &counts, &handles, &|_| closed())
    })?;
    if closed() { Err(super::gone()) } else { Ok(()) }
}

struct PktSender<'a> {
    job: &'a PktGenJob<'a>,
    ring: TxRing,
    source: FrameSource,
    sequence: Option<u64>,
    /// For each slot, whether its buffer already contains the frame.
    filled: Vec<bool>,
    frags: u32,
}

impl<'a> PktSender<'a> {
    fn new(job: &'a PktGenJob<'a>, ring: TxRing, thread: u64, sequence: bool) -> Result<Self, CliError> {
        let source = FrameSource::new(job.args, thread)?;
        let filled = vec![false; ring.num_slots() as usize];
        let longest = source.longest() + job.hdr_len;
        let by_size = |size: u32| longest.div_ceil(size as usize) as u32;
        let frags = job.args.num_frags.max(by_size(ring.mem().buf_size())).max(job.args.frag_size.map_or(1, by_size));
        if frags > 64 || frags >= ring.num_slots() {
            let what = format!("a frame of {longest} bytes takes {frags} slots: the limit is 64, and the ring's size");
            return Err(CliError::usage(what, "send shorter frames, or fewer fragments (-F, -M)"));
        }
        Ok(PktSender { job, ring, source, sequence: sequence.then_some(0), filled, frags })
    }

    fn run(&mut self, count: u64, counts: &ThreadCounts) {
        let burst = super::burst(self.job.args, self.ring.num_slots() / self.frags);
        let mut pace = SendPace { rate: self.job.args.rate, burst, start: Instant::now(), given: 0 };
        let mut sent = 0;
        while (count == 0 || sent < count) && !self.job.stop.load(Ordering::Relaxed) {
            let wanted = pace.allowance(if count == 0 { u64::MAX } else { count - sent });
            let room = self.ring.space() / self.frags;
            if room == 0 || wanted == 0 {
                self.ring.sync();
                if room == 0 && self.ring.space() < self.frags {
                    self.ring.wait(SPIN, Duration::from_millis(50));
                }
                continue;
            }
            let n = wanted.min(room);
            let bytes = if self.is_simple() { self.fill_simple(n) } else { self.fill_any(n) };
            self.ring.advance(n * self.frags);
            self.ring.sync();
            sent += u64::from(n);
            counts.add(u64::from(n), bytes);
        }
        crate::forward::run::drain(&mut self.ring);
    }

    fn is_simple(&self) -> bool {
        self.frags == 1 && self.job.hdr_len == 0 && self.sequence.is_none() && self.source.is_constant()
    }

    /// Writes `n` equal frames. If the buffer of a slot already contains the frame, it is not written again. Returns
    /// the total number of bytes in the frames.
    fn fill_simple(&mut self, n: u32) -> u64 {
        let frame = self.source.frame();
        let len = frame.len() as u16;
        for k in 0..n {
            let i = self.ring.at(k);
            let slot = self.ring.slot(i);
            let filled = self.filled.get_mut(i as usize);
            let known = filled.is_some_and(|f| std::mem::replace(f, true));
            if !known || slot.flags & NS_BUF_CHANGED != 0 {
                self.ring.mem().write(slot.buf_idx, 0, frame);
            }
            self.ring.set_len(i, len, 0);
        }
        u64::from(n) * u64::from(len)
    }

    /// Writes `n` frames that differ, have a virtio-net header, or take several slots. Returns the total number of
    /// bytes in the frames.
    fn fill_any(&mut self, n: u32) -> u64 {
        let mut bytes = 0;
        for k in 0..n {
            if let Some(number) = &mut self.sequence {
                if let Some(place) = self.source.frame_mut().get_mut(SEQUENCE_AT..SEQUENCE_AT + 8) {
                    place.copy_from_slice(&number.to_be_bytes());
                }
                *number += 1;
            }
            bytes += self.source.frame().len() as u64;
            self.fill_frags(k * self.frags);
            self.source.next();
        }
        bytes
    }

    fn fill_frags(&mut self, first: u32) {
        let frame = self.source.frame();
        let header = [0u8; 12];
        let total = frame.len() + self.job.hdr_len;
        let each = total.div_ceil(self.frags as usize).max(self.job.hdr_len + 1);
        let mut at = 0;
        for k in 0..self.frags {
            let i = self.ring.at(first + k);
            let buf = self.ring.slot(i).buf_idx;
            let lead = if k == 0 { self.job.hdr_len } else { 0 };
            self.ring.mem().write(buf, 0, &header[..lead]);
            let end = (at + each - lead).min(frame.len());
            self.ring.mem().write(buf, lead as u32, &frame[at..end]);
            let more = if k + 1 < self.frags { NS_MOREFRAG } else { 0 };
            self.ring.set_len(i, (lead + end - at) as u16, more);
            at = end;
        }
    }
}

/// Limits the rate of sending.
struct SendPace {
    rate: u64,
    burst: u32,
    start: Instant,
    given: u64,
}

impl SendPace {
    /// Returns how many frames may be sent now: at most a burst and at most `left`. Returns 0 if the rate does not
    /// allow another frame yet.
    fn allowance(&mut self, left: u64) -> u32 {
        let most = left.min(u64::from(self.burst)) as u32;
        if self.rate == 0 {
            return most;
        }
        let due = (self.start.elapsed().as_secs_f64() * self.rate as f64) as u64;
        let n = due.saturating_sub(self.given).min(u64::from(most));
        if n == 0 {
            std::thread::sleep(Duration::from_secs_f64(1.0 / self.rate as f64).min(Duration::from_millis(1)));
        }
        self.given += n;
        n as u32
    }
}
