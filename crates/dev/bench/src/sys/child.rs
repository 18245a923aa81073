//! A child process that is talked to through its prompt, frozen while others are measured, and killed when dropped.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{BenchError, Result, tail};
use crate::interrupt;

/// The child's output that has not been read yet.
#[derive(Default)]
struct Output {
    state: Mutex<OutputState>,
    grown: Condvar,
}

#[derive(Default)]
struct OutputState {
    text: String,
    ended: bool,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill_from(&self, mut pipe: impl Read) {
        let mut chunk = [0; 4096];
        loop {
            let length = pipe.read(&mut chunk).unwrap_or(0);
            let mut state = self.lock();
            state.text.push_str(&String::from_utf8_lossy(chunk.get(..length).unwrap_or_default()));
            state.ended = length == 0;
            self.grown.notify_all();
            if state.ended {
                return;
            }
        }
    }
}

/// A running child in a process group of its own (Ctrl-C at the terminal does not reach it before our own clean-up),
/// which the kernel also kills should this process die without any clean-up.
pub struct Child {
    program: String,
    process: process::Child,
    stdin: Option<ChildStdin>,
    output: Arc<Output>,
}

impl Child {
    /// Starts `command`; its stdout is read through [`Child::expect`], its stderr goes to `log`.
    pub fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let errors = File::create(log).map_err(BenchError::io(format!("creating {}", log.display())))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).process_group(0);
        die_with_parent(&mut command);
        let mut process = command.spawn().map_err(BenchError::spawn(&program))?;
        let output = Arc::new(Output::default());
        if let Some(pipe) = process.stdout.take() {
            let sink = Arc::clone(&output);
            std::thread::spawn(move || sink.fill_from(pipe));
        }
        Ok(Self { program, stdin: process.stdin.take(), process, output })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Writes one line to the child's prompt.
    pub fn say(&self, line: &str) -> Result<()> {
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let written = self.stdin.as_ref().ok_or_else(gone).and_then(|mut stdin| writeln!(stdin, "{line}"));
        written.map_err(BenchError::io(format!("talking to {}", self.program)))
    }

    /// Waits until the child has printed `wanted` and returns everything up to and including it.
    pub fn expect(&self, wanted: &str, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        let mut state = self.output.lock();
        loop {
            if let Some(at) = state.text.find(wanted) {
                let rest = state.text.split_off(at + wanted.len());
                return Ok(std::mem::replace(&mut state.text, rest));
            }
            interrupt::check()?;
            if state.ended || Instant::now() >= end {
                return Err(self.silent(wanted, limit, &state.text));
            }
            let slice = Duration::from_millis(100);
            state = self.output.grown.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn silent(&self, wanted: &str, limit: Duration, text: &str) -> BenchError {
        let program = self.program.clone();
        let wanted = wanted.to_owned();
        let output = tail(text).to_owned();
        BenchError::Silent { program, wanted, limit, output }
    }

    /// Stops the process and all its threads where they are.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process_group(Pid::from_child(&self.process), signal)
            .map_err(BenchError::io(format!("signalling {}", self.program)))
    }

    /// Whether it is still there.
    pub fn alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only when the child is already gone, which is what is wanted.
        let _ = self.signal(Signal::KILL);
        let _ = self.process.wait();
    }
}

/// Runs a command to its end and returns its stdout.
pub fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    die_with_parent(command.process_group(0));
    let output = command.stdin(Stdio::null()).output().map_err(BenchError::spawn(&program))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    let said = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    Err(BenchError::failed(format!("{program} {}", arguments.join(" ")), output.status, &said))
}

/// Asks the kernel to kill the child when the thread that started it ends.
fn die_with_parent(command: &mut Command) {
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe calls are sound:
    // - it makes one system call, prctl(PR_SET_PDEATHSIG), through rustix, which neither allocates nor locks;
    // - it touches no memory of the parent, and converts the error without allocating (`io::Error` of an OS code).
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cat() -> (tempfile::TempDir, Child) {
        let folder = crate::sys::scratch("test").expect("temporary folder");
        let child = Child::spawn(Command::new("cat"), &folder.path().join("log")).expect("cat");
        (folder, child)
    }

    /// Objective: what is awaited is returned up to the match; the rest stays for the next call.
    #[test]
    fn expect_returns_up_to_the_match() {
        let (_folder, child) = cat();
        child.say("one> two> ").expect("cat listens");
        assert_eq!(child.expect("> ", Duration::from_secs(10)).expect("echoed"), "one> ");
        assert_eq!(child.expect("> ", Duration::from_secs(10)).expect("echoed"), "two> ");
    }

    /// Objective: a frozen child says nothing; thawed it goes on where it was.
    #[test]
    fn a_thawed_child_continues_where_it_was() {
        let (_folder, child) = cat();
        child.freeze().expect("alive");
        child.say("hello").expect("the pipe holds it");
        assert!(matches!(child.expect("hello", Duration::from_millis(150)), Err(BenchError::Silent { .. })));
        child.thaw().expect("alive");
        child.expect("hello", Duration::from_secs(10)).expect("echoed after thawing");
    }

    /// Objective: a dropped child is gone, frozen or not.
    #[test]
    fn dropped_children_die() {
        let (_folder, child) = cat();
        child.freeze().expect("alive");
        let pid = child.pid();
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    /// Objective: a program that ends early or fails is reported with its output, and a missing one by its name.
    #[test]
    fn failures_are_told() {
        let folder = crate::sys::scratch("test").expect("temporary folder");
        let mut echo = Command::new("echo");
        echo.arg("bye");
        let child = Child::spawn(echo, &folder.path().join("log")).expect("echo");
        let error = child.expect("prompt", Duration::from_secs(10)).expect_err("it ends without a prompt");
        assert!(error.to_string().contains("bye"), "{error}");
        let failed = run(Command::new("sh").args(["-c", "echo reason >&2; exit 3"])).expect_err("exit 3");
        assert!(failed.to_string().contains("reason") && failed.to_string().contains('3'), "{failed}");
        assert!(run(&mut Command::new("netvale-no-such-program")).expect_err("missing").to_string().contains("PATH"));
    }
}
