//! Numbered frames. Each frame carries its flow, its number and a checksum, by which received frames are checked and
//! counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::Serialize;

const MAGIC: u64 = u64::from_le_bytes(*b"nvsoak#1");
/// Length of the header in bytes: magic number, flow, epoch, sequence number, length.
const HEAD: usize = 26;
/// Length in bytes of the checksum at the end of the payload.
const SUM: usize = 8;
/// Length of the shortest payload in bytes.
const SHORTEST: u64 = 40;
/// Number of different lengths: payloads are up to this many bytes longer than the shortest payload.
const SPREAD: u64 = 1300;
/// Length of the longest payload in bytes.
pub const LONGEST: usize = (SHORTEST + SPREAD) as usize;

/// The numbers that identify a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameNumber {
    /// Number of the frame's flow.
    pub flow: u32,
    /// Number of times that the ends had been opened before this frame was sent.
    pub epoch: u32,
    /// The frame's number within the flow.
    pub sequence: u64,
}

/// The result of parsing a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadReading {
    /// An intact frame of a bystander.
    Frame(FrameNumber),
    /// A damaged frame of a bystander.
    Corrupt,
    /// A frame that is not a bystander's.
    Stranger,
}

impl FrameNumber {
    /// Writes the payload of this number, which also determines its length.
    pub fn payload(self, into: &mut Vec<u8>) {
        let len = (SHORTEST + self.sequence.wrapping_mul(37) % SPREAD) as usize;
        into.clear();
        into.extend(MAGIC.to_le_bytes());
        into.extend(self.flow.to_le_bytes());
        into.extend(self.epoch.to_le_bytes());
        into.extend(self.sequence.to_le_bytes());
        into.extend((len as u16).to_le_bytes());
        into.extend((into.len()..len - SUM).map(|i| (self.sequence as usize + i) as u8));
        into.extend(sum(into).to_le_bytes());
    }
}

/// Parses a payload. Bytes after it are padding.
pub fn read(bytes: &[u8]) -> PayloadReading {
    let word = |at: usize| bytes.get(at..at + 8).and_then(|w| w.try_into().ok()).map(u64::from_le_bytes);
    if word(0) != Some(MAGIC) || bytes.len() < HEAD {
        return PayloadReading::Stranger;
    }
    let half = |at: usize| word(at).unwrap_or_default() as u32;
    let len = usize::from(u16::from_le_bytes([bytes[HEAD - 2], bytes[HEAD - 1]]));
    let number = FrameNumber { flow: half(8), epoch: half(12), sequence: word(16).unwrap_or_default() };
    let end = len.checked_sub(SUM).filter(|end| *end >= HEAD);
    let is_whole = end.zip(end.and_then(word)).is_some_and(|(end, said)| bytes.get(..end).map(sum) == Some(said));
    if is_whole { PayloadReading::Frame(number) } else { PayloadReading::Corrupt }
}

/// Describes a damaged payload: its number, and where and how it differs from the original.
pub fn damage(bytes: &[u8]) -> String {
    let field = |at: usize| bytes.get(at..at + 8).and_then(|w| w.try_into().ok()).map_or(0, u64::from_le_bytes);
    let number = FrameNumber { flow: field(8) as u32, epoch: field(12) as u32, sequence: field(16) };
    let mut sent = Vec::new();
    number.payload(&mut sent);
    let differs = |at: &usize| bytes.get(*at) != sent.get(*at);
    let first = (0..sent.len()).find(differs);
    let last = (0..sent.len()).rfind(differs);
    let there = first.and_then(|first| bytes.get(first..)).unwrap_or_default();
    let there: String = there.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{number:?}: {} of {} bytes, different from {first:?} to {last:?}: {there}", bytes.len(), sent.len())
}

fn sum(bytes: &[u8]) -> u64 {
    let mut sum = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    sum
}

/// The counts of a flow, over all epochs.
#[derive(Debug, Default, Serialize)]
pub struct FlowTally {
    /// Frames sent.
    pub sent: AtomicU64,
    /// Frames received in order and intact.
    pub received: AtomicU64,
    /// Frames that are missing although later frames arrived.
    pub lost: AtomicU64,
    /// Duplicate frames, and frames that arrived after later frames.
    pub disordered: AtomicU64,
    /// Damaged frames received.
    pub corrupt: AtomicU64,
    /// Frames from an earlier epoch.
    pub stale: AtomicU64,
    /// The longest time between two successive frames, in milliseconds.
    pub longest_pause_ms: AtomicU64,
}

impl FlowTally {
    fn add(count: &AtomicU64, n: u64) {
        count.fetch_add(n, Ordering::Relaxed);
    }

    /// Reads a count.
    pub fn get(count: &AtomicU64) -> u64 {
        count.load(Ordering::Relaxed)
    }
}

/// The next expected frame of a flow in one epoch.
#[derive(Debug)]
pub struct ExpectedFrame {
    flow: u32,
    epoch: u32,
    /// Number of frames after which numbers start again, as in a repeated file; `None`: never.
    cycle: Option<u64>,
    next: Option<u64>,
    /// When the last frame arrived; `None` before the first one.
    last: Option<Instant>,
}

impl ExpectedFrame {
    /// Expects a flow whose frames are numbered from 0. If `cycle` is given, the numbers start again after that many
    /// frames, and the first frame may have any number.
    pub fn new(flow: u32, epoch: u32, cycle: Option<u64>) -> ExpectedFrame {
        let next = if cycle.is_some() { None } else { Some(0) };
        ExpectedFrame { flow, epoch, cycle, next, last: None }
    }

    /// Returns the next expected number.
    pub fn due(&self) -> u64 {
        self.next.unwrap_or_default()
    }

    /// Counts a frame if it belongs to this flow.
    pub fn count(&mut self, number: FrameNumber, tally: &FlowTally) {
        if number.flow != self.flow {
            return;
        }
        if number.epoch != self.epoch {
            return FlowTally::add(&tally.stale, 1);
        }
        let due = self.next.unwrap_or(number.sequence);
        let missing = match self.cycle {
            None => number.sequence.checked_sub(due),
            Some(cycle) => Some((number.sequence + cycle - due) % cycle).filter(|missing| *missing < cycle / 4 * 3),
        };
        let Some(missing) = missing else { return FlowTally::add(&tally.disordered, 1) };
        FlowTally::add(&tally.lost, missing);
        FlowTally::add(&tally.received, 1);
        let next = number.sequence + 1;
        self.next = Some(self.cycle.map_or(next, |cycle| next % cycle));
        self.pause(tally);
        self.last = Some(Instant::now());
    }

    /// Records the time since the last frame, if it is the longest pause so far.
    pub fn pause(&self, tally: &FlowTally) {
        let pause = self.last.map_or(0, |last| last.elapsed().as_millis() as u64);
        tally.longest_pause_ms.fetch_max(pause, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(sequence: u64) -> FrameNumber {
        FrameNumber { flow: 3, epoch: 1, sequence }
    }

    /// Objective: payloads are parsed as written, padding does not matter, and any damaged byte is detected.
    #[test]
    fn any_damaged_byte_of_a_payload_is_detected() {
        let mut bytes = Vec::new();
        for sequence in [0, 1, 77, 4_000_000_000] {
            number(sequence).payload(&mut bytes);
            assert!(bytes.len() <= LONGEST);
            assert_eq!(read(&[&bytes[..], &[0; 30]].concat()), PayloadReading::Frame(number(sequence)));
            for at in 0..bytes.len() {
                bytes[at] ^= 0x10;
                assert_ne!(read(&bytes), PayloadReading::Frame(number(sequence)), "byte {at}");
                bytes[at] ^= 0x10;
            }
            assert_eq!(read(&bytes[..bytes.len() - 1]), PayloadReading::Corrupt);
        }
        assert_eq!(read(&[0; 60]), PayloadReading::Stranger);
    }

    /// Objective: the description of a damaged frame has its number and the difference.
    #[test]
    fn a_damaged_frame_is_described_with_its_number() {
        let mut bytes = Vec::new();
        number(77).payload(&mut bytes);
        bytes[100] ^= 1;
        bytes[102] ^= 1;
        let told = damage(&bytes);
        assert!(told.contains("sequence: 77") && told.contains("from Some(100) to Some(102)"), "{told}");
    }

    /// Objective: missing, duplicate, late and stale frames are each counted as such; frames of other flows are not
    /// counted.
    #[test]
    fn each_wrong_frame_is_counted_as_such() {
        let tally = FlowTally::default();
        let mut expected = ExpectedFrame::new(3, 1, None);
        for sequence in [0, 1, 5, 5, 4, 6] {
            expected.count(number(sequence), &tally);
        }
        expected.count(FrameNumber { epoch: 0, ..number(9) }, &tally);
        expected.count(FrameNumber { flow: 2, ..number(9) }, &tally);
        let counts = [&tally.received, &tally.lost, &tally.disordered, &tally.stale].map(FlowTally::get);
        assert_eq!(counts, [4, 3, 2, 1]);
        let tally = FlowTally::default();
        let mut expected = ExpectedFrame::new(3, 1, Some(10));
        for sequence in [7, 8, 9, 0, 1, 3, 2] {
            expected.count(number(sequence), &tally);
        }
        assert_eq!([&tally.received, &tally.lost, &tally.disordered].map(FlowTally::get), [6, 1, 1]);
    }
}
