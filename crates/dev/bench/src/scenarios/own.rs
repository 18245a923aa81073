//! Common parts of netvale's side in all scenarios: a daemon in a process of its own, and ports opened from it.

use netvale_control::client::Client;
use netvale_control::types::{AllStats, AttachParams, PortDetails};
use netvale_daemon::config::ConfigFile;
use tempfile::TempDir;

use super::*;

/// Name of the worker role [`daemon_role`].
pub const DAEMON: &str = "daemon";
/// The switch that scenarios use.
pub const VALE: &str = "vale0";
/// The beginning of the names of the daemon's forwarding threads.
const FORWARDING: &str = "netvale-w";
const START_LIMIT: Duration = Duration::from_secs(10);

/// The arguments with which the daemon is started.
#[derive(Debug, Serialize, Deserialize)]
struct DaemonTask {
    dir: PathBuf,
    cpu: usize,
    more: String,
}

/// A daemon with one pinned worker, like the daemon of `netvale up`, but without the sandbox.
pub struct Daemon {
    worker: Rc<Worker>,
    dir: TempDir,
}

impl Daemon {
    /// Starts a daemon whose worker runs on `cpu`; `more` is appended to its configuration. If `namespace` is given,
    /// the daemon runs in that network namespace, and creates its TAPs there.
    pub fn start(namespace: Option<&Netns>, cpu: usize, more: &str) -> Result<Rc<Daemon>> {
        let dir = crate::sys::scratch("daemon")?;
        let task = DaemonTask { dir: dir.path().into(), cpu, more: more.to_owned() };
        let how = namespace.map_or(Wrapper::None, Wrapper::Network);
        Ok(Rc::new(Daemon { worker: Worker::spawn(how, DAEMON, Some(cpu), &task)?, dir }))
    }

    /// Returns the daemon's process id.
    pub fn pid(&self) -> u32 {
        self.worker.pid()
    }

    /// Returns the daemon's run directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Opens a port with `slots` slots per ring.
    pub fn open(&self, name: &str, slots: u32) -> Result<Port> {
        open(self.dir(), name, slots)
    }

    /// Opens a port of the daemon's switch with the scenarios' number of slots.
    pub fn port(&self, name: &str) -> Result<Port> {
        self.open(&format!("{VALE}:{name}"), SLOTS)
    }

    /// Attaches a port to a switch.
    pub fn attach(&self, switch: &str, port: String, options: PortOptions) -> Result<()> {
        let params = AttachParams { switch: switch.into(), port, options };
        self.control()?.attach(params).map(drop).map_err(|error| failed(&error))
    }

    /// Opens a connection to the daemon's control socket.
    pub fn control(&self) -> Result<Client> {
        Client::connect(self.dir()).map_err(|error| failed(&error))
    }

    /// Returns the daemon's counters.
    pub fn stats(&self) -> Result<AllStats> {
        self.control()?.all_stats().map_err(|error| failed(&error))
    }

    /// Returns counts of the port `name` of [`VALE`]: doorbells or register accesses of its guest, frames from the port
    /// to the switch, and frames from the switch to the port.
    pub fn port_counts(&self, name: &str) -> Result<[u64; 3]> {
        let stats = self.stats()?;
        let name = format!("{VALE}:{name}");
        let port = stats.ports.iter().find(|port| port.name == name);
        Ok(port.map_or([0; 3], |port| [port.kicks_received, port.sent().frames, port.got().frames]))
    }

    /// Returns the number of frames dropped at all ports.
    pub fn drops(&self) -> Result<u64> {
        Ok(self.stats()?.ports.iter().map(PortDetails::drops).sum())
    }

    /// Waits until the daemon's switches have received `frames` frames.
    pub fn wait_for_frames(&self, frames: u64) -> Result<()> {
        let arrived = || {
            // A port without a switch (a pipe's end) sends to the other end, whose received frames are counted.
            let beside = |port: &PortDetails| if port.switch.is_none() { port.got().frames } else { 0 };
            let taken: u64 = self.stats()?.ports.iter().map(|port| port.sent().frames + beside(port)).sum();
            Ok((taken >= frames).then_some(()))
        };
        interrupt::poll_until(START_LIMIT, arrived)?.ok_or_else(|| BenchError::NoTraffic("the daemon's switch".into()))
    }
}

impl Part for Daemon {
    fn children(&self) -> Vec<&Child> {
        self.worker.children()
    }

    fn threads(&self) -> Vec<(u32, u32)> {
        threads_named(self.pid(), &[FORWARDING])
    }
}

/// Turns an error of the daemon into a scenario's error.
pub fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Usage(format!("the daemon: {error}"))
}

/// Runs a daemon until it is killed.
pub fn daemon_role(context: &Context) -> Result<()> {
    let task: DaemonTask = context.arguments()?;
    let text = format!("run_dir = {:?}\ncpus = [{}]\nsandbox = false\n{}", task.dir, task.cpu, task.more);
    let config = ConfigFile::parse(&text).map_err(|e| failed(&e))?.into_config();
    let daemon = std::thread::spawn(move || netvale_daemon::run(config).map_err(|e| e.to_string()));
    if netvale_harness::daemon::ready(&task.dir, START_LIMIT, || !daemon.is_finished()) {
        context.ready()?;
    }
    match daemon.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(failed(&e)),
        Err(_) => Err(failed(&"panicked")),
    }
}

/// Opens a port of the daemon in `dir` with `slots` slots per ring.
pub fn open(dir: &Path, name: &str, slots: u32) -> Result<Port> {
    let options = Options { run_dir: Some(dir.into()), slots, ..Options::default() };
    Port::open_with(name, &options).map_err(|e| failed(&e))
}
