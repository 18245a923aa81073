//! Connections to sockets in a guest, by `ssh`, which reaches the guest through the gateway's dial socket.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::Shutdown;

use super::relay::GuestDialer;
use super::stream::GvStream;
use super::{PROGRAM, log};

/// The environment variable with the dial socket's path. If it is set, this program acts as ssh's ProxyCommand.
const DIAL: &str = "NETVALE_GVPROXY_DIAL";
/// The environment variable with the guest's address and port, for the ProxyCommand.
const GUEST: &str = "NETVALE_GVPROXY_GUEST";
/// Maximum time to wait for a connection through ssh.
const LIMIT: Duration = Duration::from_secs(60);
/// Minimum time between two starts of ssh.
const AGAIN: Duration = Duration::from_millis(500);
/// Interval at which this program checks whether ssh listens on its socket.
const PAUSE: Duration = Duration::from_millis(20);

/// The network's resources that ssh needs.
#[derive(Clone, Debug)]
pub(super) struct SshPlaces {
    /// The folder of ssh's sockets, which also has a link to this program.
    pub folder: PathBuf,
    pub dialer: GuestDialer,
}

/// A socket in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SshTarget {
    pub user: String,
    /// Address and port of the guest's SSH server.
    pub guest: SocketAddr,
    /// Path of the key.
    pub identity: PathBuf,
    /// Path of the socket in the guest.
    pub dest: String,
}

/// A tunnel to a socket in the guest. The tunnel's ssh process is started for the first connection, started again if it
/// has ended, and killed when the tunnel is dropped.
#[derive(Debug)]
pub(super) struct SshTunnel {
    target: SshTarget,
    places: SshPlaces,
    /// The socket at which ssh listens.
    socket: PathBuf,
    process: Mutex<SshProcess>,
}

#[derive(Debug, Default)]
struct SshProcess {
    child: Option<Child>,
    started: Option<Instant>,
}

impl SshTunnel {
    /// Creates a tunnel. `name` must be unique in the folder.
    pub(super) fn new(target: SshTarget, places: &SshPlaces, name: &str) -> SshTunnel {
        let socket = places.folder.join(format!("ssh-{name}.sock"));
        SshTunnel { target, places: places.clone(), socket, process: Mutex::default() }
    }

    /// Connects to the guest's socket. Waits until the guest's SSH server answers.
    ///
    /// # Errors
    /// ssh cannot be started, or does not connect in time; the messages of ssh are in the log.
    pub(super) fn connect(&self) -> io::Result<GvStream> {
        let begun = Instant::now();
        loop {
            self.keep_running()?;
            match GvStream::connect(&self.socket) {
                Ok(stream) => return Ok(stream),
                Err(_) if begun.elapsed() < LIMIT => std::thread::sleep(PAUSE),
                Err(why) => return Err(why),
            }
        }
    }

    fn keep_running(&self) -> io::Result<()> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let is_running = process.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if is_running || process.started.is_some_and(|started| started.elapsed() < AGAIN) {
            return Ok(());
        }
        let child = self.command()?.spawn();
        process.child = Some(child.map_err(|why| io::Error::other(format!("cannot run ssh: {why}")))?);
        process.started = Some(Instant::now());
        Ok(())
    }

    fn command(&self) -> io::Result<Command> {
        let link = self.places.folder.join(PROGRAM);
        match std::os::unix::fs::symlink(std::env::current_exe()?, &link) {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
            _ => {}
        }
        let mut command = Command::new("ssh");
        // ssh uses only these options and none from the user's files. As in gvproxy, the guest's host key is not
        // checked: each new guest has another key, and the path to the guest is private.
        let proxy = format!("ProxyCommand={}", quoted(&escaped(&link)));
        let mut options = vec![proxy];
        options.extend(OPTIONS.iter().map(|option| (*option).to_owned()));
        command.args(["-F", "none", "-N", "-T"]).args(options.iter().flat_map(|option| ["-o", option]));
        command.arg("-i").arg(&self.target.identity);
        command.arg("-L").arg(format!("{}:{}", escaped(&self.socket), self.target.dest));
        command.arg("-p").arg(self.target.guest.port().to_string());
        command.args(["-l", &self.target.user, "--", &self.target.guest.ip().to_string()]);
        command.env(DIAL, &self.places.dialer.path).env(GUEST, self.target.guest.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

const OPTIONS: [&str; 11] = [
    "BatchMode=yes",
    "ConnectTimeout=5",
    "ExitOnForwardFailure=yes",
    "GlobalKnownHostsFile=/dev/null",
    "IdentitiesOnly=yes",
    "LogLevel=ERROR",
    "ServerAliveInterval=15",
    "StreamLocalBindMask=0177",
    "StreamLocalBindUnlink=yes",
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
];

/// Quotes a word for the user's shell, which runs the ProxyCommand.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Escapes a path for an option of ssh, in which `%` begins a token.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

impl Drop for SshTunnel {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = &mut process.child {
            // Both calls fail only if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Checks that ssh cannot interpret a part of a target as another argument.
pub(super) fn check(target: &SshTarget) -> Result<(), String> {
    if target.user.is_empty() || target.user.starts_with('-') {
        return Err(format!("invalid SSH user {:?}: expected a name", target.user));
    }
    // In ssh's option, a colon separates the parts.
    if !target.dest.starts_with('/') || target.dest.contains(':') {
        return Err(format!("invalid socket {:?} in the guest: expected a path without a colon", target.dest));
    }
    Ok(())
}

/// If ssh has started this program as its ProxyCommand, connects ssh to the guest, and returns the exit code when the
/// connection has ended. Otherwise returns `None`.
pub(super) fn as_proxy_command() -> Option<ExitCode> {
    let path = std::env::var_os(DIAL)?;
    let guest = std::env::var(GUEST).ok()?.parse().ok()?;
    let dialed = GuestDialer { path: path.into() }.dial(guest);
    Some(match dialed.and_then(|stream| carry(&stream)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log::error(format_args!("cannot connect to {guest}: {why}"));
            ExitCode::FAILURE
        }
    })
}

/// Carries bytes from standard input to the guest, and from the guest to standard output.
fn carry(stream: &GvStream) -> io::Result<()> {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut to = stream;
            let _ = io::copy(&mut io::stdin().lock(), &mut to);
            stream.shutdown(Shutdown::Write);
        });
        let mut from = stream;
        let mut bytes = vec![0; 64 << 10];
        let mut out = io::stdout().lock();
        loop {
            let len = from.read(&mut bytes)?;
            if len == 0 {
                // The process ends with this direction, since the other thread may wait for input that never comes.
                std::process::exit(0);
            }
            out.write_all(bytes.get(..len).unwrap_or_default()).and_then(|()| out.flush())?;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(user: &str, dest: &str) -> SshTarget {
        let guest = "192.168.127.2:22".parse().unwrap();
        SshTarget { user: user.into(), guest, identity: "/k".into(), dest: dest.into() }
    }

    #[test]
    fn words_that_would_be_other_arguments_are_refused() {
        assert!(check(&target("core", "/run/podman/podman.sock")).is_ok());
        for bad in [target("", "/a"), target("-oX", "/a"), target("core", "a"), target("core", "/a:b")] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }

    /// Objective: ssh gets the guest's address, the key and the sockets, and uses none of the user's configuration.
    #[test]
    fn ssh_is_told_all_it_needs() {
        let dir = tempfile::tempdir().unwrap();
        let places = SshPlaces { folder: dir.path().into(), dialer: GuestDialer { path: "/dial".into() } };
        let tunnel = SshTunnel::new(target("core", "/run/p.sock"), &places, "3");
        let command = tunnel.command().unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let line = words.join(" ");
        assert!(line.starts_with("-F none -N -T -o ProxyCommand='"), "{line}");
        let socket = dir.path().join("ssh-3.sock");
        assert!(line.contains(" -o LogLevel=ERROR "), "{line}");
        let end = format!("-i /k -L {}:/run/p.sock -p 22 -l core -- 192.168.127.2", socket.display());
        assert!(line.ends_with(&end), "{line}");
        assert!(dir.path().join("gvproxy").is_symlink());
    }
}
