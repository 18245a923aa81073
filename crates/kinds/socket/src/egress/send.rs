//! The system calls of an egress, and the handling of frames that the kernel refuses.

use std::ops::Range;

use netvale_mem::noted::NUMBERS;
use netvale_port::DropReason;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::{Delivery, OutOfRoom, PeerEgress};
use crate::rules::FrameFormat;

/// Maximum number of bytes per system call for a stream over a UNIX socket. The socket takes up to this many bytes
/// entirely or not at all, in one kernel buffer (net/unix/af_unix.c), so the stream ends with a whole frame whenever
/// this process is killed.
const RUN: usize = 32 * 1024;
/// Maximum number of bytes per system call for TCP, which may take any part of the bytes.
const TCP_RUN: usize = 256 * 1024;

/// Result of sending frames.
pub(super) struct SentOff {
    /// Number of frames that were sent or dropped, counted from the first waiting frame.
    pub done: usize,
    /// Whether there is no room for further frames.
    pub is_full: bool,
}

impl PeerEgress {
    /// Sends all waiting frames. `next` is the position in `picks` after the last waiting frame.
    pub(super) fn send_all(&mut self, next: usize, delivery: &mut Delivery<'_>) -> Result<(), OutOfRoom> {
        let SentOff { done, is_full } = self.send(delivery);
        let pick = self.entries.get(done).map_or(next, |entry| entry.pick);
        self.forget();
        if is_full { Err(OutOfRoom(pick)) } else { Ok(()) }
    }

    /// Discards all waiting frames.
    pub(super) fn forget(&mut self) {
        self.parcels.clear();
        self.entries.clear();
        self.private.clear();
    }

    /// Sends the waiting frames as far as there is room.
    pub(super) fn send(&mut self, delivery: &mut Delivery<'_>) -> SentOff {
        let mut done = 0;
        while done < self.entries.len() {
            let most = delivery.meter.at_once();
            if most == 0 {
                // The batch's time for this peer is used up.
                self.counters.dropped(DropReason::Device, (self.entries.len() - done) as u64);
                return SentOff { done: self.entries.len(), is_full: false };
            }
            let call = self.call_from(done, most);
            match self.send_call(call) {
                Ok(sent) if sent > 0 => {
                    self.count(done, sent, delivery);
                    done += sent;
                }
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return SentOff { done, is_full: true },
                Err(why) => {
                    delivery.meter.took(1);
                    done += self.refused(why, self.entries.len() - done);
                }
            }
            if !self.backlog.is_empty() {
                return SentOff { done, is_full: true };
            }
        }
        SentOff { done, is_full: false }
    }

    fn send_call(&mut self, call: Range<usize>) -> Result<usize, Errno> {
        match self.carrier.format {
            FrameFormat::Messages => self.parcels.send_messages(&self.socket(), call),
            FrameFormat::Stream => self.send_run(&call),
        }
    }

    fn count(&self, from: usize, sent: usize, delivery: &mut Delivery<'_>) {
        let sent = self.entries.get(from..from + sent).unwrap_or_default();
        delivery.frames += sent.len() as u64;
        delivery.bytes += sent.iter().map(|entry| entry.frame as u64).sum::<u64>();
        delivery.meter.took(sent.len().max(1) as u32);
    }

    /// Returns the indices of the frames for the next system call: at most `most` frames, beginning with frame `first`.
    fn call_from(&self, first: usize, most: usize) -> Range<usize> {
        let rest = self.entries.get(first..).unwrap_or_default();
        let mut count = rest.len().min(most);
        if self.carrier.format == FrameFormat::Stream {
            let run = if self.carrier.is_tcp { TCP_RUN } else { RUN };
            let mut bytes = 0;
            let fits = |entry: &&super::Parcel| {
                bytes += entry.bytes;
                bytes <= run
            };
            count = rest.iter().take(count).take_while(fits).count().max(1);
        }
        first..first + count
    }

    /// Sends frames of a stream. Returns the number of accepted frames. If the kernel took only a part of the last
    /// accepted frame, the rest moves into the backlog.
    fn send_run(&mut self, call: &Range<usize>) -> Result<usize, Errno> {
        let bytes: usize = self.entries.get(call.clone()).unwrap_or_default().iter().map(|entry| entry.bytes).sum();
        let may_be_cut = self.carrier.is_tcp || bytes > RUN;
        if may_be_cut {
            self.note(true);
        }
        let sent = self.parcels.send_stream(&self.socket(), call);
        let accepted = sent.map(|sent| self.accept(call, sent));
        if may_be_cut && self.backlog.is_empty() {
            self.note(false);
        }
        accepted
    }

    /// Converts the number of bytes that the kernel took in a call to the number of accepted frames; if a frame was
    /// taken in part, the rest of it moves into the backlog.
    fn accept(&mut self, call: &Range<usize>, mut sent: usize) -> usize {
        let mut accepted = 0;
        for i in call.clone() {
            let Some(bytes) = self.entries.get(i).map(|entry| entry.bytes).filter(|_| sent > 0) else { break };
            accepted += 1;
            if sent < bytes {
                let parcels = &self.parcels;
                self.backlog.add(bytes - sent, |rest| parcels.copy_rest(i, sent, rest));
                self.await_room();
                break;
            }
            sent -= bytes;
        }
        accepted
    }

    /// Handles an error for the first of `left` frames: drops the first frame or, if the peer is gone, all `left`
    /// frames. Returns the number of dropped frames.
    #[cold]
    fn refused(&mut self, why: Errno, left: usize) -> usize {
        if self.carrier.is_connection && why != Errno::MSGSIZE {
            self.parts.news.gone();
            self.counters.dropped(DropReason::Idle, left as u64);
            return left;
        }
        let reason = match why {
            Errno::CONNREFUSED | Errno::NOTCONN | Errno::NOENT | Errno::PIPE | Errno::CONNRESET => {
                self.parts.news.missed();
                DropReason::Idle
            }
            Errno::MSGSIZE => DropReason::TooLong,
            Errno::NETDOWN | Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::HOSTDOWN | Errno::PERM | Errno::ACCESS => {
                DropReason::Unreachable
            }
            _ => DropReason::Device,
        };
        self.counters.dropped(reason, 1);
        1
    }

    /// Sends the backlog of accepted frames as far as there is room. Returns whether the backlog is now empty.
    pub fn flush(&mut self) -> bool {
        if self.backlog.is_empty() {
            return true;
        }
        let is_message = self.carrier.format == FrameFormat::Messages;
        while let Some(bytes) = self.backlog.front() {
            match rustix::net::send(&*self.parts.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.backlog.sent(sent, is_message),
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return false,
                Err(_) => {
                    if self.carrier.is_connection {
                        self.parts.news.gone();
                    }
                    self.backlog.clear();
                }
            }
        }
        self.note(false);
        self.watch(false);
        true
    }

    /// Starts to wait for room in the socket, to send the backlog.
    #[cold]
    pub(super) fn await_room(&mut self) {
        self.note(true);
        self.watch(true);
    }

    fn watch(&self, on: bool) {
        self.parts.room.watch(&self.parts.socket, on);
    }

    /// Records for a successor whether the stream lacks the rest of a frame.
    fn note(&mut self, lacks: bool) {
        let mut numbers = [0; NUMBERS];
        numbers[0] = lacks.into();
        self.noted.iter_mut().for_each(|noted| noted.write(numbers));
    }
}
