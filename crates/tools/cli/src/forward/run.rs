//! The loop of a command that forwards frames: moves frames while there are any, sleeps otherwise, and reports at
//! intervals.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale::{Interest, Port};
use netvale_abi::slot::NS_MOREFRAG;
use netvale_mem::spin::Spin;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;

use super::engine::MovedCounts;
use crate::{CliError, out, units};

/// Maximum time for which the loop polls before it sleeps. The time is longer than another CPU takes to wake up.
const SPIN: Duration = Duration::from_micros(100);
/// Maximum duration of a sleep; after it, Ctrl-C and the time limit are checked.
const NAP: Duration = Duration::from_millis(50);

/// The settings of the loop.
pub struct ForwardPace<'a> {
    /// Whether the loop always polls and never sleeps.
    pub poll_always: bool,
    /// The loop ends after this time; `None` for no limit.
    pub limit: Option<Duration>,
    /// The loop ends after this many frames; 0 for no limit.
    pub count: u64,
    /// Time between two reports.
    pub report: Duration,
    /// Whether reports are printed as JSON.
    pub json: bool,
    /// The flag that Ctrl-C sets, to end the loop.
    pub stop: &'a AtomicBool,
}

/// Options common to all commands that forward frames.
#[derive(Debug, clap::Args)]
pub struct ForwardOptions {
    /// Pin the thread to this CPU.
    #[arg(short = 'a', value_name = "CPU")]
    pub affinity: Option<usize>,

    /// Stop after this many seconds.
    #[arg(long, value_name = "S", value_parser = crate::values::seconds)]
    pub seconds: Option<f64>,

    /// Milliseconds between two reports.
    #[arg(short = 'T', value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub report_ms: u32,

    /// Print each report as a JSON object on a line.
    #[arg(long)]
    pub json: bool,
}

impl ForwardOptions {
    /// Returns the loop's settings according to these options: the loop may sleep, and has no limit on the number of
    /// frames. Pins the calling thread to the requested CPU.
    pub fn pace<'a>(&self, stop: &'a AtomicBool) -> ForwardPace<'a> {
        self.affinity.into_iter().for_each(pin);
        let limit = self.seconds.map(Duration::from_secs_f64);
        let report = Duration::from_millis(self.report_ms.into());
        ForwardPace { poll_always: false, limit, count: 0, report, json: self.json, stop }
    }
}

#[derive(Serialize)]
struct ForwardReport<'a> {
    what: &'a str,
    lanes: Vec<LaneReport<'a>>,
    seconds: f64,
}

#[derive(Serialize)]
struct LaneReport<'a> {
    lane: &'a str,
    frames: u64,
    bytes: u64,
    pps: f64,
}

impl ForwardReport<'_> {
    fn print(&self, json: bool) -> Result<(), CliError> {
        if json {
            return out::json(self);
        }
        let lane = |l: &LaneReport<'_>| format!("{} {} ({} pkts)", l.lane, units::pps(l.pps), l.frames);
        let lanes: Vec<String> = self.lanes.iter().map(lane).collect();
        out::line(format_args!("{}{}", if self.what == "sum" { "Forwarded in all: " } else { "" }, lanes.join(", ")))
    }
}

fn lines<'a>(what: &'a str, names: &'a [String], moved: &[MovedCounts], time: Duration) -> ForwardReport<'a> {
    let seconds = time.as_secs_f64().max(1e-9);
    let lane = |(lane, m): (&'a String, &MovedCounts)| LaneReport {
        lane,
        frames: m.frames,
        bytes: m.bytes,
        pps: m.frames as f64 / seconds,
    };
    ForwardReport { what, lanes: names.iter().zip(moved).map(lane).collect(), seconds }
}

/// Calls `round` repeatedly until a limit is reached, Ctrl-C is pressed, or an error occurs. `round` moves as many
/// frames as it can, adds them to its counts (one count for each name in `names`), and returns whether it moved any.
/// After a round without frames, the loop sleeps until frames arrive at one of the `ports`.
///
/// # Errors
/// The daemon closed a port, or standard output cannot be written.
pub fn forward(
    pace: &ForwardPace<'_>,
    names: &[String],
    ports: &mut [Port],
    mut round: impl FnMut(&mut [Port], &mut [MovedCounts]) -> bool,
) -> Result<(), CliError> {
    let mut moved = vec![MovedCounts::default(); names.len()];
    let start = Instant::now();
    let mut seen = moved.clone();
    let mut last = Instant::now();
    let mut spin = Spin::new(SPIN);
    let mut looks = 0u32;
    let ended = loop {
        let any = round(ports, &mut moved);
        looks = looks.wrapping_add(1);
        if any {
            spin.paid();
            if !looks.is_multiple_of(256) {
                continue;
            }
        } else if pace.poll_always {
            std::thread::yield_now();
        } else if !spin.go_on() {
            sleep(ports);
        }
        let now = Instant::now();
        if now.duration_since(last) >= pace.report {
            let since: Vec<MovedCounts> = moved
                .iter()
                .zip(&seen)
                .map(|(m, s)| MovedCounts { frames: m.frames - s.frames, bytes: m.bytes - s.bytes })
                .collect();
            lines("rate", names, &since, now.duration_since(last)).print(pace.json)?;
            last = now;
            seen = moved.clone();
        }
        if let Some(gone) = ports.iter().find(|p| p.connection().is_some_and(is_closed)) {
            break Err(CliError::failed(
                format!("the daemon closed {}", gone.name()),
                "see the daemon's log; `netvale list` shows whether it runs",
            ));
        }
        let total: u64 = moved.iter().map(|m| m.frames).sum();
        let over = pace.limit.is_some_and(|l| start.elapsed() >= l) || (pace.count > 0 && total >= pace.count);
        if over || pace.stop.load(Ordering::Relaxed) {
            break Ok(());
        }
    };
    lines("sum", names, &moved, start.elapsed()).print(pace.json)?;
    ended
}

/// Sleeps until a port receives a frame, at most for [`NAP`].
fn sleep(ports: &mut [Port]) {
    if let [port] = ports {
        // If the wait fails, the next check of the connection reports the reason.
        let _ = port.wait(Interest::Rx, Some(NAP));
        return;
    }
    let ready = ports.iter_mut().flat_map(|p| p.rx().iter_mut()).fold(false, |ready, r| r.arm() | ready);
    if !ready {
        let fds =
            ports.iter_mut().flat_map(|p| p.rx().iter().map(|r| r.wake_fd().try_clone_to_owned()).collect::<Vec<_>>());
        let fds: Vec<_> = fds.filter_map(Result::ok).collect();
        let mut polled: Vec<PollFd<'_>> =
            fds.iter().map(|f| PollFd::from_borrowed_fd(f.as_fd(), PollFlags::IN)).collect();
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(NAP.subsec_nanos()) };
        // An interrupted wait has the same effect as a wait that reaches the time limit.
        let _ = rustix::event::poll(&mut polled, Some(&limit));
    }
    ports.iter_mut().flat_map(|p| p.rx().iter()).for_each(netvale::RxRing::disarm);
}

/// Returns whether the daemon has closed `connection`.
pub fn is_closed(connection: BorrowedFd<'_>) -> bool {
    let mut byte = [0u8; 1];
    let flags = rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::PEEK;
    matches!(rustix::net::recv(connection, &mut byte, flags), Ok((_, 0)))
}

/// Waits as `-w` requests, so that the other end can get ready before the first frame; the port itself needs no time
/// once it is open. Ctrl-C ends the wait.
pub fn wait_link(seconds: u32, stop: &AtomicBool) {
    let end = Instant::now() + Duration::from_secs(seconds.into());
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|_| !stop.load(Ordering::Relaxed)) {
        std::thread::sleep(left.min(NAP));
    }
}

/// Two limits after which the remaining frames are abandoned: the time without progress of the receiver, and the total
/// time.
const PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// Waits until the receiver has taken all frames, because frames that are still in the ring are lost when the port
/// closes. Gives up if the receiver makes no progress for a second, or after 10 s. Returns the number of frames that
/// remain in the ring, and prints it if it is not 0.
pub fn drain(ring: &mut netvale::TxRing) -> u32 {
    let under_way = |ring: &netvale::TxRing| ring.num_slots() - 1 - ring.space().min(ring.num_slots() - 1);
    let start = Instant::now();
    let mut left = under_way(ring);
    let mut since = start;
    while left > 0 && since.elapsed() < PATIENCE[0] && start.elapsed() < PATIENCE[1] {
        ring.wait(SPIN, Duration::from_millis(10));
        let now = under_way(ring);
        if now < left {
            left = now;
            since = Instant::now();
        }
    }
    let first = ring.num_slots() - left;
    let ends = |k: &u32| ring.slot(ring.at(*k)).flags & NS_MOREFRAG == 0;
    let frames = (first..ring.num_slots()).filter(ends).count() as u32;
    if frames > 0 {
        netvale_control::note!("the receiver had not taken {frames} of these frames when the port was closed");
    }
    frames
}

/// Prints a line about an open port on standard error, for `-v`.
pub fn describe(port: &mut Port) {
    let (tx, rx) = port.rings();
    let slots = tx.first().map_or(0, netvale::TxRing::num_slots);
    let tx = tx.len();
    let rx = rx.len();
    let info = port.info();
    netvale_control::note!(
        "{}: {tx} tx and {rx} rx rings of {slots} slots, {} bytes of virtio-net header",
        port.name(),
        info.hdr_len
    );
}

/// Pins this thread to a CPU. A failure is ignored, since it only makes the figures vary more.
pub fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu % rustix::thread::CpuSet::MAX_CPU);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
