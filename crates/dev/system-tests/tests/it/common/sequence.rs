//! Numbered frames: a lost, duplicate or overtaken frame is noticed.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netvale::{Interest, Options, Port};

/// Time limit of every wait.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Length of a frame in bytes; the last eight bytes contain the frame's number.
const LEN: usize = 60;

pub fn open(dir: &Path, name: &str) -> Port {
    let options = Options { run_dir: Some(dir.into()), slots: 128, ..Options::default() };
    Port::open_with(name, &options).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns a frame with that number.
pub fn frame(number: u64) -> [u8; LEN] {
    let mut frame = [0x5a; LEN];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    // An EtherType that no stack handles.
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[LEN - 8..].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Returns the number of a numbered frame; `None` for any other frame.
pub fn number_of(frame: &[u8]) -> Option<u64> {
    let is_ours = frame.len() == LEN && frame[12..14] == [0x88, 0xb5];
    is_ours.then(|| frame.last_chunk::<8>()).flatten().map(|number| u64::from_be_bytes(*number))
}

/// Sends numbered frames from a port until stopped.
pub struct Sender {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Starts sending. `pause` is the pause between two bursts of a few frames; it is zero if the receiver holds the
    /// sender back.
    pub fn start(dir: PathBuf, name: &'static str, pause: Duration) -> Sender {
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let stopped = Arc::clone(&stop);
        let count = Arc::clone(&sent);
        let mut port = open(&dir, name);
        let run = move || {
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..16 {
                    if !port.tx()[0].send(&frame(number)) {
                        break;
                    }
                    number += 1;
                }
                port.tx()[0].sync();
                count.store(number, Ordering::Relaxed);
                if pause.is_zero() {
                    let _ = port.wait(Interest::Tx, Some(Duration::from_millis(100))).expect("the port stays open");
                } else {
                    std::thread::sleep(pause);
                }
            }
            // Frames that are still in the ring are sent as long as the port is open.
            let until = Instant::now() + LIMIT;
            while port.tx()[0].space() + 1 < port.tx()[0].num_slots() && Instant::now() < until {
                port.tx()[0].sync();
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Sender { stop, sent, thread: Some(std::thread::spawn(run)) }
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Stops, and waits until all frames have been taken. Returns their number.
    pub fn finish(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("there once").join().expect("it sends");
        self.sent()
    }
}

/// Counts of received numbered frames.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// The next expected number.
    pub next: u64,
    /// Number of frames that arrived again, or late.
    pub again: u64,
    /// Number of frames that did not arrive.
    pub missing: u64,
}

impl Came {
    pub fn note(&mut self, number: u64) {
        if number < self.next {
            self.again += 1;
            return;
        }
        self.missing += number - self.next;
        self.next = number + 1;
    }

    /// Waits for at most 100 ms until frames are available, and reads these frames.
    pub fn read(&mut self, port: &mut Port) {
        let _ = port.wait(Interest::Rx, Some(Duration::from_millis(100))).expect("the port stays open");
        let mut place = [0; 2048];
        while let Some(n) = port.rx()[0].recv(&mut place) {
            number_of(&place[..n]).into_iter().for_each(|number| self.note(number));
        }
        port.sync();
    }

    /// Reads one frame, if one is available.
    pub fn read_one(&mut self, port: &mut Port) {
        let mut place = [0; 2048];
        port.sync();
        if let Some(n) = port.rx()[0].recv(&mut place) {
            number_of(&place[..n]).into_iter().for_each(|number| self.note(number));
        }
        port.sync();
    }

    /// Reads until frames up to that number have arrived.
    pub fn read_up_to(&mut self, port: &mut Port, number: u64) {
        let until = Instant::now() + LIMIT;
        while self.next < number {
            assert!(Instant::now() < until, "{self:?}, and {number} were sent");
            self.read(port);
        }
    }
}

/// Reads all frames as they arrive, so that no sender waits for the receiver.
pub struct Reader {
    next: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Came>>,
}

impl Reader {
    pub fn start(mut port: Port) -> Reader {
        let next = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&next);
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut came = Came::default();
            while !stopped.load(Ordering::Relaxed) {
                came.read(&mut port);
                shared.store(came.next, Ordering::Relaxed);
            }
            came
        };
        Reader { next, stop, thread: Some(std::thread::spawn(run)) }
    }

    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Waits until frames up to that number have arrived.
    pub fn wait_for(&self, number: u64) {
        let has_come = || self.next() >= number;
        assert!(netvale_harness::until(LIMIT, Duration::from_millis(1), has_come), "{} of {number}", self.next());
    }

    /// Stops once all frames below `sent` have arrived.
    pub fn finish(mut self, sent: u64) -> Came {
        self.wait_for(sent);
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("there once").join().expect("it reads")
    }
}
