//! Evictions: programs that lose their port because their doorbell blocked a worker, because their memory no longer
//! exists, or because a request removed the port.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::types::{EvictionInfo, Owner};
use netvale_mem::fault::{Fault, FaultGroup, clear, raise};

use crate::caller::{Caller, is_trusted_user};

/// First and longest lockout: the time for which a user gets no new ports after the user's doorbell has blocked a
/// worker. Each further lockout is twice as long as the one before.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// Time from the end of a lockout until the lockout is forgotten. The next lockout after that has the first length
/// again.
const FORGIVEN: Duration = Duration::from_secs(600);

/// A user's record of doorbells that blocked.
#[derive(Default)]
struct Conduct {
    group: FaultGroup,
    /// Time at which the last lockout ends, and length of that lockout.
    pause: Option<(Instant, Duration)>,
}

/// Maximum number of recorded evictions of one user.
const REMEMBERED: usize = 16;
/// Maximum number of recorded evictions of all users.
const ALL_REMEMBERED: usize = 512;

impl Conduct {
    /// Whether the record must be kept: a port of the user exists, or the last lockout is recent.
    fn is_remembered(&self, now: Instant) -> bool {
        let was_late = self.pause.is_some_and(|(until, _)| now < until + FORGIVEN);
        was_late || self.group.is_shared()
    }
}

/// Connections to close because their ports no longer exist, and past evictions with their reasons.
pub struct Evictions {
    faults: Arc<OwnedFd>,
    leaving: Vec<u64>,
    past: VecDeque<(Instant, EvictionInfo)>,
    count: u64,
    /// Records of untrusted users by user ID. All ports of such a user are evicted together.
    conduct: HashMap<u32, Conduct>,
    /// Users whose own workers are blocked.
    held_up: BTreeSet<u32>,
}

impl Evictions {
    /// Creates the state without any evictions. `faults` becomes readable when a fault is reported.
    pub fn new(faults: Arc<OwnedFd>) -> Evictions {
        let (leaving, past, conduct, held_up) = Default::default();
        Evictions { faults, leaving, past, count: 0, conduct, held_up }
    }

    /// Creates the fault for the program of a new port: a record that is set, with the reason, when the program must
    /// lose its port. Setting the fault wakes the main thread. If a doorbell of an untrusted user blocks, that user
    /// loses all ports, because each further doorbell could block a worker equally long. Ports of root and of the
    /// daemon's own user are independent of one another.
    pub fn new_fault(&mut self, owner: Caller) -> Fault {
        if is_trusted_user(owner.uid) {
            return Fault::of_trusted(&self.faults);
        }
        let now = Instant::now();
        self.conduct.retain(|_, one| one.is_remembered(now));
        Fault::of(&self.faults, self.conduct.entry(owner.uid).or_default().group.clone())
    }

    /// Returns the remaining lockout of that user; `None` if the user is not locked out.
    pub fn pause(&self, uid: u32) -> Option<Duration> {
        let (until, _) = self.conduct.get(&uid)?.pause?;
        until.checked_duration_since(Instant::now())
    }

    /// Evicts and locks out a user whose memory blocks threads, as if a doorbell of that user had blocked.
    pub fn block(&self, uid: u32) {
        if let Some(one) = self.conduct.get(&uid) {
            one.group.block();
            raise(&self.faults);
        }
    }

    /// Evicts and locks out a user whose own worker is blocked. All of the user's ports are evicted, including ports of
    /// virtual machines.
    pub fn hold_up(&mut self, uid: u32) {
        self.conduct.entry(uid).or_default();
        self.held_up.insert(uid);
        self.block(uid);
    }

    /// Takes the users that [`Evictions::hold_up`] has recorded since the last call.
    pub fn take_held_up(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.held_up)
    }

    /// Starts the lockouts of users whose doorbells blocked a worker, and gives each of these users a new fault group,
    /// so that the doorbells of ports created later are rung.
    pub fn begin_pauses(&mut self) {
        for one in self.conduct.values_mut().filter(|one| one.group.is_blocked()) {
            let pause = one.pause.map_or(PAUSE.0, |(_, last)| (2 * last).min(PAUSE.1));
            *one = Conduct { group: FaultGroup::default(), pause: Some((Instant::now() + pause, pause)) };
        }
    }

    /// Returns the descriptor that becomes readable when a fault is reported, and stays readable until
    /// [`Evictions::clear`] is called.
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.faults.as_fd()
    }

    /// Makes the descriptor of [`Evictions::faults`] unreadable. This must be called before the faults are read, so
    /// that no later report is lost.
    pub fn clear(&self) {
        clear(&self.faults);
    }

    /// Marks connections to be closed because they have lost their port.
    pub fn evict(&mut self, clients: impl IntoIterator<Item = u64>) {
        self.leaving.extend(clients);
    }

    /// Takes the next connection that must be closed; `None` if there is none.
    pub fn next(&mut self) -> Option<u64> {
        self.leaving.pop()
    }

    /// Records and logs the reason for an eviction.
    pub fn note(&mut self, port: &str, owner: Caller, reason: String) {
        tracing::warn!(port, why = reason, "evicted the port's program");
        self.count += 1;
        let theirs = |(_, one): &&(Instant, EvictionInfo)| one.owner.uid == owner.uid;
        if self.past.iter().filter(theirs).count() >= REMEMBERED
            && let Some(oldest) = self.past.iter().rposition(|one| theirs(&one))
        {
            self.past.remove(oldest);
        }
        self.past.truncate(ALL_REMEMBERED - 1);
        let owner = Owner { uid: owner.uid, pid: owner.pid };
        self.past.push_front((Instant::now(), EvictionInfo { port: port.to_owned(), owner, reason, age_seconds: 0 }));
    }

    /// Returns the total number of evictions.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Iterates over past evictions, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = EvictionInfo> {
        self.past.iter().map(|(at, one)| EvictionInfo { age_seconds: at.elapsed().as_secs(), ..one.clone() })
    }
}
