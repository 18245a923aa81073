//! Applications of netvale's side: senders that fill slots and receivers that read them, over any kind of ring, and
//! their counts.

use std::hint::black_box;

use netvale::{RxRing, TxRing};
use netvale_mem::RingMem;
use netvale_mem::appl::AppRing;

use super::*;
use crate::frames::LINE;

/// An empty virtio-net header.
const HEADER: [u8; 12] = [0; 12];
/// Number of slots per ring: the buffers of both directions fit into a second-level cache of 2 MiB, even with frames of
/// 1,500 bytes.
pub const SLOTS: u32 = 512;
/// How many frames ahead the applications prefetch buffers, as the applications of DPDK and netmap do, because another
/// core wrote them last.
const AHEAD: u32 = 8;
/// Maximum length of a frame that a receiver reads completely.
const LONGEST: usize = 2048;

/// Operations on a ring, common to the rings of netvale's client library and of a guest.
pub trait Ring {
    /// Returns the slots and buffers.
    fn mem(&self) -> &RingMem;
    /// Returns the number of slots that belong to the program.
    fn space(&self) -> u32;
    /// Returns the index of the `k`-th slot that belongs to the program.
    fn at(&self, k: u32) -> u32;
    /// Releases the first `n` slots that belong to the program.
    fn advance(&mut self, n: u32);
    /// Publishes the released slots, and updates the slots that belong to the program.
    fn sync(&mut self);
}

macro_rules! is_ring {
    ($($kind:ty),*) => {$(
        impl Ring for $kind {
            #[inline]
            fn mem(&self) -> &RingMem {
                <$kind>::mem(self)
            }
            #[inline]
            fn space(&self) -> u32 {
                <$kind>::space(self)
            }
            #[inline]
            fn at(&self, k: u32) -> u32 {
                <$kind>::at(self, k)
            }
            #[inline]
            fn advance(&mut self, n: u32) {
                <$kind>::advance(self, n);
            }
            #[inline]
            fn sync(&mut self) {
                let _ = <$kind>::sync(self);
            }
        }
    )*};
}
is_ring!(TxRing, RxRing, AppRing);

/// The bytes of each frame that the applications touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Touch {
    /// None: slots only.
    Nothing,
    /// The sender writes the first cache line; the receiver reads it.
    Line,
    /// All bytes are written and read.
    All,
}

impl Touch {
    /// Returns [`Touch::Line`] if the case touches frames, otherwise [`Touch::Nothing`].
    pub fn of(case: &Case) -> Touch {
        if case.touches() { Touch::Line } else { Touch::Nothing }
    }

    /// Returns a description for the record.
    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "slots only",
            Self::Line => "first 60 bytes of each frame written and read",
            Self::All => "all bytes of each frame written and read",
        }
    }
}

/// Bytes 6 to 13 of every frame, with the bits of [`UNSTAMPED`] cleared: the sender's address without the station's
/// number.
const STAMP: u64 = u64::from_be_bytes([2, 0, 0, 0, 0, 0, 0, 0]);
/// Bits of the bytes of [`STAMP`] that are not compared: the station's number, and the two bytes after the address,
/// which may be a tag that the switch added.
const UNSTAMPED: u64 = 0xffff_ffff;

/// Sends to `count` stations in turn, from `first` on.
#[derive(Debug)]
pub struct Sender {
    frame: Vec<u8>,
    /// Length in bytes of the empty virtio-net header before each frame.
    hdr_len: u32,
    touch: Touch,
    first: u16,
    count: u16,
    turn: u16,
    /// Whether the destination station changes after a batch rather than after each frame.
    bursts: bool,
    /// Frames sent so far.
    pub sent: u64,
}

impl Sender {
    /// Creates a sender of frames of `len` bytes; `count` is at least 1.
    pub fn new(station: u16, (first, count): (u16, u16), len: u32, touch: Touch) -> Self {
        Self {
            frame: frame(first, station, len),
            hdr_len: 0,
            touch,
            first,
            count: count.max(1),
            turn: 0,
            bursts: false,
            sent: 0,
        }
    }

    /// Makes the sender change the destination station after each batch instead of after each frame.
    pub fn in_bursts(self) -> Self {
        Self { bursts: true, ..self }
    }

    /// Makes the sender begin with its `turn`th station.
    pub fn starting_at(self, turn: u16) -> Self {
        Self { turn: turn % self.count, ..self }
    }

    /// Puts an empty virtio-net header of `hdr_len` bytes before each frame.
    pub fn with_header(self, hdr_len: u32) -> Self {
        Self { hdr_len, ..self }
    }

    #[inline]
    fn address_next(&mut self) {
        if !self.bursts {
            self.next_station();
        }
    }

    #[inline]
    fn next_station(&mut self) {
        let [high, low] = (self.first + self.turn).to_be_bytes();
        self.frame[4] = high;
        self.frame[5] = low;
        self.turn = if self.turn + 1 == self.count { 0 } else { self.turn + 1 };
    }

    /// Fills every buffer of the ring, so that later only the slots have to be written.
    pub fn fill(&mut self, ring: &impl Ring) {
        for k in 0..ring.space() {
            self.address_next();
            let buf_idx = ring.mem().slot_word(ring.at(k)).buf_idx;
            ring.mem().write(buf_idx, 0, &HEADER[..self.hdr_len as usize]);
            ring.mem().write(buf_idx, self.hdr_len, &self.frame);
        }
    }

    /// Sends up to `batch` frames and syncs once. Returns the number of frames sent.
    #[inline]
    pub fn send(&mut self, ring: &mut impl Ring, batch: u32) -> u32 {
        let n = ring.space().min(batch);
        let len = self.hdr_len as u16 + self.frame.len() as u16;
        let hdr_len = self.hdr_len;
        if self.bursts {
            self.next_station();
        }
        for k in 0..n {
            let i = ring.at(k);
            let mem = ring.mem();
            if self.touch != Touch::Nothing && k + AHEAD < n {
                let buf_idx = mem.slot_word(ring.at(k + AHEAD)).buf_idx;
                if hdr_len == 0 { mem.prefetch_write(buf_idx) } else { mem.prefetch_write_two(buf_idx) }
            }
            match self.touch {
                Touch::Nothing => {}
                Touch::Line => {
                    self.address_next();
                    let buf_idx = mem.slot_word(i).buf_idx;
                    if hdr_len > 0 {
                        mem.write(buf_idx, 0, &HEADER[..hdr_len as usize]);
                    }
                    mem.write(buf_idx, hdr_len, &self.frame[..LINE]);
                }
                Touch::All => {
                    self.address_next();
                    mem.write(mem.slot_word(i).buf_idx, hdr_len, &self.frame);
                }
            }
            mem.set_len_flags(i, len, 0);
        }
        ring.advance(n);
        ring.sync();
        self.sent += u64::from(n);
        n
    }
}

/// Receives frames, and checks the bytes that it reads.
#[derive(Debug)]
pub struct Receiver {
    touch: Touch,
    /// Length of the virtio-net header before each frame, in bytes.
    hdr_len: u32,
    room: [u8; LONGEST],
    /// Frames received so far.
    pub received: u64,
    /// Frames with wrong bytes so far.
    pub wrong: u64,
}

impl Receiver {
    /// Creates a receiver.
    pub fn new(touch: Touch) -> Self {
        Self { touch, hdr_len: 0, room: [0; LONGEST], received: 0, wrong: 0 }
    }

    /// Expects a virtio-net header of `hdr_len` bytes before each frame.
    pub fn with_header(self, hdr_len: u32) -> Self {
        Self { hdr_len, ..self }
    }

    /// Takes up to `batch` frames and syncs once. Returns the number of frames taken.
    #[inline]
    pub fn receive(&mut self, ring: &mut impl Ring, batch: u32) -> u32 {
        ring.sync();
        let n = ring.space().min(batch);
        match self.touch {
            Touch::Nothing => {}
            Touch::Line => {
                for k in 0..n {
                    let mut line = [0u8; LINE];
                    let mem = ring.mem();
                    if k + AHEAD < n {
                        let buf_idx = mem.slot_word(ring.at(k + AHEAD)).buf_idx;
                        if self.hdr_len == 0 { mem.prefetch_read(buf_idx) } else { mem.prefetch_read_two(buf_idx) }
                    }
                    mem.read(mem.slot_word(ring.at(k)).buf_idx, self.hdr_len, &mut line);
                    self.check(black_box(&line));
                }
            }
            Touch::All => {
                for k in 0..n {
                    let mem = ring.mem();
                    let slot = mem.slot_word(ring.at(k));
                    let len = usize::from(slot.len).saturating_sub(self.hdr_len as usize).min(LONGEST);
                    mem.read(slot.buf_idx, self.hdr_len, &mut self.room[..len]);
                    let line = *self.room.first_chunk().unwrap_or(&[0; LINE]);
                    self.check(black_box(&line));
                }
            }
        }
        ring.advance(n);
        self.received += u64::from(n);
        n
    }

    #[inline]
    fn check(&mut self, line: &[u8; LINE]) {
        let stamp: [u8; 8] = [line[6], line[7], line[8], line[9], line[10], line[11], line[12], line[13]];
        self.wrong += u64::from(u64::from_be_bytes(stamp) & !UNSTAMPED != STAMP);
    }
}

/// Counts of frames since the set-up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Books {
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames that arrived with wrong bytes.
    pub wrong: u64,
    /// Frames that the drop counters have counted.
    pub dropped: u64,
    /// Number of slots of all rings together: the maximum number of frames in flight.
    pub in_flight: u64,
}

impl Books {
    /// Checks that the counts are consistent.
    pub fn check(&self, who: &str) -> Result<()> {
        let Self { sent, received, wrong, dropped, in_flight } = *self;
        let out = received + dropped;
        if received == 0 {
            Err(BenchError::NoTraffic(who.to_owned()))
        } else if wrong > 0 {
            Err(BenchError::WrongBytes { who: who.to_owned(), frames: wrong })
        } else if out > sent || sent - out > in_flight {
            Err(BenchError::Program(format!(
                "{who} sent {sent} frames, but {received} arrived and {dropped} were dropped: expected the same sum, \
                 except for at most {in_flight} frames in flight; repeat the run"
            )))
        } else {
            Ok(())
        }
    }

    /// Returns the share of the sent frames that were dropped, in per cent.
    pub fn drop_percent(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { 100.0 * self.dropped as f64 / self.sent as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: frames pass a pipe to all stations in turn, are counted, and have the bytes that were written, with
    /// each value of [`Touch`].
    #[test]
    fn frames_go_to_all_stations_and_are_counted() {
        for touch in [Touch::Nothing, Touch::Line, Touch::All] {
            let (mut a, mut b) = netvale::Port::pipe_pair(64, 0).expect("memory");
            let tx = &mut a.tx()[0];
            let rx = &mut b.rx()[0];
            let mut sender = Sender::new(7, (10, 3), 300, touch);
            let mut receiver = Receiver::new(touch);
            sender.fill(tx);
            assert_eq!(sender.send(tx, 5), 5);
            let _ = rx.sync();
            let stations: Vec<u8> = (0..5)
                .map(|k| {
                    let mut bytes = [0; 300];
                    assert_eq!(rx.read(rx.at(k), &mut bytes), 300);
                    bytes[5]
                })
                .collect();
            assert!(stations.windows(2).all(|pair| pair[1] == if pair[0] == 12 { 10 } else { pair[0] + 1 }));
            assert_eq!(receiver.receive(rx, 64), 5);
            assert_eq!((sender.sent, receiver.received, receiver.wrong), (5, 5, 0));
        }
    }

    /// Objective: a frame that no [`Sender`] has written counts as wrong.
    #[test]
    fn foreign_frames_count_as_wrong() {
        let (mut a, mut b) = netvale::Port::pipe_pair(64, 0).expect("memory");
        assert!(a.tx()[0].send(&[0xff; 60]));
        a.sync();
        let mut receiver = Receiver::new(Touch::Line);
        assert_eq!(receiver.receive(&mut b.rx()[0], 64), 1);
        assert_eq!(receiver.wrong, 1);
    }

    /// Objective: counts that do not add up, wrong bytes and the absence of frames are refused; frames in flight are
    /// not refused.
    #[test]
    fn books_that_do_not_balance_are_refused() {
        let good = Books { sent: 100, received: 80, wrong: 0, dropped: 10, in_flight: 10 };
        assert!(good.check("x").is_ok());
        assert!((good.drop_percent() - 10.0).abs() < 1e-9);
        assert!(matches!(Books { received: 0, ..good }.check("x"), Err(BenchError::NoTraffic(_))));
        assert!(matches!(Books { wrong: 1, ..good }.check("x"), Err(BenchError::WrongBytes { .. })));
        assert!(matches!(Books { in_flight: 9, ..good }.check("x"), Err(BenchError::Program(_))));
        assert!(matches!(Books { received: 91, ..good }.check("x"), Err(BenchError::Program(_))));
    }
}
