//! A service's thread pauses and says what another process needs to continue its peer, or it goes on itself.

use std::any::Any;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::notify::{Doorbell, nap};

use crate::listener::Claim;

/// Upper bound on waiting until the thread pauses: on a loaded machine it may not run for a while.
const LIMIT: Duration = Duration::from_secs(1);

/// What the thread says; the protocol knows what it is.
pub type Said = Box<dyn Any + Send>;

/// A request to pause.
pub struct Pause {
    said: SyncSender<Option<Said>>,
    resume: Receiver<()>,
}

impl Pause {
    /// Says what the successor needs, and waits until this process is to go on after all.
    pub fn with(self, said: Said) {
        self.give(Some(said));
    }

    pub(super) fn give(self, said: Option<Said>) {
        if self.said.try_send(said).is_ok() {
            // Nothing is ever sent: the sender is gone when the service goes on.
            let _ = self.resume.recv();
        }
    }
}

/// A service that pauses until this is dropped.
pub struct Paused {
    /// What the protocol said of the connected peer; `None` if there is none.
    pub said: Option<Said>,
    /// What is this process's from then on.
    claim: Option<Claim>,
    _resume: SyncSender<()>,
}

impl Paused {
    /// Takes what the protocol said, which is a `T`; `None` if there is no peer.
    pub fn take<T: 'static>(&mut self) -> Option<T> {
        self.said.take()?.downcast().ok().map(|said| *said)
    }
}

/// What a thread waits for before it begins.
pub(super) struct Turn(Receiver<()>);

impl Turn {
    /// Waits.
    pub(super) fn wait(self) {
        // Nothing is ever sent.
        let _ = self.0.recv();
    }
}

impl Paused {
    /// A thread that is to begin once the second part is dropped, which also makes `claim` this process's.
    pub(super) fn before_begin(claim: Option<Claim>) -> (Turn, Paused) {
        let (_resume, resumed) = mpsc::sync_channel(1);
        (Turn(resumed), Paused { said: None, claim, _resume })
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.claim.iter().for_each(Claim::take);
    }
}

/// A thread that was asked to pause, and is not waited for yet.
struct Pending {
    answer: Receiver<Option<Said>>,
    resume: SyncSender<()>,
    until: Instant,
}

/// Where a service is asked to pause.
pub(super) struct Pauses {
    /// Readable while it is asked to.
    pub(super) bell: Doorbell,
    asked: Mutex<Option<Pause>>,
    pending: Mutex<Option<Pending>>,
}

impl Pauses {
    pub(super) fn new() -> rustix::io::Result<Pauses> {
        Ok(Pauses { bell: Doorbell::new()?, asked: Mutex::default(), pending: Mutex::default() })
    }

    /// Asks the thread to pause, without waiting for it. Many threads so pause in the time of one.
    pub(super) fn ask(&self) {
        let ((said, answer), (sender, resume)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        *lock(&self.asked) = Some(Pause { said, resume });
        *lock(&self.pending) = Some(Pending { answer, resume: sender, until: Instant::now() + LIMIT });
        self.bell.ring();
    }

    /// Takes back what was asked, unless it has been [waited](Pauses::wait) for.
    pub(super) fn forget(&self) {
        if lock(&self.pending).take().is_some() {
            self.take();
        }
    }

    /// Waits for the thread to pause, which is asked to if it has not been. `None` if it does not within a time limit.
    pub(super) fn wait(&self) -> Option<Paused> {
        if lock(&self.pending).is_none() {
            self.ask();
        }
        let Pending { answer, resume, until } = lock(&self.pending).take()?;
        let said = answer.recv_timeout(until.saturating_duration_since(Instant::now()));
        if said.is_err() {
            self.take();
        }
        Some(Paused { said: said.ok()?, claim: None, _resume: resume })
    }

    /// The request, if there is one.
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

    use super::super::{Peer, Protocol, Service};
    use super::*;

    /// Nobody ever comes.
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

        fn serve(&mut self, (): (), _peer: &Peer<()>) -> Result<(), String> {
            Ok(())
        }
    }

    /// Objective: threads that are asked beforehand pause, and those that are not waited for after all go on and can
    /// be asked again; so can those that are not asked beforehand.
    #[test]
    fn asked_beforehand() {
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
