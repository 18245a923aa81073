//! Passes arbitrary TCP segments from a guest to the gateway's end of a connection, while bytes arrive from the host
//! and time passes.
//!
//! Input: a byte that selects which end opens the connection, and for each step, a byte that selects the kind of step,
//! and the step's parameters.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::time::{Duration, Instant};

use netvale_fuzz::fuzz_target;
use netvale_gateway::tcp::endpoint::{ROOM, TcpEndpoint, TcpState};
use netvale_gateway::tcp::segment::{TcpSegment, parse};
use netvale_gateway::tcp::seq::TcpSeq;

const FIRST: TcpSeq = TcpSeq(u32::MAX - 10);
const SYN: TcpSegment<'_> = TcpSegment {
    src_port: 1,
    dst_port: 2,
    seq: TcpSeq(u32::MAX - 3),
    ack: TcpSeq(0),
    flags: 2,
    window: 1000,
    mss: Some(1460),
    scale: Some(3),
    payload: &[],
};
/// Maximum number of segments that the gateway's end sends in a row; more would mean an endless loop.
const MOST: usize = 4096;
const BYTES: [u8; 600] = [7; 600];

struct Connection {
    end: TcpEndpoint,
    now: Instant,
    /// The guest's next sequence number. It is tracked here because a fuzzer could not guess it.
    guest: TcpSeq,
    /// The gateway's next sequence number.
    own: TcpSeq,
    waiting: usize,
}

fuzz_target!(|data: &[u8]| {
    let Some((&who, mut rest)) = data.split_first() else { return };
    let now = Instant::now();
    let calls = who & 1 != 0;
    let end =
        if calls { TcpEndpoint::calling(FIRST, 1460, now) } else { TcpEndpoint::answering(&SYN, FIRST, 1460, now) };
    let guest = if calls { SYN.seq } else { SYN.seq.plus(1) };
    let mut connection = Connection { end, now, guest, own: FIRST, waiting: 0 };
    while let Some((&step, behind)) = rest.split_first() {
        rest = connection.step(step, behind);
        connection.send();
    }
});

impl Connection {
    fn step<'a>(&mut self, step: u8, rest: &'a [u8]) -> &'a [u8] {
        let Some((&[a, b], behind)) = rest.split_first_chunk::<2>() else { return &[] };
        match step % 8 {
            0 => self.end.connected(),
            1 => self.end.push(vec![a; usize::from(b) * 64]),
            2 => self.end.end(),
            3 => {
                self.now += Duration::from_millis(u64::from(a) * 50);
                self.end.on_time(self.now);
            }
            4 => {
                self.waiting = self.waiting.min(usize::from(a) << 12);
                self.end.set_waiting(self.waiting, usize::MAX);
            }
            5 => {
                drop(self.end.reset());
                assert_eq!(self.end.state(), TcpState::Closed);
            }
            // A whole segment is taken unchanged from the input.
            6 => {
                let (bytes, behind) = behind.split_at(usize::from(a).min(behind.len()));
                parse(bytes).into_iter().for_each(|segment| self.hear(&segment));
                return behind;
            }
            _ => return self.near(a, b, behind),
        }
        behind
    }

    /// Passes a segment whose sequence and acknowledgement numbers are near the expected numbers to the gateway's end.
    fn near<'a>(&mut self, flags: u8, len: u8, rest: &'a [u8]) -> &'a [u8] {
        let Some((&[seq, ack, window], behind)) = rest.split_first_chunk::<3>() else { return &[] };
        let off = |number: TcpSeq, by: u8| TcpSeq(number.0.wrapping_add_signed(i32::from(by.cast_signed()) * 4));
        let segment = TcpSegment {
            seq: off(self.guest, seq),
            ack: off(self.own, ack),
            flags,
            window: u16::from(window) << 4,
            payload: &BYTES[..usize::from(len) * 2],
            ..SYN
        };
        self.hear(&segment);
        behind
    }

    fn hear(&mut self, segment: &TcpSegment<'_>) {
        let before = self.end.state();
        let heard = self.end.hear(segment, self.now);
        assert!(heard.data.len() <= segment.payload.len());
        assert!(heard.data.is_empty() || self.end.state() == TcpState::Open);
        if heard.opened && before == TcpState::SynSent {
            self.guest = segment.seq.plus(1);
        }
        self.guest = self.guest.plus(heard.data.len() as u32);
        self.waiting += heard.data.len();
        assert!(self.waiting <= ROOM as usize + 65_535, "more than was offered");
        self.end.set_waiting(self.waiting, usize::MAX);
    }

    /// Takes all segments that the gateway's end must send, and checks that the queue has the segments' bytes.
    fn send(&mut self) {
        for count in 0.. {
            let Some(segment) = self.end.next_segment(self.now) else { return };
            assert!(count < MOST, "it never ends");
            assert!(segment.data.end <= self.end.queued(), "bytes that are not there");
            let got: usize = self.end.queue().parts(segment.data.start, segment.data.len()).map(<[u8]>::len).sum();
            assert_eq!(got, segment.data.len());
            let end = segment.seq.plus(segment.data.len() as u32);
            self.own = if end.is_after(self.own) { end } else { self.own };
        }
    }
}
