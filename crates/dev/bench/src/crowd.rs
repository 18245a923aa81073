//! A session beside busy threads that are nobody's: what it gets on a machine that others use, too.
//!
//! The threads belong to a process in the same session as the programs, so that the kernel's groups by session put all
//! of them together: with each of them, the scheduler shares the CPUs out alike.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::case::{Case, P99};
use crate::contender::Session;
use crate::disturb::{self, Watch};
use crate::error::Result;
use crate::sys::part::Part;
use crate::sys::worker::{Context, Role, Worker, Wrapper};
use crate::{interrupt, pin};

/// The role of the process with the threads.
pub const ROLE: (&str, Role) = ("crowd", busy);
/// The time that all run together before counting starts: the scheduler has placed them by then.
const SETTLE: Duration = Duration::from_millis(500);

/// The session beside the foreign threads of the case; as it is where the machine is ours alone.
pub fn beside(case: &Case, session: Session) -> Result<Session> {
    let Some(foreign) = case.foreign else { return Ok(session) };
    let crowd = Worker::spawn(Wrapper::None, ROLE.0, None, &foreign)?;
    crowd.freeze()?;
    let own = session.processes();
    let cpus = pin::allowed()?.len();
    let is_p99 = case.variant.ends_with(P99);
    let all = [&own[..], &[crowd.pid()]].concat();
    let wrap = |mut inner: crate::contender::Measurement| {
        move |window: Duration| {
            interrupt::sleep(SETTLE)?;
            // The foreign threads are part of the measurement, and that programs wait for them is what is measured.
            let watch = Watch::start(&all, &[]);
            let used = disturb::cpu_time(&own);
            let start = Instant::now();
            let mut sample = inner(window)?;
            let used = disturb::cpu_time(&own).saturating_sub(used);
            let time = start.elapsed() * cpus as u32;
            sample.disturbance = watch.finish();
            sample.cpu_percent = Some(100.0 * used.as_secs_f64() / time.as_secs_f64().max(1e-9));
            if let Some(times) = sample.latencies.as_ref().filter(|_| is_p99) {
                sample.value = times.value_at_quantile(0.99) as f64 / 1000.0;
            }
            Ok(sample)
        }
    };
    Ok(session.wrapped(wrap).with(&crowd))
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
