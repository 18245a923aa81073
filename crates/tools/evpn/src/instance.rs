//! One VNI ([`VniInstance`]): its port, its mirror, the kernel's tables, the entries that were sent to the daemon, and
//! the daemon's list of local addresses.

use std::time::{Duration, Instant};

use netvale_control::error::ErrorCode;
use netvale_netlink::NetlinkSocket;
use rustix::io::Errno;
use tracing::{debug, info, warn};

use crate::devices::MirrorDevices;
use crate::entry::KernelEntry;
use crate::feed::{Feed, FeedChange};
use crate::listed::{ListedState, TableChange};
use crate::session::{DaemonSession, EvpnPort, MAX_ITEMS, MAX_ITEMS_REPLACED, SessionError};
use crate::tables::{AddressPlace, Fact, RemoteAddress, Tables};

/// Minimum interval between requests for the daemon's list of local addresses.
const LIST_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum interval between requests for the daemon's list of local addresses. The list is requested even without a
/// notification, because no notification is sent when a port's policies change, which decide whether the port's
/// addresses are sticky.
const REFRESH: Duration = Duration::from_secs(10);
/// A refused request is split, to send its valid entries separately. After this number of refusals of one set of
/// changes, its requests are no longer split.
const MAX_REFUSALS: usize = 64;

/// The state of one VNI.
#[derive(Debug)]
pub struct VniInstance {
    /// The daemon's VXLAN port.
    pub port: EvpnPort,
    /// The kernel devices of the mirror.
    pub devices: MirrorDevices,
    tables: Tables,
    feed: Feed,
    listed: ListedState,
    generation: Option<u64>,
    listed_at: Option<Instant>,
    mirrored_at: Option<Instant>,
    /// Whether the kernel's tables may need a change.
    needs_mirror: bool,
    /// Whether the connected daemon has received all entries.
    is_told: bool,
    /// Whether the daemon has listed the port on this connection.
    is_present: bool,
    /// The last logged number of kernel entries in excess of the limits, and the last time at which the tables were
    /// read again because there was room for such entries.
    beyond: (u64, Option<Instant>),
}

impl VniInstance {
    /// Creates a VNI without entries.
    #[must_use]
    pub fn new(port: EvpnPort, devices: MirrorDevices) -> VniInstance {
        VniInstance {
            port,
            devices,
            tables: Tables::default(),
            feed: Feed::default(),
            listed: ListedState::default(),
            generation: None,
            listed_at: None,
            mirrored_at: None,
            needs_mirror: true,
            is_told: false,
            is_present: true,
            beyond: (0, None),
        }
    }

    /// Applies an entry that the kernel reports, if the entry belongs to this VNI. `is_gone` is set if the entry was
    /// removed.
    pub fn see(&mut self, entry: KernelEntry, is_gone: bool) {
        let Some(fact) = self.fact(entry) else { return };
        let key = if is_gone { self.tables.take(fact) } else { self.tables.put(fact) };
        if let Some(key) = key {
            self.feed.touch(key);
            self.listed.note(key, &self.tables);
            self.needs_mirror |= concerns_locals(&fact) || is_gone;
        }
    }

    /// Applies entries that were read from the kernel's tables; see [`Tables::read`].
    pub fn take_tables(&mut self, fresh: &[KernelEntry], is_whole: bool) {
        let facts: Vec<Fact> = fresh.iter().filter_map(|entry| self.fact(*entry)).collect();
        self.tables.read(facts, is_whole);
        self.feed.touch_all(&self.tables);
        self.beyond.0 = 0;
        for key in self.tables.keys() {
            self.listed.note(key, &self.tables);
        }
        self.needs_mirror = true;
    }

    /// Returns whether an entry belongs to this VNI.
    #[must_use]
    pub fn owns(&self, entry: &KernelEntry) -> bool {
        self.fact(*entry).is_some()
    }

    /// Converts a kernel entry into the form of the VNI's tables; `None` if the entry belongs to another VNI. Entries
    /// behind the VNI's own VTEP are ignored, too, because the daemon would refuse them.
    fn fact(&self, entry: KernelEntry) -> Option<Fact> {
        let fact = self.devices.fact(entry)?;
        let is_own = match fact {
            Fact::Remote(_, RemoteAddress { vtep, .. }) | Fact::Flood(vtep) => vtep == self.port.local,
            Fact::Place(..) | Fact::Neighbor(..) => false,
        };
        (!is_own).then_some(fact)
    }

    /// Logs if the kernel has more entries than the limits permit. Returns whether there is room again for entries that
    /// were ignored. If so, the caller must read the tables again.
    pub fn is_short(&mut self, now: Instant) -> bool {
        let (said, looked) = self.beyond;
        let refused = self.tables.refused();
        if refused != said {
            let entries = refused.saturating_sub(said);
            warn!(vni = self.port.vni, port = self.port.name, entries, "ignoring entries beyond the limits of a VNI");
            self.beyond = (refused, looked);
        }
        let is_due = looked.is_none_or(|at| now.saturating_duration_since(at) >= REFRESH);
        let has_room = refused > 0 && is_due && self.tables.has_room();
        if has_room {
            self.beyond.1 = Some(now);
        }
        has_room
    }

    /// Returns whether changes must still be sent, or withdrawals must still be judged.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.feed.is_idle()
    }

    /// Resets the state for a new connection, which may be to another daemon.
    pub fn reconnected(&mut self) {
        self.generation = None;
        self.is_told = false;
        self.is_present = false;
        self.listed.forget();
    }

    /// Returns whether the daemon has listed the port on this connection.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.is_present
    }

    /// Records that the daemon has listed the port. If the tunnel's number has changed, the tunnel is new and has no
    /// entries, so all entries must be sent again.
    pub fn found(&mut self, tunnel: u64) {
        if std::mem::replace(&mut self.port.tunnel, tunnel) != tunnel {
            self.reconnected();
        }
        self.is_present = true;
    }

    /// Sends the changes to the daemon. If entries may be missing in the daemon, sends all entries. Returns whether the
    /// daemon still has the port.
    ///
    /// # Errors
    /// [`SessionError`] if the connection is unusable.
    pub fn tell(&mut self, session: &mut DaemonSession, now: Instant, hold: Duration) -> Result<bool, SessionError> {
        let mut changes = self.feed.changes(&self.tables, now, hold);
        let replace = !self.is_told;
        if replace {
            changes = self.feed.everything();
            info!(port = self.port.name, vni = self.port.vni, entries = changes.len(), "sending everything again");
        }
        let (first, rest) = changes.split_at(if replace { changes.len().min(MAX_ITEMS_REPLACED) } else { 0 });
        let mut refusals = 0;
        // This stays `false` if the daemon has no such port: entries that count as sent were not received, so all
        // entries are sent again once the port exists.
        self.is_told = false;
        if replace && !self.push(session, true, first, &mut refusals)? {
            return Ok(false);
        }
        for chunk in rest.chunks(MAX_ITEMS) {
            if !self.push(session, false, chunk, &mut refusals)? {
                return Ok(false);
            }
        }
        // The daemon may have refused entries because withdrawn entries use its limited room. If there are withdrawn
        // entries, they are dropped, and all other entries are sent again.
        self.is_told = refusals == 0 || !self.feed.forget_held();
        Ok(true)
    }

    /// Sends changes in one request, which the daemon applies completely or not at all. After a refusal, each half is
    /// sent separately, to find the entries that the daemon refuses. Returns whether the daemon still has the port.
    fn push(
        &mut self,
        session: &mut DaemonSession,
        replace: bool,
        changes: &[FeedChange],
        refusals: &mut usize,
    ) -> Result<bool, SessionError> {
        let error = match session.set(&self.port.name, replace, changes) {
            Ok(()) => return Ok(true),
            Err(SessionError::Refused { error, .. }) if error.is(ErrorCode::NotFound) => return Ok(false),
            Err(SessionError::Refused { error, .. }) => error,
            Err(error) => return Err(error),
        };
        *refusals += 1;
        if changes.len() <= 1 || *refusals > MAX_REFUSALS {
            warn!(port = self.port.name, entries = changes.len(), first = ?changes.first(), "entries refused: {error}");
            return Ok(true);
        }
        let (first, second) = changes.split_at(changes.len() / 2);
        Ok(self.push(session, replace, first, refusals)? && self.push(session, false, second, refusals)?)
    }

    /// Returns whether the daemon's list of local addresses must be requested.
    #[must_use]
    pub fn wants_list(&self, session: &DaemonSession, now: Instant) -> bool {
        let has_changed = self.generation.is_none() || session.changed().contains(&self.port.name);
        let age = self.listed_at.map_or(REFRESH, |at| now.saturating_duration_since(at));
        age >= REFRESH || (has_changed && age >= LIST_INTERVAL)
    }

    /// Requests the daemon's list of local addresses. Returns whether the daemon still has the port.
    ///
    /// # Errors
    /// [`SessionError`] if the connection is unusable.
    pub fn list(&mut self, session: &mut DaemonSession, now: Instant) -> Result<bool, SessionError> {
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
                Ok(true)
            }
            Err(SessionError::Refused { error, .. }) if error.is(ErrorCode::NotFound) => Ok(false),
            Err(SessionError::Refused { error, .. }) => {
                warn!(port = self.port.name, "the daemon did not list local addresses: {error}");
                // The request is not repeated immediately: the list is requested again when it changes, or on the next
                // connection.
                self.generation = Some(0);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the next [`VniInstance::mirror`] check the kernel's tables again.
    pub fn recheck(&mut self) {
        self.needs_mirror = true;
    }

    /// Returns whether the kernel's tables may need a change.
    #[must_use]
    pub fn needs_mirror(&self) -> bool {
        self.needs_mirror
    }

    /// Changes the kernel's tables to match the daemon's list of local addresses, unless the last call that did so was
    /// too recent. With `keeps`, entries that the daemon has never listed stay.
    pub fn mirror(&mut self, netlink: &mut NetlinkSocket, now: Instant, keeps: bool) {
        let is_early = self.mirrored_at.is_some_and(|at| now.saturating_duration_since(at) < LIST_INTERVAL);
        if !self.needs_mirror || is_early {
            return;
        }
        self.needs_mirror = false;
        self.mirrored_at = Some(now);
        for act in self.listed.plan(&self.tables, keeps) {
            debug!(vni = self.port.vni, ?act, "local");
            match self.act(netlink, act) {
                // Another process has made the same change; a notification will report the current state.
                Ok(()) | Err(Errno::EXIST | Errno::NOENT) => {}
                Err(error) => warn!(vni = self.port.vni, ?act, "the kernel refused a local address: {error}"),
            }
        }
    }

    fn act(&self, netlink: &mut NetlinkSocket, act: TableChange) -> rustix::io::Result<()> {
        match act {
            TableChange::AddAddress { mac, sticky, moves } => self.devices.add_local(netlink, mac, sticky, moves),
            TableChange::RemoveAddress(mac) => self.devices.remove_local(netlink, mac),
            TableChange::AddNeighbor(ip, mac, router) => self.devices.add_neighbor(netlink, ip, mac, router),
            TableChange::RemoveNeighbor(ip) => self.devices.remove_neighbor(netlink, ip),
        }
    }
}

/// Returns whether the entry may be for a local address. The agent adds only such entries.
fn concerns_locals(fact: &Fact) -> bool {
    match fact {
        Fact::Place(_, place) => *place != AddressPlace::Tunnel,
        Fact::Neighbor(_, neighbor) => neighbor.is_none_or(|n| !n.remote),
        Fact::Remote(..) | Fact::Flood(_) => false,
    }
}
