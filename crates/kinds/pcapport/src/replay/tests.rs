use std::num::NonZeroU64;
use std::path::PathBuf;

use netvale_port::{DropReason, Source};
use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::pace::Speed;
use crate::writer::{PcapFormat, PcapWriter};

/// Creates a capture of `count` frames, 1 ms apart. Frame `i` has 60 + i % 7 bytes, derived from `i`.
pub(super) fn capture(dir: &tempfile::TempDir, count: u32) -> PathBuf {
    let path = dir.path().join("trace.pcapng");
    let mut writer = PcapWriter::create(&path, PcapFormat::PcapNg).unwrap();
    for i in 0..count {
        writer.write(Duration::from_millis(1000 + u64::from(i)), &frame(i)).unwrap();
    }
    writer.finish().unwrap();
    path
}

pub(super) fn frame(i: u32) -> Vec<u8> {
    i.to_be_bytes().repeat(15).into_iter().chain(vec![0; i as usize % 7]).collect()
}

pub(super) fn open(path: &Path, passes: u64, pace: ReplayPace) -> Source<PcapIngress> {
    Source::new(Box::new(
        PcapIngress::new(File::open(path).unwrap(), path, ReplayOptions { passes, pace }, Arc::default()).unwrap(),
    ))
}

/// Acts as a worker: takes batches, and waits for the wake-up when there is none, until the replay is over or has sent
/// at least `most` frames. Returns the number of frames. Panics in `sleep` if no wake-up comes.
pub(super) fn drive(source: &mut Source<PcapIngress>, most: usize, mut each: impl FnMut(&[u8])) -> usize {
    let mut spare = Box::default();
    let mut bytes = vec![0; 65_550];
    let mut taken = 0;
    while !source.ingress().status.finished() && taken < most {
        let batch = source.take(&mut spare);
        let idle = batch.is_empty();
        for f in batch.iter() {
            let n = f.copy_out(0, &mut bytes);
            each(&bytes[..n]);
        }
        taken += batch.len();
        source.release(&mut spare);
        if idle && !source.ingress().status.finished() {
            sleep(source);
        }
    }
    taken
}

fn sleep(source: &mut Source<PcapIngress>) {
    assert!(!source.arm());
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    let woken = poll(&mut [PollFd::from_borrowed_fd(source.ingress().wake_fd().unwrap(), PollFlags::IN)], Some(&limit))
        .unwrap();
    assert_eq!(woken, 1, "no wake-up in 20 seconds");
    source.woken();
}

/// Objective: more frames than all chunks can contain come out once per pass, in order and unchanged; then the ingress
/// stays idle.
#[test]
fn passes_come_out_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(&dir, 12_000);
    let mut source = open(&path, 2, ReplayPace::Fast);
    let mut n = 0u32;
    let taken = drive(&mut source, usize::MAX, |bytes| {
        assert_eq!(bytes, frame(n % 12_000));
        n += 1;
    });
    assert_eq!(taken, 24_000);
    assert_eq!((source.ingress().status().passes(), source.ingress().counters().frames()), (2, 24_000));
    assert!(source.ingress().status().error().is_none());
    assert!(source.take(&mut Box::default()).is_empty() && !source.ingress().is_cheap());
}

/// Objective: an endless replay continues past the file's end, and its thread ends after the ingress is dropped.
#[test]
fn an_endless_replay_continues_past_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = open(&capture(&dir, 3), 0, ReplayPace::Fast);
    assert!(drive(&mut source, 10_000, |_| {}) >= 10_000);
    let alarm = Arc::downgrade(&source.ingress().alarm);
    drop(source);
    let begun = Instant::now();
    while alarm.strong_count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the feeder still runs");
        std::thread::yield_now();
    }
}

/// Objective: no frame is sent before its send time, with recorded gaps or at a fixed rate; between frames the timer
/// wakes the worker.
#[test]
fn no_frame_is_sent_before_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(&dir, 31);
    let rate = ReplayPace::Rate(NonZeroU64::new(2000).unwrap());
    for pace in [ReplayPace::Recorded(Speed::new(2.0).unwrap()), rate] {
        let mut source = open(&path, 1, pace);
        let begun = Instant::now();
        let mut n = 0u32;
        let taken = drive(&mut source, usize::MAX, |_| {
            assert!(begun.elapsed() >= Duration::from_micros(500) * n, "{pace:?}: frame {n} came early");
            n += 1;
        });
        assert_eq!(taken, 31);
    }
}

/// Objective: all whole frames of a truncated file enter the switch, and the status reports the truncation.
#[test]
fn a_cut_file_yields_its_whole_frames() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(&dir, 10);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 5).unwrap();
    let mut source = open(&path, 0, ReplayPace::Fast);
    assert_eq!(drive(&mut source, usize::MAX, |_| {}), 9);
    assert!(matches!(source.ingress().status().error(), Some(ReadError::Truncated { frames: 9, .. })));
}

/// Objective: frames that cannot be sent are dropped with a reason; an endless replay of a file with only such frames,
/// or without frames, ends immediately.
#[test]
fn a_file_with_nothing_to_send_ends_immediately() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.pcap");
    let mut writer = PcapWriter::create(&path, PcapFormat::Pcap).unwrap();
    writer.write(Duration::ZERO, &vec![0; 70_000]).unwrap();
    writer.finish().unwrap();
    let mut source = open(&path, 0, ReplayPace::Fast);
    assert_eq!(drive(&mut source, usize::MAX, |_| {}), 0);
    assert_eq!(source.ingress().counters().drops(DropReason::TooLong), 1);
    PcapWriter::create(&path, PcapFormat::Pcap).unwrap().finish().unwrap();
    assert_eq!(drive(&mut open(&path, 0, ReplayPace::Fast), usize::MAX, |_| {}), 0);
}

/// Objective: a file that cannot be replayed is refused immediately with a reason.
#[test]
fn an_unfit_file_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let refused_file =
        |file: File, path: &Path| PcapIngress::new(file, path, ReplayOptions::default(), Arc::default()).err().unwrap();
    let refused = |path: &Path| refused_file(File::open(path).unwrap(), path);
    let missing = dir.path().join("missing");
    let text = PcapReader::open(&missing).err().unwrap().to_string();
    assert!(text.contains("cannot open") && text.contains("missing: No such file"), "{text}");
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    // A pipe that is open in both directions does not block its opener.
    let pipe = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    assert!(matches!(refused_file(pipe, &fifo), ReplayError::NotAFile { .. }));
    assert!(matches!(refused(dir.path()), ReplayError::NotAFile { .. }));
    std::fs::write(&missing, b"no capture").unwrap();
    assert!(matches!(refused(&missing), ReplayError::Read { source: ReadError::NotACapture { .. }, .. }));
}

/// Restores a replay from the state of `source`, and drops `source`.
fn go_on(source: Source<PcapIngress>, path: &Path, options: ReplayOptions) -> Source<PcapIngress> {
    let mut source = source;
    source.settle();
    let state = source.ingress().status.settled();
    let file = File::open(path).unwrap();
    Source::new(Box::new(PcapIngress::continued(file, path, options, state, Arc::default()).unwrap()))
}

/// Objective: a replay that is restored at any point sends each frame of each pass once, in order, and then ends.
#[test]
fn a_continued_replay_sends_each_frame_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(&dir, 3000);
    let options = ReplayOptions { passes: 3, pace: ReplayPace::Fast };
    for step in [1, 500, 1024, 2999, 3000, 7000] {
        let mut source = open(&path, 3, ReplayPace::Fast);
        let mut came = Vec::new();
        for _ in 0..4 {
            drive(&mut source, step, |f| came.push(f.to_vec()));
            source = go_on(source, &path, options);
        }
        drive(&mut source, usize::MAX, |f| came.push(f.to_vec()));
        assert!(came.iter().enumerate().all(|(i, f)| *f == frame(i as u32 % 3000)), "by {step}");
        assert_eq!((came.len(), source.ingress().status.passes()), (9000, 3), "by {step}");
        let mut source = go_on(source, &path, options);
        assert!(source.ingress().status.finished());
        assert_eq!((drive(&mut source, 1, |_| ()), source.ingress().status.passes()), (0, 3));
    }
}

/// Objective: send times count from the start of the first replay, across passes and successors.
#[test]
fn recorded_times_count_from_the_first_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(&dir, 40);
    let pace = ReplayPace::Recorded(Speed::ONE);
    let begun = Instant::now();
    let mut at = Vec::new();
    let mut source = open(&path, 2, pace);
    for _ in 0..5 {
        drive(&mut source, 10, |_| at.push(begun.elapsed()));
        source = go_on(source, &path, ReplayOptions { passes: 2, pace });
    }
    drive(&mut source, usize::MAX, |_| at.push(begun.elapsed()));
    assert_eq!(at.len(), 80);
    for (i, at) in at.iter().enumerate() {
        // The first frame of the second pass follows the last frame of the first pass immediately.
        let due = if i < 40 { i } else { i - 1 };
        assert!(*at >= Duration::from_millis(due as u64), "frame {i} came after {at:?}");
    }
}

/// Objective: a file that is not a regular file, or no longer a capture, is refused; impossible positions yield no
/// frames, and the error that ended a replay is kept.
#[test]
fn forged_replays_are_refused_or_bring_no_frames() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(&dir, 5);
    let start = |path: &Path, state| {
        PcapIngress::continued(File::open(path).unwrap(), path, ReplayOptions::default(), state, Arc::default())
    };
    let refused = start(Path::new("/dev/null"), ReplayState::default()).err().unwrap();
    assert!(matches!(refused, ReplayError::NotAFile { .. }), "{refused}");
    let other = dir.path().join("other");
    std::fs::write(&other, "no capture").unwrap();
    assert!(start(&other, ReplayState::default()).is_err());
    let most = ReplayState { pass: 0, frame: u64::MAX, before: (u64::MAX, Duration::MAX), ..ReplayState::default() };
    let mut source = Source::new(Box::new(start(&path, most).unwrap()));
    assert_eq!(drive(&mut source, 1, |_| ()), 0);
    let over = ReplayState { finished: true, error: Some("it was damaged".into()), ..ReplayState::default() };
    let ended = start(&path, over).unwrap();
    assert_eq!(ended.status().error().unwrap().to_string(), "it was damaged");
}
