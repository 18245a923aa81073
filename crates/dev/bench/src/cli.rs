//! The command line of `netvale-bench`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::ab::{self, Build};
use crate::cost;
use crate::error::{BenchError, Result};
use crate::measure::Measure;
use crate::options::{self, Options};
use crate::papers::{self, Papers};
use crate::scenarios;
use crate::sys::worker;

/// Measure netvale and its peers in the same run.
///
/// Threads are pinned (except in `crowded`). Each case is run several times, alternating with the peers; the table has
/// medians and ranges.
#[derive(Debug, Parser)]
#[command(name = "netvale-bench", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
struct Cli {
    /// A subcommand; without one, scenarios are measured.
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    options: Options,

    /// List scenarios and peers, and what each lacks to run.
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a Markdown table and SVG plots from the results of --save or --json.
    Report {
        /// Result files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,

        /// Folder to write to; created if missing.
        #[arg(short, long, value_name = "DIR")]
        out: PathBuf,
    },

    /// Compare two builds: both run the same cases in turn. Prints ratios with their ranges.
    ///
    /// Exit code 1 if a case of NEW is slower than OLD by more than --tolerance.
    Ab {
        /// The `netvale-bench` of the older build (or an old `netvale` with the subcommand `bench`).
        old: PathBuf,

        /// The `netvale-bench` of the newer build.
        new: PathBuf,

        #[command(flatten)]
        measure: Measure,

        /// Maximum accepted slowdown of a case, in per cent.
        #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
        tolerance: f64,

        /// One JSON object a line instead of the table.
        #[arg(long)]
        json: bool,
    },

    /// Run the papers' experiments, and write a page with the published and the measured figures.
    ///
    /// Finished measurements are saved, so the command may be interrupted and restarted.
    Papers(Papers),

    /// Count the instructions per frame of each path, and compare them with the budgets. Needs valgrind.
    ///
    /// Exit code 1 if a path exceeds its budget by more than 2 %.
    Cost {
        /// Paths; default: all.
        #[arg(value_name = "PATH")]
        paths: Vec<String>,

        /// The file of budgets.
        #[arg(long, value_name = "FILE", default_value = "docs/internals/budgets.toml")]
        budgets: PathBuf,

        /// Write the counts to the file instead of comparing.
        #[arg(long)]
        update: bool,
    },

    /// Write the manual pages.
    #[command(hide = true)]
    Man {
        /// The folder; created if it does not exist.
        dir: PathBuf,
    },

    /// Moves frames along one path and prints how many were counted.
    #[command(name = cost::SUBCOMMAND, hide = true)]
    Count { path: String, batch: u32 },
}

/// Runs the program: parses the arguments, executes the command, prints errors, and returns the exit code.
pub fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|arg| arg == worker::SUBCOMMAND) {
        return worker::main(scenarios::ROLES);
    }
    run(Cli::parse()).unwrap_or_else(|error| report(&error))
}

fn run(cli: Cli) -> Result<ExitCode> {
    let out = &mut std::io::stdout();
    let worked = match cli.command {
        Some(Command::Report { files, out: folder }) => {
            crate::report::report(&files, &folder)?.iter().for_each(|file| println!("{}", file.display()));
            true
        }
        Some(Command::Ab { old, new, measure, tolerance, json }) => {
            let builds = [Build::at(&old)?, Build::at(&new)?];
            ab::run(&builds, &measure, json, out)?.iter().all(|pair| pair.is_within(tolerance))
        }
        Some(Command::Papers(options)) => papers::run(&options, out)?,
        Some(Command::Cost { paths, budgets, update }) => cost::run(&paths, &budgets, update, out)?,
        Some(Command::Count { path, batch }) => cost::count(&path, batch).map(|()| true)?,
        Some(Command::Man { dir }) => man(&dir).map(|()| true)?,
        None if cli.list => options::list(out).map(|()| true)?,
        None => options::run(&cli.options, out)?,
    };
    Ok(if worked { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn man(dir: &Path) -> Result<()> {
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    written.map_err(BenchError::io(dir.display().to_string()))
}

/// Prints an error and what to do next. Returns the exit code.
fn report(error: &BenchError) -> ExitCode {
    let (code, next) = match error {
        BenchError::Io { source, .. } if source.kind() == std::io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        BenchError::Unknown(..) => (2, "'netvale-bench --list' describes all of them, with their requirements"),
        BenchError::Usage(_) => (2, "'netvale-bench --help' lists the options"),
        BenchError::Interrupted => (1, "run the benchmark again when the machine is idle"),
        BenchError::BadLine(..) => (1, "give the unchanged output of 'netvale-bench --json'"),
        _ => (1, "'netvale-bench --list' shows the unmet requirements of scenarios and peers"),
    };
    eprintln!("netvale-bench: {error}\n  {next}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// Objective: the command line passes clap's own checks: no flag exists twice, and no names clash.
    #[test]
    fn the_command_line_passes_claps_own_checks() {
        super::Cli::command().debug_assert();
    }
}
