//! One VNI: its port, its mirror, the kernel's tables, the state sent to the daemon, and the daemon's list. The
//! *outcome* of a pass over it is completion, or that the daemon has no such port any more.

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

/// Minimum interval of requests for the daemon's list.
const LIST_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum interval of those requests: policies of a port, which decide whether its addresses are sticky, change
/// without a notification.
const REFRESH: Duration = Duration::from_secs(10);
/// Maximum refusals of single items before the rest is given up until everything is sent again.
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
    /// Whether the kernel may need a change.
    needs_mirror: bool,
    /// Whether this daemon has received all entries.
    is_told: bool,
    /// Whether this connection has listed the port.
    is_present: bool,
    /// Number of the kernel's entries already reported as beyond the limits, and the time of the last reading of the
    /// tables because of them.
    beyond: (u64, Option<Instant>),
}

/// The result of a pass over a VNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All work done.
    Done,
    /// The daemon has no such port.
    NoPort,
}

impl Instance {
    /// A VNI without any entries yet.
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

    /// Applies one of the kernel's entries, if it belongs to this VNI.
    pub fn see(&mut self, entry: Entry, is_gone: bool) {
        let Some(fact) = self.fact(entry) else { return };
        let key = if is_gone { self.tables.take(fact) } else { self.tables.put(fact) };
        if let Some(key) = key {
            self.feed.touch(key);
            self.listed.note(key, &self.tables);
            self.needs_mirror |= concerns_locals(&fact) || is_gone;
        }
    }

    /// Applies freshly read tables, see [`Tables::read`].
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

    /// Whether an entry belongs to this VNI.
    #[must_use]
    pub fn owns(&self, entry: &Entry) -> bool {
        self.fact(*entry).is_some()
    }

    /// The fact that an entry states about this VNI. Entries behind its own VTEP are ignored: the daemon would refuse
    /// them.
    fn fact(&self, entry: Entry) -> Option<Fact> {
        let fact = self.devices.fact(entry)?;
        let is_own = match fact {
            Fact::Remote(_, Remote { vtep, .. }) | Fact::Flood(vtep) => vtep == self.port.local,
            Fact::Place(..) | Fact::Neighbor(..) => false,
        };
        (!is_own).then_some(fact)
    }

    /// Logs when the kernel has more entries than the limits permit. Returns whether there is room by now, in which
    /// case the tables must be read again.
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

    /// Counts of entries sent to the daemon.
    #[must_use]
    pub fn told(&self) -> Told {
        self.feed.told()
    }

    /// Whether withdrawals wait to be passed on.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.feed.is_idle()
    }

    /// Resets the state after a connection to a possibly different daemon.
    pub fn reconnected(&mut self) {
        self.generation = None;
        self.is_told = false;
        self.is_present = false;
        self.listed.forget();
    }

    /// Whether this connection has listed the port.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.is_present
    }

    /// Records that the daemon has the port. A tunnel of another number replaces the known one and has received no
    /// entries yet.
    pub fn found(&mut self, tunnel: u64) {
        if std::mem::replace(&mut self.port.tunnel, tunnel) != tunnel {
            self.reconnected();
        }
        self.is_present = true;
    }

    /// Sends the daemon the changes.
    ///
    /// # Errors
    /// [`SessionError`] if the connection is unusable.
    pub fn tell(&mut self, session: &mut Session, now: Instant, hold: Duration) -> Result<Outcome, SessionError> {
        let mut changes = self.feed.changes(&self.tables, now, hold);
        let replace = !self.is_told;
        if replace {
            changes = self.feed.everything();
            info!(port = self.port.name, vni = self.port.vni, entries = changes.len(), "everything is told anew");
        }
        let (first, rest) = changes.split_at(if replace { changes.len().min(MAX_ITEMS_REPLACED) } else { 0 });
        let mut refusals = 0;
        // If the port is missing, entries that count as sent were not: everything is sent again once the port exists.
        self.is_told = false;
        if replace && self.push(session, true, first, &mut refusals)? == Outcome::NoPort {
            return Ok(Outcome::NoPort);
        }
        for chunk in rest.chunks(MAX_ITEMS) {
            if self.push(session, false, chunk, &mut refusals)? == Outcome::NoPort {
                return Ok(Outcome::NoPort);
            }
        }
        // Held entries may be taking the room of the refused ones: the rest is sent without them.
        self.is_told = refusals == 0 || !self.feed.forget_held();
        Ok(Outcome::Done)
    }

    /// Sends changes. The daemon applies all of a request or none: after a refusal, each half is tried by itself.
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

    /// Whether the daemon's list must be requested.
    #[must_use]
    pub fn wants_list(&self, session: &Session, now: Instant) -> bool {
        let has_changed = self.generation.is_none() || session.changed().contains_key(&self.port.name);
        let age = self.listed_at.map_or(REFRESH, |at| now.saturating_duration_since(at));
        age >= REFRESH || (has_changed && age >= LIST_INTERVAL)
    }

    /// Requests the daemon's list.
    ///
    /// # Errors
    /// [`SessionError`] if the connection is unusable.
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
                // Requested again when they change, or by the next connection.
                self.generation = Some(0);
                Ok(Outcome::Done)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the next [`Instance::mirror`] check the kernel's tables again.
    pub fn recheck(&mut self) {
        self.needs_mirror = true;
    }

    /// Whether the kernel may need a change.
    #[must_use]
    pub fn needs_mirror(&self) -> bool {
        self.needs_mirror
    }

    /// Changes the kernel's tables to match the daemon's list, with a minimum interval. `keeps`: entries never listed
    /// stay.
    pub fn mirror(&mut self, netlink: &mut Netlink, now: Instant, keeps: bool) {
        let is_early = self.mirrored_at.is_some_and(|at| now.saturating_duration_since(at) < LIST_INTERVAL);
        if !self.needs_mirror || is_early {
            return;
        }
        self.needs_mirror = false;
        self.mirrored_at = Some(now);
        let acts = self.listed.plan(&self.tables, keeps);
        for act in acts {
            debug!(vni = self.port.vni, ?act, "local");
            match self.act(netlink, act) {
                // Another process was faster: a notification gives the current state.
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

/// Whether the agent may have made the entry.
fn concerns_locals(fact: &Fact) -> bool {
    match fact {
        Fact::Place(_, place) => *place != Place::Tunnel,
        Fact::Neighbor(_, neighbor) => neighbor.is_none_or(|n| !n.remote),
        Fact::Remote(..) | Fact::Flood(_) => false,
    }
}
