//! A member of `netvale lab`: a command in its own namespaces, whose interface is a port of a switch. The first process
//! in the namespaces does the same as in a sandbox, but passes the interface to this process instead of to a gateway.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::inside::SandboxInside;
use super::network::SandboxNet;
use super::{NAMESPACES, SIGNALS, failed, no_namespaces, sys};
use crate::CliError;

/// The first process in a member's namespaces. If this process ends, the kernel kills all processes in the namespaces.
pub(crate) struct SandboxMember {
    /// PID of the first process in the namespaces.
    pub inside: Pid,
    parent: Option<UnixStream>,
    gateway: UnixStream,
}

impl SandboxMember {
    /// Creates the namespaces with their first process, which waits for [`SandboxMember::begin`]. The command's output
    /// goes to `log`. This process must have a single thread.
    ///
    /// # Errors
    /// The kernel does not permit the namespaces.
    pub fn make(command: &[OsString], net: SandboxNet, log: &File) -> Result<SandboxMember, CliError> {
        let pair = || UnixStream::pair().map_err(failed("connecting the processes"));
        let (of_inside, gateway) = pair()?;
        let (of_parent, parent) = pair()?;
        match sys::clone_into(NAMESPACES).map_err(|why| no_namespaces(&why))? {
            Some(inside) => Ok(SandboxMember { inside, parent: Some(of_parent), gateway }),
            None => {
                drop((of_parent, gateway));
                let code = leave_terminal(log).and_then(|()| {
                    let mask = sys::block(&[SIGNALS, &[libc::SIGTTOU]].concat()).map_err(failed("blocking signals"))?;
                    SandboxInside { command, net, parent, gateway: of_inside, mask }.run()
                });
                // This process exits without running destructors, which would act on resources of the process from
                // which it was cloned.
                std::process::exit(code.map_or_else(|error| report(&error), i32::from))
            }
        }
    }

    /// Maps users and groups of the namespaces, and lets the first process set up the namespaces. Returns the TAP queue
    /// of the interface in the namespaces.
    ///
    /// # Errors
    /// A step fails. If the first process in the namespaces has failed, the log has the reason.
    pub fn begin(&mut self) -> Result<OwnedFd, CliError> {
        let channel = self.parent.take().ok_or_else(|| CliError::failed("the member runs already", "end it first"))?;
        super::begin(self.inside, channel)?;
        let message = netvale_fdio::receive(&self.gateway, &mut [0], RecvFlags::empty());
        let queue = message.map_err(failed("receiving the interface"))?.fds.into_iter().next();
        queue.ok_or_else(|| {
            CliError::failed("its namespaces cannot be set up", "`netvale doctor` names what is missing")
        })
    }

    /// Lets the command start, once its interface is a port of the switch.
    pub fn tell_ready(&self) {
        // The call fails only if the process has ended, which `ended` reports.
        let _ = rustix::net::send(&self.gateway, b"r", SendFlags::NOSIGNAL);
    }

    /// Asks the command to end.
    pub fn ask_to_end(&self) {
        let _ = sys::send_queued(self.inside, libc::SIGTERM);
    }

    /// Kills all processes of the namespaces.
    pub fn kill(&self) {
        let _ = kill_process(self.inside, Signal::KILL);
        let _ = waitpid(Some(self.inside), WaitOptions::empty());
    }

    /// Returns the command's exit code if it has ended, `None` while it runs. Must not be called again after it has
    /// returned a code, since the process then no longer exists.
    pub fn ended(&self) -> Option<i32> {
        let (_, status) = waitpid(Some(self.inside), WaitOptions::NOHANG).ok()??;
        Some(super::exit_code(status).into())
    }
}

/// Leaves the caller's terminal, so that the terminal's signals do not reach this process, and redirects this process's
/// output to the log.
fn leave_terminal(log: &File) -> Result<(), CliError> {
    let redirect = || -> rustix::io::Result<()> {
        rustix::process::setsid()?;
        let nothing = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
        rustix::stdio::dup2_stdin(nothing)?;
        rustix::stdio::dup2_stdout(log)?;
        rustix::stdio::dup2_stderr(log)
    };
    redirect().map_err(failed("redirecting the output"))
}

fn report(error: &CliError) -> i32 {
    netvale_control::note!("netvale: {error}\n  {}", error.next());
    error.code().into()
}
