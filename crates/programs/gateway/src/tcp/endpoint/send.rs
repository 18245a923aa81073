//! How an endpoint generates the segments that it sends to its guest.

use std::time::{Duration, Instant};

use netvale_wire::tcp::{ACK, FIN, PSH, SYN};

use super::super::segment::{SegmentOut, SynOptions};
use super::{PLAIN_ROOM, SCALE, TcpEndpoint, TcpState};

/// Maximum number of payload bytes of one segment, which is longer than a packet: the receiver segments it (TSO).
const MAX_SEGMENT: usize = 64_000;
/// Minimum time between probes of a closed window.
const PROBE: Duration = Duration::from_millis(300);

impl TcpEndpoint {
    /// Returns the number of bytes of the queue that are in flight.
    pub(super) fn in_flight(&self) -> usize {
        (self.next.since(self.una) as usize).min(self.queue.len())
    }

    /// Returns whether our FIN is in flight or has been acknowledged.
    fn is_end_sent(&self) -> bool {
        self.end_acked || (self.ended && self.next.since(self.una) as usize > self.queue.len())
    }

    /// Returns the next segment to send. `None` means that there is nothing to send until a segment or data arrives, or
    /// a timer expires.
    pub fn next_segment(&mut self, now: Instant) -> Option<SegmentOut> {
        match self.state {
            TcpState::Connecting | TcpState::Closed => None,
            TcpState::SynReceived | TcpState::SynSent => self.next_syn(now),
            TcpState::Open => self.next_open(now),
        }
    }

    fn next_syn(&mut self, now: Instant) -> Option<SegmentOut> {
        if !std::mem::take(&mut self.syn_due) {
            return None;
        }
        let answers = self.state == TcpState::SynReceived;
        let window = self.room.min(PLAIN_ROOM);
        if answers {
            self.edge = self.expected.plus(window);
        }
        self.next = self.first.plus(1);
        self.max = self.next;
        self.timer = Some(now + self.path.rto());
        let scale = (self.scaled || !answers).then_some(SCALE);
        let flags = if answers { SYN | ACK } else { SYN };
        let syn = Some(SynOptions { mss: self.mss, scale });
        Some(SegmentOut { flags, window: window as u16, syn, ..self.bare(self.first) })
    }

    fn next_open(&mut self, now: Instant) -> Option<SegmentOut> {
        if std::mem::take(&mut self.resend) && self.next != self.una {
            return Some(self.first_again(now));
        }
        let len = self.sendable();
        self.probe = false;
        let last = len == self.unsent();
        let ends = self.ended && last && !self.is_end_sent();
        if len > 0 || ends {
            return Some(self.new_data(len, ends, now));
        }
        let waits = self.unsent() > 0 && self.next == self.una;
        if waits && self.timer.is_none() {
            // The guest's window is closed. The guest's window update may be lost, so a timer is set that sends a
            // probe.
            self.timer = Some(now + self.path.rto().max(PROBE));
        }
        if self.duplicates > 0 {
            self.duplicates -= 1;
        } else if !std::mem::take(&mut self.owed) {
            return None;
        }
        // Even during retransmission, the sequence number is the highest that was sent: the guest would ignore an older
        // number.
        Some(self.with_window(self.bare(self.max)))
    }

    /// Returns the number of unsent bytes that the next segment may carry.
    fn sendable(&self) -> usize {
        let unsent = self.unsent();
        let flight = self.next.since(self.una);
        let allowed = self.window.min(self.path.window()).saturating_sub(flight) as usize;
        let allowed = if self.probe { allowed.max(1) } else { allowed };
        let most = unsent.min(allowed).min(MAX_SEGMENT);
        let len = self.queue.fitting(self.in_flight(), most);
        let mss = usize::from(self.mss);
        if len == unsent {
            return len;
        }
        if len >= mss {
            return len / mss * mss;
        }
        // Less than a full segment is sent only if nothing is in flight whose acknowledgement would open the window
        // further (RFC 9293 §3.8.6.2.1), or if the queue's pieces are too small to fill a segment.
        if flight == 0 || len < most { len } else { 0 }
    }

    fn new_data(&mut self, len: usize, ends: bool, now: Instant) -> SegmentOut {
        let at = self.in_flight();
        let seq = self.next;
        self.next = seq.plus(len as u32 + u32::from(ends));
        if self.next.is_after(self.max) {
            self.path.sent(self.next, now);
            self.max = self.next;
        }
        self.timer.get_or_insert(now + self.path.rto());
        let push = if at + len == self.queue.len() && len > 0 { PSH } else { 0 };
        let end = if ends { FIN } else { 0 };
        self.with_window(SegmentOut { flags: ACK | push | end, data: at..at + len, ..self.bare(seq) })
    }

    /// Retransmits the first bytes in flight.
    fn first_again(&mut self, now: Instant) -> SegmentOut {
        let flight = self.in_flight();
        let len = self.queue.fitting(0, flight.min(self.mss.into()));
        let ends = self.is_end_sent() && len == self.queue.len();
        self.timer = Some(now + self.path.rto());
        let end = if ends { FIN } else { 0 };
        self.with_window(SegmentOut { flags: ACK | end, data: 0..len, ..self.bare(self.una) })
    }

    /// Sets the window of a segment. The window's right edge never moves back, and moves forward in steps that avoid
    /// silly windows (RFC 9293 §3.8.6.2.2).
    fn with_window(&mut self, segment: SegmentOut) -> SegmentOut {
        self.owed = false;
        let shift = if self.scaled { SCALE } else { 0 };
        let edge = self.expected.plus(self.room);
        let step = u32::from(self.mss).min(self.most_room() / 2);
        if edge.is_after(self.edge) && edge.since(self.edge) >= step {
            self.edge = edge;
        }
        let window = (self.offered() >> shift).min(PLAIN_ROOM);
        SegmentOut { window: window as u16, ..segment }
    }
}
