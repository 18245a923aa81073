//! A lab while it runs.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale_control::client::{BringConnection, Client};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal};

use super::file::{LabFile, LabGateway};
use super::folder::{LabFolder, TakenFolder};
use super::plan::{self, PlannedMember};
use super::status::{self, LabState, MemberState};
use crate::cmd::sandbox::member::SandboxMember;
use crate::cmd::sandbox::sys::{self, has_ended, kill};
use crate::own_daemon::OwnDaemon;
use crate::{CliError, ctx, out, signals};

/// How long a gateway may take until it answers.
const STARTING: Duration = Duration::from_secs(20);
/// How long members, and after them gateways, may take to end before they are killed.
const ENDING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Runs the lab of a file until a signal ends it, or until the daemon or a gateway has ended.
///
/// # Errors
/// The file has a mistake, a process cannot be started, or the daemon or a gateway has ended.
pub(super) fn up(path: &Path, folder: &LabFolder) -> Result<(), CliError> {
    let file = LabFile::read(path)?;
    let taken = folder.take()?;
    let members = plan::members(&file, &taken.dir).map_err(|why| {
        let what = format!("{}: {why}", path.display());
        CliError::failed(what, "nothing was started; `netvale lab up --help` has an example")
    })?;
    let mut lab = RunningLab::default();
    let done = lab.start(&file, members, &taken).and_then(|(stop, wake)| {
        let dir = &taken.dir;
        status::print(dir, &lab.state(&file), false)?;
        out::line(format_args!("ready; the switches are at `netvale --run-dir {} list`", dir.display()))?;
        lab.wait(&stop, &wake)
    });
    lab.end();
    done
}

/// A member's process: the first process in the member's namespaces, or the member's program.
enum MemberProcess {
    Namespaces(SandboxMember),
    Program(Child),
}

struct RunningMember {
    plan: PlannedMember,
    log: PathBuf,
    process: MemberProcess,
    has_ended: bool,
}

/// All processes of the lab.
#[derive(Default)]
struct RunningLab {
    members: Vec<RunningMember>,
    gateways: Vec<(String, Child)>,
    daemon: Option<OwnDaemon>,
}

impl RunningLab {
    /// Starts all processes. The members' namespaces are created before anything else, since only a process with a
    /// single thread can create them. Returns the flag that a signal sets to end the lab, and the socket that wakes
    /// this process.
    fn start(
        &mut self,
        file: &LabFile,
        plans: Vec<PlannedMember>,
        folder: &TakenFolder,
    ) -> Result<(Arc<AtomicBool>, UnixStream), CliError> {
        let leases = plans.clone();
        let (spaces, programs): (Vec<_>, Vec<_>) = plans.into_iter().partition(|plan| plan.net.is_some());
        for plan in spaces {
            self.make_namespaces(plan, folder)?;
        }
        let signals = signals::stop_or_child()?;
        let config = folder.write_config(&file.config)?;
        let daemon = OwnDaemon::start_apart(&folder.dir, config.as_deref());
        let daemon = daemon.map_err(|why| CliError::failed(why.to_string(), "correct the lab's file"))?;
        self.daemon = Some(daemon);
        for gateway in &file.gateways {
            self.start_gateway(gateway, &leases, &folder.dir)?;
        }
        for member in &mut self.members {
            member.begin(&folder.dir)?;
        }
        for plan in programs {
            self.start_program(plan, folder)?;
        }
        folder.write_state(&self.state(file))?;
        Ok(signals)
    }

    fn make_namespaces(&mut self, plan: PlannedMember, folder: &TakenFolder) -> Result<(), CliError> {
        let Some(net) = plan.net else { return Ok(()) };
        let (path, log) = folder.log(&plan.name)?;
        let command: Vec<OsString> = match &plan.command[..] {
            [] => ["sleep", "infinity"].map(OsString::from).into(),
            words => words.iter().map(OsString::from).collect(),
        };
        let process = MemberProcess::Namespaces(SandboxMember::make(&command, net, &log)?);
        self.members.push(RunningMember { plan, log: path, process, has_ended: false });
        Ok(())
    }

    /// Starts a gateway, and waits until it answers.
    fn start_gateway(&mut self, gateway: &LabGateway, plans: &[PlannedMember], dir: &Path) -> Result<(), CliError> {
        let switch = &gateway.switch;
        let failed = |why: String| CliError::failed(format!("the gateway of {switch} {why}"), "see its message above");
        let program = std::env::current_exe().map_err(|why| failed(format!("cannot start: {why}")))?;
        let mut command = Command::new(program);
        command.arg0("netvale").arg("--run-dir").arg(dir).args(plan::gateway_words(gateway, plans));
        command.stdin(Stdio::null()).process_group(0);
        sys::end_with_this(&mut command);
        let child = command.spawn().map_err(|why| failed(format!("cannot start: {why}")))?;
        self.gateways.push((switch.clone(), child));
        let begun = Instant::now();
        while status::published(dir, switch).is_none() {
            if self.gateways.iter_mut().any(|(_, child)| has_ended(child)) {
                return Err(failed("has ended".to_owned()));
            }
            if begun.elapsed() > STARTING {
                return Err(failed(format!("did not answer within {} s", STARTING.as_secs())));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Attaches the port of a program, and starts the program.
    fn start_program(&mut self, plan: PlannedMember, folder: &TakenFolder) -> Result<(), CliError> {
        let name = plan.name.clone();
        let failed = |why: std::io::Error| {
            CliError::failed(format!("member {name}: cannot start its command: {why}"), "check the program's name")
        };
        if let Some((_, path)) = plan.socket.as_ref().filter(|(kind, _)| kind.is_folder()) {
            std::fs::create_dir(path).map_err(failed)?;
        }
        let mut daemon = Client::connect(&folder.dir).map_err(ctx::to_cli)?;
        daemon.attach(plan.port.clone()).map_err(|why| of_member(&name, &ctx::to_cli(why)))?;
        let (path, log) = folder.log(&name)?;
        let [program, words @ ..] = &plan.command[..] else { return Ok(()) };
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).process_group(0);
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        sys::end_with_this(&mut command);
        let process = MemberProcess::Program(command.spawn().map_err(failed)?);
        self.members.push(RunningMember { plan, log: path, process, has_ended: false });
        Ok(())
    }

    fn state(&self, file: &LabFile) -> LabState {
        let gateways = file.gateways.iter().map(|gateway| gateway.switch.clone()).collect();
        let members = self.members.iter().map(RunningMember::state).collect();
        LabState { pid: rustix::process::getpid().as_raw_pid(), gateways, members }
    }

    /// Waits for a signal that ends the lab, and meanwhile reports members that have ended.
    fn wait(&mut self, stop: &AtomicBool, mut wake: &UnixStream) -> Result<(), CliError> {
        while !stop.load(Ordering::Relaxed) {
            self.members.iter_mut().for_each(RunningMember::report_end);
            let over = self.gateways.iter_mut().find_map(|(switch, child)| has_ended(child).then(|| switch.clone()));
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if let Some(switch) = over {
                let what = format!("the gateway of {switch} has ended, so the lab was ended");
                return Err(CliError::failed(what, "start it again; messages are above"));
            }
            if self.daemon.as_mut().is_none_or(OwnDaemon::is_over) {
                let what = "the daemon has ended, so the lab was ended";
                return Err(CliError::failed(what, "start it again; messages are above"));
            }
            let _ = rustix::event::poll(&mut [PollFd::new(wake, PollFlags::IN)], None);
            // More than 64 bytes do no harm: the rest stays in the socket, and ends the next wait.
            let _ = wake.read(&mut [0; 64]);
        }
        Ok(())
    }

    /// Ends all processes. Members end before gateways and the daemon, since they may send frames until they end.
    fn end(mut self) {
        self.members.iter().for_each(RunningMember::ask_to_end);
        until_ended(|| self.members.iter_mut().all(RunningMember::is_over));
        self.members.iter_mut().for_each(RunningMember::kill);
        for (_, child) in &self.gateways {
            let _ = rustix::process::kill_process(Pid::from_child(child), Signal::TERM);
        }
        until_ended(|| self.gateways.iter_mut().all(|(_, child)| has_ended(child)));
        self.gateways.iter_mut().for_each(|(_, child)| kill(child));
        self.daemon.into_iter().for_each(OwnDaemon::end);
    }
}

impl RunningMember {
    /// Sets up the namespaces of this member, attaches their interface, and lets the command start.
    fn begin(&mut self, dir: &Path) -> Result<(), CliError> {
        let MemberProcess::Namespaces(process) = &mut self.process else { return Ok(()) };
        let name = &self.plan.name;
        let attached = process.begin().and_then(|queue| {
            let mut port = self.plan.port.clone();
            port.options.netns = Some(format!("/proc/{}/ns/net", process.inside.as_raw_pid()));
            let daemon = BringConnection::connect(dir).map_err(ctx::to_cli)?;
            daemon.attach(port, &[queue]).map_err(ctx::to_cli)
        });
        attached.map_err(|why| {
            note_log(&self.log);
            of_member(name, &why)
        })?;
        process.tell_ready();
        Ok(())
    }

    fn state(&self) -> MemberState {
        let pid = match &self.process {
            MemberProcess::Namespaces(process) => process.inside,
            MemberProcess::Program(child) => Pid::from_child(child),
        };
        MemberState {
            name: self.plan.name.clone(),
            switch: self.plan.switch.clone(),
            address: self.plan.address,
            pid: pid.as_raw_pid(),
            socket: self.plan.socket.as_ref().map(|(kind, _)| *kind),
            command: self.plan.command.clone(),
            log: self.log.clone(),
        }
    }

    /// Returns the exit code of a member that has ended; `None` while the member runs, and if the code was already
    /// returned.
    fn just_ended(&mut self) -> Option<i32> {
        if self.has_ended {
            return None;
        }
        let code = match &mut self.process {
            MemberProcess::Namespaces(process) => process.ended(),
            MemberProcess::Program(child) => {
                child.try_wait().ok().flatten().map(|status| status.code().unwrap_or_default())
            }
        };
        self.has_ended = code.is_some();
        code
    }

    fn report_end(&mut self) {
        if let Some(code) = self.just_ended() {
            netvale_control::note!("netvale: the member {} has ended with exit code {code}", self.plan.name);
            note_log(&self.log);
        }
    }

    fn is_over(&mut self) -> bool {
        self.just_ended();
        self.has_ended
    }

    fn ask_to_end(&self) {
        match &self.process {
            _ if self.has_ended => {}
            MemberProcess::Namespaces(process) => process.ask_to_end(),
            MemberProcess::Program(child) => signal_group(child, Signal::TERM),
        }
    }

    fn kill(&mut self) {
        match &mut self.process {
            // The PID of a process that has ended may belong to another process by now.
            _ if self.has_ended => {}
            MemberProcess::Namespaces(process) => process.kill(),
            MemberProcess::Program(child) => {
                signal_group(child, Signal::KILL);
                kill(child);
            }
        }
    }
}

/// Prints the last lines of a member's output.
fn note_log(path: &Path) {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(5)..] {
        netvale_control::note!("  {}", line.escape_debug());
    }
}

fn of_member(name: &str, why: &CliError) -> CliError {
    CliError::failed(format!("member {name}: {why}"), why.next())
}

fn until_ended(mut is_over: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_over() && begun.elapsed() < ENDING {
        std::thread::sleep(PAUSE);
    }
}

/// Sends a signal to the process group that a program leads.
fn signal_group(child: &Child, signal: Signal) {
    let _ = rustix::process::kill_process_group(Pid::from_child(child), signal);
}
