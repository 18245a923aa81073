//! The life of a switch: its start, its event loop for commands and signals, and its end.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};

use super::answers::{VdeAnswer, VdeError};
use super::console::VdeConsole;
use super::management::{ManagementSocket, usual_commands};
use super::options::VdeOptions;
use super::place::SwitchPlace;
use super::sessions::{ManagementSession, SessionEnd, StdinSession};
use super::{VdeFailure, background, commands, say};
use crate::own_daemon::OwnDaemon;
use crate::signals;

/// Maximum number of concurrent connections to the management socket.
const MOST_SESSIONS: usize = 64;

/// Runs a switch until its end.
pub(super) fn run(options: &VdeOptions) -> Result<(), VdeFailure> {
    if options.daemon {
        background::enter();
    }
    let (is_over, woken) = signals::stop_or_child()?;
    let signals = ConsoleSignals { woken, is_over };
    let place = SwitchPlace::make(options)?;
    let done = in_place(options, &place, &signals);
    place.remove();
    done
}

fn in_place(options: &VdeOptions, place: &SwitchPlace, signals: &ConsoleSignals) -> Result<(), VdeFailure> {
    let process = OwnDaemon::start(&place.run_dir, &[&place.folder]);
    let mut process = process.map_err(|why| VdeFailure(why.to_string()))?;
    let done = with_daemon(options, place, signals, &mut process);
    process.end();
    done
}

fn with_daemon(
    options: &VdeOptions,
    place: &SwitchPlace,
    signals: &ConsoleSignals,
    process: &mut OwnDaemon,
) -> Result<(), VdeFailure> {
    let mut console = VdeConsole::begin(place, options)?;
    let management = match &options.mgmt {
        None => None,
        Some(path) => Some(ManagementSocket::listen(path, options.mgmtmode, options.mgmtgroup.as_deref())?),
    };
    console.facts.mgmt = management.as_ref().map(|socket| (socket.path().to_owned(), options.mgmtmode));
    if let Some(file) = options.rcfile.clone().or_else(usual_commands)
        && begin_with(&mut console, &file)? == SessionEnd::Shutdown
    {
        return Ok(());
    }
    let _pidfile = options.pidfile.as_deref().map(PidFile::write).transpose()?;
    if options.daemon {
        background::ready()?;
    }
    let stdin = (!options.daemon && !options.nostdin).then(StdinSession::new);
    ConsoleServer { console, management, sessions: Vec::new(), stdin }.serve(signals, process)
}

/// Runs the commands of the start file. Prints the commands that were refused on standard error.
fn begin_with(console: &mut VdeConsole, file: &Path) -> Result<SessionEnd, VdeFailure> {
    match commands::run(console, &format!("load {}", file.display())) {
        VdeAnswer::Shutdown => Ok(SessionEnd::Shutdown),
        VdeAnswer::Done(Err(VdeError::NoFile)) => Err(VdeFailure(format!("cannot read {}", file.display()))),
        answer => {
            // In the answers, each command's line precedes its status.
            let lines = answer.lines();
            for (command, said) in lines.lines().zip(lines.lines().skip(1)) {
                if command.starts_with("vde[") && said.starts_with('1') && !said.starts_with("1000") {
                    say(format_args!("{command}: {said}"));
                }
            }
            Ok(SessionEnd::None)
        }
    }
}

/// The signals that the console handles: signals that end the switch, and SIGCHLD, which reports that the daemon has
/// ended.
struct ConsoleSignals {
    woken: UnixStream,
    is_over: Arc<AtomicBool>,
}

impl ConsoleSignals {
    fn clear(&self) {
        let mut bytes = [0; 64];
        // The socket is non-blocking, so a read that fails means that the socket is empty.
        while rustix::io::read(&self.woken, &mut bytes).is_ok_and(|len| len > 0) {}
    }
}

/// The console and the sources of its commands: the management socket, its sessions, and standard input.
struct ConsoleServer {
    console: VdeConsole,
    management: Option<ManagementSocket>,
    sessions: Vec<ManagementSession>,
    stdin: Option<StdinSession>,
}

/// Which descriptors are ready; `sessions` has one entry per session.
#[derive(Default)]
struct ConsoleEvents {
    signal: bool,
    stdin: bool,
    management: bool,
    sessions: Vec<bool>,
}

impl ConsoleServer {
    fn serve(&mut self, signals: &ConsoleSignals, process: &mut OwnDaemon) -> Result<(), VdeFailure> {
        loop {
            let events = self.wait(signals).map_err(VdeFailure::step("cannot wait for commands"))?;
            if events.signal {
                signals.clear();
                if signals.is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if process.is_over() {
                    return Err(VdeFailure("the switch's daemon has ended".to_owned()));
                }
            }
            if self.serve_sessions(&events) == SessionEnd::Shutdown {
                say("the switch was shut down by a command");
                return Ok(());
            }
            match self.stdin.as_mut().filter(|_| events.stdin).map(|stdin| stdin.serve(&mut self.console)) {
                Some(SessionEnd::Over) => {
                    say("standard input has ended, which ends the switch; --nostdin keeps it running");
                    return Ok(());
                }
                Some(SessionEnd::Shutdown) => {
                    say("the switch was shut down by a command");
                    return Ok(());
                }
                Some(SessionEnd::None) | None => {}
            }
            self.accept(events.management);
        }
    }

    fn wait(&self, signals: &ConsoleSignals) -> std::io::Result<ConsoleEvents> {
        let stdin = rustix::stdio::stdin();
        let mut fds = vec![PollFd::new(&signals.woken, PollFlags::IN)];
        fds.extend(self.stdin.iter().map(|_| PollFd::from_borrowed_fd(stdin, PollFlags::IN)));
        fds.extend(self.management.iter().map(|socket| PollFd::new(&socket.listener, PollFlags::IN)));
        for session in &self.sessions {
            let flags = if session.has_unread() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(session.stream().as_fd(), flags));
        }
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => return Ok(ConsoleEvents::default()),
            done => done?,
        };
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |is_there: bool| is_there && ready.next().unwrap_or(false);
        let signal = next(true);
        let stdin = next(self.stdin.is_some());
        let management = next(self.management.is_some());
        Ok(ConsoleEvents { signal, stdin, management, sessions: ready.collect() })
    }

    fn serve_sessions(&mut self, events: &ConsoleEvents) -> SessionEnd {
        let mut is_shutdown = false;
        let mut ready = events.sessions.iter().copied();
        let console = &mut self.console;
        self.sessions.retain_mut(|session| {
            let end =
                if ready.next().unwrap_or(false) && !is_shutdown { session.serve(console) } else { SessionEnd::None };
            is_shutdown |= end == SessionEnd::Shutdown;
            end == SessionEnd::None
        });
        if is_shutdown { SessionEnd::Shutdown } else { SessionEnd::None }
    }

    fn accept(&mut self, is_ready: bool) {
        let Some(socket) = self.management.as_ref().filter(|_| is_ready) else { return };
        let Ok((stream, _)) = socket.listener.accept() else { return };
        if self.sessions.len() >= MOST_SESSIONS {
            say("refused a connection to the management socket: too many sessions");
            return;
        }
        // If the session cannot be created, the connection is closed.
        self.sessions.extend(ManagementSession::new(stream));
    }
}

/// A file with the process ID, which is removed when this value is dropped.
struct PidFile(PathBuf);

impl PidFile {
    fn write(path: &Path) -> Result<PidFile, VdeFailure> {
        let failed = VdeFailure::step(format!("cannot write {}", path.display()));
        let path = std::path::absolute(path).map_err(|why| VdeFailure(why.to_string()))?;
        std::fs::write(&path, format!("{}\n", std::process::id())).map_err(failed)?;
        Ok(PidFile(path))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let own = format!("{}\n", std::process::id());
        if std::fs::read_to_string(&self.0).is_ok_and(|text| text == own) {
            // An error is ignored, since the file's folder may no longer exist.
            let _ = std::fs::remove_file(&self.0);
        }
    }
}
