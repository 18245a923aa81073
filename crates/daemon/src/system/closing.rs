//! Closes descriptors that strangers opened. Closing can block for as long as their owner likes (a socket that lingers,
//! or in whose queue such a socket lies; a file system in user space), so threads of their own do it, and no user keeps
//! more than a few of them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;

/// Most threads that close beside the first, and most that close for one user.
const MOST: usize = 64;
const MOST_FOR_ONE: usize = 4;
/// How long the first thread may take for one before others help: longer than any close that does not block.
const SLOW: Duration = Duration::from_millis(50);

struct Closing {
    /// The first thread stays, so that a connection that ends costs none.
    has_first: bool,
    /// Since when it closes one; `None` while it waits for work.
    since: Option<Instant>,
    others: usize,
    waiting: VecDeque<(u32, OwnedFd)>,
    /// Threads that close for each user just now.
    busy: BTreeMap<u32, usize>,
}

impl Closing {
    /// The next descriptor of a user for whom not too many threads close already.
    fn next_free(&self) -> Option<usize> {
        let is_free = |uid: &u32| self.busy.get(uid).is_none_or(|threads| *threads < MOST_FOR_ONE);
        self.waiting.iter().position(|(uid, _)| is_free(uid))
    }
}

static CLOSING: Mutex<Closing> =
    Mutex::new(Closing { has_first: false, since: None, others: 0, waiting: VecDeque::new(), busy: BTreeMap::new() });
static NEWS: Condvar = Condvar::new();

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands a descriptor of that user's to a thread that closes it.
pub fn close(fd: OwnedFd, uid: u32) {
    let mut closing = closing();
    closing.waiting.push_back((uid, fd));
    NEWS.notify_one();
    get_help(&mut closing);
}

/// Descriptors that came from a user: what is left of them is closed by a thread of its own.
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

    /// The descriptors, which may be anything.
    pub fn all(&self) -> &[OwnedFd] {
        &self.fds
    }

    /// Takes out the last.
    pub fn pop(&mut self) -> Option<OwnedFd> {
        self.fds.pop()
    }

    /// Takes out all, once it is known that closing them does not block.
    pub fn into_known(mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.fds.drain(..).for_each(|fd| close(fd, self.uid));
    }
}

/// Starts a thread if one is needed. Returns whether descriptors wait that could be closed: then this has to be called
/// again soon.
pub fn look() -> bool {
    let mut closing = closing();
    get_help(&mut closing);
    closing.next_free().is_some()
}

fn get_help(closing: &mut Closing) {
    let is_slow = closing.since.is_some_and(|since| since.elapsed() > SLOW);
    let started = match (closing.has_first, closing.next_free()) {
        (false, Some(_)) => start(first).map(|()| closing.has_first = true),
        (true, Some(_)) if is_slow && closing.others < MOST => start(other).map(|()| closing.others += 1),
        _ => Ok(()),
    };
    if let Err(e) = started {
        tracing::warn!("no thread to close a client's descriptor: {e}");
    }
}

fn start(work: fn()) -> std::io::Result<()> {
    std::thread::Builder::new().name("netvale-closing".into()).spawn(work).map(drop)
}

/// Receives a message and all descriptors that came with it: the kernel itself would close those for which there is no
/// room, and block this thread. The caller passes to [`close`] what it does not keep.
///
/// # Errors
/// What recvmsg(2) says; `EAGAIN` if nothing has come.
pub fn receive(fd: &OwnedFd, bytes: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(fd, bytes, RecvFlags::empty())
}

/// The same of a message that stays in the queue.
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

/// The number of that user's descriptors that are not closed yet.
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

fn close_one(closing: MutexGuard<'static, Closing>, uid: u32, fd: OwnedFd) -> MutexGuard<'static, Closing> {
    drop(closing);
    // Spares a connection its lingering; other kinds of files refuse.
    let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    drop(fd);
    let mut closing = self::closing();
    done(&mut closing, uid);
    closing
}

fn next(closing: &mut Closing) -> Option<(u32, OwnedFd)> {
    let next = closing.next_free().and_then(|i| closing.waiting.remove(i))?;
    *closing.busy.entry(next.0).or_default() += 1;
    Some(next)
}

fn done(closing: &mut Closing, uid: u32) {
    if let Some(threads) = closing.busy.get_mut(&uid) {
        *threads -= 1;
        if *threads == 0 {
            closing.busy.remove(&uid);
        }
    }
}
