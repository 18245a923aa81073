//! Queues of users who are not trusted with others' time ([`netvale_port::domain`]), and the tasks of these users'
//! workers that take to them what others hand over.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_mem::Region;
use netvale_port::Egress;
use netvale_port::access::Access;
use netvale_port::domain::TimeDomain;
use netvale_port::handed_over::HandOverQueue;
use netvale_port::link::LinkEnd;
use netvale_port::listener::Site;
use netvale_switch::{LinkTask, PortId, Switch};
use rustix::fs::{Mode, Stat, lstat, stat};
use rustix::io::Errno;

use crate::caller::{Caller, is_trusted_user};
use crate::daemon::Daemon;
use crate::permission;
use crate::refusal::{Refusal, refuse};
use crate::system::sockets::user_id;
use crate::worker::TaskId;

/// In `trusted_hypervisors`: all users.
const ALL: &str = "*";
/// Permission bits with which others than the owner connect.
const OTHERS: u32 = 0o022;
/// Most folders on the way to a file, with those that links lead to: about as many as the kernel follows.
const MOST_STEPS: usize = 256;

/// The domain of a user's ports.
pub fn domain_of(owner: Caller) -> TimeDomain {
    if permission::is_trusted(owner) { TimeDomain::TRUSTED } else { TimeDomain::of_user(owner.uid) }
}

/// The domain of a port to whose device others than its owner may connect: that of whom they are. Of a group, or of all
/// users, it is not known who will: they are all in one domain, and so are users for whom there is no worker any more.
pub fn domain_of_site(d: &Daemon, owner: Caller, site: &Site) -> TimeDomain {
    let Access { mode, users, groups } = &site.access;
    domain_of_peers(d, owner, users, groups.is_empty() && mode & OTHERS == 0)
}

/// The domain of a port that connects to a socket: that of whom the socket, or a folder or link on the way to it,
/// belongs to. If others may put something else there, it is not known who listens.
pub fn domain_of_listener(d: &Daemon, owner: Caller, path: &Path) -> TimeDomain {
    let way = std::path::absolute(path).map(|path| way_to(&path)).unwrap_or_default();
    let users: Vec<u32> = way.iter().flat_map(|(_, found)| found).map(|found| found.st_uid).collect();
    let is_fixed = |(folder, found): &(Option<Stat>, Option<Stat>)| {
        let mode = folder.as_ref().map_or(Mode::empty(), |folder| Mode::from_raw_mode(folder.st_mode));
        // In a sticky folder, only its owner may put another file in the place of one.
        mode.bits() & OTHERS == 0 || mode.contains(Mode::SVTX) && found.is_some()
    };
    domain_of_peers(d, owner, &users, !way.is_empty() && way.iter().all(is_fixed))
}

/// Each folder that the kernel looks into on its way to a file, and what it finds there. Empty: the way never ends.
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

/// The domain of a port whose peers are of these users; `is_all`: of no others.
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

/// The domain of those who have a region.
pub fn domain_of_region(d: &Daemon, region: &Arc<Region>) -> TimeDomain {
    let entry = d.regions.iter().find(|(_, known)| Arc::ptr_eq(known, region));
    entry.map_or(TimeDomain::TRUSTED, |(entry, _)| domain_of(Caller { uid: entry.uid, ..Caller::daemon() }))
}

/// Starts a worker for a port of that owner's in that domain, if it takes one. Root's ports are spread over as many as
/// root's own.
///
/// # Errors
/// [`Refusal`] when there is no thread.
pub fn begin(d: &mut Daemon, owner: Caller, domain: TimeDomain) -> Result<(), Refusal> {
    let most = if permission::is_trusted(owner) { d.workers.all().len() } else { 1 };
    let no_worker = |e| Refusal::new(Errno::AGAIN, format!("no worker for the ports of user {}: {e}", owner.uid));
    d.workers.begin(domain, most).map_err(no_worker)
}

/// Queues of one port, and what is to be done for them.
pub struct Handed {
    domain: TimeDomain,
    ends: Vec<(LinkEnd, Arc<dyn Egress>)>,
}

impl Handed {
    /// Begins with a port that has that many queues.
    ///
    /// # Errors
    /// [`Refusal`] when there is no thread, or no memory within the owner's quota.
    pub fn new(d: &mut Daemon, owner: Caller, domain: TimeDomain, queues: usize) -> Result<Handed, Refusal> {
        if domain != TimeDomain::TRUSTED {
            permission::may_have_bytes(d, owner, queues as u64 * HandOverQueue::memory())?;
            begin(d, owner, domain)?;
        }
        Ok(Handed { domain, ends: Vec::new() })
    }

    /// The domain.
    pub fn domain(&self) -> TimeDomain {
        self.domain
    }

    /// A queue as all workers may deliver to it.
    ///
    /// # Errors
    /// [`Refusal`] when memory or descriptors are missing.
    pub fn queue(&mut self, own: Arc<dyn Egress>) -> Result<Arc<dyn Egress>, Refusal> {
        if self.domain == TimeDomain::TRUSTED {
            return Ok(own);
        }
        let made = HandOverQueue::new(&own, self.domain);
        let (handed, end) = made.or_else(|e| refuse(Errno::NOMEM, e.to_string()))?;
        self.ends.push((end, own));
        Ok(Arc::new(handed))
    }

    /// The same of several.
    ///
    /// # Errors
    /// As [`Handed::queue`].
    pub fn queues(&mut self, own: Vec<Arc<dyn Egress>>) -> Result<Vec<Arc<dyn Egress>>, Refusal> {
        own.into_iter().map(|one| self.queue(one)).collect()
    }

    /// Gives the other ends to the user's worker. `at` is the port, if it is on a switch.
    pub fn place(self, d: &mut Daemon, switch: &Arc<Switch>, id: PortId) -> Vec<TaskId> {
        let domain = self.domain;
        let task = |(ring, (end, to))| Box::new(LinkTask::new(end, to, (Arc::clone(switch), id, ring)));
        self.ends.into_iter().enumerate().map(task).map(|task| d.workers.place_for(domain, task)).collect()
    }
}
