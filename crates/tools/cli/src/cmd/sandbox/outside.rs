//! The processes outside the namespaces: the gateway, and this one, which waits for the command's end.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::network::{SandboxNet, address_list};
use super::sys::{self, SignalQueue};
use super::watch::FlowWatch;
use super::{SIGNALS, SandboxArgs, exit_code, failed, rules};
use crate::CliError;
use crate::cmd::word_of;

/// How long the gateway may take to end, after the command.
const ENDING: Duration = Duration::from_secs(5);

/// Starts the gateway, whose standard input is the socket to `inside`. With `--watch`, returns the gateway's output
/// with its flows, too.
pub(super) fn start_gateway(
    args: &SandboxArgs,
    net: &SandboxNet,
    socket: UnixStream,
) -> Result<(Child, Option<ChildStdout>), CliError> {
    let program = std::env::current_exe().map_err(failed("finding this program"))?;
    let mut command = Command::new(program);
    command.arg0("netvale").args([
        "gateway",
        "sandbox",
        &address_list(args.addresses),
        "--tap",
        "--no-dhcp",
        "--no-ra",
    ]);
    command.args(rules::words(args, net)).arg("--resolv-conf").arg(&args.resolv_conf);
    command.args(["--log-level", &word_of(args.log_level)]);
    let to_stdout = args.watch || args.flows.as_deref().is_some_and(|file| file.as_os_str() == "-");
    match &args.flows {
        _ if to_stdout => command.args(["--flows", "-"]),
        Some(file) => command.arg("--flows").arg(file),
        None => &mut command,
    };
    let stdout = if args.watch { Stdio::piped() } else { Stdio::inherit() };
    command.stdin(OwnedFd::from(socket)).stdout(if to_stdout { stdout } else { Stdio::null() });
    let mut child = command.spawn().map_err(failed("starting the gateway"))?;
    let lines = child.stdout.take();
    Ok((child, lines))
}

/// The state of this process while the command runs.
pub(super) struct SandboxOutside {
    inside: Pid,
    gateway: Child,
    signals: SignalQueue,
    watch: Option<FlowWatch>,
}

impl SandboxOutside {
    /// Creates the state. From then on, this process receives signals through a queue.
    pub fn new(
        args: &SandboxArgs,
        inside: Pid,
        gateway: Child,
        lines: Option<ChildStdout>,
    ) -> Result<SandboxOutside, CliError> {
        let signals = SignalQueue::of(SIGNALS).map_err(failed("receiving signals"))?;
        let watch = lines.map(|lines| FlowWatch::open(File::from(OwnedFd::from(lines)), args.flows.as_deref()));
        Ok(SandboxOutside { inside, gateway, signals, watch: watch.transpose()? })
    }

    /// Waits until the command has ended, and then until the gateway has ended. Forwards signals that other processes
    /// send to this process; signals from the terminal reach the command directly.
    pub fn wait(mut self) -> Result<ExitCode, CliError> {
        let code = loop {
            if let Ok(Some((_, status))) = waitpid(Some(self.inside), WaitOptions::NOHANG) {
                break exit_code(status).into();
            }
            self.sleep(None);
            while let Some(signal) = self.signals.next() {
                // If the code is positive, the signal comes from the kernel: the terminal has sent the signal to the
                // whole process group, so this process does not forward the signal.
                if signal.number != libc::SIGCHLD && signal.code <= 0 {
                    let _ = sys::send_queued(self.inside, signal.number);
                }
            }
        };
        self.finish();
        Ok(code)
    }

    /// Waits until the gateway has written its flows and has ended; kills it after [`ENDING`].
    fn finish(mut self) {
        let begun = Instant::now();
        while !sys::has_ended(&mut self.gateway) {
            let left = ENDING.saturating_sub(begun.elapsed());
            if left.is_zero() {
                netvale_control::note!("netvale: the gateway did not end within {} s: killed", ENDING.as_secs());
                break;
            }
            self.sleep(Some(left));
            while self.signals.next().is_some() {}
        }
        sys::kill(&mut self.gateway);
        self.watch.into_iter().for_each(|mut watch| watch.read());
    }

    /// Waits for a signal or for flows, for at most `limit`, and prints the flows.
    fn sleep(&mut self, limit: Option<Duration>) {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = vec![PollFd::new(&self.signals.0, PollFlags::IN)];
        let lines = self.watch.as_ref().filter(|watch| !watch.is_at_end);
        fds.extend(lines.map(|watch| PollFd::new(&watch.from, PollFlags::IN)));
        let _ = rustix::event::poll(&mut fds, limit.as_ref());
        let is_ready = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        if let Some(watch) = self.watch.as_mut().filter(|_| is_ready) {
            watch.read();
        }
    }
}
