//! Two processes with vhost-user between them, measured by what one of them receives.

use std::any::Any;
use std::time::Duration;

use super::process::{Process, watch};
use crate::case::Case;
use crate::contender::{Sample, Session};
use crate::error::{BenchError, Result};
use crate::interrupt;

/// The longest that both may take to connect.
const MEETING: Duration = Duration::from_secs(15);
const SETTLE: Duration = Duration::from_millis(50);

/// A running pair.
pub struct Pair {
    case: Case,
    /// The first one's received frames are the figure.
    processes: [Process; 2],
    cores: String,
    /// Dropped last: folders, hugepages, a switch.
    _keep: Box<dyn Any>,
}

impl Pair {
    /// Waits until frames arrive at the first one, then pauses.
    ///
    /// # Errors
    /// No frames arrive.
    pub fn settled(case: &Case, processes: [Process; 2], cores: String, keep: Box<dyn Any>) -> Result<Self> {
        let mut this = Self { case: case.clone(), processes, cores, _keep: keep };
        let first = this.received()?.0;
        let flowing = interrupt::poll_until(MEETING, || Ok((this.received()?.0 > first).then_some(())))?;
        flowing.ok_or_else(|| BenchError::NoTraffic("the other end".into()))?;
        this.pause()?;
        Ok(this)
    }

    fn received(&mut self) -> Result<(u64, std::time::Instant)> {
        let [counted, _] = &mut self.processes;
        counted.received()
    }
}

impl Session for Pair {
    fn resume(&mut self) -> Result<()> {
        self.processes.iter().try_for_each(Process::thaw)
    }

    fn pause(&mut self) -> Result<()> {
        self.processes.iter().try_for_each(Process::freeze)
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        interrupt::sleep(SETTLE)?;
        let (before, start) = self.received()?;
        // Between the two questions only: answering one takes testpmd's CPU for a moment.
        let beside = watch(&self.processes.each_ref());
        interrupt::sleep(window)?;
        let disturbance = beside.finish();
        let (after, end) = self.received()?;
        let seconds = end.duration_since(start).as_secs_f64();
        let rate = self.case.unit.rate(after.saturating_sub(before), self.case.frame_bytes, seconds).unwrap_or(0.0);
        Ok(Sample::new(rate, disturbance))
    }

    fn cores(&self) -> String {
        self.cores.clone()
    }

    fn touched(&self) -> bool {
        true
    }
}
