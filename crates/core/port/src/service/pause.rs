//! Pauses of a service's thread: the thread passes on the state with which a successor process can continue to serve
//! the thread's peer, and waits until the thread may resume.

use std::any::Any;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::notify::{Doorbell, nap};

use crate::listener::Claim;

/// Time limit of the wait for the thread to pause, long enough for a loaded machine.
const LIMIT: Duration = Duration::from_secs(1);

/// The thread's state for a successor, of a type that the protocol defines.
pub type ThreadState = Box<dyn Any + Send>;

/// A request to a service's thread to pause.
pub struct Pause {
    said: SyncSender<Option<ThreadState>>,
    resume: Receiver<()>,
}

impl Pause {
    /// Passes on the state for a successor process, and waits. Returns if this process must resume instead.
    pub fn with(self, said: ThreadState) {
        self.give(Some(said));
    }

    pub(super) fn give(self, said: Option<ThreadState>) {
        if self.said.try_send(said).is_ok() {
            // No message is sent: the sender is dropped when the service resumes.
            let _ = self.resume.recv();
        }
    }
}

/// A paused service, which resumes when this is dropped.
pub struct PausedService {
    /// The protocol's state of the connected peer; `None` without a peer.
    pub said: Option<ThreadState>,
    /// Handle that makes this process the owner of the socket's file when this value is dropped; `None` if there is no
    /// file, or this process owns it already.
    claim: Option<Claim>,
    _resume: SyncSender<()>,
}

impl PausedService {
    /// Takes the protocol's state; `None` without a peer, or if the state is not a `T`.
    pub fn take<T: 'static>(&mut self) -> Option<T> {
        self.said.take()?.downcast().ok().map(|said| *said)
    }
}

/// The signal for which a restored thread waits before it starts.
pub(super) struct StartSignal(Receiver<()>);

impl StartSignal {
    pub(super) fn wait(self) {
        // No message is sent: the channel disconnects.
        let _ = self.0.recv();
    }
}

impl PausedService {
    /// Creates the signal for a restored thread. Dropping the [`PausedService`] sends the signal, and makes this
    /// process the owner of the socket's file.
    pub(super) fn before_begin(claim: Option<Claim>) -> (StartSignal, PausedService) {
        let (_resume, resumed) = mpsc::sync_channel(1);
        (StartSignal(resumed), PausedService { said: None, claim, _resume })
    }
}

impl Drop for PausedService {
    fn drop(&mut self) {
        self.claim.iter().for_each(Claim::take);
    }
}

/// A request to pause for which [`Pauses::wait`] was not called yet.
struct PendingPause {
    answer: Receiver<Option<ThreadState>>,
    resume: SyncSender<()>,
    until: Instant,
}

/// The pause requests of a service.
pub(super) struct Pauses {
    /// Readable while a pause is requested.
    pub(super) bell: Doorbell,
    asked: Mutex<Option<Pause>>,
    pending: Mutex<Option<PendingPause>>,
}

impl Pauses {
    pub(super) fn new() -> rustix::io::Result<Pauses> {
        Ok(Pauses { bell: Doorbell::new()?, asked: Mutex::default(), pending: Mutex::default() })
    }

    /// Asks the thread to pause, without waiting, so that many threads can pause at the same time.
    pub(super) fn ask(&self) {
        let (said, answer) = mpsc::sync_channel(1);
        let (sender, resume) = mpsc::sync_channel(1);
        *lock(&self.asked) = Some(Pause { said, resume });
        *lock(&self.pending) = Some(PendingPause { answer, resume: sender, until: Instant::now() + LIMIT });
        self.bell.ring();
    }

    /// Withdraws the request, unless it has been [waited](Pauses::wait) for.
    pub(super) fn forget(&self) {
        if lock(&self.pending).take().is_some() {
            self.take();
        }
    }

    /// Asks the thread to pause, unless [`Pauses::ask`] was called, and waits until the thread pauses. `None` if the
    /// thread does not pause within the limit.
    pub(super) fn wait(&self) -> Option<PausedService> {
        if lock(&self.pending).is_none() {
            self.ask();
        }
        let PendingPause { answer, resume, until } = lock(&self.pending).take()?;
        let said = answer.recv_timeout(until.saturating_duration_since(Instant::now()));
        if said.is_err() {
            self.take();
        }
        Some(PausedService { said: said.ok()?, claim: None, _resume: resume })
    }

    /// Takes the pending request; `None` if no pause is requested.
    pub(super) fn take(&self) -> Option<Pause> {
        if !nap(self.bell.as_fd(), Duration::ZERO) {
            return None;
        }
        self.bell.drain();
        lock(&self.asked).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use super::super::{Protocol, Service, ServicePeer};
    use super::*;

    /// A protocol without peers.
    struct Alone;

    impl Protocol for Alone {
        type Connection = ();
        type Detail = ();
        type Kept = ();
        const PEER: &'static str = "nobody";

        fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<(), String>> {
            nap(stop, Duration::MAX);
            None
        }

        fn serve(&mut self, (): (), _peer: &ServicePeer<()>) -> Result<(), String> {
            Ok(())
        }
    }

    /// Objective: a thread pauses whether or not it was asked beforehand; a request that nobody waited for can be
    /// withdrawn, and repeated later.
    #[test]
    fn threads_asked_beforehand_pause() {
        let services = ["a", "b"].map(|name| Service::start("test", name, None, Alone).unwrap());
        for _ in 0..20 {
            let asked = services.each_ref().map(Service::ask_to_pause);
            let paused = services[0].pause().expect("it pauses");
            drop(asked);
            assert!(paused.said.is_none());
            drop(paused);
            let _all = services.each_ref().map(|service| service.pause().expect("it pauses"));
        }
    }
}
