//! Permissions on memory: regions, and files of programs that contain regions.

use rustix::io::Errno;

use super::{is_trusted, reserved};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::refusal::{Refusal, refuse};
use crate::registry::regions::{FilePlace, RegionEntry};

/// Maximum number of regions in programs' files. The limit bounds the daemon's address space.
const MAX_FILES: usize = 256;
/// Maximum number of regions in the files of one user other than root and the daemon's own user.
const MAX_FILES_OF_ONE: usize = 64;

/// Checks that a caller may have ports in a region. The region's owner always may. Root and the daemon's own user may
/// use any region except one in another user's file, because that user controls the file's memory.
///
/// # Errors
/// [`Refusal`] with `EACCES` if the caller may not use the region.
pub fn may_use_region(region: &RegionEntry, caller: Caller) -> Result<(), Refusal> {
    if (!is_trusted(caller) || region.file.is_some()) && caller.uid != region.uid {
        return refuse(Errno::ACCESS, format!("memory region {} belongs to another user", region.id));
    }
    Ok(())
}

/// Checks that a caller may open a port whose memory is in a file. Only the region's owner may open such a port,
/// because the owner can truncate the file.
///
/// # Errors
/// [`Refusal`] with `EACCES` for any other caller.
pub fn may_map_file(d: &Daemon, region: u32, caller: Caller) -> Result<(), Refusal> {
    if d.regions.is_owner(region, caller.uid) {
        return Ok(());
    }
    refuse(Errno::ACCESS, "the port's memory is in another user's file; open a port of your own")
}

/// Checks that a caller's region may be placed in a file: it must not overlap another user's region.
///
/// # Errors
/// [`Refusal`] with `EACCES`, attributed to the file.
pub fn may_lie_in_file(d: &Daemon, place: &FilePlace, caller: Caller) -> Result<(), Refusal> {
    if d.regions.in_files().any(|(region, at)| at.overlaps(place) && region.uid != caller.uid) {
        return Err(Refusal::of_file(Errno::ACCESS, "the requested range overlaps another user's region"));
    }
    Ok(())
}

/// Checks that another region may be created in a program's file, by the number of such regions.
///
/// # Errors
/// [`Refusal`] with `ENOSPC`, attributed to the file.
pub fn has_room_for_file(d: &Daemon, caller: Caller) -> Result<(), Refusal> {
    let own = d.regions.in_files().filter(|(region, _)| region.uid == caller.uid).count();
    if d.regions.in_files().count() >= MAX_FILES - reserved(caller, 32)
        || own >= MAX_FILES_OF_ONE && !is_trusted(caller)
    {
        return Err(Refusal::of_file(Errno::NOSPC, "the limit of regions in programs' files is reached; close some"));
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
    let text =
        format!("the port belongs to user {owner}, who may not use your memory; open the port in its own memory");
    refuse(Errno::ACCESS, text)
}
