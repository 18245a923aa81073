//! The loop that accepts connections and starts a thread for each.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::http::connection::{self, TimeLimits};
use crate::http::handler::HttpHandler;
use crate::http::listener::HttpListener;
use crate::http::visitors::Visitors;

/// Pause before the next connection is accepted, after the kernel lacked resources to accept one.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves clients until `stop` is readable.
///
/// # Errors
/// The error of poll(2) or eventfd(2).
pub fn run(
    listeners: &[HttpListener],
    handler: &Arc<dyn HttpHandler>,
    limits: TimeLimits,
    stop: BorrowedFd<'_>,
) -> std::io::Result<()> {
    let visitors = Visitors::new()?;
    let mut paused: Option<Instant> = None;
    // Whether a client waits to be accepted while the number of connections is at its limit.
    let mut is_waiting = false;
    loop {
        let is_full = visitors.are_taken();
        is_waiting &= is_full;
        let again = if is_waiting { Some(visitors.make_room(Instant::now())) } else { paused };
        let limit = again.map(|until| until.saturating_duration_since(Instant::now()));
        let watched = if is_waiting || paused.is_some() { &[] } else { listeners };
        let ready = wait(stop, visitors.ended(), watched, limit)?;
        if ready.first() == Some(&true) {
            return Ok(());
        }
        paused = paused.filter(|until| *until > Instant::now());
        let mut due = watched.iter().zip(ready.iter().skip(2)).filter(|(_, is_ready)| **is_ready);
        if is_full {
            is_waiting |= due.next().is_some();
            continue;
        }
        let turned_away = due.map(|(listener, _)| accept(listener, handler, limits, &visitors)).filter(Result::is_err);
        if turned_away.count() > 0 {
            paused = Some(Instant::now() + PAUSE);
        }
    }
}

/// Waits for any of the descriptors. Returns for each descriptor whether it is ready, in this order: `stop`, `ended`,
/// the listeners.
fn wait(
    stop: BorrowedFd<'_>,
    ended: &OwnedFd,
    listeners: &[HttpListener],
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
    // The read resets the eventfd; the count that it returns does not matter.
    let _ = rustix::io::read(ended, &mut [0; 8]);
    Ok(polled.iter().map(|one| !one.revents().is_empty()).collect())
}

/// Accepts a pending connection and starts a thread that serves it. Fails if resources, such as descriptors, are
/// exhausted.
fn accept(
    listener: &HttpListener,
    handler: &Arc<dyn HttpHandler>,
    limits: TimeLimits,
    visitors: &Arc<Visitors>,
) -> Result<(), ()> {
    let socket = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => socket,
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
        Err(errno) => {
            tracing::warn!("cannot accept a connection: {errno}");
            return Err(());
        }
    };
    let visit = visitors.give(socket);
    let handler = Arc::clone(handler);
    let work = move || {
        let visit = visit;
        connection::serve(&visit.client, &*handler, limits);
    };
    let started = std::thread::Builder::new().name("http".into()).spawn(work);
    started.map(|_| ()).map_err(|e| tracing::warn!("cannot start a thread for a connection: {e}"))
}

#[cfg(test)]
mod tests;
