//! A capture file of numbered frames, which is replayed repeatedly; and captures, which are read back.

use std::path::Path;
use std::time::Duration;

use netvale_pcapport::{PcapFormat, PcapReader, PcapWriter};

use crate::frames::{FrameNumber, PayloadReading, read};

/// Name of the replayed file.
pub const NAME: &str = "replayed.pcap";
/// Number of frames in the replayed file.
pub const FRAMES: u64 = 20_000;
/// Recorded interval between two frames.
const BETWEEN: Duration = Duration::from_millis(1);
/// The flow number in the file's frames, which no other flow uses.
pub const FLOW: u32 = 1 << 20;
/// Length of an Ethernet header in bytes.
const ETHERNET: usize = 14;

/// Writes the file to replay.
pub fn write(path: &Path) -> Result<(), String> {
    let mut writer = PcapWriter::create(path, PcapFormat::Pcap).map_err(|e| e.to_string())?;
    let mut payload = Vec::new();
    let header = [[0xff; 6], [2, 0x5a, 0, 0, 1, 1]].concat();
    for sequence in 0..FRAMES {
        FrameNumber { flow: FLOW, epoch: 0, sequence }.payload(&mut payload);
        let frame = [&header[..], &[0x88, 0xb5], &payload].concat();
        writer.write(BETWEEN * sequence as u32, &frame).map_err(|e| e.to_string())?;
    }
    writer.finish().map_err(|e| e.to_string())
}

/// Returns the sequence numbers of a capture's frames. Damaged or foreign frames are errors.
pub fn numbers(path: &Path) -> Result<Vec<u64>, String> {
    let mut reader = PcapReader::open(path).map_err(|e| e.to_string())?;
    let mut numbers = Vec::new();
    while let Some(frame) = reader.next_frame().map_err(|e| e.to_string())? {
        match read(frame.bytes.get(ETHERNET..).unwrap_or_default()) {
            PayloadReading::Frame(number) => numbers.push(number.sequence),
            other => return Err(format!("frame {} of the capture: {other:?}", numbers.len())),
        }
    }
    Ok(numbers)
}
