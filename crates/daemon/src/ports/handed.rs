//! Handed queues. A thread that delivers frames to an untrusted user's memory can be blocked by that memory, so only
//! that user's own worker delivers to it ([`netvale_port::domain`]). Other workers put the frames into a handed queue.
//! A task of the user's worker takes the frames from that queue and delivers them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_mem::Region;
use netvale_port::Egress;
use netvale_port::access::Access;
use netvale_port::domain::TimeDomain;
use netvale_port::handed_over::HandOverQueue;
use netvale_port::link::LinkEnd;
use netvale_port::listener::ListenAddress;
use netvale_switch::{LinkTask, PortId, Switch};
use rustix::fs::{Mode, Stat, lstat, stat};
use rustix::io::Errno;

use crate::caller::{Caller, is_trusted_user};
use crate::daemon::Daemon;
use crate::permission;
use crate::refusal::{Refusal, refuse};
use crate::system::sockets::user_id;
use crate::worker::TaskId;

/// The entry of `trusted_hypervisors` that means all users.
const ALL: &str = "*";
/// Write permission for the group or for others. It lets users other than the owner connect to a socket or change a
/// folder.
const OTHERS: u32 = 0o022;
/// Maximum number of steps in resolving a path, including the steps through links. The kernel's limit is about the
/// same.
const MOST_STEPS: usize = 256;

/// Returns the domain (the set of users who share workers) of a user's ports.
pub fn domain_of(owner: Caller) -> TimeDomain {
    if permission::is_trusted(owner) { TimeDomain::TRUSTED } else { TimeDomain::of_user(owner.uid) }
}

/// Returns the domain (the users who share workers) of a device to which users other than its owner may connect: the
/// domain of the first such user who is not trusted. If a group or everybody may connect, or if no worker is left for
/// that user, the domain is the common domain of unknown peers.
pub fn domain_of_site(d: &Daemon, owner: Caller, site: &ListenAddress) -> TimeDomain {
    let Access { mode, users, groups } = &site.access;
    domain_of_peers(d, owner, users, groups.is_empty() && mode & OTHERS == 0)
}

/// Returns the domain (the users who share workers) of a port that connects to a socket: the domain of the first
/// untrusted user among the owners of the socket and of the folders and links on its path. If other users can replace
/// the socket, a folder or a link, the listener counts as unknown.
pub fn domain_of_listener(d: &Daemon, owner: Caller, path: &Path) -> TimeDomain {
    let way = std::path::absolute(path).map(|path| way_to(&path)).unwrap_or_default();
    let users: Vec<u32> = way.iter().flat_map(|(_, found)| found).map(|found| found.st_uid).collect();
    let is_fixed = |(folder, found): &(Option<Stat>, Option<Stat>)| {
        let mode = folder.as_ref().map_or(Mode::empty(), |folder| Mode::from_raw_mode(folder.st_mode));
        // In a sticky folder, only the owner of a file or of the folder can replace the file.
        mode.bits() & OTHERS == 0 || mode.contains(Mode::SVTX) && found.is_some()
    };
    domain_of_peers(d, owner, &users, !way.is_empty() && way.iter().all(is_fixed))
}

/// Returns each folder that the kernel visits when it resolves a path, with the entry that the kernel looks up in that
/// folder. `None` stands for a folder or entry that does not exist or cannot be read. Returns an empty list if the path
/// has too many steps, as with a loop of links.
fn way_to(path: &Path) -> Vec<(Option<Stat>, Option<Stat>)> {
    let mut way = Vec::new();
    let mut folder = PathBuf::new();
    let names = |path: &Path| path.components().rev().map(|name| name.as_os_str().to_owned()).collect::<Vec<_>>();
    let mut left = names(path);
    while let Some(name) = left.pop() {
        if way.len() > MOST_STEPS {
            return Vec::new();
        }
        let place = folder.join(name);
        way.push((stat(&folder).ok(), lstat(&place).ok()));
        match std::fs::read_link(&place) {
            Ok(target) => left.extend(names(&target)),
            Err(_) => folder = place,
        }
    }
    way
}

/// Returns the domain of a port whose peers are the users `users` and, unless `is_all`, possibly other users.
fn domain_of_peers(d: &Daemon, owner: Caller, users: &[u32], is_all: bool) -> TimeDomain {
    if !permission::is_trusted(owner) {
        return domain_of(owner);
    }
    let named = &d.config.trusted_hypervisors;
    if named.iter().any(|name| name == ALL) {
        return TimeDomain::TRUSTED;
    }
    let trusted: Vec<u32> = named.iter().filter_map(|name| user_id(name).ok()).collect();
    let is_trusted = |uid: u32| is_trusted_user(uid) || trusted.contains(&uid);
    match users.iter().find(|uid| !is_trusted(**uid)).map(|uid| TimeDomain::of_user(*uid)) {
        Some(domain) if d.workers.has_room_for(domain) => domain,
        None if is_all => TimeDomain::TRUSTED,
        _ => TimeDomain::SOMEBODY,
    }
}

/// Returns the domain of a region's owner.
pub fn domain_of_region(d: &Daemon, region: &Arc<Region>) -> TimeDomain {
    let entry = d.regions.iter().find(|(_, known)| Arc::ptr_eq(known, region));
    entry.map_or(TimeDomain::TRUSTED, |(entry, _)| domain_of(Caller { uid: entry.uid, ..Caller::daemon() }))
}

/// Starts a worker of the domain for a port of `owner`, if needed. For ports of a trusted owner, a domain may have as
/// many workers as the trusted domain; for ports of other owners, only one worker.
///
/// # Errors
/// [`Refusal`] if no thread can be started.
pub fn begin(d: &mut Daemon, owner: Caller, domain: TimeDomain) -> Result<(), Refusal> {
    let most = if permission::is_trusted(owner) { d.workers.all().len() } else { 1 };
    let no_worker =
        |e| Refusal::new(Errno::AGAIN, format!("cannot start a worker for the ports of user {}: {e}", owner.uid));
    d.workers.begin(domain, most).map_err(no_worker)
}

/// Handed queues of one port, and the tasks that deliver from these queues.
pub struct HandedQueues {
    domain: TimeDomain,
    ends: Vec<(LinkEnd, Arc<dyn Egress>)>,
}

impl HandedQueues {
    /// Prepares the handed queues of a port that has `queues` queues.
    ///
    /// # Errors
    /// [`Refusal`] if no thread can be started, or if the queues exceed the owner's memory quota.
    pub fn new(d: &mut Daemon, owner: Caller, domain: TimeDomain, queues: usize) -> Result<HandedQueues, Refusal> {
        if domain != TimeDomain::TRUSTED {
            permission::may_have_bytes(d, owner, queues as u64 * HandOverQueue::memory())?;
            begin(d, owner, domain)?;
        }
        Ok(HandedQueues { domain, ends: Vec::new() })
    }

    /// Returns the domain whose workers deliver from the queues.
    pub fn domain(&self) -> TimeDomain {
        self.domain
    }

    /// Returns the egress for the switch: `own` in the trusted domain, in other domains a handed queue in front of
    /// `own`, to which all workers may deliver.
    ///
    /// # Errors
    /// [`Refusal`] if the daemon is out of memory or descriptors.
    pub fn queue(&mut self, own: Arc<dyn Egress>) -> Result<Arc<dyn Egress>, Refusal> {
        if self.domain == TimeDomain::TRUSTED {
            return Ok(own);
        }
        let made = HandOverQueue::new(&own, self.domain);
        let (handed, end) = made.or_else(|e| refuse(Errno::NOMEM, e.to_string()))?;
        self.ends.push((end, own));
        Ok(Arc::new(handed))
    }

    /// Like [`HandedQueues::queue`], for several queues.
    ///
    /// # Errors
    /// As [`HandedQueues::queue`].
    pub fn queues(&mut self, own: Vec<Arc<dyn Egress>>) -> Result<Vec<Arc<dyn Egress>>, Refusal> {
        own.into_iter().map(|one| self.queue(one)).collect()
    }

    /// Places the tasks that deliver from the handed queues on a worker of the domain. `id` is the port's number on
    /// `switch`.
    pub fn place(self, d: &mut Daemon, switch: &Arc<Switch>, id: PortId) -> Vec<TaskId> {
        let domain = self.domain;
        let task = |(ring, (end, to))| Box::new(LinkTask::new(end, to, Arc::clone(switch), id, ring));
        self.ends.into_iter().enumerate().map(task).map(|task| d.workers.place_for(domain, task)).collect()
    }
}
