//! The lock in the run directory. It ensures that there is only one daemon for each directory.
//!
//! A killed daemon holds its lock until its last thread has ended, and a user's memory can delay that thread
//! indefinitely. In this case, the next daemon takes the lock by replacing the file.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use netvale_control::client::Client;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::sockets::{LOCK, OWNERS_ONLY, REPLACING, SocketError, failed};

/// How long to wait for another process to replace the lock, and for a daemon to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// Creates the run directory and locks it. The lock is held as long as the descriptor is open.
///
/// # Errors
/// [`SocketError::Running`] if another daemon has the lock, [`SocketError::System`] if a step fails.
pub fn lock_run_dir(dir: &Path) -> Result<OwnedFd, SocketError> {
    std::fs::create_dir_all(dir).map_err(failed("cannot make", dir))?;
    if netvale_control::dirs::is_foreign(dir) {
        return Err(SocketError::Foreign(dir.into()));
    }
    let path = dir.join(LOCK);
    if let Some(fd) = locked(&path)? {
        return Ok(fd);
    }
    // A process replaces the file, after another check, only while it holds the second lock, so that no two processes
    // replace the file at the same time.
    let begun = Instant::now();
    let _replacing = loop {
        match locked(&dir.join(REPLACING))? {
            Some(fd) => break fd,
            None if begun.elapsed() > LIMIT => return Err(SocketError::Running(dir.into())),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    if let Some(fd) = locked(&path)? {
        return Ok(fd);
    }
    if !is_dying(&path) || Client::connect_within(dir, LIMIT).and_then(|mut client| client.version()).is_ok() {
        return Err(SocketError::Running(dir.into()));
    }
    std::fs::remove_file(&path).map_err(failed("cannot replace", &path))?;
    locked(&path)?.ok_or_else(|| SocketError::Running(dir.into()))
}

/// Opens a file, or creates it, and locks it. Returns `None` if another process has locked the file, or has replaced it
/// in the meantime.
fn locked(path: &Path) -> Result<Option<OwnedFd>, SocketError> {
    // The directory may belong to the daemon's user while this process is root. The call must therefore neither follow
    // a link nor block on a file.
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, OWNERS_ONLY).map_err(|e| failed("cannot open", path)(e.into()))?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(e) => return Err(failed("cannot lock", path)(e.into())),
    }
    // Earlier versions created the file with access for everybody.
    rustix::fs::fchmod(&fd, OWNERS_ONLY).map_err(|e| failed("cannot set the mode of", path)(e.into()))?;
    let own = rustix::fs::fstat(&fd).map_err(|e| failed("cannot inspect", path)(e.into()))?;
    // The file may have been replaced between opening and locking it.
    let is_there = std::fs::symlink_metadata(path).is_ok_and(|there| there.ino() == own.st_ino);
    Ok(is_there.then_some(fd))
}

/// Whether the process that holds the lock is a zombie, some of whose threads have not ended yet.
fn is_dying(path: &Path) -> bool {
    let Ok(file) = std::fs::symlink_metadata(path) else { return false };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let holder = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = words.as_slice() else { return None };
        let inode = place.rsplit(':').next()?.parse::<u64>().ok()?;
        (inode == file.ino()).then(|| pid.parse::<u32>().ok())?
    };
    locks.lines().filter_map(holder).any(has_only_threads)
}

/// Whether a process is a zombie that still has threads. A zombie without threads may be the predecessor of a running
/// daemon, and that daemon has inherited the lock.
fn has_only_threads(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_zombie = state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    is_zombie && threads > 1
}
