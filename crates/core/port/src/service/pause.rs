//! A pause of a service's thread: it hands over the state to continue its peer, or resumes.

use std::any::Any;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::notify::{Doorbell, nap};

use crate::listener::Claim;

/// Limit of the wait for the pause: on a loaded machine the thread may not run for a while.
const LIMIT: Duration = Duration::from_secs(1);

/// The thread's state for a successor; the protocol knows its type.
pub type Said = Box<dyn Any + Send>;

/// A request to pause.
pub struct Pause {
    said: SyncSender<Option<Said>>,
    resume: Receiver<()>,
}

impl Pause {
    /// Passes the successor's state, and waits until this process is to resume after all.
    pub fn with(self, said: Said) {
        self.give(Some(said));
    }

    pub(super) fn give(self, said: Option<Said>) {
        if self.said.try_send(said).is_ok() {
            // The channel carries no message: the sender is dropped when the service resumes.
            let _ = self.resume.recv();
        }
    }
}

/// A paused service; resumes when dropped.
pub struct Paused {
    /// The protocol's state of the connected peer; `None` without a peer.
    pub said: Option<Said>,
    /// The file to claim for this process then.
    claim: Option<Claim>,
    _resume: SyncSender<()>,
}

impl Paused {
    /// Takes the protocol's state, a `T`; `None` without a peer.
    pub fn take<T: 'static>(&mut self) -> Option<T> {
        self.said.take()?.downcast().ok().map(|said| *said)
    }
}

/// The signal that a thread waits for before it starts.
pub(super) struct Turn(Receiver<()>);

impl Turn {
    /// Waits for the signal.
    pub(super) fn wait(self) {
        // The channel carries no message.
        let _ = self.0.recv();
    }
}

impl Paused {
    /// Creates the wait of a thread, which ends when the second part is dropped; that also claims the file for this
    /// process.
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

/// The pause requests of a service.
pub(super) struct Pauses {
    /// Readable while a pause is requested.
    pub(super) bell: Doorbell,
    asked: Mutex<Option<Pause>>,
    pending: Mutex<Option<Pending>>,
}

impl Pauses {
    pub(super) fn new() -> rustix::io::Result<Pauses> {
        Ok(Pauses { bell: Doorbell::new()?, asked: Mutex::default(), pending: Mutex::default() })
    }

    /// Asks the thread to pause, without waiting: many threads then pause in the time of one.
    pub(super) fn ask(&self) {
        let (said, answer) = mpsc::sync_channel(1);
        let (sender, resume) = mpsc::sync_channel(1);
        *lock(&self.asked) = Some(Pause { said, resume });
        *lock(&self.pending) = Some(Pending { answer, resume: sender, until: Instant::now() + LIMIT });
        self.bell.ring();
    }

    /// Withdraws the request, unless it has been [waited](Pauses::wait) for.
    pub(super) fn forget(&self) {
        if lock(&self.pending).take().is_some() {
            self.take();
        }
    }

    /// Waits for the thread to pause, and asks first if needed. `None` if it does not within the limit.
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

    /// Takes the pending request.
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

        fn serve(&mut self, (): (), _peer: &Peer<()>) -> Result<(), String> {
            Ok(())
        }
    }

    /// Objective: threads asked beforehand pause; those not waited for resume and can be asked again, as can those not
    /// asked beforehand.
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
