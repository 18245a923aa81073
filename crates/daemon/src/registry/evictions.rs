//! Evictions: programs lose their port because their doorbell blocked a worker, their memory is gone, or the port went
//! away.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::types::{Evicted, Owner};
use netvale_mem::fault::{Fault, FaultGroup, clear, raise};

use crate::caller::{Caller, is_trusted_user};

/// How long a user whose doorbell blocked a worker gets no ports: it doubles each time, up to the second value.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// A user who did not do that for so long begins anew.
const FORGIVEN: Duration = Duration::from_secs(600);

/// A user's ports with regard to blocking doorbells.
#[derive(Default)]
struct Conduct {
    group: FaultGroup,
    /// When the last pause ends, and how long it is.
    pause: Option<(Instant, Duration)>,
}

/// Number of evictions that are remembered of one user.
const REMEMBERED: usize = 16;
/// Number of evictions that are remembered of all users.
const ALL_REMEMBERED: usize = 512;

impl Conduct {
    /// Whether a port shares it, or a pause was not long ago.
    fn is_remembered(&self, now: Instant) -> bool {
        let was_late = self.pause.is_some_and(|(until, _)| now < until + FORGIVEN);
        was_late || self.group.is_shared()
    }
}

/// The connections to close, and the reasons of the last evictions: their ports are gone and cannot be asked.
pub struct Evictions {
    faults: Arc<OwnedFd>,
    leaving: Vec<u64>,
    past: VecDeque<(Instant, Evicted)>,
    count: u64,
    /// Of users whose ports share their fate.
    conduct: HashMap<u32, Conduct>,
    /// Users whose own workers are held up.
    held_up: BTreeSet<u32>,
}

impl Evictions {
    /// Creates an empty list; `faults` is readable when a program's fault was reported.
    pub fn new(faults: Arc<OwnedFd>) -> Evictions {
        let (leaving, past, conduct, held_up) = Default::default();
        Evictions { faults, leaving, past, count: 0, conduct, held_up }
    }

    /// Creates a fault for a new port's program, which wakes the main thread when it is reported. A doorbell of a
    /// user's that blocks costs all of the user's ports: each could cost a worker the same time again. Root's, and
    /// those of the daemon's own user, are on their own.
    pub fn new_fault(&mut self, owner: Caller) -> Fault {
        if is_trusted_user(owner.uid) {
            return Fault::of_trusted(&self.faults);
        }
        let now = Instant::now();
        self.conduct.retain(|_, one| one.is_remembered(now));
        Fault::of(&self.faults, self.conduct.entry(owner.uid).or_default().group.clone())
    }

    /// How long that user gets no ports.
    pub fn pause(&self, uid: u32) -> Option<Duration> {
        let (until, _) = self.conduct.get(&uid)?.pause?;
        until.checked_duration_since(Instant::now())
    }

    /// Memory of that user's holds threads up: it costs the user's ports, as a doorbell that blocks does.
    pub fn block(&self, uid: u32) {
        if let Some(one) = self.conduct.get(&uid) {
            one.group.block();
            raise(&self.faults);
        }
    }

    /// That user's own worker is held up: it costs what is there, guests included, and the user's other ports, too.
    pub fn hold_up(&mut self, uid: u32) {
        self.conduct.entry(uid).or_default();
        self.held_up.insert(uid);
        self.block(uid);
    }

    /// Takes the users whose own workers were found held up.
    pub fn take_held_up(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.held_up)
    }

    /// Begins pauses of users whose doorbells blocked a worker; their next ports may ring again.
    pub fn begin_pauses(&mut self) {
        for one in self.conduct.values_mut().filter(|one| one.group.is_blocked()) {
            let pause = one.pause.map_or(PAUSE.0, |(_, last)| (2 * last).min(PAUSE.1));
            *one = Conduct { group: FaultGroup::default(), pause: Some((Instant::now() + pause, pause)) };
        }
    }

    /// A descriptor that is readable once a fault was reported, until [`Evictions::clear`].
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.faults.as_fd()
    }

    /// Clears the reports before the faults are looked at.
    pub fn clear(&self) {
        clear(&self.faults);
    }

    /// Marks connections that lost their port for closing.
    pub fn evict(&mut self, clients: impl IntoIterator<Item = u64>) {
        self.leaving.extend(clients);
    }

    /// Returns a connection to close.
    pub fn next(&mut self) -> Option<u64> {
        self.leaving.pop()
    }

    /// Remembers why a port was taken away.
    pub fn note(&mut self, port: &str, owner: Caller, reason: String) {
        tracing::warn!(port, why = reason, "its program is evicted");
        self.count += 1;
        let theirs = |(_, one): &&(Instant, Evicted)| one.owner.uid == owner.uid;
        if self.past.iter().filter(theirs).count() >= REMEMBERED
            && let Some(oldest) = self.past.iter().rposition(|one| theirs(&one))
        {
            self.past.remove(oldest);
        }
        self.past.truncate(ALL_REMEMBERED - 1);
        let owner = Owner { uid: owner.uid, pid: owner.pid };
        self.past.push_front((Instant::now(), Evicted { port: port.to_owned(), owner, reason, age_seconds: 0 }));
    }

    /// Number of evictions so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last evictions, newest first.
    pub fn iter(&self) -> impl Iterator<Item = Evicted> {
        self.past.iter().map(|(at, one)| Evicted { age_seconds: at.elapsed().as_secs(), ..one.clone() })
    }
}
