#![allow(unsafe_code)]

use std::sync::Barrier;

use super::*;
use crate::reader::PcapReader;

const LIMIT: Duration = Duration::from_secs(30);

/// Delivers `frames` as one batch.
pub(super) fn deliver(egress: &PcapEgress, frames: &[Vec<u8>]) -> usize {
    let mut batch = Batch::new();
    for f in frames {
        // SAFETY: `f` outlives the batch and is not written.
        assert!(unsafe { batch.push(f.as_ptr(), f.len() as u32) });
    }
    let picks: Vec<u16> = (0..frames.len() as u16).collect();
    egress.deliver(&batch, &picks, &mut Scratch::new())
}

/// Starts a capture to an open file, without limits.
pub(super) fn start(file: File, path: &Path, options: CaptureOptions) -> Result<PcapEgress, WriteError> {
    PcapEgress::new(file, path, options, CaptureLimit::default(), Arc::default())
}

pub(super) fn read(path: &Path) -> Vec<(Vec<u8>, u32)> {
    let mut reader = PcapReader::open(path).unwrap();
    let mut frames = Vec::new();
    while let Some(f) = reader.next_frame().unwrap() {
        frames.push((f.bytes.to_vec(), f.orig_len));
    }
    frames
}

/// Objective: single frames, batches, and frames as long as large segments reach the file in order with their times;
/// empty picks are accepted; after the egress is dropped, the file is complete.
#[test]
fn frames_of_all_sizes_reach_the_file_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.pcap", "a.pcapng"] {
        let path = dir.path().join(name);
        let egress = start(File::create(&path).unwrap(), &path, CaptureOptions::of(&path)).unwrap();
        let single = vec![vec![1; 60]];
        let burst: Vec<Vec<u8>> = (0..200u8).map(|i| vec![i; 60 + usize::from(i)]).collect();
        let long: Vec<Vec<u8>> = (0..5u8).map(|i| vec![i; 65_550]).collect();
        for frames in [&single, &burst, &long, &vec![]] {
            assert_eq!(deliver(&egress, frames), frames.len());
        }
        let status = Arc::clone(egress.status());
        assert_eq!(egress.counters().frames(), 206);
        drop(egress);
        assert!(status.wait_closed(LIMIT));
        let expected: Vec<_> = [single, burst, long].concat().into_iter().map(|f| (f.len(), f)).collect();
        let expected: Vec<_> = expected.into_iter().map(|(n, f)| (f, n as u32)).collect();
        assert!(read(&path) == expected, "{name}");
        assert_eq!((status.written(), status.lost()), (206, 0));
        assert!(status.error().is_none());
    }
    let mut reader = PcapReader::open(&dir.path().join("a.pcap")).unwrap();
    let age =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - reader.next_frame().unwrap().unwrap().time;
    assert!(age < Duration::from_secs(600), "time stamps must be the time of day");
}

/// Objective: a snaplen limits the kept bytes, not the recorded length of the frame.
#[test]
fn a_snaplen_cuts_only_the_kept_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.pcapng");
    let options = CaptureOptions { snaplen: 14, ..CaptureOptions::of(&path) };
    let egress = start(File::create(&path).unwrap(), &path, options).unwrap();
    assert_eq!(deliver(&egress, &[vec![7; 1514], vec![8; 10]]), 2);
    let status = Arc::clone(egress.status());
    drop(egress);
    assert!(status.wait_closed(LIMIT));
    assert_eq!(read(&path), [(vec![7; 14], 1514), (vec![8; 10], 10)]);
}

/// Objective: with several concurrent workers, each worker's accepted frames are in the file once and in order.
#[test]
fn frames_of_several_workers_are_in_the_file_once() {
    const WORKERS: u8 = 4;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.pcap");
    let egress = start(File::create(&path).unwrap(), &path, CaptureOptions::of(&path)).unwrap();
    let start = Barrier::new(WORKERS.into());
    let accepted: Vec<usize> = std::thread::scope(|s| {
        let work = |worker: u8| {
            let start = &start;
            let egress = &egress;
            move || {
                start.wait();
                let mut sent = 0u32;
                for round in 0..400usize {
                    let frame = |k: u32| [&[worker][..], &(sent + k).to_be_bytes(), &[0; 60]].concat();
                    // Frames that find no room are retried, as for a lossless port.
                    sent += deliver(egress, &(0..1 + round as u32 % 40).map(frame).collect::<Vec<_>>()) as u32;
                }
                sent as usize
            }
        };
        let threads: Vec<_> = (0..WORKERS).map(|w| s.spawn(work(w))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let status = Arc::clone(egress.status());
    drop(egress);
    assert!(status.wait_closed(LIMIT));
    let frames = read(&path);
    for worker in 0..WORKERS {
        let numbers: Vec<u32> = frames
            .iter()
            .filter(|(f, _)| f[0] == worker)
            .map(|(f, _)| u32::from_be_bytes([f[1], f[2], f[3], f[4]]))
            .collect();
        assert!(numbers.iter().copied().eq(0..accepted[usize::from(worker)] as u32), "worker {worker}");
    }
}

/// Objective: with a slow disk, deliveries find no room but do not block, and accepted frames are written.
#[test]
fn a_slow_disk_leaves_no_room_but_blocks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    // Open the pipe in both directions, so that neither side waits for the other.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let options = CaptureOptions::of(Path::new("x.pcap"));
    let egress = start(file.try_clone().unwrap(), &path, options).unwrap();
    let frames = vec![vec![5; 1514]; 256];
    let mut accepted = 0;
    loop {
        let n = deliver(&egress, &frames);
        accepted += n;
        if n < frames.len() {
            break;
        }
    }
    let status = Arc::clone(egress.status());
    drop(egress);
    assert!(!status.wait_closed(Duration::from_millis(1)));
    let mut reader = PcapReader::new(file).unwrap();
    for _ in 0..accepted {
        assert_eq!(reader.next_frame().unwrap().unwrap().bytes.len(), 1514);
    }
    assert!(status.wait_closed(LIMIT));
    assert_eq!(status.written(), accepted as u64);
}

/// Objective: a disk that is full at the start is reported immediately, and a later write error is reported in the
/// status, each with the file's path; frames after an error are dropped as `device`, and every frame is counted.
#[test]
fn a_full_disk_is_reported_by_name() {
    let full = Path::new("/dev/full");
    let options = CaptureOptions::of(full);
    let refused = start(File::create(full).unwrap(), full, options).err().unwrap();
    assert!(refused.to_string().starts_with("cannot write /dev/full: No space left"), "{refused}");

    // A pipe whose reader leaves after the header.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let egress = start(writer.into(), Path::new("out.pcap"), options).unwrap();
    drop(reader);
    let status = Arc::clone(egress.status());
    let begun = std::time::Instant::now();
    let mut sent = 0;
    while status.error().is_none() || egress.counters().drops(DropReason::Device) == 0 {
        sent += deliver(&egress, &[vec![1; 60]]) as u64;
        assert!(begun.elapsed() < LIMIT, "no error");
    }
    assert!(status.error().unwrap().to_string().contains("cannot write out.pcap: Broken pipe"));
    let counters = Arc::clone(egress.counters());
    drop(egress);
    assert!(status.wait_closed(LIMIT));
    assert_eq!(counters.frames() + counters.drops(DropReason::Device), sent);
    assert_eq!(status.written() + status.lost(), counters.frames());
}

/// Objective: a restored capture contains all frames of both processes once, in either format; the first process may
/// also resume.
#[test]
fn a_continued_capture_has_all_frames_once() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.pcap", "a.pcapng"] {
        let path = dir.path().join(name);
        let options = CaptureOptions::of(&path);
        let file = File::create(&path).unwrap();
        let first = start(file.try_clone().unwrap(), &path, options).unwrap();
        let frames: Vec<Vec<u8>> = (0..200u8).map(|i| vec![i; 60 + usize::from(i)]).collect();
        deliver(&first, &frames[..70]);
        let state = first.settle(LIMIT).unwrap();
        assert_eq!((state.bytes, state.written), (std::fs::metadata(&path).unwrap().len(), 70), "{name}");
        deliver(&first, &frames[70..120]);
        let state = first.settle(LIMIT).unwrap();
        let limit = CaptureLimit::default;
        let second = PcapEgress::continued(file, &path, options, limit(), state, Arc::default()).unwrap();
        deliver(&second, &frames[120..]);
        for one in [first, second] {
            let status = Arc::clone(one.status());
            drop(one);
            assert!(status.wait_closed(LIMIT));
        }
        let expected: Vec<_> = frames.into_iter().map(|f| (f.clone(), f.len() as u32)).collect();
        assert!(read(&path) == expected, "{name}");
    }
}

/// Objective: limits and errors are restored unchanged; another file, or the same file at another position, is refused
/// with a reason.
#[test]
fn continued_limits_and_forgeries() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pcap");
    let options = CaptureOptions::of(&path);
    let file = File::create(&path).unwrap();
    let limit = || CaptureLimit { bytes: Some(24 + 3 * 76), shared: None };
    let frame = [vec![1u8; 60]];
    let first = PcapEgress::new(file.try_clone().unwrap(), &path, options, limit(), Arc::default()).unwrap();
    deliver(&first, &frame);
    let state = first.settle(LIMIT).unwrap();
    let go_on = |file: &File, state| {
        PcapEgress::continued(file.try_clone().unwrap(), &path, options, limit(), state, Arc::default())
    };
    let second = go_on(&file, state.clone()).unwrap();
    // Deliver all frames in one batch: once the limit is reached, `deliver` itself drops the frames of later batches.
    assert_eq!(deliver(&second, &vec![vec![1; 60]; 4]), 4);
    let ended = second.settle(LIMIT).unwrap();
    assert_eq!((ended.written, ended.cut_off, ended.ended), (3, 2, Some(ReachedLimit::Limit(252))));
    let third = go_on(&file, ended.clone()).unwrap();
    deliver(&third, &frame);
    assert_eq!(third.counters().drops(DropReason::CaptureFull), 1);
    assert_eq!((third.status().written(), third.status().lost()), (3, 2));

    let failed = CaptureState { error: Some("a full disk".into()), failed: 5, ended: None, bytes: u64::MAX, ..ended };
    let broken = go_on(&file, failed).unwrap();
    deliver(&broken, &frame);
    assert_eq!(broken.counters().drops(DropReason::Device), 1);
    assert!(broken.status().error().unwrap().to_string().ends_with("a full disk; later frames are not captured"));
    let refused = |file: &File, state| go_on(file, state).err().unwrap().to_string();
    assert!(refused(&file, state.clone()).contains("at byte 252: expected byte 100"));
    assert!(refused(&File::open(&path).unwrap(), state).contains("not open for writing"));
}
