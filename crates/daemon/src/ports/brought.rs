//! Regions in a file that a client provides (netmap's extmem).
//!
//! The client keeps access to the file, and may write to it, punch holes in it or truncate it at any time. The daemon
//! catches faults in its mapping ([`netvale_mem::watch`]). It accepts only files in memory, because other file systems
//! may make reads arbitrarily slow.

use std::os::fd::OwnedFd;

use netvale_control::attach::{AttachRequest, FilePlacement};
use netvale_mem::{Region, RegionError, RegionSizes};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::memory::{self, NumberedRegion, new_number};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::permission;
use crate::refusal::Refusal;
use crate::registry::regions::FilePlace;
use crate::rings::sizes::own_pools;
use crate::system::closing;

/// A descriptor that came with a request. It may refer to a file of any type.
pub struct BroughtFile {
    fd: Option<OwnedFd>,
    /// The user who passed the descriptor.
    uid: u32,
}

impl BroughtFile {
    /// Takes ownership of a descriptor that user `uid` passed.
    pub fn new(fd: OwnedFd, uid: u32) -> BroughtFile {
        BroughtFile { fd: Some(fd), uid }
    }

    /// Returns the file if it has room for a region of the requested length at the requested offset.
    ///
    /// # Errors
    /// [`Refusal`] with `file_at_fault` set if the file has no room or is unsuitable.
    fn checked(mut self, asked: FilePlacement) -> Result<(OwnedFd, FilePlace), Refusal> {
        let Some(file) = self.fd.as_ref() else { return unfit(Errno::BADF, "the descriptor is missing") };
        // This query succeeds only for files in memory. The kernel answers it without calling a file system, so none
        // (e.g. FUSE) can delay the answer.
        if rustix::fs::fcntl_get_seals(file).is_err() {
            return unfit(Errno::INVAL, "expected a file in memory (memfd, tmpfs or hugetlbfs)");
        }
        let mode = rustix::fs::fcntl_getfl(file).map_err(failed)?;
        if mode.contains(OFlags::PATH) || mode & OFlags::RWMODE != OFlags::RDWR {
            return unfit(Errno::ACCESS, "expected a file open for reading and writing");
        }
        let stat = rustix::fs::fstat(file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return unfit(Errno::INVAL, "expected a regular file");
        }
        if !asked.offset.is_multiple_of(4096) || !asked.len.is_multiple_of(4096) || asked.len == 0 {
            return unfit(Errno::INVAL, "expected an offset and a length in whole pages (4096 bytes)");
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if asked.offset.checked_add(asked.len).is_none_or(|end| end > size) {
            return unfit(Errno::INVAL, "the file is shorter than offset plus length");
        }
        let place = FilePlace { device: stat.st_dev, inode: stat.st_ino, asked };
        let file = self.fd.take().ok_or_else(|| Refusal::internal("a descriptor vanished"))?;
        Ok((file, place))
    }
}

impl Drop for BroughtFile {
    /// Closes the file on a separate thread, because closing a file of a user-space file system can block.
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            if rustix::fs::fcntl_get_seals(&fd).is_ok() {
                return;
            }
            closing::close(fd, self.uid);
        }
    }
}

fn unfit<T>(errno: Errno, why: &str) -> Result<T, Refusal> {
    Err(Refusal::of_file(errno, why))
}

fn failed(e: Errno) -> Refusal {
    Refusal { file_at_fault: true, ..Refusal::from(e) }
}

/// Returns the caller's existing region at the requested place in the file, or creates a region there.
///
/// # Errors
/// [`Refusal`], with `file_at_fault` set if the file is the cause.
pub fn region(
    d: &mut Daemon,
    request: &AttachRequest,
    file: Option<BroughtFile>,
    asked: FilePlacement,
    caller: Caller,
) -> Result<NumberedRegion, Refusal> {
    let sizes = own_pools(&request.pools);
    let sizes = sizes.ok_or_else(|| Refusal::new(Errno::INVAL, "missing pool sizes for the file"))?;
    let Some(file) = file else { return unfit(Errno::BADF, "the request carries no descriptor") };
    let (file, place) = file.checked(asked)?;
    permission::may_lie_in_file(d, &place, caller)?;
    let same = d.regions.in_files().filter(|(_, at)| *at == place);
    let mut same = same.filter_map(|(entry, _)| Some((entry.region()?, entry.id)));
    if let Some(found) = same.find(|(region, _)| !region.mapping().is_damaged()) {
        return if memory::is_used(d, found.1) { Ok(found) } else { still_there() };
    }
    drop(same);
    permission::has_room_for_file(d, caller)?;
    new_region(d, sizes, file, place, caller)
}

/// Returns the refusal for a request whose region would be at the place of a port that was just closed. A worker may
/// still write to the memory of that port, which would corrupt a new region.
fn still_there<T>() -> Result<T, Refusal> {
    unfit(Errno::AGAIN, "the memory of a closed port is still in use; try again")
}

fn new_region(
    d: &mut Daemon,
    sizes: RegionSizes,
    file: OwnedFd,
    place: FilePlace,
    caller: Caller,
) -> Result<NumberedRegion, Refusal> {
    let id = new_number(d)?;
    let FilePlacement { offset, len } = place.asked;
    let region = Region::in_file(&format!("netvale-{id}"), sizes, file, offset, len).map_err(|e| {
        // The file is at fault only if it cannot be mapped. Invalid sizes are not the file's fault, because they are
        // refused for any memory.
        let file_at_fault = matches!(e, RegionError::Memory { .. });
        Refusal { file_at_fault, ..Refusal::from(e) }
    })?;
    tracing::info!(region = id, uid = caller.uid, pid = caller.pid, "created a region in the program's file");
    d.regions.add(id, caller.uid, &region, Some(place))?;
    Ok((region, id))
}

/// Refuses a region if its file was truncated while the port was opened.
///
/// # Errors
/// [`Refusal`] with `file_at_fault` set.
pub fn has_held(region: &Region) -> Result<(), Refusal> {
    if region.mapping().is_damaged() {
        return unfit(Errno::NOSPC, "the file has been truncated, or its file system is full");
    }
    Ok(())
}
