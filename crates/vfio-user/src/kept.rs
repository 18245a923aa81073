//! What another process needs to go on with a client after this one was killed. A session is noted whenever its client
//! has changed it, and the client gets its answer when the service manager has the note: so nothing that was answered
//! is ever forgotten. What changes more often lies in a [`Page`].
//!
//! *News* ([`News`]): that there is a new note to be kept.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Device;
use crate::continued::{Broken, SessionState};
use crate::page::Page;
use crate::session::Session;

/// The longest wait for the service manager to have a note: the process may be busy with something else. Then the
/// client is answered without, and a process that is killed before the note was kept cannot be continued.
const LIMIT: Duration = Duration::from_millis(500);

/// Who is told that something has changed.
#[derive(Clone)]
pub struct News(pub Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for News {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("News")
    }
}

/// What is known of a device's client, and the device's page; `T` is what the device itself says.
pub struct Kept<T> {
    page: Arc<Page>,
    news: News,
    now: Mutex<Now<T>>,
    stored: Condvar,
}

struct Now<T> {
    /// How often it has changed; up to which change it was given out, and stored.
    changes: u64,
    given: u64,
    stored: u64,
    /// Whether the last change was stored in time: if not, nobody waits for the next one.
    in_time: bool,
    client: Option<Client<T>>,
}

/// A client. Descriptors: its connection, then those of its session.
struct Client<T> {
    session: SessionState,
    device: T,
    fds: Vec<OwnedFd>,
}

/// A connected client as it is kept, and its descriptors: the page first.
pub type Given<T> = (u64, Option<(SessionState, T)>, Vec<OwnedFd>);

impl<T: Clone> Kept<T> {
    /// Begins with a page, after that many changes, and no client.
    pub fn new(page: Page, changes: u64, news: News) -> Kept<T> {
        let now = Now { changes, given: 0, stored: changes, in_time: true, client: None };
        Kept { page: Arc::new(page), news, now: Mutex::new(now), stored: Condvar::new() }
    }

    /// Begins with the client of another process, as that noted it or handed it over.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn has(&self, session: &SessionState, device: T, of: &OwnedFd, fds: &[OwnedFd]) -> std::io::Result<()> {
        let (session, count) = session.at_rest();
        let all = [of].into_iter().chain(fds.iter().take(count));
        let fds = all.map(OwnedFd::try_clone).collect::<Result<_, _>>()?;
        self.lock().client = Some(Client { session, device, fds });
        Ok(())
    }

    /// A page that was left by a process that was killed after `changes` changes had been kept.
    ///
    /// # Errors
    /// [`Broken`] if the client changed more than what is kept.
    pub fn check(page: &Page, changes: u64) -> Result<(), Broken> {
        if page.changes() > changes { Err(Broken::Forgotten) } else { Ok(()) }
    }

    /// The page.
    pub fn page(&self) -> &Arc<Page> {
        &self.page
    }

    fn lock(&self) -> MutexGuard<'_, Now<T>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of changes so far, for a process that takes over.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// What has to be kept.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn state(&self) -> std::io::Result<Given<T>> {
        let mut now = self.lock();
        let mut fds = vec![self.page.fd().try_clone_to_owned()?];
        let copies = now.client.iter().flat_map(|client| &client.fds).map(OwnedFd::try_clone);
        fds.extend(copies.collect::<std::io::Result<Vec<_>>>()?);
        now.given = now.changes;
        let client = now.client.as_ref().map(|client| (client.session.clone(), client.device.clone()));
        Ok((now.changes, client, fds))
    }

    /// What was given out last is kept.
    pub fn is_stored(&self) {
        let mut now = self.lock();
        now.stored = now.given;
        self.stored.notify_all();
    }

    /// There is no client any more.
    pub fn gone(&self) {
        let mut now = self.lock();
        if now.client.take().is_some() {
            now.changes += 1;
            drop(now);
            (self.news.0)();
        }
    }

    /// Notes the client as it is now, and waits until that is kept.
    fn note<D: Device>(&self, connection: BorrowedFd<'_>, session: &mut Session<D>, device: T) {
        let client = session.setup().and_then(|(session, mut fds)| {
            fds.insert(0, connection.try_clone_to_owned()?);
            Ok(Client { session, device, fds })
        });
        if let Err(e) = &client {
            tracing::warn!("a virtual machine cannot be continued if the daemon is killed: {e}");
        }
        let mut now = self.lock();
        now.changes += 1;
        now.client = client.ok();
        let changes = now.changes;
        drop(now);
        (self.news.0)();
        self.wait_for(changes);
        self.page.set_changes(changes);
    }

    fn wait_for(&self, change: u64) {
        let (mut now, until) = (self.lock(), Instant::now() + LIMIT);
        while now.in_time && now.stored < change {
            let left = until.saturating_duration_since(Instant::now());
            now.in_time = !left.is_zero();
            now = self.stored.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        now.in_time = now.stored + 1 >= change;
    }
}

/// Notes the sessions of one connection.
pub trait Keeper<D> {
    /// The page.
    fn page(&self) -> &Page;

    /// The client has changed the session. Returns when that is kept, or cannot be.
    fn note(&self, session: &mut Session<D>);
}

/// Notes the session of a connection. Dropping it says that the client is gone.
pub struct Noting<'a, T: Clone, F> {
    kept: &'a Kept<T>,
    connection: &'a OwnedFd,
    device: F,
}

impl<'a, T: Clone, F> Noting<'a, T, F> {
    /// For the client of that connection; `device` asks the device what it says itself.
    pub fn new(kept: &'a Kept<T>, connection: &'a OwnedFd, device: F) -> Self {
        Noting { kept, connection, device }
    }
}

impl<D: Device, T: Clone, F: Fn(&mut D) -> T> Keeper<D> for Noting<'_, T, F> {
    fn page(&self) -> &Page {
        self.kept.page()
    }

    fn note(&self, session: &mut Session<D>) {
        let device = (self.device)(session.device().0);
        self.kept.note(self.connection.as_fd(), session, device);
    }
}

impl<T: Clone, F> Drop for Noting<'_, T, F> {
    fn drop(&mut self) {
        self.kept.gone();
    }
}
