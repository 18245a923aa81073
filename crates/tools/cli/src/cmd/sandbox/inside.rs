//! The first process inside the namespaces: it sets up the namespaces, runs the command, and ends when the command
//! ends. When this process ends, the kernel kills all processes of its PID namespace.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};

use netvale_confine::SandboxError;
use netvale_confine::calls::{CallList, int, none_of};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, wait};

use super::names::NameFile;
use super::network::SandboxNet;
use super::sys::{self, SignalMask, SignalQueue};
use super::{NEXT, SIGNALS, exit_code, failed};
use crate::CliError;

/// Exit code of this process if the namespaces cannot be set up.
const FAILED: u8 = 1;
/// The exit code that shells use for a command that does not exist.
const NOT_FOUND: u8 = 127;
/// The exit code that shells use for a command that exists but cannot be run.
const NOT_RUN: u8 = 126;
/// Time between attempts to mount `resolv.conf`: 100 ms.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The permitted address families: sockets of these families belong to a network namespace, or cannot reach a network.
const FAMILIES: [libc::c_int; 5] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];
/// System calls that are refused because they have effects outside the namespaces: io_uring creates sockets without
/// passing the seccomp filter, and key requests make the kernel start a program of the host, which may query the host's
/// name servers.
const OUTSIDE: [i64; 4] = [libc::SYS_io_uring_setup, libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl];
/// The system call numbers of `ioctl` in the x32 ABI, which uses 514 instead of 16. Old kernels accept 514 without the
/// x32 bit, too.
#[cfg(target_arch = "x86_64")]
const X32_IOCTL: [i64; 2] = [514, 514 | 0x4000_0000];
#[cfg(not(target_arch = "x86_64"))]
const X32_IOCTL: [i64; 0] = [];
/// The `ioctl` requests with which a process can write to its terminal's input.
const INPUTS: [libc::c_int; 2] = [libc::TIOCSTI as libc::c_int, libc::TIOCLINUX as libc::c_int];

/// The data that the first process in the namespaces gets from the process that cloned it.
pub(super) struct SandboxInside<'a> {
    pub command: &'a [OsString],
    pub net: SandboxNet,
    /// The socket to the parent process, which sends a byte once users and groups are mapped.
    pub parent: UnixStream,
    /// The socket to the gateway, which sends a byte once it is ready.
    pub gateway: UnixStream,
    /// The signal mask with which the command starts. This process itself blocks more signals.
    pub mask: SignalMask,
}

impl SandboxInside<'_> {
    /// Runs the command in this process's namespaces, and returns its exit code.
    pub fn run(mut self) -> Result<u8, CliError> {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("watching the parent"))?;
        // If no byte arrives, the parent has ended, possibly before the line above was executed, and has printed the
        // reason.
        if !has_byte(&mut self.parent) {
            return Ok(FAILED);
        }
        let tap = self.net.make()?;
        let sent = netvale_fdio::send(&self.gateway, b"t", &[tap], SendFlags::empty());
        sent.map_err(failed("passing the interface to the gateway"))?;
        let names = self.mount()?;
        set_sysctls();
        rustix::thread::set_no_new_privs(true).map_err(failed("setting no_new_privs"))?;
        limit_calls().map_err(|why| CliError::failed(format!("cannot filter the command's calls: {why}"), NEXT))?;
        // If no byte arrives, the gateway could not start, and has printed the reason.
        if !has_byte(&mut self.gateway) {
            return Ok(FAILED);
        }
        let signals = SignalQueue::of(SIGNALS).map_err(failed("receiving signals"))?;
        match self.start() {
            Ok(child) => self.keep(&child, signals, names),
            Err(code) => Ok(code),
        }
    }

    /// Mounts a `/proc` for the new PID namespace, and a `resolv.conf` that names the gateway.
    fn mount(&self) -> Result<NameFile, CliError> {
        let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change("/", propagation).map_err(failed("separating the mounts"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        if let Err(why) = mount("proc", "/proc", "proc", flags, None::<&CStr>) {
            netvale_control::note!("netvale: cannot mount /proc ({why}): the command sees the host's processes there");
        }
        let mut names = NameFile::of(self.net.name_server());
        names.begin().map_err(failed("mounting /etc/resolv.conf"))?;
        if !names.is_mounted() {
            netvale_control::note!("netvale: there is no /etc/resolv.conf: the command cannot resolve names");
        }
        Ok(names)
    }

    /// Starts the command. If that fails, prints the reason, and returns the exit code for this process as the error.
    fn start(&self) -> Result<Child, u8> {
        let [program, rest @ ..] = self.command else { return Err(FAILED) };
        let mut command = Command::new(program);
        command.args(rest);
        sys::with_mask(&mut command, self.mask);
        command.spawn().map_err(|why| {
            netvale_control::note!(
                "netvale: cannot run {}: {why}\n  check its name and permissions",
                program.display()
            );
            if exists(program) { NOT_RUN } else { NOT_FOUND }
        })
    }

    /// Waits for the command's end, forwards signals from outside, and keeps `resolv.conf` mounted. Returns the exit
    /// code.
    fn keep(&self, child: &Child, mut signals: SignalQueue, mut names: NameFile) -> Result<u8, CliError> {
        let command = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let mounts = File::open("/proc/self/mountinfo").ok();
        let mut is_named = names.is_mounted();
        loop {
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                if Some(pid) == command {
                    return Ok(exit_code(status));
                }
            }
            if !self.sleep(&signals, mounts.as_ref().filter(|_| is_named), !is_named) {
                return Err(CliError::failed(
                    "the gateway has ended, so the command was stopped: it had no network any more",
                    "start it again; messages of the gateway are above",
                ));
            }
            is_named = names.renew();
            while let Some(signal) = signals.next() {
                if let Some(command) = command.filter(|_| signal.code == libc::SI_QUEUE && signal.sender == 0) {
                    let _ = Signal::from_named_raw(signal.number).map(|signal| kill_process(command, signal));
                }
            }
        }
    }

    /// Waits for a signal, a change of mounts or the end of the gateway; with `again`, waits for at most [`AGAIN`].
    /// Returns whether the gateway is still running.
    fn sleep(&self, signals: &SignalQueue, mounts: Option<&File>, again: bool) -> bool {
        let mut fds = vec![PollFd::new(&signals.0, PollFlags::IN), PollFd::new(&self.gateway, PollFlags::IN)];
        fds.extend(mounts.map(|file| PollFd::new(file, PollFlags::PRI)));
        let _ = rustix::event::poll(&mut fds, again.then_some(&AGAIN));
        // The gateway sends nothing after its first byte, so its socket becomes readable only when the gateway ends.
        fds[1].revents().is_empty()
    }
}

/// Searches for a program as a shell does. Returns whether it exists. The kernel's error does not tell this: if PATH
/// has a folder that this user may not enter, the error is EACCES.
fn exists(program: &OsStr) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn has_byte(from: &mut UnixStream) -> bool {
    from.read_exact(&mut [0]).is_ok()
}

/// Permits the command to send pings and to use ports below 1024 in its own network namespace. If /proc/sys is
/// read-only, both remain forbidden.
fn set_sysctls() {
    let group = rustix::process::getegid().as_raw();
    let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", format!("{group} {group}"));
    let _ = fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

/// Denies sockets that do not belong to a network namespace, such as those of virtual machines (`AF_VSOCK`), and system
/// calls that act outside the namespaces. Denies writing to the terminal's input, too, since the caller's shell would
/// read this input after the command has ended.
fn limit_calls() -> Result<(), SandboxError> {
    let other_families = none_of(0, &FAMILIES)?;
    let calls = [libc::SYS_socket, libc::SYS_socketpair].into_iter().flat_map(numbers);
    netvale_confine::refuse(calls.map(|call| (call, vec![other_families.clone()])).collect(), libc::EAFNOSUPPORT)?;
    let calls = OUTSIDE.into_iter().flat_map(numbers).map(|call| (call, Vec::new()));
    netvale_confine::refuse(calls.collect(), libc::ENOSYS)?;
    let mut inputs = CallList::default();
    for call in numbers(libc::SYS_ioctl).chain(X32_IOCTL) {
        INPUTS.iter().for_each(|request| inputs.add_line(call, &[int(1, *request)]));
    }
    netvale_confine::refuse(inputs.rules([])?, libc::EPERM)
}

/// Returns the numbers of a system call: on x86-64, these include the number in the x32 ABI.
fn numbers(call: i64) -> impl Iterator<Item = i64> {
    #[cfg(target_arch = "x86_64")]
    let x32 = Some(call | 0x4000_0000);
    #[cfg(not(target_arch = "x86_64"))]
    let x32 = None;
    [call].into_iter().chain(x32)
}
