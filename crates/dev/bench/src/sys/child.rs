//! A child process that is controlled through its prompt, stopped while other contenders are measured, and killed on
//! drop.
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

/// A running child in a process group of its own, so that Ctrl-C at the terminal does not reach the child before this
/// program's clean-up. The kernel kills the child if this process dies without clean-up.
pub struct Child {
    program: String,
    process: process::Child,
    stdin: Option<ChildStdin>,
    output: Arc<Output>,
}

impl Child {
    /// Starts `command`. Its stdout is read through [`Child::expect`]; its stderr is written to `log`.
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

    /// Returns the child's process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Writes a line to the child's standard input.
    pub fn say(&self, line: &str) -> Result<()> {
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let written = self.stdin.as_ref().ok_or_else(gone).and_then(|mut stdin| writeln!(stdin, "{line}"));
        written.map_err(BenchError::io(format!("writing to {}", self.program)))
    }

    /// Waits until the child has printed `wanted`. Returns the output up to and including `wanted`.
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
                let program = self.program.clone();
                let output = tail(&state.text).to_owned();
                return Err(BenchError::Silent { program, wanted: wanted.to_owned(), limit, output });
            }
            let slice = Duration::from_millis(100);
            state = self.output.grown.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Stops the process and all its threads.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues the process.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process_group(Pid::from_child(&self.process), signal)
            .map_err(BenchError::io(format!("signalling {}", self.program)))
    }

    /// Returns whether the child is still running.
    pub fn alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both calls fail only if the child has ended already.
        let _ = self.signal(Signal::KILL);
        let _ = self.process.wait();
    }
}

/// Runs a command until it ends. Returns its stdout.
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

/// Makes the kernel kill the child when the thread that started it ends.
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

    /// Objective: output up to the awaited text is returned; the rest stays for the next call.
    #[test]
    fn expect_returns_up_to_the_match() {
        let (_folder, child) = cat();
        child.say("one> two> ").expect("cat listens");
        assert_eq!(child.expect("> ", Duration::from_secs(10)).expect("echoed"), "one> ");
        assert_eq!(child.expect("> ", Duration::from_secs(10)).expect("echoed"), "two> ");
    }

    /// Objective: a stopped child prints nothing, and continues afterwards.
    #[test]
    fn a_thawed_child_continues_where_it_was() {
        let (_folder, child) = cat();
        child.freeze().expect("alive");
        child.say("hello").expect("the pipe holds it");
        assert!(matches!(child.expect("hello", Duration::from_millis(150)), Err(BenchError::Silent { .. })));
        child.thaw().expect("alive");
        child.expect("hello", Duration::from_secs(10)).expect("echoed after thawing");
    }

    /// Objective: a dropped child ends, stopped or not.
    #[test]
    fn dropped_children_die() {
        let (_folder, child) = cat();
        child.freeze().expect("alive");
        let pid = child.pid();
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    /// Objective: if a program ends early or fails, the error has its output; if the program is missing, the error has
    /// its name.
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
