//! Memory regions by number. A region is freed when its last port is removed.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use netvale_control::attach::FilePlacement;
use netvale_mem::fault::Fault;
use netvale_mem::holes::HoleWaiter;
use netvale_mem::layout::RegionSizes;
use netvale_mem::mapping::PageKind;
use netvale_mem::toucher::Toucher;
use netvale_mem::{Region, RegionError};
use rustix::io::Errno;

use crate::caller::is_trusted_user;

/// Number of the region that a user's network interfaces share, as in netmap.
pub const COMMON_REGION: u32 = 1;
/// Range of the numbers of all other regions. A program names a region by its number.
const NUMBERS: RangeInclusive<u32> = COMMON_REGION + 1..=u16::MAX as u32;

/// The place of a region in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// The file's device.
    pub device: u64,
    /// The file's inode number.
    pub inode: u64,
    /// The requested part of the file.
    pub asked: FilePlacement,
}

impl FilePlace {
    /// Whether two places have a byte in common.
    pub fn overlaps(&self, other: &FilePlace) -> bool {
        let end = |p: &FilePlace| p.asked.offset.saturating_add(p.asked.len);
        (self.device, self.inode) == (other.device, other.inode)
            && self.asked.offset < end(other)
            && other.asked.offset < end(self)
    }
}

/// A region and its owner.
pub struct RegionEntry {
    /// Number of the region.
    pub id: u32,
    /// The user who owns the region.
    pub uid: u32,
    region: Weak<Region>,
    /// Value of [`Region::changes`] when [`Regions::take_touched`] last returned the region.
    told: Cell<Option<u64>>,
    /// Place of the region if it is in a file of its owner; otherwise, `None`.
    pub file: Option<FilePlace>,
}

impl RegionEntry {
    /// Returns the region; `None` if no port uses it any more.
    pub fn region(&self) -> Option<Arc<Region>> {
        self.region.upgrade()
    }
}

/// All regions.
pub struct Regions {
    entries: Vec<RegionEntry>,
    next: u32,
    faults: Arc<OwnedFd>,
    /// Number and owner of each region freed since the last call of [`Regions::take_touched`].
    gone: BTreeSet<(u32, u32)>,
    /// For each region, the number of programs that have rings in the region that are connected to nothing (netmap's
    /// `NR_REG_NULL`).
    bare: BTreeMap<u32, u32>,
    /// Threads that access the regions of untrusted users: one thread for each user.
    touchers: BTreeMap<u32, Weak<Toucher>>,
    /// Thread that accesses the memory of virtual machines at ports of those users who have no thread in `touchers`.
    guests: OnceCell<Toucher>,
}

impl Regions {
    /// Creates an empty registry. `faults` is the eventfd that is signalled when a region is damaged, e.g. because its
    /// file was truncated.
    pub fn new(faults: Arc<OwnedFd>) -> Regions {
        Regions {
            entries: Vec::new(),
            next: COMMON_REGION + 1,
            faults,
            gone: BTreeSet::new(),
            bare: BTreeMap::new(),
            touchers: BTreeMap::new(),
            guests: OnceCell::new(),
        }
    }

    /// Creates region number `id` for user `uid`. Returns the region and its number.
    ///
    /// # Errors
    /// [`RegionError`] if the sizes are impossible or the daemon is out of memory.
    pub fn make(
        &mut self,
        id: u32,
        sizes: RegionSizes,
        pages: PageKind,
        uid: u32,
    ) -> Result<(Arc<Region>, u32), RegionError> {
        let region = Region::shared(&format!("netvale-{id}"), sizes, pages)?;
        self.add(id, uid, &region, None)?;
        Ok((region, id))
    }

    /// Adds a region of user `uid`. If the user is untrusted, a thread of that user accesses the region.
    ///
    /// # Errors
    /// [`RegionError::Memory`] if an untrusted user's thread cannot be started.
    pub fn add(&mut self, id: u32, uid: u32, region: &Arc<Region>, file: Option<FilePlace>) -> Result<(), RegionError> {
        self.forget_unused();
        region.mapping().blame(&Fault::told_by(&self.faults));
        if !is_trusted_user(uid) {
            let failed = |e: std::io::Error| RegionError::Memory {
                bytes: region.layout().total,
                source: Errno::from_io_error(&e).unwrap_or(Errno::AGAIN),
            };
            region.set_toucher(&self.toucher_of(uid).map_err(failed)?);
        }
        self.entries.push(RegionEntry { id, uid, region: Arc::downgrade(region), told: Cell::new(None), file });
        Ok(())
    }

    /// Returns the thread that accesses that user's regions. One thread serves all regions of a user.
    fn toucher_of(&mut self, uid: u32) -> std::io::Result<Arc<Toucher>> {
        self.touchers.retain(|_, toucher| toucher.strong_count() > 0);
        if let Some(toucher) = self.touchers.get(&uid).and_then(Weak::upgrade) {
            return Ok(toucher);
        }
        let toucher = Arc::new(Toucher::start("netvale-touches".to_owned(), &self.faults)?);
        self.touchers.insert(uid, Arc::downgrade(&toucher));
        Ok(toucher)
    }

    /// Returns a waiter for mapping that user's memory. Mapping can block while another process punches a hole in the
    /// file; the waiter bounds that time.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn waiter_of(&mut self, uid: u32) -> std::io::Result<Rc<HoleWaiter>> {
        // A trusted user's memory is accessed without a separate thread.
        if is_trusted_user(uid) {
            return Ok(HoleWaiter::new(&self.faults));
        }
        let toucher = self.toucher_of(uid)?;
        Ok(HoleWaiter::by(&self.faults, toucher))
    }

    /// Accesses the memory of a virtual machine at a port of that user, in another thread. Returns `None` if the access
    /// blocks.
    pub fn touch_guest<R: Send + 'static>(&self, uid: u32, what: impl FnOnce() -> R + Send + 'static) -> Option<R> {
        if let Some(toucher) = self.touchers.get(&uid).and_then(Weak::upgrade) {
            return toucher.touch(what);
        }
        if self.guests.get().is_none() {
            let started = Toucher::start("netvale-touches".to_owned(), &self.faults).ok()?;
            self.guests.get_or_init(|| started);
        }
        self.guests.get()?.touch(what)
    }

    /// Returns the users whose regions have blocked their user's thread since the last call.
    pub fn take_late(&self) -> Vec<u32> {
        let is_late = |toucher: &Weak<Toucher>| toucher.upgrade().is_some_and(|toucher| toucher.take_late());
        self.touchers.iter().filter(|(_, toucher)| is_late(toucher)).map(|(&uid, _)| uid).collect()
    }

    fn forget_unused(&mut self) {
        let unused = self.entries.extract_if(.., |r| r.region.strong_count() == 0);
        self.gone.extend(unused.map(|r| (r.id, r.uid)));
    }

    /// Counts a program whose rings in the region are connected to nothing (netmap's `NR_REG_NULL`).
    pub fn add_bare(&mut self, id: u32) {
        *self.bare.entry(id).or_default() += 1;
    }

    /// Removes a program counted by [`Regions::add_bare`].
    pub fn remove_bare(&mut self, id: u32) {
        if let Some(count) = self.bare.get_mut(&id) {
            *count -= 1;
        }
        self.bare.retain(|_, count| *count > 0);
    }

    /// Whether a program has rings in the region that are connected to no port or pipe.
    pub fn has_bare(&self, id: u32) -> bool {
        self.bare.contains_key(&id)
    }

    /// Takes the number and owner of each region that was added or freed, or whose used buffers changed, since the last
    /// call.
    pub fn take_touched(&mut self) -> BTreeSet<(u32, u32)> {
        self.forget_unused();
        let mut touched = std::mem::take(&mut self.gone);
        for entry in &self.entries {
            let changes = entry.region().map(|region| region.changes());
            if entry.told.replace(changes) != changes {
                touched.insert((entry.id, entry.uid));
            }
        }
        touched
    }

    /// Returns an unused region number, or `None` if all numbers are in use. `is_used` returns whether a number without
    /// an entry is in use. Numbers are assigned in increasing order, and after the highest from the start again, which
    /// delays their reuse.
    pub fn new_id(&mut self, is_used: impl Fn(u32) -> bool) -> Option<u32> {
        self.forget_unused();
        for _ in NUMBERS {
            let id = self.next;
            self.next = if id >= *NUMBERS.end() { *NUMBERS.start() } else { id + 1 };
            if !self.entries.iter().any(|r| r.id == id) && !is_used(id) {
                return Some(id);
            }
        }
        None
    }

    /// Returns the region with that number. Must not be called for [`COMMON_REGION`], because each user has a region
    /// with that number: call [`Regions::known_common`].
    pub fn get(&self, id: u32) -> Option<&RegionEntry> {
        self.entries.iter().find(|r| r.id == id)
    }

    /// Whether a region belongs to that user.
    pub fn is_owner(&self, id: u32, uid: u32) -> bool {
        self.entries.iter().any(|r| (r.id, r.uid) == (id, uid) && r.region.strong_count() > 0)
    }

    /// Returns the total size of that user's regions in bytes, without the regions in the user's own files.
    pub fn bytes_of(&self, uid: u32) -> u64 {
        let own = self.entries.iter().filter(|r| r.uid == uid && r.file.is_none());
        own.filter_map(RegionEntry::region).map(|region| region.layout().total).sum()
    }

    /// Iterates over the regions in use.
    pub fn iter(&self) -> impl Iterator<Item = (&RegionEntry, Arc<Region>)> {
        self.entries.iter().filter_map(|entry| Some((entry, entry.region()?)))
    }

    /// Returns a region by its number. For [`COMMON_REGION`], returns the region of user `uid`.
    pub fn find(&self, id: u32, uid: u32) -> Option<Arc<Region>> {
        let is_it = |entry: &&RegionEntry| entry.id == id && (id != COMMON_REGION || entry.uid == uid);
        self.entries.iter().find(is_it)?.region()
    }

    /// Iterates over the regions in users' files.
    pub fn in_files(&self) -> impl Iterator<Item = (&RegionEntry, FilePlace)> {
        self.entries.iter().filter(|r| r.region.strong_count() > 0).filter_map(|r| Some((r, r.file?)))
    }

    /// Returns the region that a user's interfaces share, and creates it with `sizes` if it does not exist.
    ///
    /// # Errors
    /// [`RegionError`] if the daemon is out of memory.
    pub fn common(&mut self, uid: u32, sizes: RegionSizes) -> Result<Arc<Region>, RegionError> {
        if let Some(region) = self.known_common(uid) {
            return Ok(region);
        }
        let region = Region::shared(&format!("netvale-{COMMON_REGION}"), sizes, PageKind::Ordinary)?;
        self.add(COMMON_REGION, uid, &region, None)?;
        Ok(region)
    }

    /// Returns the region that a user's interfaces share; `None` if it is not in use.
    pub fn known_common(&self, uid: u32) -> Option<Arc<Region>> {
        self.entries.iter().find_map(|r| if (r.id, r.uid) == (COMMON_REGION, uid) { r.region() } else { None })
    }
}
