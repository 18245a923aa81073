//! Processing of a guest's segments by an endpoint.

use std::time::Instant;

use netvale_wire::tcp::{ACK, FIN, RST, SYN};

use super::super::segment::TcpSegment;
use super::super::seq::TcpSeq;
use super::{PLAIN_ROOM, TcpEndpoint, TcpHeard, TcpState};

/// Maximum number of duplicate acknowledgements that are due at one time.
const MAX_DUPLICATES: u32 = 4;

impl TcpEndpoint {
    /// Processes a segment from the guest. Returns its effect.
    pub fn hear<'a>(&mut self, segment: &TcpSegment<'a>, now: Instant) -> TcpHeard<'a> {
        match self.state {
            TcpState::Connecting => self.hear_connecting(segment),
            TcpState::SynSent => self.hear_answer(segment, now),
            TcpState::SynReceived | TcpState::Open => self.hear_open(segment, now),
            TcpState::Closed => TcpHeard { refusal: segment.refusal(), ..TcpHeard::default() },
        }
    }

    /// Processes a segment while the host's socket connects: only a reset, or a SYN with another sequence number, has
    /// an effect.
    fn hear_connecting<'a>(&mut self, segment: &TcpSegment<'a>) -> TcpHeard<'a> {
        let numbers = [self.expected, TcpSeq(self.expected.0.wrapping_sub(1))];
        let reset = segment.has(RST) && numbers.contains(&segment.seq);
        if segment.has(SYN) && !segment.has(ACK) && !segment.has(RST) && segment.seq.plus(1) != self.expected {
            self.take_syn(segment);
        }
        if reset {
            self.state = TcpState::Closed;
        }
        TcpHeard { reset, ..TcpHeard::default() }
    }

    /// Processes the answer to our SYN (RFC 9293 §3.10.7.3).
    fn hear_answer<'a>(&mut self, segment: &TcpSegment<'a>, now: Instant) -> TcpHeard<'a> {
        let right = segment.has(ACK) && segment.ack == self.first.plus(1) && self.max == segment.ack;
        if !right {
            let refusal = segment.refusal().filter(|_| segment.has(ACK));
            return TcpHeard { refusal, ..TcpHeard::default() };
        }
        if segment.has(RST) {
            self.state = TcpState::Closed;
            return TcpHeard { reset: true, ..TcpHeard::default() };
        }
        if !segment.has(SYN) {
            return TcpHeard::default();
        }
        self.take_syn(segment);
        // Our SYN has offered this window.
        self.edge = self.expected.plus(PLAIN_ROOM);
        self.state = TcpState::Open;
        self.una = segment.ack;
        self.window_ack = segment.ack;
        self.timer = None;
        self.silent = 0;
        self.heard = now;
        self.owed = true;
        TcpHeard { opened: true, ..TcpHeard::default() }
    }

    /// Processes a segment in the states SYN-RECEIVED and later (RFC 9293 §3.10.7.4, RFC 5961).
    fn hear_open<'a>(&mut self, segment: &TcpSegment<'a>, now: Instant) -> TcpHeard<'a> {
        let mut heard = TcpHeard::default();
        let end = segment.seq.plus(segment.len());
        let again = segment.has(SYN) && segment.seq.plus(1) == self.expected && !segment.has(RST);
        if self.state == TcpState::SynReceived && again {
            self.syn_due = true;
            return heard;
        }
        if end.is_before(self.expected) || segment.seq.is_after(self.edge) {
            self.owed |= !segment.has(RST);
            return heard;
        }
        if segment.has(RST) {
            heard.reset = segment.seq == self.expected;
            self.owed |= !heard.reset;
            if heard.reset {
                self.state = TcpState::Closed;
            }
            return heard;
        }
        if segment.has(SYN) || !segment.has(ACK) {
            self.owed |= segment.has(SYN);
            return heard;
        }
        self.heard = now;
        self.silent = 0;
        self.take_acknowledgement(segment, now, &mut heard);
        if self.state == TcpState::Open && heard.refusal.is_none() {
            heard.data = self.take_data(segment);
        }
        heard
    }

    fn take_acknowledgement(&mut self, segment: &TcpSegment<'_>, now: Instant, heard: &mut TcpHeard<'_>) {
        if self.state == TcpState::SynReceived {
            if segment.ack != self.max {
                heard.refusal = segment.refusal();
                return;
            }
            self.state = TcpState::Open;
            self.una = segment.ack;
            self.timer = None;
            heard.opened = true;
        } else if segment.ack.is_after(self.max) {
            self.owed = true;
            return;
        } else if segment.ack.is_after(self.una) {
            self.acknowledge(segment.ack, now);
        } else if segment.ack == self.una && self.is_repeated(segment) {
            let flight = self.max.since(self.una);
            self.resend |= self.path.duplicate(flight, self.max);
        }
        self.take_window(segment);
    }

    /// Returns whether an acknowledgement is a duplicate (RFC 5681 §2). If the guest's window is closed, the
    /// acknowledgement is not a duplicate, but an answer to a probe.
    fn is_repeated(&self, segment: &TcpSegment<'_>) -> bool {
        let same_window = u32::from(segment.window) << self.window_scale == self.window;
        segment.is_empty() && same_window && self.window > 0 && self.next != self.una
    }

    fn acknowledge(&mut self, ack: TcpSeq, now: Instant) {
        let bytes = ack.since(self.una);
        let of_queue = (bytes as usize).min(self.queue.len());
        self.queue.drop_first(of_queue);
        self.end_acked |= bytes as usize > of_queue;
        self.una = ack;
        self.next = self.next.later(ack);
        self.resend |= self.path.acknowledged(bytes, ack, now);
        self.timer = (self.next != self.una).then(|| now + self.path.rto());
    }

    /// Takes the guest's window from a segment, unless a newer segment has set it (RFC 9293 §3.10.7.4).
    fn take_window(&mut self, segment: &TcpSegment<'_>) {
        let newer = self.window_seq.is_before(segment.seq)
            || (self.window_seq == segment.seq && !segment.ack.is_before(self.window_ack));
        if !newer || segment.ack.is_before(self.una) {
            return;
        }
        self.window = u32::from(segment.window) << self.window_scale;
        self.window_seq = segment.seq;
        self.window_ack = segment.ack;
        if self.window > 0 && self.next == self.una {
            self.timer = None;
        }
    }

    /// Returns the part of a segment's payload that is next in order and within the offered window.
    fn take_data<'a>(&mut self, segment: &TcpSegment<'a>) -> &'a [u8] {
        let len = segment.len();
        if len == 0 {
            return &[];
        }
        self.owed = true;
        if segment.seq.is_after(self.expected) {
            // Each segment out of order gets a duplicate acknowledgement: three of them trigger the guest's fast
            // retransmit.
            self.duplicates = (self.duplicates + 1).min(MAX_DUPLICATES);
            return &[];
        }
        if self.guest_ended {
            return &[];
        }
        let known = self.expected.since(segment.seq) as usize;
        let new = segment.payload.get(known..).unwrap_or_default();
        let taken = new.len().min(self.offered() as usize).min(self.most_taken);
        self.expected = self.expected.plus(taken as u32);
        if segment.has(FIN) && taken == new.len() && known <= segment.payload.len() {
            self.guest_ended = true;
            self.expected = self.expected.plus(1);
            self.edge = self.edge.later(self.expected);
        }
        &new[..taken]
    }
}
