//! A process at one end of vhost-user, ours or DPDK's: counted, stopped and let go on alike.

use std::time::Instant;

use crate::disturb::{Watch, threads_named};
use crate::error::Result;
use crate::peers::testpmd::Testpmd;
use crate::scenarios::own::{Daemon, FORWARDING};
use crate::sys::worker::Worker;

/// Our workers' counter of frames received.
pub const FRAMES: usize = 0;

/// The process.
pub enum Process {
    /// A netvale worker, which counts what it receives.
    Ours(Worker),
    /// DPDK's testpmd, of which one port is counted, or all.
    Dpdk(Testpmd, Option<usize>),
    /// A daemon with a switch, which nobody counts.
    Switch(Daemon),
}

impl Process {
    /// Frames received so far, and when they were counted.
    ///
    /// # Errors
    /// The process has ended.
    pub fn received(&mut self) -> Result<(u64, Instant)> {
        match self {
            Process::Ours(worker) => Ok((worker.count(FRAMES), Instant::now())),
            Process::Dpdk(testpmd, only) => {
                let (ports, when) = testpmd.counters()?;
                let counted = ports.iter().enumerate().filter(|(i, _)| only.is_none_or(|one| one == *i));
                Ok((counted.map(|(_, port)| port.rx).sum(), when))
            }
            Process::Switch(_) => Ok((0, Instant::now())),
        }
    }

    /// Stops it where it is.
    ///
    /// # Errors
    /// The process has ended.
    pub fn freeze(&self) -> Result<()> {
        match self {
            Process::Ours(worker) => worker.freeze(),
            Process::Dpdk(testpmd, _) => testpmd.freeze(),
            Process::Switch(daemon) => daemon.worker.freeze(),
        }
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// The process has ended.
    pub fn thaw(&self) -> Result<()> {
        match self {
            Process::Ours(worker) => worker.thaw(),
            Process::Dpdk(testpmd, _) => testpmd.thaw(),
            Process::Switch(daemon) => daemon.worker.thaw(),
        }
    }

    fn pid(&self) -> u32 {
        match self {
            Process::Ours(worker) => worker.pid(),
            Process::Dpdk(testpmd, _) => testpmd.pid(),
            Process::Switch(daemon) => daemon.worker.pid(),
        }
    }

    fn threads(&self) -> Vec<(u32, u32)> {
        match self {
            Process::Ours(worker) => vec![(worker.pid(), worker.pid())],
            Process::Dpdk(testpmd, _) => testpmd.threads().to_vec(),
            Process::Switch(daemon) => threads_named(daemon.worker.pid(), &[FORWARDING]),
        }
    }
}

/// Watches for others that use the CPUs of these.
pub fn watch(processes: &[&Process]) -> Watch {
    let pids: Vec<u32> = processes.iter().map(|p| p.pid()).collect();
    let threads: Vec<(u32, u32)> = processes.iter().flat_map(|p| p.threads()).collect();
    Watch::start(&pids, &threads)
}
