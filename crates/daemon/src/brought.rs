//! Regions in a file that a client brought (netmap's extmem).
//!
//! The file stays the client's: it may write, punch and cut it at any time, and have it where reading takes as long as it pleases. So only files
//! that lie in memory are looked at, and their mapping is watched ([`netvale_mem::watch`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_control::attach::{AttachRequest, FileAsked, IN_FILE};
use netvale_mem::{Region, RegionSizes};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::open::{Opened, refuse};
use crate::refusal::Refusal;
use crate::state::{Caller, State};

/// Most such regions: each takes a part of the daemon's addresses.
const MOST: usize = 256;

/// A descriptor that came with a request. It may be of anything.
pub struct Brought(Option<OwnedFd>);

/// Whose region lies where in which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePlace {
    device: u64,
    inode: u64,
    asked: FileAsked,
}

impl FilePlace {
    fn overlaps(&self, other: &FilePlace) -> bool {
        let end = |p: &FilePlace| p.asked.offset.saturating_add(p.asked.len);
        (self.device, self.inode) == (other.device, other.inode)
            && self.asked.offset < end(other)
            && other.asked.offset < end(self)
    }
}

impl Brought {
    /// Takes it over.
    pub fn new(fd: OwnedFd) -> Brought {
        Brought(Some(fd))
    }

    /// The file, if it can carry a region at that place.
    ///
    /// # Errors
    /// [`Refusal`] that puts it down to the file.
    fn checked(mut self, asked: FileAsked) -> Result<(OwnedFd, FilePlace), Refusal> {
        let Some(file) = self.0.as_ref() else { return unfit(Errno::BADF, "no descriptor") };
        // The one question that no file system answers itself.
        if rustix::fs::fcntl_get_seals(file).is_err() {
            return unfit(Errno::INVAL, "it does not lie in memory (memfd, tmpfs, hugetlbfs)");
        }
        let mode = rustix::fs::fcntl_getfl(file).map_err(failed)?;
        if mode.contains(OFlags::PATH) || mode & OFlags::RWMODE != OFlags::RDWR {
            return unfit(Errno::ACCESS, "it is not open for reading and writing");
        }
        let stat = rustix::fs::fstat(file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return unfit(Errno::INVAL, "it is no regular file");
        }
        if !asked.offset.is_multiple_of(4096) || !asked.len.is_multiple_of(4096) || asked.len == 0 {
            return unfit(Errno::INVAL, "offset and length are not whole pages");
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if asked.offset.checked_add(asked.len).is_none_or(|end| end > size) {
            return unfit(Errno::INVAL, "it is too short");
        }
        let place = FilePlace { device: stat.st_dev, inode: stat.st_ino, asked };
        let file = self.0.take().ok_or_else(|| Refusal::internal("a descriptor vanished"))?;
        Ok((file, place))
    }
}

impl Drop for Brought {
    /// A file system in user space is asked before its file is closed, and may take its time.
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            if rustix::fs::fcntl_get_seals(&fd).is_ok() {
                return;
            }
            let closing = std::thread::Builder::new().name("closing".into()).spawn(move || drop(fd));
            if let Err(e) = closing {
                tracing::warn!("no thread to close a client's file: {e}");
            }
        }
    }
}

fn unfit<T>(errno: Errno, why: &str) -> Result<T, Refusal> {
    let text = format!("the program's file cannot carry its region: {why}");
    Err(Refusal { file_at_fault: true, ..Refusal::new(errno, text) })
}

fn failed(e: Errno) -> Refusal {
    Refusal { file_at_fault: true, ..Refusal::from(e) }
}

impl State {
    /// Opens a port for a client, in the file that came with its request if it says so.
    ///
    /// # Errors
    /// As [`State::open`].
    pub(crate) fn open_in(
        &mut self,
        request: &AttachRequest,
        file: Option<Brought>,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let opened = match request.file {
            None => self.open(request, caller)?,
            Some(asked) => {
                // Kept until the port keeps it.
                let (region, mem_id) = self.region_brought(request, (file, asked), caller)?;
                let opened = self.open(&AttachRequest { mem_id, file: None, ..request.clone() }, caller)?;
                if region.mapping().is_damaged() {
                    self.close(opened.2, caller.client);
                    return unfit(Errno::NOSPC, "it was cut short, or its file system is full");
                }
                opened
            }
        };
        let (reply, ..) = &opened;
        if reply.port_flags & IN_FILE != 0 && !self.is_owner(reply.mem_id, caller.uid) {
            self.close(opened.2, caller.client);
            // Who maps it is at the mercy of who can cut it short.
            return refuse(Errno::ACCESS, "the port lies in a file of another user's: open a port of your own");
        }
        Ok(opened)
    }

    /// The caller's region at a place of its file: one that is there, or a new one.
    fn region_brought(
        &mut self,
        request: &AttachRequest,
        (file, asked): (Option<Brought>, FileAsked),
        caller: Caller,
    ) -> Result<(Arc<Region>, u32), Refusal> {
        let sizes = crate::sizes::own_pools(&request.pools);
        let sizes = sizes.ok_or_else(|| Refusal::new(Errno::INVAL, "a file without the sizes of its pools"))?;
        let Some(file) = file else { return unfit(Errno::BADF, "no descriptor came with the request") };
        let (file, place) = file.checked(asked)?;
        let all = self.brought_regions();
        let beside: Vec<_> = all.iter().filter(|(p, ..)| p.overlaps(&place)).collect();
        if beside.iter().any(|(_, uid, ..)| *uid != caller.uid) {
            return unfit(Errno::ACCESS, "another user's region lies there");
        }
        let same = |(found, _, region, id): &&(FilePlace, u32, Arc<Region>, u32)| {
            (*found == place && !region.mapping().is_damaged()).then(|| (Arc::clone(region), *id))
        };
        match beside.iter().find_map(same) {
            Some(found) => Ok(found),
            None if all.len() >= MOST => unfit(Errno::NOSPC, "there are too many such regions"),
            None => self.new_region_in(sizes, (file, place), caller),
        }
    }

    fn new_region_in(
        &mut self,
        sizes: RegionSizes,
        (file, place): (OwnedFd, FilePlace),
        caller: Caller,
    ) -> Result<(Arc<Region>, u32), Refusal> {
        let id = self.new_region_id();
        if u16::try_from(id).is_err() {
            return unfit(Errno::NOSPC, "there are no region numbers left that a program can name");
        }
        let room = (place.asked.offset, place.asked.len);
        let region = Region::in_file(&format!("netvale-{id}"), sizes, file, room).map_err(|e| {
            // Sizes that make no region make none elsewhere either.
            let file_at_fault = matches!(e, netvale_mem::RegionError::Memory { .. });
            Refusal { file_at_fault, ..Refusal::from(e) }
        })?;
        tracing::info!(region = id, uid = caller.uid, pid = caller.pid, "lies in the program's file");
        self.keep_region(id, caller.uid, &region, Some(place));
        Ok((region, id))
    }
}
