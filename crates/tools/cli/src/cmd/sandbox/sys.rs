//! System calls that no crate used here wraps: clone(2) into new namespaces, and signals as a descriptor (signalfd(2)).
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use libc::{c_int, c_long};
use rustix::process::Pid;

/// Size of a `struct signalfd_siginfo` in bytes.
const INFO: usize = 128;

/// A thread's mask of blocked signals.
#[derive(Clone, Copy)]
pub(super) struct SignalMask(libc::sigset_t);

/// Blocks these signals for the calling thread, and returns the thread's previous mask.
pub(super) fn block(signals: &[c_int]) -> io::Result<SignalMask> {
    let set = set_of(signals);
    let mut before = MaybeUninit::uninit();
    // SAFETY: both pointers are valid; the call fills `before` if it succeeds.
    let done = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
    if done != 0 {
        return Err(io::Error::from_raw_os_error(done));
    }
    // SAFETY: the call has succeeded.
    Ok(SignalMask(unsafe { before.assume_init() }))
}

fn set_of(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initializes the set, which is valid during both calls; sigaddset refuses an unknown number.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Makes the command's process start with this mask instead of the calling thread's.
pub(super) fn with_mask(command: &mut Command, mask: SignalMask) {
    let set = move || {
        // SAFETY: the mask is a valid set that lives through the call, and no former mask is requested.
        let done = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const mask.0, std::ptr::null_mut()) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes one call, which is async-signal-safe (signal-safety(7)), and allocates nothing.
    unsafe { command.pre_exec(set) };
}

/// Lets the kernel kill the command's process when this process ends.
pub(crate) fn end_with_this(command: &mut Command) {
    let parent = rustix::process::getpid();
    let set = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // If the parent ended before that call, the kernel sends no signal, so the parent must be checked.
        let is_alive = rustix::process::getppid() == Some(parent);
        if is_alive { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: the closure makes two calls, which are async-signal-safe (signal-safety(7)), and allocates nothing.
    unsafe { command.pre_exec(set) };
}

pub(crate) fn has_ended(child: &mut Child) -> bool {
    child.try_wait().is_ok_and(|status| status.is_some())
}

/// Kills a child process, and waits for its end. Both calls fail only if the process has already ended.
pub(crate) fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceivedSignal {
    pub number: c_int,
    /// How the signal was sent (`si_code`): by the kernel if positive; otherwise by kill(2), sigqueue(3) or similar
    /// calls.
    pub code: c_int,
    /// The process that sent the signal; 0 if the kernel sent it, or a process outside this process's PID namespace.
    pub sender: u32,
}

/// Blocked signals, as a descriptor that is readable while some are pending.
pub(super) struct SignalQueue(pub File);

impl SignalQueue {
    /// Creates a queue of these signals. The calling thread must block them.
    pub fn of(signals: &[c_int]) -> io::Result<SignalQueue> {
        let set = set_of(signals);
        // SAFETY: the set is valid; -1 requests a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has made this descriptor, and no other code has it.
        Ok(SignalQueue(unsafe { File::from_raw_fd(fd) }))
    }

    /// Takes the next pending signal; `None` if no signal is pending.
    pub fn next(&mut self) -> Option<ReceivedSignal> {
        let mut info = [0; INFO];
        self.0.read_exact(&mut info).ok()?;
        // The fields of a `struct signalfd_siginfo` are: number, errno, code, process, ….
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|n| info[at + n]));
        Some(ReceivedSignal { number: word(0).cast_signed(), code: word(8).cast_signed(), sender: word(12) })
    }
}

/// Sends a signal as sigqueue(3) does, so that the receiver can tell it from signals that the terminal sends to the
/// process group.
pub(super) fn send_queued(to: Pid, signal: c_int) -> io::Result<()> {
    let value = libc::sigval { sival_ptr: std::ptr::null_mut() };
    // SAFETY: the call only reads its arguments.
    let done = unsafe { libc::sigqueue(to.as_raw_pid(), signal, value) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Clones this process into new namespaces, as fork(2) does. In this process, returns the PID of the new process; in
/// the new process, returns `None`. Fails if this process has several threads.
pub(super) fn clone_into(namespaces: c_int) -> io::Result<Option<Pid>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("this process has several threads"));
    }
    // SAFETY: without CLONE_VM and a stack, this is fork(2): the new process has a copy of the memory. This process has
    // only one thread, so no lock in the copy is held by a thread that does not exist there.
    let pid = unsafe { libc::syscall(libc::SYS_clone, c_long::from(namespaces | libc::SIGCHLD), 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(i32::try_from(pid).ok().and_then(Pid::from_raw)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a queue returns the blocked signals with their senders, and a command can be started with another
    /// mask.
    #[test]
    fn blocked_signals_are_taken_from_the_queue() {
        std::thread::spawn(|| {
            let before = block(&[libc::SIGUSR2]).unwrap();
            let mut queue = SignalQueue::of(&[libc::SIGUSR2]).unwrap();
            assert_eq!(queue.next(), None);
            // SAFETY: the signalled thread is the calling thread.
            assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) }, 0);
            let signal = queue.next().unwrap();
            assert_eq!((signal.number, signal.code), (libc::SIGUSR2, libc::SI_TKILL));
            assert_eq!(signal.sender, std::process::id());
            let mut command = Command::new("sh");
            command.args(["-c", "kill -USR2 $$; exit 3"]);
            with_mask(&mut command, before);
            let status = command.status().unwrap();
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGUSR2));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn several_threads_are_not_cloned() {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        assert!(clone_into(0).unwrap_err().to_string().contains("threads"));
        drop(end);
        assert!(other.join().unwrap().is_err());
    }
}
