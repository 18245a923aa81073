//! A child process that ends when the value that owns it is dropped.

use std::io::BufReader;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::FailedStep;

/// A child process, killed and reaped when dropped.
#[derive(Debug)]
pub struct ChildProcess(Option<Child>);

impl From<Child> for ChildProcess {
    fn from(child: Child) -> ChildProcess {
        ChildProcess(Some(child))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // Killing fails only if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl ChildProcess {
    /// Starts a program whose standard input is empty. The command determines where the program's output goes.
    ///
    /// # Errors
    /// The program does not exist, or no process can be created.
    pub fn start(command: &mut Command) -> Result<ChildProcess, FailedStep> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).spawn().map(ChildProcess::from).map_err(FailedStep::to(format!("start {name}")))
    }

    /// Returns the child.
    ///
    /// # Panics
    /// Never: only methods that consume the process take the child.
    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("only taken with the process itself")
    }

    /// Returns the process id.
    ///
    /// # Panics
    /// Never, as [`ChildProcess::child`].
    pub fn id(&self) -> u32 {
        self.0.as_ref().expect("only taken with the process itself").id()
    }

    /// Returns the lines of the process's standard output; `None` if the output is not piped, or if this method was
    /// called before.
    pub fn lines(&mut self) -> Option<BufReader<ChildStdout>> {
        self.child().stdout.take().map(BufReader::new)
    }

    /// Sends a signal to the process, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(id) = Pid::from_raw(self.id().cast_signed()) {
            let _ = kill_process(id, signal);
        }
    }

    /// Waits up to `limit` for the process to end. Returns its exit status; `None` if the process still runs.
    pub fn ended_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let child = self.child();
        let mut status = None;
        crate::until(limit, Duration::from_millis(1), || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        });
        status
    }

    /// Waits until the process ends by itself. Returns its output. If `limit` is given, kills the process after that
    /// time.
    ///
    /// # Errors
    /// The output cannot be read.
    ///
    /// # Panics
    /// Never, as [`ChildProcess::child`].
    pub fn output(mut self, limit: Option<Duration>) -> Result<Output, FailedStep> {
        let id = Pid::from_raw(self.id().cast_signed()).zip(limit);
        let child = self.0.take().expect("only taken here");
        let (ended, ends) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let Some((id, limit)) = id else { return };
                if ends.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                    let _ = kill_process(id, Signal::KILL);
                }
            });
            let output = child.wait_with_output().map_err(FailedStep::to("read a program's output"));
            drop(ended);
            output
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a program ends with its owner, a program that does not end is killed after the limit, and a program's
    /// output is returned.
    #[test]
    fn a_program_ends_with_its_owner() {
        let piped =
            |line: &str| ChildProcess::start(Command::new("sh").args(["-c", line]).stdout(Stdio::piped())).unwrap();
        let sleeping = piped("exec sleep 600");
        let id = sleeping.id();
        drop(sleeping);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
        assert!(!piped("exec sleep 600").output(Some(Duration::from_millis(20))).unwrap().status.success());
        let said = piped("echo yes").output(Some(Duration::from_secs(60))).unwrap();
        assert!(said.status.success() && said.stdout == b"yes\n");
        assert_eq!(
            ChildProcess::start(&mut Command::new("/no/such/program")).unwrap_err().to_string(),
            "cannot start /no/such/program: No such file or directory (os error 2)"
        );
    }
}
