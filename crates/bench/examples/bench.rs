//! The harness without the rest of netvale: `cargo run --release -p netvale-bench --example bench -- --help`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use netvale_bench::{Options, Rivals, WORKER_SUBCOMMAND, list, report, run, worker_main};

#[derive(Parser)]
struct Args {
    /// Scenarios; all when none is given.
    scenarios: Vec<String>,
    /// Peers by name, or all.
    #[arg(long, value_delimiter = ',')]
    against: Vec<String>,
    /// Measure the peers alone.
    #[arg(long)]
    peers_only: bool,
    #[arg(long, default_value_t = 5)]
    runs: usize,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    #[arg(long, value_delimiter = ',')]
    frame_bytes: Vec<u32>,
    #[arg(long, value_delimiter = ',')]
    batch: Vec<u32>,
    #[arg(long, value_delimiter = ',')]
    ports: Vec<u32>,
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    #[arg(long)]
    quick: bool,
    #[arg(long)]
    json: bool,
    /// List scenarios and peers.
    #[arg(long)]
    list: bool,
    /// Write a report of these result files to the folder given by -o.
    #[arg(long, num_args = 1.., requires = "out")]
    report: Vec<PathBuf>,
    #[arg(short, long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(WORKER_SUBCOMMAND) {
        return worker_main();
    }
    match work(Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn work(args: Args) -> netvale_bench::Result<bool> {
    let mut out = std::io::stdout();
    if args.list {
        return list(&mut out).map(|()| true);
    }
    if let Some(folder) = args.out {
        return report(&args.report, &folder)
            .map(|files| files.iter().for_each(|file| println!("{}", file.display())))
            .map(|()| true);
    }
    let options = Options {
        scenarios: args.scenarios,
        against: Rivals::from_names(&args.against),
        peers_only: args.peers_only,
        runs: args.runs,
        seconds: args.seconds,
        frame_bytes: args.frame_bytes,
        batch: args.batch,
        ports: args.ports,
        cpus: args.cpus,
        quick: args.quick,
        json: args.json,
    };
    run(&options, &mut out).map(|outcome| outcome.measured())
}
