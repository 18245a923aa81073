//! The loop that accepts connections, and gives each to a thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::http::connection::{self, Limits};
use crate::http::handler::Handler;
use crate::http::listener::Listener;

/// Most connections at a time; the next ones wait in the kernel until one has ended, which each does within its time limits.
pub const MAX_CONNECTIONS: usize = 32;
/// Pause without new connections when the kernel has no room for one.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections there are, and what says that one has ended.
struct Open {
    count: AtomicUsize,
    ended: OwnedFd,
}

/// A connection's part of them, until it ends, however it does.
struct Ticket(Arc<Open>);

impl Open {
    fn enter(self: &Arc<Self>) -> Ticket {
        self.count.fetch_add(1, Ordering::Relaxed);
        Ticket(Arc::clone(self))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Release);
        // Fails only if the loop has not looked for 2^64 - 2 times.
        let _ = rustix::io::write(&self.0.ended, &1u64.to_ne_bytes());
    }
}

/// Serves until `stop` is readable.
///
/// # Errors
/// Whatever poll(2) or eventfd(2) returns.
pub fn run(
    listeners: &[Listener],
    handler: &Arc<dyn Handler>,
    limits: Limits,
    stop: BorrowedFd<'_>,
) -> std::io::Result<()> {
    let ended = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
    let open = Arc::new(Open { count: AtomicUsize::new(0), ended });
    let mut paused: Option<Instant> = None;
    loop {
        let is_full = open.count.load(Ordering::Acquire) >= MAX_CONNECTIONS;
        let pause = paused.map(|until| until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
        let accepting = if is_full || pause.is_some() { &[] } else { listeners };
        let ready = wait(stop, &open.ended, accepting, pause)?;
        if ready.first() == Some(&true) {
            return Ok(());
        }
        let due = accepting.iter().zip(ready.iter().skip(2)).filter(|(_, is_ready)| **is_ready);
        let accepted = due.map(|(listener, _)| accept(listener, handler, limits, &open));
        let turned_away = accepted.filter(Result::is_err).count();
        paused = (turned_away > 0).then(|| Instant::now() + PAUSE);
    }
}

/// Waits for one of them; which of them are readable, in their order.
fn wait(
    stop: BorrowedFd<'_>,
    ended: &OwnedFd,
    listeners: &[Listener],
    limit: Option<Duration>,
) -> std::io::Result<Vec<bool>> {
    let all = [stop, ended.as_fd()].into_iter().chain(listeners.iter().map(AsFd::as_fd));
    let mut polled: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let limit =
        limit.map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) });
    match poll(&mut polled, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    // How many have ended, the count says.
    let _ = rustix::io::read(ended, &mut [0; 8]);
    Ok(polled.iter().map(|one| !one.revents().is_empty()).collect())
}

/// Accepts a connection. Fails when there is no room for one.
fn accept(listener: &Listener, handler: &Arc<dyn Handler>, limits: Limits, open: &Arc<Open>) -> Result<(), ()> {
    let socket = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => socket,
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
        Err(errno) => {
            tracing::warn!("a connection cannot be accepted: {errno}");
            return Err(());
        }
    };
    let (ticket, handler) = (open.enter(), Arc::clone(handler));
    let work = move || {
        let _ticket = ticket;
        connection::serve(&socket, &*handler, limits);
    };
    let started = std::thread::Builder::new().name("http".into()).spawn(work);
    started.map(|_| ()).map_err(|e| tracing::warn!("no thread for a connection: {e}"))
}

#[cfg(test)]
mod tests;
