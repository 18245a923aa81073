//! A session beside busy threads that are nobody's: what it gets on a machine that others use, too.
//!
//! The threads belong to a process in the same session as the programs, so that the kernel's groups by session put all
//! of them together: with each of them, the scheduler shares the CPUs out alike.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::case::{Case, P99};
use crate::contender::{Sample, Session};
use crate::disturb::{self, Watch};
use crate::error::Result;
use crate::sys::worker::{Context, Role, Worker};
use crate::{interrupt, pin};

/// The role of the process with the threads.
pub const ROLE: (&str, Role) = ("crowd", busy);
/// The time that all run together before counting starts: the scheduler has placed them by then.
const SETTLE: Duration = Duration::from_millis(500);

/// The session beside the foreign threads of the case; as it is where the machine is ours alone.
///
/// # Errors
/// The threads do not start.
pub fn beside(case: &Case, session: Box<dyn Session>) -> Result<Box<dyn Session>> {
    let Some(foreign) = case.foreign else { return Ok(session) };
    let crowd = Worker::spawn_anywhere(ROLE.0, &foreign)?;
    crowd.freeze()?;
    let is_p99 = case.variant.ends_with(P99);
    Ok(Box::new(Crowded { session, crowd, cpus: pin::allowed()?.len(), is_p99 }))
}

/// Threads that do nothing, all the time.
fn busy(context: &Context) -> Result<()> {
    let threads: u32 = context.arguments()?;
    for _ in 0..threads {
        std::thread::spawn(|| {
            let mut count = 0u64;
            loop {
                count = black_box(count).wrapping_add(1);
            }
        });
    }
    context.ready()?;
    loop {
        std::thread::park();
    }
}

struct Crowded {
    session: Box<dyn Session>,
    crowd: Worker,
    cpus: usize,
    /// Whether the figure is the slowest of 100 frames.
    is_p99: bool,
}

impl Session for Crowded {
    fn resume(&mut self) -> Result<()> {
        self.crowd.thaw()?;
        self.session.resume()
    }

    fn pause(&mut self) -> Result<()> {
        self.session.pause()?;
        self.crowd.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        interrupt::sleep(SETTLE)?;
        let own = self.session.processes();
        // The foreign threads are part of the measurement, and that programs wait for them is what is measured.
        let watch = Watch::start(&[&own[..], &[self.crowd.pid()]].concat(), &[]);
        let (used, start) = (disturb::cpu_time(&own), Instant::now());
        let mut sample = self.session.measure(window)?;
        let (used, time) = (disturb::cpu_time(&own).saturating_sub(used), start.elapsed() * self.cpus as u32);
        sample.disturbance = watch.finish();
        sample.cpu_percent = Some(100.0 * used.as_secs_f64() / time.as_secs_f64().max(1e-9));
        if let Some(times) = sample.latencies.as_ref().filter(|_| self.is_p99) {
            sample.value = times.value_at_quantile(0.99) as f64 / 1000.0;
        }
        Ok(sample)
    }

    fn cores(&self) -> String {
        self.session.cores()
    }

    fn touched(&self) -> bool {
        self.session.touched()
    }

    fn processes(&self) -> Vec<u32> {
        self.session.processes()
    }

    fn context(&self) -> Vec<(String, String)> {
        self.session.context()
    }
}
