//! The part of a service manager that stores descriptors for a daemon, and starts the daemon with them (sd_notify(3),
//! sd_listen_fds(3)).
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::RecvFlags;
use tempfile::TempDir;

use crate::{ChildProcess, FailedStep, Launch};

/// First temporary descriptor number: above both the current numbers and the final numbers.
const AWAY: i32 = 1000;

/// The message of [`Manager::sync`].
const BARRIER: &[u8] = b"X_BARRIER=1";
const LIMIT: Duration = Duration::from_secs(60);

type FdStore = Arc<Mutex<BTreeMap<String, OwnedFd>>>;

/// Stores the descriptors that a daemon sends. Listens until dropped.
#[derive(Debug)]
pub struct Manager {
    dir: TempDir,
    kept: FdStore,
    stop: Arc<AtomicBool>,
    /// Number of barriers sent, and number of barriers processed.
    barriers: (AtomicU64, Arc<AtomicU64>),
}

impl Manager {
    /// Starts listening.
    ///
    /// # Errors
    /// A socket or a thread cannot be created.
    pub fn new() -> Result<Manager, FailedStep> {
        let failed = || FailedStep::to("listen as a service manager");
        let dir = crate::scratch("manager")?;
        let socket = UnixDatagram::bind(dir.path().join("notify")).map_err(failed())?;
        socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(failed())?;
        let kept = FdStore::default();
        let stop = Arc::new(AtomicBool::new(false));
        let list = Arc::clone(&kept);
        let stopped = Arc::clone(&stop);
        let barriers = (AtomicU64::new(0), Arc::<AtomicU64>::default());
        let came = Arc::clone(&barriers.1);
        std::thread::spawn(move || listen(&socket, &list, &came, &stopped));
        Ok(Manager { dir, kept, stop, barriers })
    }

    /// Waits until all earlier messages are processed.
    ///
    /// # Errors
    /// The manager no longer listens.
    pub fn sync(&self) -> Result<(), FailedStep> {
        let failed = || FailedStep::to("reach the service manager");
        let number = self.barriers.0.fetch_add(1, Ordering::Relaxed) + 1;
        let socket = UnixDatagram::unbound().map_err(failed())?;
        socket.send_to(BARRIER, self.socket()).map_err(failed())?;
        let came = || self.barriers.1.load(Ordering::Acquire) >= number;
        if crate::until(LIMIT, Duration::from_millis(1), came) {
            return Ok(());
        }
        Err(failed()(std::io::ErrorKind::TimedOut.into()))
    }

    /// Returns the manager's own folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the names of the stored descriptors.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        lock(&self.kept).keys().cloned().collect()
    }

    /// Starts a process of the daemon with all stored descriptors, even the descriptors of a process that has ended.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(&self, launch: &Launch, run_dir: &Path) -> Result<ChildProcess, FailedStep> {
        self.sync()?;
        let kept = lock(&self.kept);
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        let fds: Vec<i32> = kept.values().map(AsRawFd::as_raw_fd).collect();
        // The process id is known only once the process runs, so a shell sets `LISTEN_PID`.
        let mut command = launch.command_behind(&["sh", "-c", "LISTEN_PID=$$ exec \"$@\"", "sh"], run_dir);
        self.accompany(&mut command);
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        // SAFETY: the closure calls only fcntl and dup2, on numbers in memory that was allocated before.
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
        ChildProcess::start(&mut command)
    }

    /// Sets the environment variable from which the command's process gets the path of the manager's socket.
    pub(crate) fn accompany(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", self.socket());
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

fn lock(kept: &FdStore) -> MutexGuard<'_, BTreeMap<String, OwnedFd>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processes the daemon's messages.
fn listen(socket: &UnixDatagram, kept: &FdStore, barriers: &AtomicU64, stopped: &AtomicBool) {
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
