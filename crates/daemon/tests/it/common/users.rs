//! Acting as other users.
#![allow(unsafe_code)]

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Daemon, is_root};

pub use netvale_harness::attacks::as_user;

/// Switches all threads of this process to user `uid`.
pub fn become_user(uid: u32) {
    // SAFETY: the calls access no memory.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) | libc::setresgid(uid, uid, uid) | libc::setresuid(uid, uid, uid)
    };
    assert_eq!(done, 0, "cannot become user {uid}");
}

/// Sets the owner and the permissions of a file or folder.
pub fn open_to(path: &Path, owner: u32, mode: u32) {
    chown(path, Some(owner), Some(owner)).unwrap();
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Creates a folder that belongs to user `owner`.
pub fn folder_of(owner: u32, mode: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    open_to(folder.path(), owner, mode);
    folder
}

/// A user whose captures have a quota of 2 MiB, and the daemon that enforces the quota.
pub struct Captures {
    pub daemon: Daemon,
    pub folder: TempDir,
    user: u32,
}

impl Captures {
    /// Starts the daemon by `start`, which gets the daemon's folder and configuration. Starts two captures, and ends
    /// the first. If this process is not root, reports *skipped*.
    pub fn two(user: u32, start: impl FnOnce(TempDir, &str) -> Daemon) -> Option<Captures> {
        if !is_root("needs root, to be two users") {
            return None;
        }
        let [dir, folder] = [folder_of(0, 0o755), folder_of(user, 0o777)];
        let more = format!(
            "sandbox = true\nallow_dirs = [{:?}]\n[switch]\nshared = ['*']\n[sockets]\nmode = '0666'\n[quota]\n\
             captures_mib = 2",
            folder.path()
        );
        let this = Captures { daemon: start(dir, &more), folder, user };
        for name in ["one", "two"] {
            let reply = this.start(name);
            assert!(reply["error"].is_null(), "{reply}");
        }
        this.stop("one");
        Some(this)
    }

    /// Starts a capture as the user. Returns the answer.
    pub fn start(&self, name: &str) -> Value {
        let port = format!("pcap:out={}", self.folder.path().join(name).display());
        let params = json!({"switch": "vale7", "port": port, "options": {"name": name}});
        as_user(self.user, || self.daemon.call("port.attach", params))
    }

    pub fn stop(&self, name: &str) {
        self.daemon.call("port.detach", json!({"switch": "vale7", "port": name}));
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.folder.path().join(name)).unwrap();
    }

    /// Asserts that another capture is refused because the quota is used up.
    pub fn are_exhausted(&self) {
        let refused = self.start("three")["error"].to_string();
        assert!(refused.contains("2 MiB of captures, and the limit is 2"), "{refused}");
    }
}
