//! `netvale doctor`: advice to make netvale faster on this machine.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::ctx::Daemon;
use crate::{CliError, Ctx, out, values};

mod cgroup;
mod clock;
mod cpus;
mod files;
mod isolation;
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
use row::{Row, State};
use times::{Sample, Spent};
use wakeup::WakeUp;
use watched::{Load, Reading, Watched};

/// Say what would make netvale faster on this machine.
///
/// It watches the machine, and the daemon if one runs, for a moment; measures what a wake-up and reading the time cost;
/// and looks at settings of the kernel. Each advice has what was found, why it matters, and what to do. It changes
/// nothing, and needs neither a daemon nor root.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds to watch.
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = values::seconds)]
    pub seconds: f64,

    /// Print also what could not be found out.
    #[arg(short, long, conflicts_with = "json")]
    pub verbose: bool,

    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// The result of all checks.
#[derive(Debug, Serialize)]
struct Report {
    /// Seconds watched.
    seconds: f64,
    /// The examined daemon.
    daemon: Option<Asked>,
    /// The reason without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_daemon: Option<String>,
    /// Number of checks with advice.
    advice: usize,
    /// The checks.
    checks: Vec<Row>,
}

/// A daemon.
#[derive(Debug, Serialize)]
struct Asked {
    run_dir: String,
    pid: Option<u32>,
}

/// Runs the subcommand.
///
/// # Errors
/// The result cannot be printed.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let (spent, daemon) = watch(args, ctx);
    let watched = daemon.as_ref().ok();
    let checks = checks(&spent, watched);
    let report = Report {
        seconds: args.seconds,
        daemon: watched.map(|watched| Asked { run_dir: ctx.dir().display().to_string(), pid: watched.pid }),
        no_daemon: daemon.as_ref().err().map(ToString::to_string),
        advice: checks.iter().filter(|row| row.state == State::Advice).count(),
        checks,
    };
    if args.json {
        out::json(&report)?
    } else {
        out::text(text::render(&report, args.verbose, out::width()))?
    }
    Ok(ExitCode::SUCCESS)
}

/// Watches the machine and the daemon.
fn watch(args: &Args, ctx: &Ctx) -> (Spent, Result<Watched, CliError>) {
    let begin = |mut daemon: Daemon| Reading::take(&mut daemon).map(|before| (daemon, before));
    let daemon = ctx.daemon().and_then(begin);
    let sample = Sample::take();
    std::thread::sleep(Duration::from_secs_f64(args.seconds));
    let spent = Sample::take().since(&sample);
    let end = |(mut daemon, before): (Daemon, Reading)| {
        let after = Reading::take(&mut daemon)?;
        Ok(Watched { pid: daemon.pid(), before, after })
    };
    (spent, daemon.and_then(end))
}

/// All checks, in the order of printing.
fn checks(spent: &Spent, watched: Option<&Watched>) -> Vec<Row> {
    let pid = watched.and_then(|watched| watched.pid);
    let loads = watched.map(Watched::loads).unwrap_or_default();
    // The daemon's CPUs count; this process may be in another control group.
    let cpus = pid.and_then(Cpus::of_process).or_else(Cpus::of_this_process);
    let mut rows = vec![cpus::judge(cpus.as_ref(), &loads)];
    let cpus = cpus.unwrap_or_default();
    if let Some(watched) = watched {
        let idle = spent.idle(&cpus.allowed).unwrap_or(cpus.usable() - loads.len() as f64).min(cpus.usable());
        rows.extend([traffic::workers(&loads, idle), traffic::receivers(&watched.no_room())]);
    }
    let neighbours = neighbours::judge(&Neighbours {
        spent,
        own: &[std::process::id(), pid.unwrap_or(0)],
        clients: &watched.map_or_else(BTreeSet::new, Watched::clients),
        cpus: &cpus,
        workers: loads.len(),
    });
    let is_crowded = neighbours.state == State::Advice;
    rows.extend([neighbours, neighbours::steal(spent)]);
    rows.push(wakeup::judge(&WakeUp::measure(&cpus.allowed), cpus.usable(), is_crowded));
    rows.extend(settings(&cpus, &loads));
    rows.push(pages::look(watched.map(Watched::memory).unwrap_or_default()));
    rows.push(limits::look(pid, watched.map_or(0, Watched::locked)));
    rows.push(kernel::look());
    rows
}

/// The checks of settings for the CPUs.
fn settings(cpus: &Cpus, loads: &[Load]) -> impl Iterator<Item = Row> {
    let rows = [power::governor(&cpus.allowed), power::idle_states(&cpus.allowed), clock::look()];
    rows.into_iter().chain(isolation::look(cpus.online, loads))
}
