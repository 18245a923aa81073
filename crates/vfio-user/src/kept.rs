//! What another process needs to go on with a client after this one was killed. A session is noted whenever its client
//! has changed it, and the client gets its answer when the service manager has the note: so nothing that was answered
//! is ever forgotten. What changes more often lies in a [`Page`].
//!
//! *News* ([`News`]): that there is a new note to be kept.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netvale_fdio::state::{BadState, Fd};
use serde::{Deserialize, Serialize};

use crate::Device;
use crate::page::Page;
use crate::session::Session;
use crate::state::SessionState;

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
    client: Option<ClientState<T>>,
}

/// A client; `T` is what the device itself says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientState<T> {
    /// Its connection.
    pub connection: Fd,
    /// What it has set up.
    pub session: SessionState,
    /// The device.
    pub device: T,
}

/// The page, and how often what is kept has changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PageState {
    page: Fd,
    changes: u64,
}

impl PageState {
    /// The page of a device that wants `words` words for itself. If its process `was_killed`, it must not have changed
    /// more than what is kept.
    ///
    /// # Errors
    /// [`BadState`] if it is no page, or newer than what is kept.
    pub fn restore(self, words: usize, was_killed: bool) -> Result<(Page, u64), BadState> {
        let page = Page::restore(self.page, words)?;
        if was_killed && page.changes() > self.changes {
            return Err(BadState::new("what its client changed last was not kept in time"));
        }
        Ok((page, self.changes))
    }
}

impl<T: Clone> Kept<T> {
    /// Begins with a page, after that many changes, and no client.
    pub fn new(page: Page, changes: u64, news: News) -> Kept<T> {
        let now = Now { changes, given: 0, stored: changes, in_time: true, client: None };
        Kept { page: Arc::new(page), news, now: Mutex::new(now), stored: Condvar::new() }
    }

    /// Begins with the client of another process, as that noted it or handed it over.
    pub fn has(&self, client: &ClientState<T>) {
        let session = client.session.at_rest();
        self.lock().client = Some(ClientState { session, ..client.clone() });
    }

    /// The page.
    pub fn page(&self) -> &Arc<Page> {
        &self.page
    }

    fn lock(&self) -> MutexGuard<'_, Now<T>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page as it is, for a process that takes over.
    pub fn page_state(&self) -> PageState {
        PageState { page: Fd::shared(&self.page), changes: self.lock().changes }
    }

    /// What has to be kept.
    pub fn state(&self) -> (PageState, Option<ClientState<T>>) {
        let mut now = self.lock();
        now.given = now.changes;
        let page = PageState { page: Fd::shared(&self.page), changes: now.changes };
        (page, now.client.clone())
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
        let client = session.setup().and_then(|session| {
            let connection = Fd::copy_of(connection)?;
            Ok(ClientState { connection, session, device })
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
