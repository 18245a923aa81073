//! `netvale doctor`: advice to make netvale faster on this machine.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Pid;
use serde::Serialize;

use crate::ctx::DaemonClient;
use crate::{CliContext, CliError, out, values};

mod cgroup;
mod clock;
mod cpus;
mod files;
mod kernel;
mod limits;
mod neighbours;
mod pages;
mod power;
mod row;
mod text;
mod times;
mod traffic;
mod wakeup;
mod watched;

use cpus::Cpus;
use neighbours::Neighbours;
use row::{CheckRow, CheckState};
use times::{CpuSample, CpuUse};
use wakeup::WakeUp;
use watched::{DaemonReading, WatchedDaemon, WorkerLoad};

/// Find what slows netvale down on this machine.
///
/// Watches the machine, and the daemon if one runs, for a moment; measures the cost of a wake-up and of reading the
/// time; and checks the kernel's settings. Each piece of advice has the finding, the reason why it matters, and the
/// remedy. Changes nothing, and needs neither a daemon nor root.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Seconds to watch.
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = values::seconds)]
    pub seconds: f64,

    /// Also print the checks without a result.
    #[arg(short, long, conflicts_with = "json")]
    pub verbose: bool,

    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// The result of all checks.
#[derive(Debug, Serialize)]
struct DoctorReport {
    /// Number of seconds for which the machine and the daemon were watched.
    seconds: f64,
    /// The examined daemon; `None` if none was examined.
    daemon: Option<ExaminedDaemon>,
    /// The reason why no daemon was examined; `None` if one was examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_daemon: Option<String>,
    /// Number of checks with advice.
    advice: usize,
    /// The checks.
    checks: Vec<CheckRow>,
}

/// The daemon that was examined.
#[derive(Debug, Serialize)]
struct ExaminedDaemon {
    run_dir: String,
    pid: Option<u32>,
}

/// Runs the subcommand.
///
/// # Errors
/// The result cannot be printed.
pub fn run(args: &DoctorArgs, ctx: &CliContext) -> Result<(), CliError> {
    let (spent, daemon) = watch(args, ctx);
    let watched = daemon.as_ref().ok();
    let checks = checks(&spent, watched);
    let report = DoctorReport {
        seconds: args.seconds,
        daemon: watched.map(|watched| ExaminedDaemon { run_dir: ctx.dir().display().to_string(), pid: watched.pid }),
        no_daemon: daemon.as_ref().err().map(ToString::to_string),
        advice: checks.iter().filter(|row| row.state == CheckState::Advice).count(),
        checks,
    };
    if args.json { out::json(&report) } else { out::text(text::render(&report, args.verbose, out::width())) }
}

/// Watches the machine and the daemon. Returns the CPU time that was used, and the daemon's readings or the reason why
/// there are none.
fn watch(args: &DoctorArgs, ctx: &CliContext) -> (CpuUse, Result<WatchedDaemon, CliError>) {
    let begin = |mut daemon: DaemonClient| DaemonReading::take(&mut daemon).map(|before| (daemon, before));
    let daemon = ctx.daemon().and_then(begin);
    let sample = CpuSample::take();
    std::thread::sleep(Duration::from_secs_f64(args.seconds));
    let spent = CpuSample::take().since(&sample);
    let end = |(mut daemon, before): (DaemonClient, DaemonReading)| {
        let after = DaemonReading::take(&mut daemon)?;
        Ok(WatchedDaemon { pid: daemon.pid(), before, after })
    };
    (spent, daemon.and_then(end))
}

/// Returns all checks, in the order of printing.
fn checks(spent: &CpuUse, watched: Option<&WatchedDaemon>) -> Vec<CheckRow> {
    let pid = watched.and_then(|watched| watched.pid);
    let loads = watched.map(WatchedDaemon::loads).unwrap_or_default();
    // The CPUs available to the daemon are checked rather than the CPUs available to this process, which may be in
    // another control group.
    let daemon = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let cpus = daemon.and_then(|daemon| Cpus::of(Some(daemon))).or_else(|| Cpus::of(None));
    let mut rows = vec![cpus::judge(cpus.as_ref(), &loads)];
    let cpus = cpus.unwrap_or_default();
    if let Some(watched) = watched {
        let idle = spent.idle(&cpus.allowed).unwrap_or(cpus.usable() - loads.len() as f64).min(cpus.usable());
        rows.extend([traffic::workers(&loads, idle), traffic::receivers(&watched.no_room())]);
    }
    let neighbours = neighbours::judge(&Neighbours {
        spent,
        own: &[std::process::id(), pid.unwrap_or(0)],
        clients: &watched.map_or_else(BTreeSet::new, WatchedDaemon::clients),
        cpus: &cpus,
        workers: loads.len(),
    });
    let is_crowded = neighbours.state == CheckState::Advice;
    rows.extend([neighbours, neighbours::steal(spent)]);
    rows.push(wakeup::judge(&WakeUp::measure(&cpus.allowed), cpus.usable(), is_crowded));
    rows.extend(settings(&cpus, &loads));
    let (ordinary, huge) = watched.map(WatchedDaemon::memory).unwrap_or_default();
    rows.push(pages::look(ordinary, huge));
    rows.push(limits::look(pid, watched.map_or(0, WatchedDaemon::locked)));
    rows.extend([kernel::look(), kernel::sandbox()]);
    rows
}

/// Returns the checks of settings for the CPUs.
fn settings(cpus: &Cpus, loads: &[WorkerLoad]) -> impl Iterator<Item = CheckRow> {
    let rows = [power::governor(&cpus.allowed), power::idle_states(&cpus.allowed), clock::look()];
    rows.into_iter().chain(cpus::isolation(cpus.online, loads))
}
