//! Reads arbitrary bytes as a capture file. The frames must not have more bytes than the file, an error must be
//! returned only once, and it must be possible to write the frames and read them again.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::time::Duration;

use netvale_fuzz::fuzz_target;
use netvale_pcapport::{PcapFormat, PcapReader, PcapWriter};

type PcapFrames = Vec<(Duration, u32, Vec<u8>)>;

fuzz_target!(|data: &[u8]| {
    let frames = read(data);
    let held: usize = frames.iter().map(|(_, _, bytes)| bytes.len()).sum();
    assert!(held <= data.len());
    for (format, latest) in [
        (PcapFormat::Pcap, Duration::new(u32::MAX.into(), 999_999_999)),
        (PcapFormat::PcapNg, Duration::from_nanos(u64::MAX)),
    ] {
        for ((time, orig_len, bytes), again) in frames.iter().zip(read(&written(format, &frames))) {
            assert_eq!((again.1, &again.2), (*orig_len, bytes));
            assert!(again.0 == *time || *time > latest);
        }
    }
});

fn read(data: &[u8]) -> PcapFrames {
    let mut frames = Vec::new();
    let Ok(mut reader) = PcapReader::new(data) else { return frames };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                assert!(frame.orig_len as usize >= frame.bytes.len());
                frames.push((frame.time, frame.orig_len, frame.bytes.to_vec()));
            }
            Ok(None) => break,
            Err(_) => {
                assert!(matches!(reader.next_frame(), Ok(None)));
                break;
            }
        }
    }
    assert_eq!(reader.frames(), frames.len() as u64);
    frames
}

fn written(format: PcapFormat, frames: &PcapFrames) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = PcapWriter::new(&mut file, format).expect("memory takes all");
    for (time, orig_len, bytes) in frames {
        writer.write_cut(*time, bytes, *orig_len).expect("memory takes all");
    }
    writer.finish().expect("memory takes all");
    file
}
