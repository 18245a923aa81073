//! Adds busy foreign threads to a session, to measure the session's rate on a machine that other programs also use.
//!
//! The threads are in a process of the same login session as the measured programs. If the kernel groups tasks by
//! session, all of these threads and programs are in one group, and the scheduler divides the CPUs equally among them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::case::{Case, P99};
use crate::contender::Session;
use crate::disturb::{self, Watch};
use crate::error::Result;
use crate::sys::part::Part;
use crate::sys::worker::{Context, Role, Worker, Wrapper};
use crate::{interrupt, pin};

/// The worker role of the process with the foreign threads: its name and its function.
pub const ROLE: (&str, Role) = ("crowd", busy);
/// How long all processes run before counting starts; in that time, the scheduler places their threads on CPUs.
const SETTLE: Duration = Duration::from_millis(500);

/// Adds the case's foreign threads to the session; if the case has none, returns the session unchanged.
pub fn beside(case: &Case, session: Session) -> Result<Session> {
    let Some(foreign) = case.foreign else { return Ok(session) };
    let crowd = Worker::spawn(Wrapper::None, ROLE.0, None, &foreign)?;
    crowd.freeze()?;
    let own = session.processes();
    let cpus = pin::allowed()?.len();
    let is_p99 = case.variant.ends_with(P99);
    let all = [&own[..], &[crowd.pid()]].concat();
    let session = session.wrapped(move |inner, window| {
        interrupt::sleep(SETTLE)?;
        // The foreign threads are part of the measurement, which shows how long programs wait for them.
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
    });
    Ok(session.with(&crowd))
}

/// Runs threads that are continuously busy.
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
