//! Permissions on memory: regions, and the files of programs that contain regions.

use rustix::io::Errno;

use super::{is_trusted, reserved};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::refusal::{Refusal, refuse};
use crate::registry::regions::{Entry, FilePlace};

/// Maximum number of regions in files of programs: each takes address space of the daemon.
const MAX_FILES: usize = 256;
/// Maximum number of such regions of one user other than root and the daemon's own.
const MAX_FILES_OF_ONE: usize = 64;

/// Checks that a caller may have ports in a region: its user may, and so may root, except in another user's file, whose
/// memory that user controls.
///
/// # Errors
/// [`Refusal`] with `EACCES` if it may not.
pub fn may_use_region(region: &Entry, caller: Caller) -> Result<(), Refusal> {
    if (!is_trusted(caller) || region.file.is_some()) && caller.uid != region.uid {
        return refuse(Errno::ACCESS, format!("memory region {} belongs to another user", region.id));
    }
    Ok(())
}

/// Checks that a caller may get a port in a file: only a user who can truncate the file may.
///
/// # Errors
/// [`Refusal`] with `EACCES` if it may not.
pub fn may_map_file(d: &Daemon, region: u32, caller: Caller) -> Result<(), Refusal> {
    if d.regions.is_owner(region, caller.uid) {
        return Ok(());
    }
    refuse(Errno::ACCESS, "the port lies in a file of another user's: open a port of your own")
}

/// Checks that a caller's region may lie at a place in a file, where no other user's region may be.
///
/// # Errors
/// [`Refusal`] with `EACCES`, attributed to the file.
pub fn may_lie_in_file(d: &Daemon, place: &FilePlace, caller: Caller) -> Result<(), Refusal> {
    if d.regions.in_files().any(|(region, at)| at.overlaps(place) && region.uid != caller.uid) {
        return Err(Refusal::of_file(Errno::ACCESS, "another user's region lies there"));
    }
    Ok(())
}

/// Checks that another region may lie in a file.
///
/// # Errors
/// [`Refusal`] with `ENOSPC`, attributed to the file.
pub fn has_room_for_file(d: &Daemon, caller: Caller) -> Result<(), Refusal> {
    let own = d.regions.in_files().filter(|(region, _)| region.uid == caller.uid).count();
    if d.regions.in_files().count() >= MAX_FILES - reserved(caller, 32)
        || own >= MAX_FILES_OF_ONE && !is_trusted(caller)
    {
        return Err(Refusal::of_file(Errno::NOSPC, "there are too many such regions"));
    }
    Ok(())
}

/// Checks that a port of user `owner` may move to a region of the caller.
///
/// # Errors
/// [`Refusal`]: `EACCES` for another user's port.
pub fn may_move_to(caller: Caller, owner: u32) -> Result<(), Refusal> {
    if caller.uid == owner {
        return Ok(());
    }
    let text = format!("the port belongs to user {owner}, who may not have your memory: open it where it is");
    refuse(Errno::ACCESS, text)
}
