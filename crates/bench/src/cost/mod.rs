//! The cost of a frame in instructions: each path alone in one thread, counted by callgrind, held against a budget.
//!
//! Counts depend on program and input, not on what else the machine does, so that a change of a few per cent shows
//! where a measurement of time would not. What counting leaves out is all that time is lost to beside instructions:
//! caches, other cores, the kernel.
//!
//! ```text
//!   cost ──► valgrind netvale-bench count PATH BATCH ──► set up, warm up, measured(): the only part that is counted
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

use crate::error::{BenchError, Result};
use crate::scenarios::policies::kinds::Kind;
use crate::scenarios::vxlan::encapsulate;
use crate::{interrupt, sys};

pub use budget::{Budgets, Verdict};

/// The hidden subcommand that valgrind runs.
pub const SUBCOMMAND: &str = "count";
/// Batches that are counted.
pub const BATCHES: [u32; 2] = [32, 256];
/// Frames that are counted, and before them those that warm up.
const FRAMES: u64 = 50_000;
const WARM_UP: u64 = 5_000;
/// The longest that a path may take to come up, under valgrind on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A path that frames take, all of it in the calling thread.
trait Lane {
    /// Sends a batch in at one end and takes at the other what came. Returns how many frames that was.
    fn round(&mut self) -> u64;
}

/// A path by name.
struct NamedPath {
    name: &'static str,
    about: &'static str,
    lane: fn(u32) -> Result<Box<dyn Lane>>,
}

const PATHS: &[NamedPath] = &[
    NamedPath { name: "pipe", about: "a pipe: the sender's sync and the receiver's", lane: rings::pipe },
    NamedPath {
        name: "vale",
        about: "a switch from one local port to another",
        lane: |batch| rings::vale(batch, 1, 0),
    },
    NamedPath { name: "vale-1-to-8", about: "to eight ports in turn", lane: |batch| rings::vale(batch, 8, 0) },
    NamedPath { name: "vale-header", about: "with virtio-net headers", lane: |batch| rings::vale(batch, 1, 12) },
    NamedPath {
        name: "vale-vlan",
        about: "with policies: from access port to access port",
        lane: |batch| rings::vale_with(batch, Kind::Vlan),
    },
    NamedPath {
        name: "vale-trunk",
        about: "from access port to trunk, which adds a tag",
        lane: |batch| rings::vale_with(batch, Kind::Trunk),
    },
    NamedPath {
        name: "vale-security",
        about: "fixed and guarded addresses",
        lane: |batch| rings::vale_with(batch, Kind::Security),
    },
    NamedPath {
        name: "vale-rate",
        about: "a rate that nobody waits for",
        lane: |batch| rings::vale_with(batch, Kind::Rate),
    },
    NamedPath {
        name: "vale-filter",
        about: "a filter of twelve instructions",
        lane: |batch| rings::vale_with(batch, Kind::Filter),
    },
    NamedPath {
        name: "vale-timed",
        about: "one of a hundred batches timed",
        lane: |batch| rings::vale_timed(batch, 100),
    },
    NamedPath {
        name: "vale-traced",
        about: "one of a thousand frames traced",
        lane: |batch| rings::vale_traced(batch, 1000),
    },
    NamedPath { name: "vale-traced-all", about: "every frame traced", lane: |batch| rings::vale_traced(batch, 1) },
    NamedPath { name: "netmap-api", about: "with the syncs of netmap's ioctls at both ends", lane: rings::netmap_api },
    NamedPath {
        name: "ptnet",
        about: "a switch from one guest's rings to another's",
        lane: |batch| rings::ptnet(batch, 1),
    },
    NamedPath { name: "ptnet-1-to-8", about: "to eight guests' in turn", lane: |batch| rings::ptnet(batch, 8) },
    NamedPath {
        name: "vhost-in",
        about: "vhost-user, split, mergeable: driver to device",
        lane: |b| guests::vhost(b, "in"),
    },
    NamedPath { name: "vhost-out", about: "device to driver", lane: |b| guests::vhost(b, "out") },
    NamedPath { name: "vhost-packed-in", about: "packed: driver to device", lane: |b| guests::vhost(b, "packed-in") },
    NamedPath { name: "vhost-packed-out", about: "packed: device to driver", lane: |b| guests::vhost(b, "packed-out") },
    NamedPath {
        name: "e1000-in",
        about: "the e1000 with status block: driver to card",
        lane: |b| guests::e1000(b, true),
    },
    NamedPath { name: "e1000-out", about: "card to driver", lane: |b| guests::e1000(b, false) },
    NamedPath {
        name: "vxlan-out",
        about: "encapsulation of UDP in IPv4, without the system call's",
        lane: |batch| Ok(Box::new(encapsulate::Lane::start(batch, 60)?)),
    },
];

fn find(name: &str) -> Result<&'static NamedPath> {
    PATHS.iter().find(|path| path.name == name).ok_or_else(|| BenchError::UnknownScenario {
        name: name.to_owned(),
        known: PATHS.iter().map(|path| path.name).collect::<Vec<_>>().join(", "),
    })
}

impl Lane for encapsulate::Lane {
    fn round(&mut self) -> u64 {
        self.deliver()
    }
}

/// The only function whose instructions, and those of what it calls, are counted.
#[inline(never)]
fn measured(lane: &mut dyn Lane, frames: u64) -> u64 {
    let mut done = 0;
    while done < frames {
        done += lane.round();
    }
    done
}

/// Inside valgrind: sends frames, and prints how many were counted.
///
/// # Errors
/// A path that is not known, or does not come up.
pub fn count(name: &str, batch: u32) -> Result<()> {
    let mut lane = (find(name)?.lane)(batch)?;
    let (started, mut warm) = (Instant::now(), 0);
    while warm < WARM_UP {
        warm += lane.round();
        if started.elapsed() > START_LIMIT {
            return Err(BenchError::NoTraffic(format!("the path {name}")));
        }
    }
    println!("{}", measured(&mut *lane, FRAMES));
    Ok(())
}

/// A path's cost.
struct Cost {
    path: &'static NamedPath,
    batch: u32,
    /// Instructions a frame.
    instructions: f64,
}

/// Counts the paths of these names (all, if none is given), and holds them against the budgets in `file`; `update`:
/// writes them there instead. Returns whether all keep theirs.
///
/// # Errors
/// No valgrind, a path that does not run, or a file that cannot be read or written.
pub fn run(names: &[String], file: &Path, update: bool, out: &mut dyn Write) -> Result<bool> {
    sys::need_program("valgrind", "valgrind")?;
    let _guard = interrupt::Guard::install()?;
    let chosen = if names.is_empty() {
        PATHS.iter().collect()
    } else {
        names.iter().map(|name| find(name)).collect::<Result<Vec<_>>>()?
    };
    let mut budgets = Budgets::read(file)?;
    let (mut table, mut kept) = (Table::new(), true);
    table.load_style(presets::NOTHING).set_header(["path", "batch", "instructions", "budget", "", "what it is"]);
    for path in chosen {
        for batch in BATCHES {
            let cost = counted(path, batch)?;
            if update {
                budgets.set(path.name, batch, cost.instructions);
            }
            let verdict = budgets.judge(path.name, batch, cost.instructions);
            kept &= verdict.is_kept();
            table.add_row(row(&cost, &verdict));
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

fn row(cost: &Cost, verdict: &Verdict) -> [String; 6] {
    let budget = verdict.budget().map_or_else(|| "-".into(), |budget| format!("{budget:.1}"));
    let (name, about) = (cost.path.name.into(), cost.path.about.into());
    [name, cost.batch.to_string(), format!("{:.1}", cost.instructions), budget, verdict.to_string(), about]
}

/// Runs one path under valgrind.
fn counted(path: &'static NamedPath, batch: u32) -> Result<Cost> {
    interrupt::check()?;
    let own = std::env::current_exe().map_err(BenchError::io("finding this program"))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*cost::measured*"]);
    // The C library's copies are chosen by processor; these are everybody's.
    command.env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM");
    command.arg(own).args([SUBCOMMAND, path.name, &batch.to_string()]);
    let output = command.output().map_err(|source| BenchError::Spawn { program: "valgrind".into(), source })?;
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let unreadable = |what: &str| BenchError::Unreadable {
        program: format!("valgrind … {SUBCOMMAND} {} {batch}", path.name),
        what: what.to_owned(),
        output: format!("{text}{said}"),
    };
    let frames: u64 = text.trim().parse().map_err(|_| unreadable("the number of frames"))?;
    let total = said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse::<u64>().ok());
    let total = total.filter(|total| *total > 0).ok_or_else(|| unreadable("the instructions"))?;
    Ok(Cost { path, batch, instructions: total as f64 / frames as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each path moves frames, in every batch, and names are told apart.
    #[test]
    fn every_path_moves() {
        for path in PATHS {
            for batch in [1, 32, 256] {
                let mut lane = (path.lane)(batch).expect(path.name);
                let started = Instant::now();
                let mut moved = 0;
                while moved < 2000 {
                    moved += lane.round();
                    assert!(started.elapsed() < START_LIMIT, "{} moves nothing at {batch}", path.name);
                }
            }
        }
        assert!(find("no-such").is_err());
    }
}
