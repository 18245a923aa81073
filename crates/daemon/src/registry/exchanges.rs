//! Exchanges, by the full name of the attached socket port. An exchange consists of the listener or directory through
//! which peers connect, and of one *line* for each peer. Lines are created from a template.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::types::{Policies, PortKind};
use netvale_fdio::state::Fd;
use netvale_port::domain::TimeDomain;
use netvale_socket::{Exchange, FrameRules};
use rustix::event::{Timespec, epoll};

use super::ports::SwitchPort;
use crate::caller::Caller;

/// Maximum number of epoll events read in one call.
const EVENTS: usize = 64;

/// The common properties of an exchange's lines (its ports for single peers), which serve as a template for further
/// lines.
#[derive(Clone)]
pub struct LineTemplate {
    /// The attached port.
    pub at: SwitchPort,
    /// Kind of the attached port.
    pub kind: PortKind,
    /// Owner of the attached port.
    pub owner: Caller,
    /// Domain (all trusted users, or one untrusted user) whose workers serve the lines.
    pub domain: TimeDomain,
    /// Whether the lines are lossless: when a line's queue is full, senders wait instead of losing frames.
    pub lossless: bool,
    /// The policies with which the port was attached.
    pub policies: Policies,
    /// Rules for the peers' frames: headers and maximum length.
    pub rules: Arc<FrameRules>,
    /// Number of the first line: 0 if that line is the attached port itself, otherwise 1.
    pub first: u16,
    /// Maximum number of lines.
    pub most: usize,
    /// Copies of the exchange's current sockets, for a successor.
    pub sockets: Rc<RefCell<Vec<Fd>>>,
}

/// An exchange, and the template for its lines.
pub struct KnownExchange {
    /// The exchange.
    pub exchange: Exchange,
    /// Template for further lines.
    pub template: LineTemplate,
}

/// All exchanges.
pub struct Exchanges {
    all: BTreeMap<String, (u64, Option<KnownExchange>)>,
    epoll: OwnedFd,
    next: u64,
}

impl Exchanges {
    /// Creates an empty registry.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn new() -> std::io::Result<Exchanges> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Exchanges { all: BTreeMap::new(), epoll, next: 0 })
    }

    /// Returns the descriptor that is readable when an exchange has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Adds an exchange.
    ///
    /// # Errors
    /// Errors of epoll_ctl(2).
    pub fn insert(&mut self, full: &str, known: KnownExchange) -> std::io::Result<()> {
        let id = self.next;
        epoll::add(&self.epoll, &known.exchange, epoll::EventData::new_u64(id), epoll::EventFlags::IN)?;
        self.next += 1;
        self.all.insert(full.to_owned(), (id, Some(known)));
        Ok(())
    }

    /// Removes an exchange. Returns the exchange; `None` if it does not exist or has been taken out with
    /// [`Exchanges::take`].
    pub fn remove(&mut self, full: &str) -> Option<KnownExchange> {
        let (_, known) = self.all.remove(full)?;
        if let Some(known) = &known {
            // This fails only if the descriptor is not in the set.
            let _ = epoll::delete(&self.epoll, &known.exchange);
        }
        known
    }

    /// Takes an exchange out temporarily; the caller must [put it back](Exchanges::put_back). Returns `None` if there
    /// is no such exchange.
    pub fn take(&mut self, full: &str) -> Option<KnownExchange> {
        self.all.get_mut(full)?.1.take()
    }

    /// Puts back an exchange that was taken out.
    pub fn put_back(&mut self, full: &str, known: KnownExchange) {
        if let Some((_, place)) = self.all.get_mut(full) {
            *place = Some(known);
        }
    }

    /// Returns the exchange of that name, mutable; `None` if it does not exist or has been taken out.
    pub fn get_mut(&mut self, full: &str) -> Option<&mut KnownExchange> {
        self.all.get_mut(full)?.1.as_mut()
    }

    /// Returns the names of exchanges that have work.
    pub fn due(&self, now: Instant) -> Vec<String> {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let immediately = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = epoll::wait(&self.epoll, &mut events[..], Some(&immediately));
        let ready: BTreeSet<u64> =
            ready.map(|(ready, _)| ready.iter().map(|event| event.data.u64()).collect()).unwrap_or_default();
        let is_late = |known: &KnownExchange| known.exchange.wait(now).is_zero();
        let is_due = |id: u64, known: Option<&KnownExchange>| ready.contains(&id) || known.is_some_and(is_late);
        let due = self.all.iter().filter(|(_, (id, known))| is_due(*id, known.as_ref()));
        due.map(|(full, _)| full.clone()).collect()
    }

    /// Returns the time until an exchange has work even if no event occurs; [`Duration::MAX`] if there is no exchange.
    pub fn wait(&self, now: Instant) -> Duration {
        let known = self.all.values().filter_map(|(_, known)| known.as_ref());
        known.map(|known| known.exchange.wait(now)).min().unwrap_or(Duration::MAX)
    }
}
