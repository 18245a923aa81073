use std::num::NonZeroU64;
use std::path::PathBuf;

use netvale_port::{DropReason, Source};
use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::pace::Speed;
use crate::writer::{Format, Writer};

/// A capture of `count` frames, 1 ms apart; frame `i` is 60 + i % 7 bytes of `i`.
fn capture(dir: &tempfile::TempDir, count: u32) -> PathBuf {
    let path = dir.path().join("trace.pcapng");
    let mut writer = Writer::create(&path, Format::PcapNg).unwrap();
    for i in 0..count {
        writer.write(Duration::from_millis(1000 + u64::from(i)), &frame(i)).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn frame(i: u32) -> Vec<u8> {
    i.to_be_bytes().repeat(15).into_iter().chain(vec![0; i as usize % 7]).collect()
}

fn open(path: &Path, passes: u64, pace: Pace) -> Source<PcapIngress> {
    Source::new(Box::new(PcapIngress::open(path, ReplayOptions { passes, pace }, Arc::default()).unwrap()))
}

/// Does what a worker does with an ingress that is not cheap, until it has finished or brought `most` frames. A wake-up that
/// is lost shows as one that does not come in time.
fn drive(source: &mut Source<PcapIngress>, most: usize, mut each: impl FnMut(&[u8])) -> usize {
    let (mut spare, mut bytes, mut taken) = (Box::default(), vec![0; 65_550], 0);
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

/// Objective: more frames than all chunks hold come out once a pass, in order, byte for byte; then it is idle for good.
#[test]
fn passes_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(&dir, 12_000);
    let mut source = open(&path, 2, Pace::Fast);
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

/// Objective: a replay without end goes on past the file's end, and its thread ends with the ingress.
#[test]
fn endless() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = open(&capture(&dir, 3), 0, Pace::Fast);
    assert!(drive(&mut source, 10_000, |_| {}) >= 10_000);
    let alarm = Arc::downgrade(&source.ingress().alarm);
    drop(source);
    let begun = Instant::now();
    while alarm.strong_count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the feeder lives on");
        std::thread::yield_now();
    }
}

/// Objective: no frame comes before it is due, neither with the recorded gaps nor at a rate; between frames the timer wakes.
#[test]
fn paced() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(&dir, 31);
    let rate = Pace::Rate(NonZeroU64::new(2000).unwrap());
    for pace in [Pace::Recorded(Speed::new(2.0).unwrap()), rate] {
        let mut source = open(&path, 1, pace);
        let (begun, mut n) = (Instant::now(), 0u32);
        let taken = drive(&mut source, usize::MAX, |_| {
            assert!(begun.elapsed() >= Duration::from_micros(500) * n, "{pace:?}: frame {n} came early");
            n += 1;
        });
        assert_eq!(taken, 31);
    }
}

/// Objective: of a file that is cut, all whole frames enter the switch, and the status says that it is cut.
#[test]
fn cut_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(&dir, 10);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 5).unwrap();
    let mut source = open(&path, 0, Pace::Fast);
    assert_eq!(drive(&mut source, usize::MAX, |_| {}), 9);
    assert!(matches!(source.ingress().status().error(), Some(ReadError::Truncated { frames: 9, .. })));
}

/// Objective: frames that no port takes are dropped by name; a file of only such frames, or of none, ends immediately even if it
/// repeats without end.
#[test]
fn nothing_to_send() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.pcap");
    let mut writer = Writer::create(&path, Format::Pcap).unwrap();
    writer.write(Duration::ZERO, &vec![0; 70_000]).unwrap();
    writer.finish().unwrap();
    let mut source = open(&path, 0, Pace::Fast);
    assert_eq!(drive(&mut source, usize::MAX, |_| {}), 0);
    assert_eq!(source.ingress().counters().drops(DropReason::TooLong), 1);
    Writer::create(&path, Format::Pcap).unwrap().finish().unwrap();
    assert_eq!(drive(&mut open(&path, 0, Pace::Fast), usize::MAX, |_| {}), 0);
}

/// Objective: what cannot be replayed is refused immediately, by name; a named pipe without a writer does not block.
#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path| PcapIngress::open(path, ReplayOptions::default(), Arc::default()).err().unwrap();
    let missing = dir.path().join("missing");
    let text = refused(&missing).to_string();
    assert!(text.contains("missing: cannot open") && text.contains("No such file"), "{text}");
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    assert!(matches!(refused(&fifo), ReplayError::NotAFile { .. }));
    assert!(matches!(refused(dir.path()), ReplayError::NotAFile { .. }));
    std::fs::write(&missing, b"no capture").unwrap();
    assert!(matches!(refused(&missing), ReplayError::Read { source: ReadError::NotACapture { .. }, .. }));
}
