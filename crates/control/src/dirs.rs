//! Paths of the daemon's sockets.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::net::sockopt;

/// Name of the control socket in the run directory: `SOCK_STREAM`, JSON-RPC 2.0, one object per line.
pub const CONTROL_SOCKET: &str = "control.sock";
/// Name of the attach socket in the run directory: `SOCK_SEQPACKET`, the messages of [`crate::attach`].
pub const ATTACH_SOCKET: &str = "attach.sock";
/// Name of the file in the run directory that holds the daemon's command line, each word terminated by a zero byte.
/// Only a daemon that changes its user writes it, while still root.
pub const OPTIONS: &str = "options";
/// Environment variable that names the run directory.
pub const RUN_DIR_VARIABLE: &str = "NETVALE_RUN_DIR";

/// Run directory of the system's daemon.
pub const SYSTEM_RUN_DIR: &str = "/run/netvale";

/// Returns the default run directory of a daemon that this user starts: `$NETVALE_RUN_DIR`, else `/run/netvale` for
/// root, else `$XDG_RUNTIME_DIR/netvale`, else `/tmp/netvale-UID`.
pub fn default_run_dir() -> PathBuf {
    run_dir(|name| std::env::var_os(name), rustix::process::geteuid().as_raw())
}

/// Returns the run directory of the daemon to which this user connects at `socket`, [`CONTROL_SOCKET`] or
/// [`ATTACH_SOCKET`]. It is [`SYSTEM_RUN_DIR`] if `NETVALE_RUN_DIR` is unset, no daemon of this user listens in the
/// default directory, and this user may connect to the system's daemon. Otherwise it is the default directory.
pub fn daemon_run_dir(socket: &str) -> PathBuf {
    let own = default_run_dir();
    let system = Path::new(SYSTEM_RUN_DIR);
    if is_named() || (!is_foreign(&own) && presence(&own.join(socket)) != Presence::Nobody) {
        return own;
    }
    if presence(&system.join(socket)) == Presence::Listener { system.into() } else { own }
}

/// Returns whether `NETVALE_RUN_DIR` is unset and this user may not connect to the system daemon's socket.
pub fn is_kept_from_system(socket: &str) -> bool {
    !is_named() && presence(&Path::new(SYSTEM_RUN_DIR).join(socket)) == Presence::Denied
}

fn is_named() -> bool {
    std::env::var_os(RUN_DIR_VARIABLE).is_some_and(|value| !value.is_empty())
}

/// Whether a process listens at a socket's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Nobody,
    Listener,
    /// This user may not connect, so the answer is unknown.
    Denied,
}

/// Determines whether a process listens, without a connection: connecting a datagram socket fails with `EPROTOTYPE` if
/// there is a listener. A connection could make a service manager start a daemon, and the daemon would have to accept
/// it.
pub(crate) fn presence(socket: &Path) -> Presence {
    let asked = UnixDatagram::unbound().and_then(|probe| probe.connect(socket));
    match asked {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PROTOTYPE.raw_os_error()) => Presence::Listener,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Presence::Denied,
        _ => Presence::Nobody,
    }
}

/// Like [`default_run_dir`], for the given environment and user. An empty variable counts as unset; so does a relative
/// `XDG_RUNTIME_DIR`, as the XDG Base Directory Specification requires.
fn run_dir(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> PathBuf {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(dir) = path(RUN_DIR_VARIABLE) {
        return dir;
    }
    if uid == 0 {
        return SYSTEM_RUN_DIR.into();
    }
    match path("XDG_RUNTIME_DIR").filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("netvale"),
        None => last_resort(uid),
    }
}

fn last_resort(uid: u32) -> PathBuf {
    format!("/tmp/netvale-{uid}").into()
}

/// Returns whether `dir` is this user's directory in /tmp (`/tmp/netvale-UID`) but another user created it. If so, do
/// not connect: the other user can answer in place of the daemon.
pub fn is_foreign(dir: &Path) -> bool {
    is_foreign_to(rustix::process::geteuid().as_raw(), dir)
}

/// Returns whether `dir` is this user's directory in /tmp and the listener at the other end of `conn` is neither this
/// user nor root: another user may have created the directory since the check of [`is_foreign`].
pub fn is_impostor(dir: &Path, conn: impl AsFd) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    let is_trusted = |uid_there: u32| uid_there == 0 || uid_there == uid;
    dir == last_resort(uid) && !sockopt::socket_peercred(conn).is_ok_and(|peer| is_trusted(peer.uid.as_raw()))
}

fn is_foreign_to(uid: u32, dir: &Path) -> bool {
    dir == last_resort(uid) && std::fs::symlink_metadata(dir).is_ok_and(|meta| meta.uid() != uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the first variable that is set determines the run directory, in the documented order.
    #[test]
    fn the_first_source_that_is_set_wins() {
        let dir = |netvale: &str, xdg: &str, uid| {
            let variable = |name: &str| match name {
                "NETVALE_RUN_DIR" => Some(netvale.into()),
                "XDG_RUNTIME_DIR" => Some(xdg.into()),
                _ => None,
            };
            run_dir(variable, uid)
        };
        assert_eq!(dir("here", "/run/user/7", 7), PathBuf::from("here"));
        assert_eq!(dir("/x", "/run/user/0", 0), PathBuf::from("/x"));
        assert_eq!(dir("", "/run/user/0", 0), PathBuf::from("/run/netvale"));
        assert_eq!(dir("", "/run/user/7", 7), PathBuf::from("/run/user/7/netvale"));
        assert_eq!(dir("", "relative", 7), PathBuf::from("/tmp/netvale-7"));
        assert_eq!(run_dir(|_| None, 7), PathBuf::from("/tmp/netvale-7"));
    }

    /// Objective: a listener is found without a connection; a stale socket file has none.
    #[test]
    fn a_listener_is_found_without_a_connection() {
        let dir = tempfile::tempdir().unwrap();
        let alive = dir.path().join("alive");
        let left = dir.path().join("left");
        let listener = std::os::unix::net::UnixListener::bind(&alive).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
        assert_eq!(presence(&alive), Presence::Listener);
        assert_eq!(presence(&left), Presence::Nobody);
        assert_eq!(presence(&dir.path().join("none")), Presence::Nobody);
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().map(drop).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    }

    /// Removes a directory when the test ends, even with a panic.
    struct Made(PathBuf);

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir(&self.0);
        }
    }

    /// Objective: a user's directory in /tmp that another user created is recognised as foreign; a missing directory,
    /// or another path, is not.
    #[test]
    fn another_users_directory_is_recognised_as_foreign() {
        // A user ID that no user has, different for each test process.
        let uid = 3_000_000_000 + std::process::id();
        let dir = last_resort(uid);
        assert!(!is_foreign_to(uid, &dir));
        std::fs::create_dir(&dir).unwrap();
        let made = Made(dir);
        assert!(is_foreign_to(uid, &made.0));
        assert!(!is_foreign_to(uid, Path::new("/tmp")));
    }
}
