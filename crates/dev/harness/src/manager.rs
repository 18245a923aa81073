//! The part of a service manager that keeps descriptors for a daemon, and starts it with them (sd_notify(3),
//! sd_listen_fds(3)).
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::RecvFlags;
use tempfile::TempDir;

use crate::{Failed, Launch, Process};

/// First interim descriptor number: outside both the current numbers and the target ones.
const AWAY: i32 = 1000;

/// Message of [`Manager::sync`], and its time limit.
const BARRIER: &[u8] = b"X_BARRIER=1";
const LIMIT: Duration = Duration::from_secs(60);

type Kept = Arc<Mutex<BTreeMap<String, OwnedFd>>>;

/// Keeps the descriptors that a daemon stores. Listens until dropped.
#[derive(Debug)]
pub struct Manager {
    dir: TempDir,
    kept: Kept,
    stop: Arc<AtomicBool>,
    /// Number of barriers sent, and of those processed.
    barriers: (AtomicU64, Arc<AtomicU64>),
}

impl Manager {
    /// Starts to listen.
    ///
    /// # Errors
    /// A socket or a thread cannot be created.
    pub fn new() -> Result<Manager, Failed> {
        let failed = || Failed::to("listen as a service manager");
        let dir = crate::scratch("manager")?;
        let socket = UnixDatagram::bind(dir.path().join("notify")).map_err(failed())?;
        socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(failed())?;
        let kept = Kept::default();
        let stop = Arc::new(AtomicBool::new(false));
        let list = Arc::clone(&kept);
        let stopped = Arc::clone(&stop);
        let barriers = (AtomicU64::new(0), Arc::<AtomicU64>::default());
        let came = Arc::clone(&barriers.1);
        std::thread::spawn(move || listen(&socket, &list, &came, &stopped));
        Ok(Manager { dir, kept, stop, barriers })
    }

    /// Waits until all earlier requests are processed.
    ///
    /// # Errors
    /// It does not listen any more.
    pub fn sync(&self) -> Result<(), Failed> {
        let failed = || Failed::to("reach the service manager");
        let number = self.barriers.0.fetch_add(1, Ordering::Relaxed) + 1;
        let socket = UnixDatagram::unbound().map_err(failed())?;
        socket.send_to(BARRIER, self.socket()).map_err(failed())?;
        let came = || self.barriers.1.load(Ordering::Acquire) >= number;
        if crate::until(LIMIT, Duration::from_millis(1), came) {
            return Ok(());
        }
        Err(failed()(std::io::ErrorKind::TimedOut.into()))
    }

    /// Its own folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The names of the stored descriptors.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        lock(&self.kept).keys().cloned().collect()
    }

    /// Starts a daemon's process with all stored descriptors, even those of a process that has ended.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, launch: &Launch, run_dir: &Path) -> Result<Process, Failed> {
        self.sync()?;
        let kept = lock(&self.kept);
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        let fds: Vec<i32> = kept.values().map(AsRawFd::as_raw_fd).collect();
        // The process id is unknown before the process runs.
        let mut command = launch.command_behind(&["sh", "-c", "LISTEN_PID=$$ exec \"$@\"", "sh"], run_dir);
        command.env("NOTIFY_SOCKET", self.socket());
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        // SAFETY: calls nothing but fcntl and dup2, on numbers, with memory allocated before.
        unsafe {
            let mut away = vec![0; fds.len()];
            command.pre_exec(move || {
                for (to, from) in away.iter_mut().zip(&fds) {
                    *to = libc::fcntl(*from, libc::F_DUPFD_CLOEXEC, AWAY);
                }
                for (to, from) in (3..).zip(&away) {
                    libc::dup2(*from, to);
                }
                Ok(())
            });
        }
        Process::start(&mut command)
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("notify")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn lock(kept: &Kept) -> MutexGuard<'_, BTreeMap<String, OwnedFd>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processes the daemon's messages.
fn listen(socket: &UnixDatagram, kept: &Kept, barriers: &AtomicU64, stopped: &AtomicBool) {
    let mut bytes = [0; 1024];
    while !stopped.load(Ordering::Relaxed) {
        let Ok(got) = netvale_fdio::receive(socket, &mut bytes, RecvFlags::empty()) else { continue };
        if bytes.get(..got.bytes) == Some(BARRIER) {
            barriers.fetch_add(1, Ordering::Release);
            continue;
        }
        let fd = got.fds.into_iter().next();
        let text = String::from_utf8_lossy(&bytes[..got.bytes]).into_owned();
        let Some(name) = text.lines().find_map(|line| line.strip_prefix("FDNAME=")) else { continue };
        match fd {
            Some(fd) => lock(kept).insert(name.to_owned(), fd),
            None => lock(kept).remove(name),
        };
    }
}
