//! What our own sides of scenarios share: a daemon in a process of its own, ports opened from it, frames.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use netvale::{Options, Port, RxRing, TxRing};
use netvale_daemon::config::File;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::error::{BenchError, Result};
use crate::sys::worker::{Context, Worker};

/// Slots of a ring: buffers of both directions stay in a second-level cache of 2 MiB.
pub const SLOTS: u32 = 512;
/// The role of [`daemon_role`].
pub const DAEMON: &str = "daemon";
const START_LIMIT: Duration = Duration::from_secs(10);

/// What the daemon is started with.
#[derive(Debug, Serialize, Deserialize)]
struct DaemonTask {
    dir: String,
    cpu: usize,
    more: String,
}

/// A daemon with one worker, pinned, as `netvale up` runs it but for the sandbox.
pub struct Daemon {
    /// Its process.
    pub worker: Worker,
    dir: TempDir,
}

impl Daemon {
    /// Starts one whose worker runs on `cpu`; `more` is appended to its configuration.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(cpu: usize, more: &str) -> Result<Daemon> {
        let dir = crate::sys::scratch("daemon")?;
        let task = DaemonTask { dir: dir.path().display().to_string(), cpu, more: more.to_owned() };
        Ok(Daemon { worker: Worker::spawn(DAEMON, cpu, &task)?, dir })
    }

    /// Its run directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// A daemon, until it is killed.
///
/// # Errors
/// It cannot start.
pub fn daemon_role(context: &Context) -> Result<()> {
    let task: DaemonTask = context.arguments()?;
    let text = format!("run-dir = {:?}\ncpus = [{}]\nsandbox = false\n{}", task.dir, task.cpu, task.more);
    let wrong = |e: &dyn std::fmt::Display| BenchError::Usage(format!("the daemon: {e}"));
    let config = File::parse(&text).map_err(|e| wrong(&e))?.into_config().map_err(|e| wrong(&e))?;
    let daemon = std::thread::spawn(move || netvale_daemon::run(config).map_err(|e| e.to_string()));
    let (socket, start) = (Path::new(&task.dir).join("control.sock"), Instant::now());
    while UnixStream::connect(&socket).is_err() && start.elapsed() < START_LIMIT && !daemon.is_finished() {
        std::thread::yield_now();
    }
    if !daemon.is_finished() {
        context.ready()?;
    }
    match daemon.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(wrong(&e)),
        Err(_) => Err(wrong(&"it panicked")),
    }
}

/// Opens a port of the daemon in `dir`.
///
/// # Errors
/// The daemon's refusal.
pub fn open(dir: &Path, name: &str) -> Result<Port> {
    let options = Options { run_dir: Some(dir.into()), slots: SLOTS, ..Options::default() };
    Port::open_with(name, &options).map_err(|e| BenchError::Usage(e.to_string()))
}

/// A frame from host `from` to host `to`.
pub fn frame(to: u16, from: u16, len: u32) -> Vec<u8> {
    let mut f = vec![0u8; len.max(16) as usize];
    let mac = |n: u16| [2, 0, 0, 0, (n >> 8) as u8, n as u8];
    f[..6].copy_from_slice(&mac(to));
    f[6..12].copy_from_slice(&mac(from));
    f
}

/// Fills every buffer of a ring with a frame.
pub fn fill(ring: &TxRing, frame: &[u8]) {
    for i in 0..ring.num_slots() {
        ring.mem().write(ring.slot(i).buf_idx, 0, frame);
    }
}

/// Sends up to `batch` frames; writes their bytes if `touch`. Returns how many.
#[inline]
pub fn send(ring: &mut TxRing, frame: &[u8], batch: u32, touch: bool) -> u32 {
    let n = ring.space().min(batch);
    for k in 0..n {
        let i = ring.at(k);
        if touch {
            ring.mem().write(ring.slot(i).buf_idx, 0, frame);
        }
        ring.set_len(i, frame.len() as u16, 0);
    }
    ring.advance(n);
    ring.sync();
    n
}

/// Receives up to `batch` frames; reads their first line if `touch`. Returns how many.
#[inline]
pub fn receive(ring: &mut RxRing, batch: u32, touch: bool) -> u32 {
    let _ = ring.sync();
    let n = ring.space().min(batch);
    if touch {
        let mut line = [0u8; 60];
        for k in 0..n {
            std::hint::black_box(ring.read(ring.at(k), &mut line));
        }
    }
    ring.advance(n);
    n
}
