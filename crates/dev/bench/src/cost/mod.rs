//! The cost of a frame in instructions: callgrind counts the instructions of each path alone, in one thread, and the
//! count is compared with a budget.
//!
//! Counts depend on the program and its input, but not on other work of the machine. They therefore show changes of a
//! few per cent, which a measurement of time would not show. They do not show time that is lost in caches, on other
//! cores, or in the kernel.
//!
//! ```text
//! cost ──► valgrind netvale-bench count PATH BATCH ──► set up, warm up, measured(): the only part that is counted
//!     └────► docs/internals/budgets.toml
//! ```

mod budget;
mod guests;
mod rings;

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use netvale_port::pace;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::scenarios::policies::kinds::Kind;
use crate::scenarios::vxlan::encapsulate::TunnelLane;
use crate::sys::{self, Need};

use budget::Budgets;

/// The hidden subcommand that runs under valgrind.
pub const SUBCOMMAND: &str = "count";
/// The batch sizes for which paths are counted.
pub const BATCHES: [u32; 2] = [32, 256];
/// Number of frames during which instructions are counted.
const FRAMES: u64 = 50_000;
/// Number of frames sent before counting, to warm up.
const WARM_UP: u64 = 5_000;
/// Maximum number of attempts for a path that exceeds its budget. After a worker has lost its CPU, it checks its
/// devices more often for a while. Such events only add instructions, so the lowest count is the right one.
const TRIES: usize = 3;
/// Time limit for a path's set-up, under valgrind on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A path that frames take within the calling thread. Each call sends a batch at one end, takes the frames that arrive
/// at the other end, and returns the number of frames taken.
type Track = Box<dyn FnMut() -> u64>;

/// A path, its name and its description.
struct NamedPath {
    name: &'static str,
    about: &'static str,
    track: fn(u32) -> Result<Track>,
}

const fn path(name: &'static str, about: &'static str, track: fn(u32) -> Result<Track>) -> NamedPath {
    NamedPath { name, about, track }
}

const PATHS: &[NamedPath] = &[
    path("pipe", "a pipe: the syncs of sender and receiver", rings::pipe),
    path("vale", "a switch from one local port to another", |b| rings::vale(b, 1, 0)),
    path("vale-1-to-8", "to eight ports in turn", |b| rings::vale(b, 8, 0)),
    path("vale-header", "with virtio-net headers", |b| rings::vale(b, 1, 12)),
    path("vale-vlan", "with policies: from access port to access port", |b| rings::vale_with(b, Kind::Vlan)),
    path("vale-trunk", "from access port to trunk, which adds a tag", |b| rings::vale_with(b, Kind::Trunk)),
    path("vale-security", "fixed and guarded addresses", |b| rings::vale_with(b, Kind::Security)),
    path("vale-rate", "a rate limit that is never reached", |b| rings::vale_with(b, Kind::Rate)),
    path("vale-filter", "a filter of twelve instructions", |b| rings::vale_with(b, Kind::Filter)),
    path("vale-timed", "one of a hundred batches timed", |b| rings::vale_timed(b, 100)),
    path("vale-traced", "one of a thousand frames traced", |b| rings::vale_traced(b, 1000)),
    path("vale-traced-all", "every frame traced", |b| rings::vale_traced(b, 1)),
    path("netmap-api", "with the syncs of netmap's ioctls at both ends", rings::netmap_api),
    path("ptnet", "a switch from one guest's rings to another's", |b| rings::ptnet(b, 1)),
    path("ptnet-1-to-8", "to eight guests' in turn", |b| rings::ptnet(b, 8)),
    path("vhost-in", "vhost-user, split, mergeable: driver to device", |b| guests::vhost(b, false, true)),
    path("vhost-out", "device to driver", |b| guests::vhost(b, false, false)),
    path("vhost-packed-in", "packed: driver to device", |b| guests::vhost(b, true, true)),
    path("vhost-packed-out", "packed: device to driver", |b| guests::vhost(b, true, false)),
    path("e1000-in", "the e1000 with status block: driver to card", |b| guests::e1000(b, true)),
    path("e1000-out", "card to driver", |b| guests::e1000(b, false)),
    path("vxlan-out", "encapsulation of UDP in IPv4, without the system call", encapsulated),
];

fn encapsulated(batch: u32) -> Result<Track> {
    let mut tunnel = TunnelLane::start(batch, 60)?;
    // The first calls are slow, because valgrind translates them.
    let begun = Instant::now();
    while begun.elapsed() < 2 * pace::LOOKS_FOR {
        tunnel.deliver();
    }
    Ok(Box::new(move || tunnel.deliver()))
}

fn find(name: &str) -> Result<&'static NamedPath> {
    let known = || PATHS.iter().map(|path| path.name).collect::<Vec<_>>().join(", ");
    let found = PATHS.iter().find(|path| path.name == name);
    found.ok_or_else(|| BenchError::Unknown("scenario", name.to_owned(), known()))
}

/// Runs the track until it has processed at least `frames` frames. Returns the number of frames. Instructions are
/// counted only in this function, including its callees.
#[inline(never)]
fn measured(track: &mut Track, frames: u64) -> u64 {
    let mut done = 0;
    while done < frames {
        done += track();
    }
    done
}

/// Runs under valgrind: sends frames along the path `name`, and prints the number of frames during which instructions
/// were counted.
pub fn count(name: &str, batch: u32) -> Result<()> {
    let mut track = (find(name)?.track)(batch)?;
    let started = Instant::now();
    let mut warm = 0;
    while warm < WARM_UP {
        warm += track();
        if started.elapsed() > START_LIMIT {
            return Err(BenchError::NoTraffic(format!("the path {name}")));
        }
    }
    println!("{}", measured(&mut track, FRAMES));
    Ok(())
}

/// Counts the instructions of the named paths (all paths if none is named), and compares the counts with the budgets in
/// `file`. With `update`, writes the counts to `file` instead. Returns whether all paths are within their budgets.
pub fn run(names: &[String], file: &Path, update: bool, out: &mut dyn Write) -> Result<bool> {
    sys::need(&[&[Need::Program("valgrind", "valgrind")]], 0)?;
    let _guard = interrupt::Guard::install()?;
    let chosen = if names.is_empty() {
        PATHS.iter().collect()
    } else {
        names.iter().map(|name| find(name)).collect::<Result<Vec<_>>>()?
    };
    let mut budgets = Budgets::read(file)?;
    let mut table = Table::new();
    let mut kept = true;
    table.load_style(presets::NOTHING).set_header(["path", "batch", "instructions", "budget", "", "what it is"]);
    for path in chosen {
        for batch in BATCHES {
            let cost = least(path, batch, &budgets)?;
            if update {
                budgets.set(path.name, batch, cost);
            }
            let verdict = budgets.judge(path.name, batch, cost);
            kept &= verdict.is_kept;
            let budget = verdict.budget.map_or_else(|| "-".into(), |budget| format!("{budget:.1}"));
            let batch = batch.to_string();
            let cost = format!("{cost:.1}");
            table.add_row([path.name.into(), batch, cost, budget, verdict.note.into(), path.about.into()]);
        }
    }
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if update {
        budgets.write(file)?;
    }
    writeln!(out, "{table}").map_err(BenchError::io("writing the table"))?;
    Ok(kept)
}

/// Counts a path repeatedly, at most [`TRIES`] times, until it is within its budget. Returns the lowest number of
/// instructions per frame.
fn least(path: &NamedPath, batch: u32, budgets: &Budgets) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        least = least.min(counted(path, batch)?);
        if budgets.judge(path.name, batch, least).is_kept {
            break;
        }
    }
    Ok(least)
}

/// Counts one path under valgrind. Returns the instructions per frame.
fn counted(path: &NamedPath, batch: u32) -> Result<f64> {
    interrupt::check()?;
    let own = std::env::current_exe().map_err(BenchError::io("finding this program"))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*cost::measured*"]);
    // The C library selects its copy functions by CPU; with these settings, it selects the same functions on every
    // machine.
    command.env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM");
    command.arg(own).args([SUBCOMMAND, path.name, &batch.to_string()]);
    let output = command.output().map_err(BenchError::spawn("valgrind"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let unreadable = |what: &str| {
        BenchError::unreadable(format!("valgrind … {SUBCOMMAND} {} {batch}", path.name), what, &format!("{text}{said}"))
    };
    let frames: u64 = text.trim().parse().map_err(|_| unreadable("the number of frames"))?;
    let total = said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse::<u64>().ok());
    let total = total.filter(|total| *total > 0).ok_or_else(|| unreadable("the instructions"))?;
    Ok(total as f64 / frames as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each path moves frames for every batch, and the names of paths are unique.
    #[test]
    fn every_path_moves() {
        for path in PATHS {
            for batch in [1, 32, 256] {
                let mut track = (path.track)(batch).expect(path.name);
                let started = Instant::now();
                let mut moved = 0;
                while moved < 2000 {
                    moved += track();
                    assert!(started.elapsed() < START_LIMIT, "{} moves nothing at {batch}", path.name);
                }
            }
        }
        assert!(find("no-such").is_err());
    }
}
