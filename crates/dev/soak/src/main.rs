//! `netvale-soak`: a daemon with all kinds of ports, bystanders that exchange numbered frames, and attacks at random
//! moments.
//!
//! | module | what it is |
//! |---|---|
//! | [`world`] | both daemons, and everything set up once |
//! | [`kinds`] | pairs of bystanders, one for each kind of port |
//! | [`pairs`], [`ends`], [`frames`] | the exchange of frames, and its counts |
//! | [`roles`] | attackers, each in a process of its own |
//! | [`acts`], [`users`] | actions on the daemon itself, and by users over its own sockets |
//! | [`machine`], [`shares`], [`waits`] | what attacks cost bystanders, without the machine's part |
//! | [`health`] | descriptors, threads, memory, files |
//! | [`soak`], [`bystanders`] | the sequence of a run |
//! | [`stalls`] | the daemons' threads while a bystander waits |
//! | [`report`] | the findings |
//! | `burst` | sends frames through an egress |
//! | `netvale` | a daemon that is killed and restarted in the same folder |
//! | `replayed` | a repeated capture file of numbered frames, and captures that are read back |
//! | `rng` | random numbers from a seed |
//!
//! `docs/internals/soak.md` lists the requirements.

mod acts;
mod burst;
mod bystanders;
mod ends;
mod frames;
mod health;
mod kinds;
mod machine;
mod netvale;
mod pairs;
mod replayed;
mod report;
mod rng;
mod roles;
mod shares;
mod soak;
mod stalls;
mod users;
mod waits;
mod world;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Run a daemon with all kinds of ports, attack it at random, and check that bystanders are unaffected.
#[derive(Debug, Parser)]
#[command(name = "netvale-soak")]
struct SoakArgs {
    /// Duration in minutes.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seed of all random choices; default: from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// The program under test; default: the one beside this program.
    #[arg(long)]
    netvale: Option<PathBuf>,
    /// Write the report to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// If all is well, print one line instead of the report.
    #[arg(long)]
    quiet: bool,
    /// This process already runs inside its namespaces.
    #[arg(long, hide = true)]
    inside: bool,
    #[command(subcommand)]
    role: Option<SoakRole>,
}

#[derive(Debug, Subcommand)]
enum SoakRole {
    /// Act as an attacker.
    #[command(hide = true)]
    Role { name: String, dir: PathBuf, seed: u64, life_ms: u64 },
}

fn main() -> ExitCode {
    let arguments = SoakArgs::parse();
    if let Some(SoakRole::Role { name, dir, seed, life_ms }) = &arguments.role {
        return done(roles::play(name, dir, *seed, Duration::from_millis(*life_ms)).map(|()| true));
    }
    if arguments.inside { done(run(&arguments)) } else { enter() }
}

/// Returns the exit status of a result, after printing its error.
fn done(outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("netvale-soak: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The exit status of a test that cannot run here (as in scripts/lib.sh).
const SKIPPED: u8 = 77;

/// Runs this program again in a network namespace of its own, without other interfaces.
fn enter() -> ExitCode {
    let mut options = vec!["--net"];
    if !rustix::process::geteuid().is_root() {
        options.extend(["--user", "--map-root-user"]);
    }
    let allowed = Command::new("unshare").args(&options).arg("true").output().is_ok_and(|o| o.status.success());
    let Some(own) = std::env::current_exe().ok().filter(|_| allowed) else {
        println!("skipped: needs the privilege to create network namespaces");
        return ExitCode::from(SKIPPED);
    };
    let error = Command::new("unshare")
        .args(&options)
        .arg("--")
        .arg(own)
        .arg("--inside")
        .args(std::env::args_os().skip(1))
        .exec();
    done(Err(format!("unshare: {error}")))
}

fn run(arguments: &SoakArgs) -> Result<bool, String> {
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or_else(clock);
    let beside = || std::env::current_exe().ok().map(|own| own.with_file_name("netvale"));
    let netvale = arguments.netvale.clone().or_else(beside).ok_or("cannot find netvale; name it with --netvale")?;
    if !arguments.quiet {
        println!("soak: seed {seed}, {} minutes", arguments.minutes);
    }
    let length = Duration::from_secs_f64(60.0 * arguments.minutes);
    let report = soak::Soak::new(&netvale, seed, length)?.run();
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
        std::fs::write(path, json).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let is_brief = arguments.quiet && report.is_clean();
    println!("{}", if is_brief { report.line() } else { report.text() });
    Ok(report.is_clean())
}
