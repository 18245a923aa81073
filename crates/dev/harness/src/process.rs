//! A program that does not outlive its owner.

use std::io::BufReader;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Failed;

/// A child process, killed and reaped when dropped.
#[derive(Debug)]
pub struct Process(Option<Child>);

impl From<Child> for Process {
    fn from(child: Child) -> Process {
        Process(Some(child))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // Fails only if it has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Process {
    /// Starts a program without input; its output goes where the command says.
    ///
    /// # Errors
    /// The program does not exist, or no process can be created.
    pub fn start(command: &mut Command) -> Result<Process, Failed> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).spawn().map(Process::from).map_err(Failed::to(format!("start {name}")))
    }

    /// The child.
    ///
    /// # Panics
    /// Never: only methods that consume the process take the child.
    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("only taken with the process itself")
    }

    /// The process id.
    ///
    /// # Panics
    /// Never, as [`Process::child`].
    pub fn id(&self) -> u32 {
        self.0.as_ref().expect("only taken with the process itself").id()
    }

    /// The lines of the process's standard output, if piped and not taken yet.
    pub fn lines(&mut self) -> Option<BufReader<ChildStdout>> {
        self.child().stdout.take().map(BufReader::new)
    }

    /// Sends the process a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(id) = Pid::from_raw(self.id().cast_signed()) {
            let _ = kill_process(id, signal);
        }
    }

    /// The exit status, waiting up to `limit`; `None` if the process still runs.
    pub fn ended_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let child = self.child();
        let mut status = None;
        crate::until(limit, Duration::from_millis(1), || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        });
        status
    }

    /// Waits for the process to end by itself, and returns its output. With a `limit`, the process is killed after it.
    ///
    /// # Errors
    /// The output cannot be read.
    ///
    /// # Panics
    /// Never, as [`Process::child`].
    pub fn output(mut self, limit: Option<Duration>) -> Result<Output, Failed> {
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
            let output = child.wait_with_output().map_err(Failed::to("read a program's output"));
            drop(ended);
            output
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a program ends with its owner, one without an end is killed after the limit, and a program's output
    /// is read.
    #[test]
    fn ends() {
        let piped = |line: &str| Process::start(Command::new("sh").args(["-c", line]).stdout(Stdio::piped())).unwrap();
        let sleeping = piped("exec sleep 600");
        let id = sleeping.id();
        drop(sleeping);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
        assert!(!piped("exec sleep 600").output(Some(Duration::from_millis(20))).unwrap().status.success());
        let said = piped("echo yes").output(Some(Duration::from_secs(60))).unwrap();
        assert!(said.status.success() && said.stdout == b"yes\n");
        assert_eq!(
            Process::start(&mut Command::new("/no/such/program")).unwrap_err().to_string(),
            "cannot start /no/such/program: No such file or directory (os error 2)"
        );
    }
}
