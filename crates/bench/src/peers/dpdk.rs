//! A started set-up of testpmd processes, measured by what one of them receives.

use std::time::Duration;

use crate::case::{Case, Unit};
use crate::contender::{Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::peers::testpmd::{PortCounters, Testpmd};

/// The longest wait for the first frame, which includes connecting and learning addresses.
const FIRST_FRAME: Duration = Duration::from_secs(15);

/// The burst that stands for a case's batch: the same, up to `best`, beyond which the peer only gets slower. A case
/// without a batch gets the best. (testpmd takes up to 512.)
#[must_use]
pub fn burst(case: &Case, best: u32) -> u32 {
    if case.batch == 0 { best } else { case.batch.min(best) }
}

/// Processes forwarding to each other. Everything that must outlive them, or be taken down after them, is in `keep`.
pub struct DpdkSession {
    /// The testpmd processes; the last one's received frames are the figure.
    pub processes: Vec<Testpmd>,
    /// Others that belong to the set-up: a switch's process and forwarding threads.
    pub others: Vec<Box<dyn Part>>,
    /// Folder and hugepages; dropped last.
    pub keep: Box<dyn std::any::Any>,
    /// The peer's name.
    pub name: String,
    /// The unit of the figure.
    pub unit: Unit,
    /// Length of the frames.
    pub frame_bytes: u32,
    /// A description of how the cores are used.
    pub cores: String,
    /// Whether bytes are touched.
    pub touched: bool,
    /// Further facts.
    pub context: Vec<(String, String)>,
}

/// A process of a set-up that is not a testpmd.
pub trait Part {
    /// Its processes.
    fn pids(&self) -> Vec<u32>;
    /// Its pinned threads, as `(pid, tid)`.
    fn threads(&self) -> Vec<(u32, u32)> {
        Vec::new()
    }
    /// Stops it where it is.
    ///
    /// # Errors
    /// A process has ended.
    fn freeze(&self) -> Result<()>;
    /// Lets it go on.
    ///
    /// # Errors
    /// A process has ended.
    fn thaw(&self) -> Result<()>;
}

impl DpdkSession {
    /// Waits until frames arrive, then pauses: the state in which a session is handed over.
    ///
    /// # Errors
    /// [`BenchError::NoTraffic`] when none arrive.
    pub fn settled(mut self) -> Result<Self> {
        let first = self.received()?.0;
        let flowing = interrupt::poll_until(FIRST_FRAME, || {
            let (now, _) = self.received()?;
            Ok((now > first).then_some(()))
        })?;
        flowing.ok_or_else(|| BenchError::NoTraffic(self.name.clone()))?;
        self.pause()?;
        Ok(self)
    }

    fn received(&mut self) -> Result<(u64, std::time::Instant)> {
        let Some(process) = self.processes.last_mut() else {
            return Err(BenchError::NoTraffic(self.name.clone()));
        };
        let (ports, when) = process.counters()?;
        Ok((ports.iter().map(|port: &PortCounters| port.rx).sum(), when))
    }

    fn watch(&self) -> Watch {
        let own = self.processes.iter().flat_map(|process| process.threads().to_vec());
        let threads: Vec<(u32, u32)> = own.chain(self.others.iter().flat_map(|other| other.threads())).collect();
        Watch::start(&self.processes(), &threads)
    }
}

impl Session for DpdkSession {
    fn resume(&mut self) -> Result<()> {
        self.others.iter().try_for_each(|other| other.thaw())?;
        self.processes.iter().try_for_each(Testpmd::thaw)
    }

    fn pause(&mut self) -> Result<()> {
        self.processes.iter().try_for_each(Testpmd::freeze)?;
        self.others.iter().try_for_each(|other| other.freeze())
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let (before, started) = self.received()?;
        // Between the two questions only: answering one takes the forwarding thread's CPU for a moment.
        let watch = self.watch();
        interrupt::sleep(window)?;
        let disturbance = watch.finish();
        let (after, ended) = self.received()?;
        let seconds = ended.duration_since(started).as_secs_f64();
        let value = self.unit.rate(after.saturating_sub(before), self.frame_bytes, seconds).unwrap_or(0.0);
        if value > 0.0 { Ok(Sample::new(value, disturbance)) } else { Err(BenchError::NoTraffic(self.name.clone())) }
    }

    fn cores(&self) -> String {
        self.cores.clone()
    }

    fn touched(&self) -> bool {
        self.touched
    }

    fn processes(&self) -> Vec<u32> {
        let own = self.processes.iter().map(Testpmd::pid);
        own.chain(self.others.iter().flat_map(|other| other.pids())).collect()
    }

    fn context(&self) -> Vec<(String, String)> {
        self.context.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    /// Objective: a peer never gets a burst that is worse for it than its best, nor a larger one than was asked for.
    #[test]
    fn bursts() {
        let mut case = sample(None).case;
        for (batch, expected) in [(0, 64), (1, 1), (64, 64), (256, 64)] {
            case.batch = batch;
            assert_eq!(burst(&case, 64), expected);
        }
    }
}
