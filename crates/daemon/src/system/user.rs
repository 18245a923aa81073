//! Users and groups by name, and the change to another user.

use rustix::fs::{Gid, Uid};
use rustix::process::{getegid, geteuid};
use rustix::thread::{set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use thiserror::Error;

use super::sandbox::{ExtraCapability, SandboxError, keep};

/// Reason why the daemon cannot change to a user.
#[derive(Debug, Error)]
pub enum UserError {
    /// The user or group does not exist.
    #[error("{what} {name} does not exist; check {option}")]
    Unknown {
        /// The word `user` or `group`.
        what: &'static str,
        /// The name that was not found.
        name: String,
        /// The option that contains the name.
        option: &'static str,
    },
    /// The process lacks the right to change to the user.
    #[error("cannot change to user {uid}: {source}; start the daemon as root, or as that user")]
    Refused {
        /// ID of the user.
        uid: u32,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Capabilities could not be dropped.
    #[error(transparent)]
    Rights(#[from] SandboxError),
}

/// A user and the user's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User ID.
    pub uid: Uid,
    /// Group ID.
    pub gid: Gid,
}

impl User {
    /// Finds a user by name or number. For a user ID that `/etc/passwd` does not list, the group ID is the same number.
    ///
    /// # Errors
    /// [`UserError::Unknown`] if the name does not exist.
    pub fn find(name: &str) -> Result<User, UserError> {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let unknown = || UserError::Unknown { what: "user", name: name.to_owned(), option: "--user" };
        User::parse(&users, name).ok_or_else(unknown)
    }

    fn parse(users: &str, name: &str) -> Option<User> {
        let of = |line: &str| {
            let mut fields = line.split(':');
            let known = fields.next()?;
            let number = fields.nth(1)?;
            let uid = number.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            (known == name || number == name).then_some((uid, gid))
        };
        let number = || name.parse().ok().map(|id| (id, id));
        // chown(2) and setresuid(2) take `u32::MAX` as "no change".
        let (uid, gid) =
            users.lines().find_map(of).or_else(number).filter(|(uid, gid)| *uid != u32::MAX && *gid != u32::MAX)?;
        Some(User { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) })
    }

    /// Whether this process already runs as this user.
    pub fn is_this_process(self) -> bool {
        (geteuid(), getegid()) == (self.uid, self.gid)
    }

    /// Checks that this process can change to this user, before files are given to that user.
    ///
    /// # Errors
    /// [`UserError::Refused`] if the process does not run as root.
    pub fn check(self) -> Result<(), UserError> {
        if geteuid().is_root() { Ok(()) } else { Err(self.refused(rustix::io::Errno::PERM)) }
    }

    fn refused(self, error: rustix::io::Errno) -> UserError {
        UserError::Refused { uid: self.uid.as_raw(), source: error.into() }
    }

    /// Changes this thread, and the threads that it will start, to this user, with the capabilities that the daemon
    /// keeps.
    ///
    /// # Errors
    /// [`UserError`] if the kernel refuses; after that, the process may be partly switched, and should end.
    pub fn become_it(self, extra: ExtraCapability) -> Result<(), UserError> {
        let become_it = || {
            set_thread_groups(&[])?;
            set_thread_res_gid(self.gid, self.gid, self.gid)?;
            set_keep_capabilities(true)?;
            set_thread_res_uid(self.uid, self.uid, self.uid)?;
            set_keep_capabilities(false)
        };
        become_it().map_err(|e| self.refused(e))?;
        Ok(keep(extra)?)
    }
}

/// Parses a number, or finds a name's number in a file of colon-separated lines such as `/etc/passwd`.
///
/// # Errors
/// [`UserError::Unknown`] if the name does not exist.
pub fn id_of(what: &'static str, file: &str, name: &str) -> Result<u32, UserError> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|l| l.split(':').next() == Some(name));
    let id = line.and_then(|l| l.split(':').nth(2)).and_then(|n| n.parse().ok());
    id.ok_or_else(|| UserError::Unknown { what, name: name.to_owned(), option: "--socket-owner and --socket-group" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a user is found by name and by number, with the user's group; for an unlisted number, the group has
    /// the same number; unknown names are refused.
    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\nbroken\nvale:x:990:991::/:/bin/false\n7:x:1:1::/:\n";
        let find = |name| User::parse(users, name).map(|user| (user.uid.as_raw(), user.gid.as_raw()));
        assert_eq!(find("vale"), Some((990, 991)));
        assert_eq!(find("990"), Some((990, 991)));
        assert_eq!(find("12345"), Some((12345, 12345)));
        for nobody in ["", "val", "x", "-1", "4294967295", "99999999999"] {
            assert_eq!(find(nobody), None, "{nobody}");
        }
    }
}
