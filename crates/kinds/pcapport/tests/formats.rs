//! Tests of the formats: written captures are read back, captures of other programs are read, and truncated or hostile
//! captures end with a clear error in bounded memory.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use netvale_pcapport::{MAX_CAPTURED, PcapFormat, PcapReader, PcapWriter, ReadError};
use proptest::prelude::*;

const FORMATS: [PcapFormat; 2] = [PcapFormat::Pcap, PcapFormat::PcapNg];

type Frames = Vec<(Duration, Vec<u8>)>;

fn written(format: PcapFormat, frames: &[(Duration, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = PcapWriter::new(&mut bytes, format).unwrap();
    frames.iter().for_each(|(t, f)| w.write(*t, f).unwrap());
    assert_eq!(w.written(), frames.len() as u64);
    w.finish().unwrap();
    bytes
}

/// Reads all whole frames. Returns them, and the error that ended reading, if any.
fn read(bytes: &[u8]) -> (Frames, Result<(), ReadError>) {
    let mut frames = Vec::new();
    let mut reader = match PcapReader::new(bytes) {
        Ok(reader) => reader,
        Err(e) => return (frames, Err(e)),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(f)) => frames.push((f.time, f.bytes.to_vec())),
            Ok(None) => return (frames, Ok(())),
            Err(e) => {
                assert!(matches!(reader.next_frame(), Ok(None)), "an error comes once");
                return (frames, Err(e));
            }
        }
    }
}

fn five() -> Frames {
    (0..5u8).map(|i| (Duration::new(1_700_000_000 + u64::from(i), 123_456_789), vec![i; 60 + usize::from(i)])).collect()
}

/// A capture file in a chosen byte order, built by hand.
struct Made {
    big: bool,
    bytes: Vec<u8>,
}

impl Made {
    fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    fn raw(&mut self, v: &[u8]) -> &mut Self {
        self.bytes.extend(v);
        self
    }

    fn pcap(big: bool, magic: u32, link: u32) -> Made {
        let mut m = Made { big, bytes: Vec::new() };
        m.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(96).u32(link);
        m
    }

    fn pcapng(big: bool) -> Made {
        let mut m = Made { big, bytes: Vec::new() };
        m.section();
        m
    }

    fn section(&mut self) -> &mut Self {
        let mut body = Made { big: self.big, bytes: Vec::new() };
        body.u32(0x1a2b_3c4d).u16(1).u16(0).u32(!0).u32(!0);
        self.block(0x0a0d_0d0a, &body.bytes)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> &mut Self {
        let padded = body.len().next_multiple_of(4);
        let total = padded as u32 + 12;
        self.u32(kind).u32(total).raw(body).raw(&[0; 3][..padded - body.len()]).u32(total)
    }

    fn interface(&mut self, link: u16, snaplen: u32, options: &[u8]) -> &mut Self {
        let mut body = Made { big: self.big, bytes: Vec::new() };
        body.u16(link).u16(0).u32(snaplen).raw(options);
        self.block(1, &body.bytes)
    }

    fn packet(&mut self, interface: u32, ticks: u64, frame: &[u8]) -> &mut Self {
        let mut body = Made { big: self.big, bytes: Vec::new() };
        let len = frame.len() as u32;
        body.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32).u32(len).u32(1500).raw(frame);
        self.block(6, &body.bytes)
    }
}

proptest! {
    /// Objective: any frames with any times are read back unchanged in both formats, by our reader and by `pcap-file`.
    #[test]
    fn any_frames_read_back_unchanged(frames in prop::collection::vec(
        (
            (0..u64::from(u32::MAX), 0u32..1_000_000_000).prop_map(|(s, n)| Duration::new(s, n)),
            prop::collection::vec(any::<u8>(), 0..200),
        ),
        0..20,
    )) {
        for format in FORMATS {
            let bytes = written(format, &frames);
            let (got, end) = read(&bytes);
            prop_assert!(end.is_ok());
            prop_assert_eq!(&got, &frames);
            prop_assert_eq!(by_pcap_file(format, &bytes), frames.clone());
        }
    }

    /// Objective: any bytes yield frames no longer than the input, and possibly an error, but never a panic.
    #[test]
    fn no_bytes_make_the_reader_panic(magic in prop::sample::select(vec![
        vec![0x0a, 0x0d, 0x0d, 0x0a, 0x1c, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0],
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0], vec![0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4], vec![],
    ]), rest in prop::collection::vec(any::<u8>(), 0..300)) {
        let (frames, _) = read(&[magic, rest].concat());
        prop_assert!(frames.iter().all(|(_, f)| f.len() <= 300));
    }
}

fn by_pcap_file(format: PcapFormat, mut bytes: &[u8]) -> Frames {
    use pcap_file::pcapng::Block;
    let mut frames = Vec::new();
    match format {
        PcapFormat::Pcap => {
            let mut r = pcap_file::pcap::PcapReader::new(&mut bytes).unwrap();
            while let Some(p) = r.next_packet() {
                let p = p.unwrap();
                frames.push((p.timestamp, p.data.into_owned()));
            }
        }
        PcapFormat::PcapNg => {
            let mut r = pcap_file::pcapng::PcapNgReader::new(&mut bytes).unwrap();
            while let Some(b) = r.next_block() {
                if let Block::EnhancedPacket(p) = b.unwrap() {
                    frames.push((p.timestamp, p.data.into_owned()));
                }
            }
        }
    }
    frames
}

/// Objective: a file truncated at any byte yields its whole frames and then the offset of the incomplete record; a file
/// truncated between two records just ends.
#[test]
fn a_file_cut_anywhere_yields_its_whole_frames() {
    let frames = five();
    for format in FORMATS {
        let ends: Vec<usize> = (0..=frames.len()).map(|n| written(format, &frames[..n]).len()).collect();
        let bytes = written(format, &frames);
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            let (got, end) = read(&bytes[..cut]);
            let n = whole.saturating_sub(1);
            assert_eq!(got, frames[..n], "{format:?} cut at {cut}");
            match end {
                Ok(()) => {
                    assert!(ends.contains(&cut) || (format == PcapFormat::PcapNg && cut == 28), "{format:?} {cut}")
                }
                Err(ReadError::Truncated { at, frames }) => {
                    assert!(!ends.contains(&cut), "{format:?} {cut}");
                    assert_eq!(frames, n as u64);
                    // Truncated in the header: at offset 0, or in pcapng's interface description.
                    let expected = if whole > 0 {
                        ends[n]
                    } else if cut > 28 {
                        28
                    } else {
                        0
                    };
                    assert_eq!(at, if format == PcapFormat::Pcap && whole == 0 { 0 } else { expected as u64 });
                }
                Err(e) => panic!("{format:?} cut at {cut}: {e}"),
            }
        }
    }
}

/// Objective: pcap files with microseconds or nanoseconds in either byte order are read, as are frames truncated by a
/// snaplen.
#[test]
fn foreign_pcap_files_are_read() {
    for big in [false, true] {
        for (magic, nanos) in [(0xa1b2_c3d4, 5000), (0xa1b2_3c4d, 5)] {
            // The upper bits of the link type describe the frame check sequence.
            let mut file = Made::pcap(big, magic, 0x1400_0001);
            file.u32(7).u32(5).u32(60).u32(1514).raw(&[9; 60]);
            // A frame longer than the header's snaplen of 96, as some programs write.
            file.u32(8).u32(0).u32(200).u32(200).raw(&[8; 200]);
            let mut reader = PcapReader::new(&file.bytes[..]).unwrap();
            let frame = reader.next_frame().unwrap().unwrap();
            assert_eq!((frame.time, frame.orig_len), (Duration::new(7, nanos), 1514));
            assert_eq!(frame.bytes, [9; 60]);
            assert_eq!(reader.next_frame().unwrap().unwrap().bytes, [8; 200]);
            assert!(reader.next_frame().unwrap().is_none());
            assert_eq!(reader.frames(), 2);
        }
    }
}

/// Objective: several interfaces with their own clocks, simple and obsolete packets, blocks of other kinds, and a
/// second section in the other byte order are read.
#[test]
fn foreign_pcapng_files_are_read() {
    for big in [false, true] {
        let mut file = Made::pcapng(big);
        let option = |code: u16, len: u16, value: &[u8]| {
            let mut o = Made { big, bytes: Vec::new() };
            o.u16(2).u16(3).raw(b"abc\0").u16(code).u16(len).raw(value).u32(0);
            o.bytes
        };
        file.interface(1, 64, &[]).interface(1, 0, &option(9, 1, &[9, 0, 0, 0]));
        file.block(0x0bad, b"what is this").packet(1, 1_000_000_001, b"nanoseconds").packet(0, 1_000_001, b"micro");
        let mut simple = Made { big, bytes: Vec::new() };
        simple.u32(1500).raw(&[3; 64]);
        file.block(3, &simple.bytes);
        let mut old = Made { big, bytes: Vec::new() };
        old.u16(1).u16(0xffff).u32(0).u32(77).u32(3).u32(3).raw(b"old");
        file.block(2, &old.bytes);
        file.big = !big;
        file.section().interface(1, 0, &[]).packet(0, 2_000_000, b"other order");
        let (frames, end) = read(&file.bytes);
        assert!(end.is_ok(), "{end:?}");
        let expected: Frames = vec![
            (Duration::new(1, 1), b"nanoseconds".to_vec()),
            (Duration::new(1, 1000), b"micro".to_vec()),
            (Duration::ZERO, vec![3; 64]),
            (Duration::from_nanos(77), b"old".to_vec()),
            (Duration::from_secs(2), b"other order".to_vec()),
        ];
        assert_eq!(frames, expected);
    }
}

/// Objective: other link types are refused with their names, before any frame if the link type is at the start of the
/// file.
#[test]
fn other_link_types_are_refused_by_name() {
    let name = |file: &Made| match PcapReader::new(&file.bytes[..]).err() {
        Some(ReadError::LinkType { name }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(name(&Made::pcap(true, 0xa1b2_c3d4, 105)), "IEEE802_11");
    assert_eq!(name(Made::pcapng(false).interface(113, 0, &[])), "LINUX_SLL");
    assert_eq!(name(&Made::pcap(false, 0xa1b2_c3d4, 60_001)), "of link type 60001");
}

/// Objective: invalid lengths are reported as damage; nothing is allocated for them, and little is read.
#[test]
fn impossible_lengths_are_reported_as_damage() {
    let damage = |file: &Made| match read(&file.bytes) {
        (frames, Err(ReadError::Damaged { what, .. })) => (frames.len(), what),
        other => panic!("{other:?}"),
    };
    let mut record = Made::pcap(false, 0xa1b2_c3d4, 1);
    record.u32(0).u32(0).u32(u32::MAX).u32(u32::MAX);
    assert_eq!(damage(&record), (0, "a frame longer than 262144 bytes"));

    let with = |kind: u32, body: &[u32]| {
        let mut file = Made::pcapng(false);
        file.interface(1, 0, &[]).packet(0, 0, &[0; 14]);
        let mut b = Made { big: false, bytes: Vec::new() };
        for &word in body {
            b.u32(word);
        }
        file.block(kind, &b.bytes);
        file
    };
    let short = "a block shorter than its contents";
    assert_eq!(damage(&with(6, &[0, 0, 0, 100, 100])), (1, short));
    assert_eq!(damage(&with(6, &[0, 0, 0, u32::MAX, 1])), (1, short));
    assert_eq!(damage(&with(6, &[0, 0])), (1, short));
    assert_eq!(damage(&with(3, &[u32::MAX])), (1, short));
    assert_eq!(damage(&with(1, &[1])), (1, short));
    // An option longer than its block.
    assert_eq!(damage(&with(1, &[1, 0, 0xffff_0001])), (1, short));
    assert_eq!(damage(&with(6, &[5, 0, 0, 0, 0])), (1, "a frame of an undescribed interface"));

    let mut block = with(0x77, &[]);
    for total in [0, 8, 13, u32::MAX] {
        block.bytes.truncate(block.bytes.len().next_multiple_of(4));
        let mut file = Made { big: false, bytes: block.bytes.clone() };
        file.u32(6).u32(total);
        assert_eq!(damage(&file), (1, "a block of invalid length"), "{total}");
    }
    // A block of 4 GiB of which most is missing: the file is just truncated.
    block.u32(0x77).u32(u32::MAX - 3).raw(&[0; 100]);
    assert!(matches!(read(&block.bytes), (f, Err(ReadError::Truncated { .. })) if f.len() == 1));

    let mut file = with(6, &[0, 0, 0, 0, 0]);
    let end = file.bytes.len() - 4;
    file.bytes[end] ^= 4;
    assert_eq!(damage(&file), (1, "a block whose two lengths differ"));
}

/// Objective: a file that is not a capture is refused; the error for a compressed file suggests unpacking it.
#[test]
fn a_file_that_is_no_capture_is_recognized() {
    let text = |bytes: &[u8]| PcapReader::new(bytes).err().unwrap().to_string();
    assert!(text(b"hello, world").contains("a file that begins with [68, 65, 6c, 6c]"));
    assert!(text(&[0x1f, 0x8b, 8, 0]).contains("unpack it with gzip -d first"));
    assert!(text(b"").contains("truncated in the record at byte 0"));
    assert!(
        text(&Made { big: false, bytes: vec![0xd4, 0xc3, 0xb2, 0xa1] }.u32(1).raw(&[0; 16]).bytes).contains("version")
    );
}

/// Objective: frames beyond the formats' limits are truncated and times are clamped, not refused.
#[test]
fn values_beyond_the_formats_are_clamped() {
    for format in FORMATS {
        let late = Duration::MAX;
        let long = vec![1; MAX_CAPTURED as usize + 1];
        let bytes = written(format, &[(late, long)]);
        let mut reader = PcapReader::new(&bytes[..]).unwrap();
        let frame = reader.next_frame().unwrap().unwrap();
        assert_eq!((frame.bytes.len(), frame.orig_len), (MAX_CAPTURED as usize, MAX_CAPTURED + 1));
        assert!(frame.time >= Duration::from_secs(u32::MAX.into()));
    }
}

/// Objective: a full disk is reported once, with the file's name; later frames are counted as lost.
#[test]
fn a_full_disk_is_an_error_once() {
    for format in FORMATS {
        let mut w = PcapWriter::create("/dev/full".as_ref(), format).unwrap();
        let errors: Vec<_> = (0..10_000).filter_map(|_| w.write(Duration::ZERO, &[0; 60]).err()).collect();
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].io().and_then(std::io::Error::raw_os_error), Some(libc::ENOSPC));
        assert!(errors[0].to_string().starts_with("cannot write /dev/full: No space left on device"), "{}", errors[0]);
        assert_eq!(w.written() + w.lost(), 10_000);
        assert!(w.lost() > 0);
        w.finish().unwrap();
        let mut w = PcapWriter::create("/dev/full".as_ref(), format).unwrap();
        w.write(Duration::ZERO, &[0; 60]).unwrap();
        w.finish().unwrap_err();
    }
}

mod with_programs {
    use super::*;

    /// Objective: tcpdump reads a written capture with times in nanoseconds.
    #[test]
    fn tcpdump_reads_it() {
        if Command::new("tcpdump").arg("--version").output().is_err() {
            netvale_harness::skip("tcpdump is not installed");
            return;
        }
        for format in FORMATS {
            let mut tcpdump = Command::new("tcpdump")
                .args(["-nn", "-e", "-tt", "--time-stamp-precision=nano", "-r", "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            tcpdump.stdin.take().unwrap().write_all(&written(format, &five())).unwrap();
            let out = tcpdump.wait_with_output().unwrap();
            let text = String::from_utf8(out.stdout).unwrap();
            let head = text.lines().filter(|l| l.starts_with("17000000")).count();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            assert_eq!(head, 5, "{text}");
            assert!(text.starts_with("1700000000.123456789 00:00:00:00:00:00 > 00:00:00:00:00:00"), "{text}");
            assert!(text.contains("04:04:04:04:04:04, 802.3, length 50"), "{text}");
        }
    }
}
