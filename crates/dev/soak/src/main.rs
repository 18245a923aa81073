//! `netvale-soak`: a daemon with all kinds of ports, bystanders that exchange numbered frames, and attacks at random
//! moments.
//!
//! | module | what it is |
//! |---|---|
//! | [`world`] | both daemons, and what is made once |
//! | [`kinds`] | pairs of bystanders: one for each kind of port |
//! | [`pairs`], [`ends`], [`frames`] | how they exchange frames, and what is counted |
//! | [`roles`] | attackers, each a process of its own |
//! | [`acts`], [`users`] | what is done to the daemon itself, and over its own sockets by users |
//! | [`machine`], [`shares`], [`waits`] | what bystanders lose by attacks, without what the machine takes |
//! | [`health`] | descriptors, threads, memory, files |
//! | [`soak`], [`bystanders`] | the course of it |
//! | [`stalls`] | what the daemons wait for when a bystander waits |
//! | [`report`] | what it found |
//! | `burst` | frames for an egress |
//! | `netvale` | a daemon that is killed and started again in the same folder |
//! | `replayed` | a capture file of numbered frames that is repeated, and captures that are read back |
//! | `rng` | numbers from a seed |
//!
//! `docs/internals/soak.md` says what must hold.

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

/// Run a daemon with all kinds of ports, attack it at random, and check that bystanders notice nothing.
#[derive(Debug, Parser)]
#[command(name = "netvale-soak")]
struct Arguments {
    /// How long, in minutes.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// What is done when follows from this number; without it, from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// The program under test; without it, the one beside this program.
    #[arg(long)]
    netvale: Option<PathBuf>,
    /// Write the report there as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Print one line if all is well, not the whole report.
    #[arg(long)]
    quiet: bool,
    /// This process is in its namespaces already.
    #[arg(long, hide = true)]
    inside: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Play an attacker.
    #[command(hide = true)]
    Role { name: String, dir: PathBuf, seed: u64, life_ms: u64 },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Role::Role { name, dir, seed, life_ms }) = &arguments.role {
        return done(roles::play(name, dir, *seed, Duration::from_millis(*life_ms)).map(|()| true));
    }
    if arguments.inside { done(run(&arguments)) } else { enter() }
}

/// An outcome as exit status, and why there is none.
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

/// The exit status that says that something cannot run here (as in scripts/lib.sh).
const SKIPPED: u8 = 77;

/// Becomes the same program in a network of its own, where interfaces are nobody else's.
fn enter() -> ExitCode {
    let mut options = vec!["--net"];
    if !rustix::process::geteuid().is_root() {
        options.extend(["--user", "--map-root-user"]);
    }
    let allowed = Command::new("unshare").args(&options).arg("true").output().is_ok_and(|o| o.status.success());
    let Some(own) = std::env::current_exe().ok().filter(|_| allowed) else {
        println!("skipped: needs the right to make network namespaces");
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

fn run(arguments: &Arguments) -> Result<bool, String> {
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or_else(clock);
    let beside = || std::env::current_exe().ok().map(|own| own.with_file_name("netvale"));
    let netvale = arguments.netvale.clone().or_else(beside).ok_or("no program under test")?;
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
