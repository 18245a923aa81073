//! Captures on a port of another host: ssh starts `netvale dump` on that host, and its pcapng output goes directly into
//! the FIFO.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::names::RemotePlace;
use crate::CliError;

/// Time limit for ssh to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// Options of the interface for ports of other hosts.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of ssh interfaces")]
pub struct SshOptions {
    /// The host.
    #[arg(long, value_name = "HOST")]
    remote_host: Option<String>,

    /// The TCP port of the host's ssh server.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    remote_port: Option<u16>,

    /// The user on that host.
    #[arg(long, value_name = "USER")]
    remote_username: Option<String>,

    /// The port on that host, e.g. vale0:a.
    #[arg(long, value_name = "PORT")]
    remote_interface: Option<String>,

    /// The netvale command on that host.
    #[arg(long, value_name = "COMMAND", default_value = "netvale")]
    remote_command: String,

    /// A file with the private key.
    #[arg(long, value_name = "FILE")]
    ssh_identity: Option<PathBuf>,
}

/// The port of another host, and how to reach it.
#[derive(Debug, PartialEq, Eq)]
pub struct RemoteCapture {
    host: String,
    user: Option<String>,
    tcp: Option<u16>,
    port: String,
    command: String,
    identity: Option<PathBuf>,
}

/// The parameters of a capture.
pub struct CaptureParams<'a> {
    /// The frames to capture: received (`r`), sent (`t`) or both (`rt`).
    pub direction: &'a str,
    /// Maximum number of bytes that are kept of each frame; 0 for no limit.
    pub snaplen: u32,
    /// An expression of pcap-filter(7), which the other host compiles.
    pub filter: Option<&'a str>,
}

impl SshOptions {
    /// Completes the command's options with the parts that the interface's name contains.
    ///
    /// # Errors
    /// Neither the options nor the interface's name contain the host, or the port.
    pub fn with(&self, place: &RemotePlace) -> Result<RemoteCapture, CliError> {
        let missing = |what: &str| {
            CliError::usage(format!("no {what} given"), "give --remote-host and --remote-interface, or ssh://HOST/PORT")
        };
        let either = |first: &Option<String>, second: &Option<String>| {
            first.clone().or_else(|| second.clone()).filter(|text| !text.is_empty())
        };
        Ok(RemoteCapture {
            host: either(&place.host, &self.remote_host).ok_or_else(|| missing("host"))?,
            user: either(&place.user, &self.remote_username),
            tcp: place.tcp.or(self.remote_port),
            port: either(&place.port, &self.remote_interface).ok_or_else(|| missing("port"))?,
            command: self.remote_command.clone(),
            identity: self.ssh_identity.clone().filter(|path| !path.as_os_str().is_empty()),
        })
    }
}

impl RemoteCapture {
    /// Returns the command line that the other host's shell runs.
    fn there(&self, watch: &CaptureParams<'_>) -> String {
        let port = quoted(&format!("{}/{}", self.port, watch.direction));
        let mut line = format!("{} dump --format pcapng -w - -s {} ", self.command, watch.snaplen);
        if let Some(filter) = watch.filter {
            line.push_str(&format!("--filter={} ", quoted(filter)));
        }
        line + "-- " + &port
    }

    fn ssh(&self, watch: &CaptureParams<'_>) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.arg("-T");
        if let Some(tcp) = self.tcp {
            ssh.args(["-p", &tcp.to_string()]);
        }
        if let Some(user) = &self.user {
            ssh.args(["-l", user]);
        }
        if let Some(identity) = &self.identity {
            ssh.arg("-i").arg(identity);
        }
        // After `--`, ssh does not interpret a host that begins with `-` as an option.
        ssh.arg("--").arg(&self.host).arg(self.there(watch));
        ssh
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Captures until the FIFO's reader closes, a signal arrives, or the capture on the other host ends.
///
/// # Errors
/// The FIFO cannot be opened, or ssh cannot be started or fails; if ssh fails, it has already printed its error.
pub fn capture(remote: &RemoteCapture, watch: &CaptureParams<'_>, fifo: &Path) -> Result<(), CliError> {
    let unwritable = |e| CliError::failed(format!("cannot write {}: {e}", fifo.display()), "name another file");
    let to = File::create(fifo).map_err(unwritable)?;
    let out = to.try_clone().map_err(unwritable)?;
    let stop = crate::signals::stop_pipe()?;
    let failed = |e| CliError::failed(format!("cannot start ssh: {e}"), "install openssh-client");
    let mut child = remote.ssh(watch).stdin(Stdio::null()).stdout(out).spawn().map_err(failed)?;
    let asked_for = wait(&child, &to, stop.as_fd());
    let status = end(&mut child, asked_for).map_err(failed)?;
    if asked_for || status.success() {
        return Ok(());
    }
    Err(CliError::failed(format!("ssh to {}: {status}", remote.host), "see ssh's message above"))
}

/// Waits until ssh has ended, the FIFO's reader has closed, or a signal arrives. Returns `true` if ssh is still
/// running, so that the caller must end it.
fn wait(child: &Child, to: &File, stop: BorrowedFd<'_>) -> bool {
    let Ok(ended) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else { return false };
    // A regular file has no reader that could close, and poll always reports it as ready.
    let is_pipe = to.metadata().is_ok_and(|meta| !meta.is_file());
    let mut fds = vec![PollFd::new(&ended, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
    fds.extend(is_pipe.then(|| PollFd::new(to, PollFlags::empty())));
    loop {
        if matches!(poll(&mut fds, None), Err(e) if e != rustix::io::Errno::INTR) {
            return true;
        }
        if fds.iter().any(|fd| !fd.revents().is_empty()) {
            return fds[0].revents().is_empty();
        }
    }
}

/// Waits for ssh to end. With `asked_for`, first sends SIGTERM to ssh, and kills ssh after the time limit.
fn end(child: &mut Child, asked_for: bool) -> std::io::Result<ExitStatus> {
    if !asked_for {
        return child.wait();
    }
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: neither ssh nor the other host's shell splits, expands or reinterprets a word that the user gave.
    #[test]
    fn no_shell_takes_a_word_for_another() {
        let remote = RemoteCapture {
            host: "-oProxyCommand=x".into(),
            user: Some("me".into()),
            tcp: Some(22),
            port: "vale0:a'; reboot; '".into(),
            command: "sudo netvale".into(),
            identity: None,
        };
        let watch = CaptureParams { direction: "rt", snaplen: 96, filter: Some("host 'x'") };
        let ssh = remote.ssh(&watch);
        let words: Vec<_> = ssh.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words[..7], ["-T", "-p", "22", "-l", "me", "--", "-oProxyCommand=x"]);
        let there =
            r"sudo netvale dump --format pcapng -w - -s 96 --filter='host '\''x'\''' -- 'vale0:a'\''; reboot; '\''/rt'";
        assert_eq!(words[7..], [there]);
    }
}
