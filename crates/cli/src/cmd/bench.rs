//! `netvale bench`: measurements beside the peers'.

use std::path::PathBuf;
use std::process::ExitCode;

use netvale_bench::{BenchError, Options, Rivals};

use crate::error::CliError;
use crate::{Ctx, out};

/// Measure, beside the peers in the same run.
///
/// Threads are pinned, each case is run several times, interleaved with the peers; the table gives the median and the spread.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Something else than a measurement.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Scenarios; all when none is given (see --list).
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,

    /// Peers to run beside, by name, or all.
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    pub against: Vec<String>,

    /// Measure the peers alone.
    #[arg(long)]
    pub peers_only: bool,

    /// Only the variant of that name, or those in whose names one of these texts stands.
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub variant: Vec<String>,

    /// Runs that count, for each case.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub runs: usize,

    /// Seconds a run.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,

    /// Frame lengths to go through, without CRC [default: the scenario's].
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub frame_bytes: Vec<u32>,

    /// Batches to go through, in frames [default: the scenario's].
    #[arg(long, value_name = "FRAMES", value_delimiter = ',')]
    pub batch: Vec<u32>,

    /// Numbers of ports or rings to go through [default: the scenario's].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub ports: Vec<u32>,

    /// CPUs to pin to, in order of use [default: the first two allowed].
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    pub cpus: Vec<usize>,

    /// Few short runs, to see that all works; no figures to publish.
    #[arg(long)]
    pub quick: bool,

    /// One JSON object a line instead of the table.
    #[arg(long)]
    pub json: bool,

    /// Also write the results to this file, one JSON object a line, for `netvale bench report`.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// List scenarios and peers, and what is missing to run them.
    #[arg(long)]
    pub list: bool,
}

/// What `bench` does beside measuring.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Write a Markdown table and SVG plots from the results of `netvale bench --save` or `--json`.
    Report {
        /// Result files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,

        /// Folder to write to; made where there is none.
        #[arg(short, long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Runs the subcommand. Exit code 1 where nothing could be measured.
///
/// # Errors
/// Unknown names, values that cannot be used, files that cannot be read or written.
pub fn run(args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    let mut stdout = std::io::stdout();
    if let Some(Command::Report { files, out: dir }) = &args.command {
        for file in netvale_bench::report(files, dir).map_err(error)? {
            out::line(file.display())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        netvale_bench::list(&mut stdout).map_err(error)?;
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = netvale_bench::run(&options(args), &mut stdout).map_err(error)?;
    Ok(if outcome.measured() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn options(args: &Args) -> Options {
    Options {
        scenarios: args.scenarios.clone(),
        variants: args.variant.clone(),
        against: Rivals::from_names(&args.against),
        peers_only: args.peers_only,
        runs: args.runs,
        seconds: args.seconds,
        frame_bytes: args.frame_bytes.clone(),
        batch: args.batch.clone(),
        ports: args.ports.clone(),
        cpus: args.cpus.clone(),
        quick: args.quick,
        json: args.json,
        save: args.save.clone(),
    }
}

fn error(error: BenchError) -> CliError {
    let text = error.to_string();
    match error {
        BenchError::Io { source, .. } if source.kind() == std::io::ErrorKind::BrokenPipe => CliError::output(&source),
        BenchError::UnknownScenario { .. } | BenchError::UnknownPeer { .. } => {
            CliError::usage(text, "'netvale bench --list' says what each is and what it needs")
        }
        BenchError::Usage(_) => CliError::usage(text, "'netvale bench --help' lists the options"),
        BenchError::Interrupted => CliError::failed(text, "start it again when the machine is free"),
        BenchError::BadLine { .. } => CliError::failed(text, "give the unchanged output of 'netvale bench --json'"),
        _ => CliError::failed(text, "'netvale bench --list' says what is missing to run scenarios and peers"),
    }
}
