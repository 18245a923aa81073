//! Regions by number. A region is freed with the last port that lies in it.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use netvale_control::attach::FileAsked;
use netvale_mem::fault::Fault;
use netvale_mem::holes::HoleWaiter;
use netvale_mem::layout::RegionSizes;
use netvale_mem::mapping::Pages;
use netvale_mem::toucher::Toucher;
use netvale_mem::{Region, RegionError};
use rustix::io::Errno;

use crate::caller::is_trusted_user;

/// Number of the region that a user's network interfaces share, as in netmap.
pub const COMMON_REGION: u32 = 1;
/// Numbers of all other regions: those that a program can name.
const NUMBERS: RangeInclusive<u32> = COMMON_REGION + 1..=u16::MAX as u32;

/// The place of a region in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// The file's device.
    pub device: u64,
    /// The file's inode number.
    pub inode: u64,
    /// The part of the file.
    pub asked: FileAsked,
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
pub struct Entry {
    /// Its number.
    pub id: u32,
    /// The user that owns it.
    pub uid: u32,
    region: Weak<Region>,
    /// [`Region::changes`], as it was told last.
    told: Cell<Option<u64>>,
    /// Its place, if it lies in a file of the user's.
    pub file: Option<FilePlace>,
}

impl Entry {
    /// The region, while a port lies in it.
    pub fn region(&self) -> Option<Arc<Region>> {
        self.region.upgrade()
    }
}

/// All regions.
pub struct Regions {
    entries: Vec<Entry>,
    next: u32,
    faults: Arc<OwnedFd>,
    /// Those that were forgotten.
    gone: BTreeSet<(u32, u32)>,
    /// How many programs have rings in a region with nothing behind them.
    bare: BTreeMap<u32, u32>,
    /// Who touches regions of users who are not trusted, by user.
    touchers: BTreeMap<u32, Weak<Toucher>>,
    /// Who touches memory of guests whose ports are of users without one.
    guests: OnceCell<Toucher>,
}

impl Regions {
    /// Creates an empty registry; damage to a region is reported at `faults`.
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

    /// Makes a new region for user `uid`. Returns its number, too.
    ///
    /// # Errors
    /// [`RegionError`] when the sizes are impossible or there is no memory.
    pub fn make(
        &mut self,
        id: u32,
        sizes: RegionSizes,
        pages: Pages,
        uid: u32,
    ) -> Result<(Arc<Region>, u32), RegionError> {
        let region = Region::shared(&format!("netvale-{id}"), sizes, pages)?;
        self.add(id, uid, &region, None)?;
        Ok((region, id))
    }

    /// Adds a region.
    ///
    /// # Errors
    /// [`RegionError::Memory`] when there can be no thread for a user who is not trusted.
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
        self.entries.push(Entry { id, uid, region: Arc::downgrade(region), told: Cell::new(None), file });
        Ok(())
    }

    /// Who touches that user's regions: one thread for all of them, while there are any.
    fn toucher_of(&mut self, uid: u32) -> std::io::Result<Arc<Toucher>> {
        self.touchers.retain(|_, toucher| toucher.strong_count() > 0);
        if let Some(toucher) = self.touchers.get(&uid).and_then(Weak::upgrade) {
            return Ok(toucher);
        }
        let toucher = Arc::new(Toucher::start("netvale-touches".to_owned(), &self.faults)?);
        self.touchers.insert(uid, Arc::downgrade(&toucher));
        Ok(toucher)
    }

    /// Who waits for holes in memory of that user's that is mapped now.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn waiter_of(&mut self, uid: u32) -> std::io::Result<Rc<HoleWaiter>> {
        // Who is trusted has no toucher.
        if is_trusted_user(uid) {
            return Ok(HoleWaiter::new(&self.faults));
        }
        let toucher = self.toucher_of(uid)?;
        Ok(HoleWaiter::by(&self.faults, toucher))
    }

    /// Touches memory of a guest behind a port of that user's. `None` if it holds up who touches it.
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

    /// The users whose regions held up who touched them since the last call.
    pub fn take_late(&self) -> Vec<u32> {
        let is_late = |toucher: &Weak<Toucher>| toucher.upgrade().is_some_and(|toucher| toucher.take_late());
        self.touchers.iter().filter(|(_, toucher)| is_late(toucher)).map(|(&uid, _)| uid).collect()
    }

    fn forget_unused(&mut self) {
        let unused = self.entries.extract_if(.., |r| r.region.strong_count() == 0);
        self.gone.extend(unused.map(|r| (r.id, r.uid)));
    }

    /// A program has rings in a region that no port has.
    pub fn add_bare(&mut self, id: u32) {
        *self.bare.entry(id).or_default() += 1;
    }

    /// A program has such rings no more.
    pub fn remove_bare(&mut self, id: u32) {
        if let Some(count) = self.bare.get_mut(&id) {
            *count -= 1;
        }
        self.bare.retain(|_, count| *count > 0);
    }

    /// Whether a program has such rings.
    pub fn has_bare(&self, id: u32) -> bool {
        self.bare.contains_key(&id)
    }

    /// Takes the numbers and owners of regions that were added, went, or have other buffers in use since the last call.
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

    /// Returns a region number that is not in use; `is_used` knows of those that have no entry. Numbers are given in
    /// turn, so that one that was used is not used again soon. `None`: all are in use.
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

    /// Returns the region with that number. For [`COMMON_REGION`], which each user has one of, call
    /// [`Regions::known_common`].
    pub fn get(&self, id: u32) -> Option<&Entry> {
        self.entries.iter().find(|r| r.id == id)
    }

    /// Whether a region belongs to that user.
    pub fn is_owner(&self, id: u32, uid: u32) -> bool {
        self.entries.iter().any(|r| (r.id, r.uid) == (id, uid) && r.region.strong_count() > 0)
    }

    /// Bytes of that user's regions together. What lies in files of the user's own is not counted.
    pub fn bytes_of(&self, uid: u32) -> u64 {
        let own = self.entries.iter().filter(|r| r.uid == uid && r.file.is_none());
        own.filter_map(Entry::region).map(|region| region.layout().total).sum()
    }

    /// Iterates over the regions that are in use.
    pub fn iter(&self) -> impl Iterator<Item = (&Entry, Arc<Region>)> {
        self.entries.iter().filter_map(|entry| Some((entry, entry.region()?)))
    }

    /// Returns a region by number, and, of those that each user has one of, that user's.
    pub fn find(&self, id: u32, uid: u32) -> Option<Arc<Region>> {
        let is_it = |entry: &&Entry| entry.id == id && (id != COMMON_REGION || entry.uid == uid);
        self.entries.iter().find(is_it)?.region()
    }

    /// Iterates over the regions in files.
    pub fn in_files(&self) -> impl Iterator<Item = (&Entry, FilePlace)> {
        self.entries.iter().filter(|r| r.region.strong_count() > 0).filter_map(|r| Some((r, r.file?)))
    }

    /// The region that a user's interfaces share; made, of that size, at its first use.
    ///
    /// # Errors
    /// [`RegionError`] when there is no memory.
    pub fn common(&mut self, uid: u32, sizes: RegionSizes) -> Result<Arc<Region>, RegionError> {
        if let Some(region) = self.known_common(uid) {
            return Ok(region);
        }
        let region = Region::shared(&format!("netvale-{COMMON_REGION}"), sizes, Pages::Ordinary)?;
        self.add(COMMON_REGION, uid, &region, None)?;
        Ok(region)
    }

    /// The region that a user's interfaces share, if it is in use.
    pub fn known_common(&self, uid: u32) -> Option<Arc<Region>> {
        self.entries.iter().find_map(|r| if (r.id, r.uid) == (COMMON_REGION, uid) { r.region() } else { None })
    }
}
