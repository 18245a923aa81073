//! Access rights of files that the daemon creates for a caller: permission bits, and an access control list (acl(5))
//! for further users and groups.
//!
//! An access control list serves where a change of owner cannot: the daemon has dropped `CAP_CHOWN`, but a file's owner
//! may always set the file's list.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;

/// Extended attribute that holds a file's access control list (xattr(7)).
const ATTRIBUTE: &str = "system.posix_acl_access";
/// Version of the attribute's layout (`POSIX_ACL_XATTR_VERSION`).
const VERSION: u32 = 2;
// Tags of a list's entries (linux/posix_acl.h): to whom an entry applies.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
/// The ID in entries that name no user or group.
const NOBODY: u32 = u32::MAX;
/// Maximum size in bytes of a list that the daemon reads; real lists have few entries.
const LONGEST: usize = 4096;
/// Permission bits for reading and writing; connect(2) requires write permission on the socket.
const READ_WRITE: u32 = 6;

/// Access rights to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permission bits of owner, group and others.
    pub mode: u32,
    /// Further users who may read and write the file.
    pub users: Vec<u32>,
    /// Further groups that may read and write the file.
    pub groups: Vec<u32>,
}

impl Default for Access {
    /// Read and write permission for the owner only.
    fn default() -> Self {
        Access { mode: 0o600, users: Vec::new(), groups: Vec::new() }
    }
}

impl Access {
    /// Applies these rights to an open file. If its file system has no access control lists, changes the owner and the
    /// group instead; this works for at most one user and one group.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if neither method works; otherwise the error of chmod(2) or setxattr(2).
    pub fn give(&self, file: &OwnedFd) -> Result<(), Errno> {
        self.give_at(&way(file))
    }

    pub(crate) fn give_at(&self, file: &Path) -> Result<(), Errno> {
        if self.users.is_empty() && self.groups.is_empty() {
            return chmod(file, self.mode);
        }
        match rustix::fs::setxattr(file, ATTRIBUTE, &self.list(), XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => self.give_away(file),
            done => done,
        }
    }

    /// Makes the user in `users` the owner, and the group in `groups` the owning group. `EOPNOTSUPP` if there are
    /// several users or groups, or if this process may not change the owner.
    fn give_away(&self, file: &Path) -> Result<(), Errno> {
        let (&[] | &[_], &[] | &[_]) = (&*self.users, &*self.groups) else { return Err(Errno::OPNOTSUPP) };
        let user = self.users.first().map(|&user| Uid::from_raw(user));
        let group = self.groups.first().map(|&group| Gid::from_raw(group));
        let for_group = if group.is_some() { READ_WRITE << 3 } else { 0 };
        // The group must change before the mode: otherwise, the new bits would admit the old group for a moment.
        rustix::fs::chownat(CWD, file, None, group, AtFlags::empty()).map_err(|_| Errno::OPNOTSUPP)?;
        chmod(file, self.mode | for_group)?;
        rustix::fs::chownat(CWD, file, user, None, AtFlags::empty()).map_err(|_| Errno::OPNOTSUPP)
    }

    /// Encodes the list in the layout of the attribute: entries sorted by tag and ID.
    fn list(&self) -> Vec<u8> {
        let [of_owner, of_group, of_others] = [6, 3, 0].map(|shift| self.mode >> shift & 7);
        let sorted = |ids: &[u32]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let mut entries = vec![(OWNER, of_owner, NOBODY)];
        entries.extend(sorted(&self.users).into_iter().map(|id| (USER, READ_WRITE, id)));
        entries.push((OWNING_GROUP, of_group, NOBODY));
        entries.extend(sorted(&self.groups).into_iter().map(|id| (GROUP, READ_WRITE, id)));
        entries.extend([(MASK, of_group | READ_WRITE, NOBODY), (OTHERS, of_others, NOBODY)]);
        let entry = |(kind, rights, id): (u16, u32, u32)| {
            [&kind.to_le_bytes()[..], &(rights as u16).to_le_bytes(), &id.to_le_bytes()].concat()
        };
        VERSION.to_le_bytes().into_iter().chain(entries.into_iter().flat_map(entry)).collect()
    }
}

/// Returns a path in `/proc/self/fd` (proc(5)) that resolves to the open file itself, even if it was renamed. Needed
/// for system calls that refuse an `O_PATH` descriptor.
pub(crate) fn way(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// Whether the user may access an open file in all ways that are set in `bits` (4: read, 2: write). See
/// [`crate::folder::FoundFile::permits`].
///
/// # Errors
/// The error of fstat(2).
pub fn may_use(file: &OwnedFd, user: u32, bits: u32) -> Result<bool, Errno> {
    Ok(permits(&way(file), &rustix::fs::fstat(file)?, user, bits))
}

fn chmod(file: &Path, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmodat(CWD, file, Mode::from_raw_mode(mode), AtFlags::empty())
}

/// Whether the user may access a file in all ways that are set in `bits`. The user's groups are unknown, so a group's
/// permission counts only if all groups and others have it.
pub(crate) fn permits(file: &Path, stat: &Stat, user: u32, bits: u32) -> bool {
    let mut space = [0; LONGEST];
    let listed = match rustix::fs::getxattr(file, ATTRIBUTE, &mut space[..]) {
        Ok(len) => space.get(..len).and_then(entries),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Some(of_mode(stat.st_mode)),
        Err(_) => None,
    };
    let Some(entries) = listed else { return false };
    let has = |rights: u32| rights & bits == bits;
    let mask = entries.iter().find(|(kind, ..)| *kind == MASK).map_or(7, |&(_, rights, _)| rights);
    if stat.st_uid == user {
        return entries.iter().any(|&(kind, rights, _)| kind == OWNER && has(rights));
    }
    if let Some(&(_, rights, _)) = entries.iter().find(|&&(kind, _, id)| kind == USER && id == user) {
        return has(rights & mask);
    }
    entries.iter().all(|&(kind, rights, _)| match kind {
        OWNING_GROUP | GROUP => has(rights & mask),
        OTHERS => has(rights),
        _ => true,
    })
}

fn of_mode(mode: u32) -> Vec<(u16, u32, u32)> {
    [(OWNER, 6), (OWNING_GROUP, 3), (OTHERS, 0)].map(|(kind, shift)| (kind, mode >> shift & 7, NOBODY)).to_vec()
}

/// Decodes an access control list; `None` if the bytes are not a valid list.
fn entries(bytes: &[u8]) -> Option<Vec<(u16, u32, u32)>> {
    let (version, entries) = bytes.split_first_chunk()?;
    let entry = |e: &[u8; 8]| {
        let kind = u16::from_le_bytes([e[0], e[1]]);
        (kind, u32::from(u16::from_le_bytes([e[2], e[3]])), u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
    };
    let (entries, rest) = entries.as_chunks();
    (u32::from_le_bytes(*version) == VERSION && rest.is_empty()).then(|| entries.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 4;
    const WRITE: u32 = 2;

    /// Objective: an access control list admits exactly the users that it names; a group's permission counts only if
    /// all groups and others have it; the file's mode has the requested bits.
    #[test]
    fn those_who_are_named() {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let own = rustix::fs::fstat(&file).unwrap().st_uid;
        let may = |user| [READ, WRITE].map(|bits| may_use(&file, user, bits).unwrap());
        for (mode, users, groups, expected) in [
            (0o600, &[][..], &[][..], [false, false]),
            (0o604, &[], &[], [false, false]),
            (0o644, &[], &[], [true, false]),
            (0o666, &[], &[], [true, true]),
            (0o600, &[own + 1, own + 3], &[], [true, true]),
            (0o600, &[own + 3], &[own + 1], [false, false]),
            (0o444, &[], &[7], [true, false]),
        ] {
            let access = Access { mode, users: users.to_vec(), groups: groups.to_vec() };
            access.give(&file).unwrap();
            let bits = rustix::fs::fstat(&file).unwrap().st_mode;
            let group = if users.is_empty() && groups.is_empty() { mode & 0o070 } else { mode & 0o070 | 0o060 };
            assert_eq!(bits & 0o777, mode & 0o707 | group, "{access:?}");
            assert_eq!((may(own + 1), may(own)[0]), (expected, true), "{access:?}");
        }
    }

    /// Objective: bytes that are not an access control list are not decoded, and thus grant nothing.
    #[test]
    fn bytes_that_are_no_list_grant_nothing() {
        let list = Access { users: vec![5], ..Access::default() }.list();
        assert!(entries(&list).is_some_and(|entries| entries.len() == 5));
        for bad in [&list[..3], &list[..list.len() - 1], &[]] {
            assert_eq!(entries(bad), None);
        }
        assert_eq!(entries(&[&[3, 0, 0, 0], &list[4..]].concat()), None);
    }
}
