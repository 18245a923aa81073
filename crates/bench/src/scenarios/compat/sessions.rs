//! A sender, a receiver, and what lies between them.

use std::time::{Duration, Instant};

use super::over_pipe;
use super::roles::{FRAMES, Task, WRONG, touch};
use crate::case::Case;
use crate::contender::{Env, Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::peers::frames;
use crate::scenarios::own::Daemon;
use crate::sys::netns::Netns;
use crate::sys::worker::Worker;

/// The time that they run before counting starts.
const SETTLE: Duration = Duration::from_millis(50);

/// The sending program.
#[derive(Clone, Copy, Debug)]
pub enum Sending {
    /// A netvale program.
    Own,
    /// One for netmap.
    Netmap,
}

/// The receiving program.
#[derive(Clone, Copy, Debug)]
pub enum Receiving {
    /// A netvale program.
    Own,
    /// One for netmap.
    Netmap,
    /// One for libpcap.
    Pcap,
}

/// The path between the two programs; dropped after them.
enum Between {
    Daemon(Daemon),
    Veth { _namespace: Netns },
}

/// Everything in motion.
pub struct Running {
    case: Case,
    cores: (usize, usize),
    sender: Worker,
    receiver: Worker,
    between: Between,
}

impl Running {
    /// On ports of a daemon: receiver on the second core, all others on the first.
    pub fn on_daemon(case: &Case, env: &Env, (sending, receiving): (Sending, Receiving)) -> Result<Self> {
        let cores = env.two_cores()?;
        let daemon = Daemon::start(cores.0, "")?;
        let dir = daemon.dir().display().to_string();
        let (from, to) = if over_pipe(case) { ("bench{1", "bench}1") } else { ("vale0:from", "vale0:to") };
        let named = |port: &str, is_prefixed: bool| {
            if over_pipe(case) && is_prefixed { format!("netmap:{port}") } else { port.to_owned() }
        };
        let task = |port: String| Task { dir: dir.clone(), port, case: case.clone() };
        let receiver = match receiving {
            Receiving::Own => Worker::spawn("compat-own-rx", cores.1, &task(named(to, true)))?,
            Receiving::Netmap => Worker::spawn_under_run(&dir, "compat-netmap-rx", cores.1, &task(named(to, false)))?,
            Receiving::Pcap => Worker::spawn_under_run(&dir, "compat-pcap-rx", cores.1, &task(named(to, true)))?,
        };
        receiver.freeze()?;
        let sender = match sending {
            Sending::Own => Worker::spawn("compat-own-tx", cores.0, &task(named(from, true)))?,
            Sending::Netmap => Worker::spawn_under_run(&dir, "compat-netmap-tx", cores.0, &task(named(from, false)))?,
        };
        sender.freeze()?;
        daemon.worker.freeze()?;
        Ok(Self { case: case.clone(), cores, sender, receiver, between: Between::Daemon(daemon) })
    }

    /// On a veth pair.
    pub fn on_veth(case: &Case, env: &Env) -> Result<Self> {
        let cores = env.two_cores()?;
        let namespace = Netns::new()?;
        frames::silence_ipv6(&namespace)?;
        namespace.ip("link add p0 type veth peer name p1")?;
        namespace.ip("link set p0 up")?;
        namespace.ip("link set p1 up")?;
        let task = |port: &str| Task { dir: String::new(), port: port.into(), case: case.clone() };
        let receiver = Worker::spawn_in(&namespace, "compat-pcap-rx", cores.1, &task("p1"))?;
        receiver.freeze()?;
        let sender = Worker::spawn_in(&namespace, "compat-packet-tx", cores.0, &task("p0"))?;
        sender.freeze()?;
        Ok(Self { case: case.clone(), cores, sender, receiver, between: Between::Veth { _namespace: namespace } })
    }
}

impl Session for Running {
    fn resume(&mut self) -> Result<()> {
        if let Between::Daemon(daemon) = &self.between {
            daemon.worker.thaw()?;
        }
        self.receiver.thaw()?;
        self.sender.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.sender.freeze()?;
        self.receiver.freeze()?;
        if let Between::Daemon(daemon) = &self.between {
            daemon.worker.freeze()?;
        }
        match self.receiver.count(WRONG) {
            0 => Ok(()),
            wrong => Err(BenchError::Usage(format!("{wrong} frames were not what was sent"))),
        }
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let receiver = self.receiver.pid();
        let mut pids = vec![receiver, self.sender.pid()];
        if let Between::Daemon(daemon) = &self.between {
            pids.push(daemon.worker.pid());
        }
        interrupt::sleep(SETTLE)?;
        // The sender takes turns with the switch; only the receiver must not have to wait.
        let watch = Watch::start(&pids, &[(receiver, receiver)]);
        let (before, start) = (self.receiver.count(FRAMES), Instant::now());
        interrupt::sleep(window)?;
        let (frames, seconds) = (self.receiver.count(FRAMES) - before, start.elapsed().as_secs_f64());
        let beside = watch.finish();
        if frames == 0 {
            return Err(BenchError::NoTraffic("the receiver".into()));
        }
        Ok(Sample::new(self.case.unit.rate(frames, self.case.frame_bytes, seconds).unwrap_or(0.0), beside))
    }

    fn cores(&self) -> String {
        format!("sender and switch on {}, receiver on {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        over_pipe(&self.case)
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![("bytes".into(), touch(&self.case).words().into())]
    }
}
