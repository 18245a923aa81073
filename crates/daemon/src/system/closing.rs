//! Closing of strangers: descriptors that clients passed. A client can make close(2) block for any time, with a
//! lingering socket, a socket whose queue contains a lingering socket, or a file on a user-space file system. Separate
//! threads therefore close these descriptors, and no user occupies more than a few of these threads.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;

/// Maximum number of closing threads in addition to the first thread.
const MOST: usize = 64;
/// Maximum number of threads that close descriptors of the same user.
const MOST_FOR_ONE: usize = 4;
/// Duration after which a close counts as blocked, so that further threads are started.
const SLOW: Duration = Duration::from_millis(50);

struct ClosingQueue {
    /// Whether the first thread has been started. The first thread never ends, so that closing a descriptor seldom
    /// needs a new thread.
    has_first: bool,
    /// Time at which the first thread began to close its current descriptor; `None` while it waits for work.
    since: Option<Instant>,
    others: usize,
    waiting: VecDeque<(u32, OwnedFd)>,
    /// Number of closing threads by user.
    busy: BTreeMap<u32, usize>,
}

impl ClosingQueue {
    /// Returns the index of the next descriptor whose user occupies fewer than [`MOST_FOR_ONE`] threads; `None` if
    /// there is none.
    fn next_free(&self) -> Option<usize> {
        let is_free = |uid: &u32| self.busy.get(uid).is_none_or(|threads| *threads < MOST_FOR_ONE);
        self.waiting.iter().position(|(uid, _)| is_free(uid))
    }
}

static CLOSING: Mutex<ClosingQueue> = Mutex::new(ClosingQueue {
    has_first: false,
    since: None,
    others: 0,
    waiting: VecDeque::new(),
    busy: BTreeMap::new(),
});
static NEWS: Condvar = Condvar::new();

fn closing() -> MutexGuard<'static, ClosingQueue> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes a user's descriptor to a closing thread.
pub fn close(fd: OwnedFd, uid: u32) {
    let mut closing = closing();
    closing.waiting.push_back((uid, fd));
    NEWS.notify_one();
    get_help(&mut closing);
}

/// Descriptors that a user passed. When this value is dropped, a closing thread closes the descriptors that the value
/// still contains.
#[derive(Debug)]
pub struct Strangers {
    fds: Vec<OwnedFd>,
    uid: u32,
}

impl Strangers {
    /// Takes ownership of a user's descriptors.
    pub fn new(fds: Vec<OwnedFd>, uid: u32) -> Strangers {
        Strangers { fds, uid }
    }

    /// Returns the descriptors, which may be of any type.
    pub fn all(&self) -> &[OwnedFd] {
        &self.fds
    }

    /// Removes and returns the last descriptor.
    pub fn pop(&mut self) -> Option<OwnedFd> {
        self.fds.pop()
    }

    /// Returns all descriptors. The caller must have made sure that closing them does not block.
    pub fn into_known(mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.fds.drain(..).for_each(|fd| close(fd, self.uid));
    }
}

/// Starts a closing thread if needed. Returns whether descriptors still wait for another thread; if so, this function
/// must be called again soon.
pub fn look() -> bool {
    let mut closing = closing();
    get_help(&mut closing);
    closing.next_free().is_some()
}

fn get_help(closing: &mut ClosingQueue) {
    let is_slow = closing.since.is_some_and(|since| since.elapsed() > SLOW);
    let started = match (closing.has_first, closing.next_free()) {
        (false, Some(_)) => start(first).map(|()| closing.has_first = true),
        (true, Some(_)) if is_slow && closing.others < MOST => start(other).map(|()| closing.others += 1),
        _ => Ok(()),
    };
    if let Err(e) = started {
        tracing::warn!("cannot start a thread to close a client's descriptor: {e}");
    }
}

fn start(work: fn()) -> std::io::Result<()> {
    std::thread::Builder::new().name("netvale-closing".into()).spawn(work).map(drop)
}

/// Receives a message with all its descriptors. The buffer has room for all descriptors, because the kernel would close
/// the others in this thread, which may block. The caller must pass unwanted descriptors to [`close`].
///
/// # Errors
/// Errors of recvmsg(2); `EAGAIN` if there is no message.
pub fn receive(fd: &OwnedFd, bytes: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(fd, bytes, RecvFlags::empty())
}

/// Like [`receive`], but leaves the message in the queue.
///
/// # Errors
/// As [`receive`].
pub fn peek(fd: &OwnedFd, bytes: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(fd, bytes, RecvFlags::PEEK)
}

fn receive_with(fd: &OwnedFd, bytes: &mut [u8], how: RecvFlags) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let got = netvale_fdio::receive(fd, bytes, RecvFlags::DONTWAIT | how)?;
    Ok((got.bytes, got.fds))
}

/// Returns the number of a user's descriptors that are not closed yet.
pub fn pending(uid: u32) -> usize {
    let closing = closing();
    closing.waiting.iter().filter(|(of, _)| *of == uid).count() + closing.busy.get(&uid).copied().unwrap_or(0)
}

fn first() {
    let mut closing = closing();
    loop {
        while let Some((uid, fd)) = next(&mut closing) {
            closing.since = Some(Instant::now());
            closing = close_one(closing, uid, fd);
            closing.since = None;
        }
        closing = NEWS.wait(closing).unwrap_or_else(PoisonError::into_inner);
    }
}

fn other() {
    let mut closing = closing();
    while let Some((uid, fd)) = next(&mut closing) {
        closing = close_one(closing, uid, fd);
    }
    closing.others -= 1;
}

fn close_one(closing: MutexGuard<'static, ClosingQueue>, uid: u32, fd: OwnedFd) -> MutexGuard<'static, ClosingQueue> {
    drop(closing);
    // This turns off lingering. It fails for descriptors that are not sockets.
    let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    drop(fd);
    let mut closing = self::closing();
    done(&mut closing, uid);
    closing
}

fn next(closing: &mut ClosingQueue) -> Option<(u32, OwnedFd)> {
    let next = closing.next_free().and_then(|i| closing.waiting.remove(i))?;
    *closing.busy.entry(next.0).or_default() += 1;
    Some(next)
}

fn done(closing: &mut ClosingQueue, uid: u32) {
    if let Some(threads) = closing.busy.get_mut(&uid) {
        *threads -= 1;
        if *threads == 0 {
            closing.busy.remove(&uid);
        }
    }
}
