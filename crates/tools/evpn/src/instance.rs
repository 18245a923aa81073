//! One VNI: its port, its mirror, what the kernel says, what the daemon was told and what it lists. The *outcome* of a
//! pass over it is that all is done, or that the daemon has no such port any more.

use std::time::{Duration, Instant};

use netvale_control::error::ErrorCode;
use netvale_netlink::Netlink;
use rustix::io::Errno;
use tracing::{debug, info, warn};

use crate::devices::Devices;
use crate::entry::Entry;
use crate::feed::{Change, Feed, Told};
use crate::listed::{Act, Listed};
use crate::session::{EvpnPort, MAX_ITEMS, MAX_ITEMS_REPLACED, Session, SessionError};
use crate::tables::{Fact, Place, Remote, Tables};

/// The daemon's list is not asked for more often than this.
const LIST_INTERVAL: Duration = Duration::from_millis(50);
/// After this time it is asked for in any case: policies of a port, which say whether its addresses are sticky, change
/// without a notification.
const REFRESH: Duration = Duration::from_secs(10);
/// Most refusals of single items before the rest of what was to be told is given up, until all is told again.
const MAX_REFUSALS: usize = 64;

/// One VNI.
#[derive(Debug)]
pub struct Instance {
    /// The daemon's port.
    pub port: EvpnPort,
    /// The mirror.
    pub devices: Devices,
    tables: Tables,
    feed: Feed,
    listed: Listed,
    generation: Option<u64>,
    listed_at: Option<Instant>,
    mirrored_at: Option<Instant>,
    /// Whether the kernel may have to be changed.
    needs_mirror: bool,
    /// Whether this daemon has been told all.
    is_told: bool,
    /// Whether this connection has shown the port.
    is_present: bool,
    /// Number of the kernel's entries of which it was said that there is no room for them, and when the tables were
    /// last read anew for their sake.
    beyond: (u64, Option<Instant>),
}

/// What a pass over a VNI did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What there was to do.
    Done,
    /// The port is gone.
    NoPort,
}

impl Instance {
    /// A VNI of which nothing is known yet.
    #[must_use]
    pub fn new(port: EvpnPort, devices: Devices) -> Instance {
        Instance {
            port,
            devices,
            tables: Tables::default(),
            feed: Feed::default(),
            listed: Listed::default(),
            generation: None,
            listed_at: None,
            mirrored_at: None,
            needs_mirror: true,
            is_told: false,
            is_present: true,
            beyond: (0, None),
        }
    }

    /// Takes an entry of the kernel's in, if it is this VNI's.
    pub fn see(&mut self, entry: Entry, is_gone: bool) {
        let Some(fact) = self.fact(entry) else { return };
        let key = if is_gone { self.tables.take(fact) } else { self.tables.put(fact) };
        if let Some(key) = key {
            self.feed.touch(key);
            self.listed.note(key, &self.tables);
            self.needs_mirror |= concerns_locals(&fact) || is_gone;
        }
    }

    /// Takes freshly read tables in, see [`Tables::read`].
    pub fn take_tables(&mut self, fresh: &[Entry], is_whole: bool) {
        let facts: Vec<Fact> = fresh.iter().filter_map(|entry| self.fact(*entry)).collect();
        self.tables.read(facts, is_whole);
        self.feed.touch_all(&self.tables);
        self.beyond.0 = 0;
        for key in self.tables.keys() {
            self.listed.note(key, &self.tables);
        }
        self.needs_mirror = true;
    }

    /// Whether an entry is this VNI's.
    #[must_use]
    pub fn owns(&self, entry: &Entry) -> bool {
        self.fact(*entry).is_some()
    }

    /// What an entry says of this VNI. Nothing is behind its own VTEP: the daemon would refuse that.
    fn fact(&self, entry: Entry) -> Option<Fact> {
        let fact = self.devices.fact(entry)?;
        let is_own = match fact {
            Fact::Remote(_, Remote { vtep, .. }) | Fact::Flood(vtep) => vtep == self.port.local,
            Fact::Place(..) | Fact::Neighbor(..) => false,
        };
        (!is_own).then_some(fact)
    }

    /// Says so when the kernel has more than the limits permit. Returns whether there is room for it by now, so that
    /// the tables have to be read anew.
    pub fn is_short(&mut self, now: Instant) -> bool {
        let (said, looked) = self.beyond;
        let refused = self.tables.refused();
        if refused != said {
            let entries = refused.saturating_sub(said);
            warn!(vni = self.port.vni, port = self.port.name, entries, "beyond the limits of a VNI: not taken");
            self.beyond = (refused, looked);
        }
        let is_due = looked.is_none_or(|at| now.saturating_duration_since(at) >= REFRESH);
        let has_room = refused > 0 && is_due && self.tables.has_room();
        if has_room {
            self.beyond.1 = Some(now);
        }
        has_room
    }

    /// Counts of what the daemon was told.
    #[must_use]
    pub fn told(&self) -> Told {
        self.feed.told()
    }

    /// Whether withdrawals wait to be passed on.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.feed.is_idle()
    }

    /// The daemon is another one, or may be.
    pub fn reconnected(&mut self) {
        (self.generation, self.is_told, self.is_present) = (None, false, false);
        self.listed.forget();
    }

    /// Whether this connection has shown the port.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.is_present
    }

    /// The daemon has the port: this tunnel, or another one in its place, which has been told nothing yet.
    pub fn found(&mut self, tunnel: u64) {
        if std::mem::replace(&mut self.port.tunnel, tunnel) != tunnel {
            self.reconnected();
        }
        self.is_present = true;
    }

    /// Tells the daemon what is new.
    ///
    /// # Errors
    /// [`SessionError`] if the daemon cannot be asked any more.
    pub fn tell(&mut self, session: &mut Session, now: Instant, hold: Duration) -> Result<Outcome, SessionError> {
        let mut changes = self.feed.changes(&self.tables, now, hold);
        let replace = !self.is_told;
        if replace {
            changes = self.feed.everything();
            info!(port = self.port.name, vni = self.port.vni, entries = changes.len(), "everything is told anew");
        }
        let (first, rest) = changes.split_at(if replace { changes.len().min(MAX_ITEMS_REPLACED) } else { 0 });
        let mut refusals = 0;
        // What is taken for told is not, if the port is not there: it is told everything when it is again.
        self.is_told = false;
        if replace && self.push(session, true, first, &mut refusals)? == Outcome::NoPort {
            return Ok(Outcome::NoPort);
        }
        for chunk in rest.chunks(MAX_ITEMS) {
            if self.push(session, false, chunk, &mut refusals)? == Outcome::NoPort {
                return Ok(Outcome::NoPort);
            }
        }
        // What is held may be what there was no room for: the rest is told without it.
        self.is_told = refusals == 0 || !self.feed.forget_held();
        Ok(Outcome::Done)
    }

    /// Sends changes. All of a request are made, or none: of those that the daemon refuses, each half is tried by
    /// itself.
    fn push(
        &mut self,
        session: &mut Session,
        replace: bool,
        changes: &[Change],
        refusals: &mut usize,
    ) -> Result<Outcome, SessionError> {
        let error = match session.set(&self.port.name, replace, changes) {
            Ok(()) => return Ok(Outcome::Done),
            Err(SessionError::Refused { error, .. }) if error.is(ErrorCode::NotFound) => return Ok(Outcome::NoPort),
            Err(SessionError::Refused { error, .. }) => error,
            Err(error) => return Err(error),
        };
        *refusals += 1;
        if changes.len() <= 1 || *refusals > MAX_REFUSALS {
            warn!(port = self.port.name, entries = changes.len(), first = ?changes.first(), "refused: {error}");
            return Ok(Outcome::Done);
        }
        let (first, second) = changes.split_at(changes.len() / 2);
        match self.push(session, replace, first, refusals)? {
            Outcome::Done => self.push(session, false, second, refusals),
            Outcome::NoPort => Ok(Outcome::NoPort),
        }
    }

    /// Whether the daemon's list has to be asked for.
    #[must_use]
    pub fn wants_list(&self, session: &Session, now: Instant) -> bool {
        let has_changed = self.generation.is_none() || session.changed().contains_key(&self.port.name);
        let age = self.listed_at.map_or(REFRESH, |at| now.saturating_duration_since(at));
        age >= REFRESH || (has_changed && age >= LIST_INTERVAL)
    }

    /// Asks for the daemon's list.
    ///
    /// # Errors
    /// [`SessionError`] if the daemon cannot be asked any more.
    pub fn list(&mut self, session: &mut Session, now: Instant) -> Result<Outcome, SessionError> {
        let is_refresh = self.listed_at.is_none_or(|at| now.saturating_duration_since(at) >= REFRESH);
        self.listed_at = Some(now);
        let since = self.generation.filter(|_| !is_refresh);
        match session.local(&self.port.name, since) {
            Ok(local) => {
                self.generation = Some(local.generation);
                if let Some(addresses) = local.addresses {
                    self.listed.take(addresses);
                    self.needs_mirror = true;
                }
                Ok(Outcome::Done)
            }
            Err(SessionError::Refused { error, .. }) if error.is(ErrorCode::NotFound) => Ok(Outcome::NoPort),
            Err(SessionError::Refused { error, .. }) => {
                warn!(port = self.port.name, "local addresses: {error}");
                // Asked again when they change, or by the next connection.
                self.generation = Some(0);
                Ok(Outcome::Done)
            }
            Err(error) => Err(error),
        }
    }

    /// Has the kernel looked at again by the next [`Instance::mirror`].
    pub fn recheck(&mut self) {
        self.needs_mirror = true;
    }

    /// Whether the kernel may have to be changed.
    #[must_use]
    pub fn needs_mirror(&self) -> bool {
        self.needs_mirror
    }

    /// Changes the kernel's tables by the daemon's list, but not too often. `keeps`: what was never listed stays.
    pub fn mirror(&mut self, netlink: &mut Netlink, now: Instant, keeps: bool) {
        let is_early = self.mirrored_at.is_some_and(|at| now.saturating_duration_since(at) < LIST_INTERVAL);
        if !self.needs_mirror || is_early {
            return;
        }
        (self.needs_mirror, self.mirrored_at) = (false, Some(now));
        let acts = self.listed.plan(&self.tables, keeps);
        for act in acts {
            debug!(vni = self.port.vni, ?act, "local");
            match self.act(netlink, act) {
                // Somebody was faster: the notification says what there is.
                Ok(()) | Err(Errno::EXIST | Errno::NOENT) => {}
                Err(error) => {
                    warn!(vni = self.port.vni, ?act, "the kernel refuses a local address: {error}");
                }
            }
        }
    }

    fn act(&self, netlink: &mut Netlink, act: Act) -> rustix::io::Result<()> {
        match act {
            Act::AddAddress { mac, sticky, moves } => self.devices.add_local(netlink, mac, sticky, moves),
            Act::RemoveAddress(mac) => self.devices.remove_local(netlink, mac),
            Act::AddNeighbor(ip, mac, router) => self.devices.add_neighbor(netlink, ip, mac, router),
            Act::RemoveNeighbor(ip) => self.devices.remove_neighbor(netlink, ip),
        }
    }
}

/// Whether an entry is one that the agent may have put there.
fn concerns_locals(fact: &Fact) -> bool {
    match fact {
        Fact::Place(_, place) => *place != Place::Tunnel,
        Fact::Neighbor(_, neighbor) => neighbor.is_none_or(|n| !n.remote),
        Fact::Remote(..) | Fact::Flood(_) => false,
    }
}
