//! Names inside the sandbox: `/etc/resolv.conf` names the gateway, and the sockets of the host's name services, which
//! the C library would query, are hidden.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The folder of systemd-resolved, with its sockets and its variants of `resolv.conf`.
const RESOLVED: &str = "/run/systemd/resolve";
const RESOLVED_FILES: [&str; 2] = ["resolv.conf", "stub-resolv.conf"];
/// Folders with sockets of other name services.
const OTHERS: [&str; 3] = ["/run/nscd", "/var/run/nscd", "/run/avahi-daemon"];
/// A folder that always exists and that commands do not need: the tmpfs with the new file is briefly mounted on this
/// folder.
const INTERIM: &str = "/proc/driver";

/// The file that is mounted over the host's `resolv.conf`.
pub(super) struct NameFile {
    text: String,
    /// Device and inode of the mounted file; `None` if it is not mounted.
    mounted: Option<(u64, u64)>,
}

impl NameFile {
    /// Returns the file that names this server.
    pub fn of(server: IpAddr) -> NameFile {
        let text = format!("# The gateway of netvale sandbox\nnameserver {server}\noptions edns0\n");
        NameFile { text, mounted: None }
    }

    /// Hides the host's name services, and mounts the file.
    ///
    /// # Errors
    /// A mount fails.
    pub fn begin(&mut self) -> io::Result<()> {
        for folder in OTHERS.iter().filter(|folder| Path::new(folder).is_dir()) {
            mount_memory(folder)?;
        }
        if Path::new(RESOLVED).is_dir() {
            mount_memory(RESOLVED)?;
            for name in RESOLVED_FILES {
                fs::write(Path::new(RESOLVED).join(name), &self.text)?;
            }
        }
        self.put()
    }

    /// Mounts the file again if the host has replaced its `resolv.conf`, which has removed the mount. Returns whether
    /// the file is mounted. It is not while the host's file is missing or being replaced; the caller must try again
    /// later.
    pub fn renew(&mut self) -> bool {
        if identity() != self.mounted || self.mounted.is_none() {
            self.mounted = None;
            let _ = self.put();
        }
        self.mounted.is_some()
    }

    fn put(&mut self) -> io::Result<()> {
        if identity().is_none() {
            return Ok(());
        }
        mount_memory(INTERIM)?;
        let file = Path::new(INTERIM).join("resolv.conf");
        let done = fs::write(&file, &self.text).and_then(|()| Ok(mount_bind(&file, RESOLV_CONF)?));
        unmount(INTERIM, UnmountFlags::DETACH)?;
        done?;
        self.mounted = identity();
        Ok(())
    }

    /// Returns whether the file is mounted.
    pub fn is_mounted(&self) -> bool {
        self.mounted.is_some()
    }
}

fn identity() -> Option<(u64, u64)> {
    fs::metadata(RESOLV_CONF).ok().map(|meta| (meta.dev(), meta.ino()))
}

fn mount_memory(folder: &str) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("netvale", folder, "tmpfs", flags, c"mode=755,size=64k")?)
}
