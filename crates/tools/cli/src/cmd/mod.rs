//! The subcommands, one file each.

use std::process::ExitCode;

use crate::kinds::vtep;
use crate::{CliError, Ctx};

pub mod apply;
pub mod attach;
pub mod bridge;
pub mod completions;
pub mod demo;
pub mod detach;
pub mod doctor;
pub mod dump;
pub mod evpn;
pub mod export;
pub mod extcap;
pub mod filter;
pub mod fwd;
pub mod lb;
pub mod link;
pub mod list;
pub mod man;
pub mod metrics;
pub mod mirror;
pub mod monitor;
pub mod pkt_gen;
pub mod port;
pub mod replay;
pub mod run;
pub mod sflow;
pub mod show;
pub mod stop;
pub mod table;
pub mod tlem;
pub mod top;
pub mod trace;
pub mod up;
pub mod upgrade;
pub mod vm;
pub mod web;

/// A subcommand with its arguments.
#[derive(Debug, clap::Subcommand)]
#[expect(missing_docs, reason = "a variant's text is the help, which stands on its Args")]
pub enum Command {
    Up(up::Args),
    Stop(stop::Args),
    Upgrade(upgrade::Args),
    Attach(Box<attach::Args>),
    Detach(detach::Args),
    Port(port::Args),
    Filter(filter::Args),
    Link(link::Args),
    Apply(apply::Args),
    Export(export::Args),
    Vm(vm::Args),
    Evpn(evpn::Args),
    List(list::Args),
    Show(show::Args),
    Table(table::Args),
    Vtep(vtep::Args),
    Top(top::Args),
    Metrics(metrics::Args),
    Sflow(sflow::Args),
    Web(web::Args),
    Monitor(monitor::Args),
    Trace(trace::Args),
    Doctor(doctor::Args),
    PktGen(pkt_gen::Args),
    Bridge(bridge::Args),
    Tlem(tlem::Args),
    Fwd(fwd::Args),
    Lb(lb::Args),
    Dump(dump::Args),
    Extcap(extcap::Args),
    Mirror(mirror::Args),
    Replay(replay::Args),
    Run(run::Args),
    Demo(demo::Args),
    Man(man::Args),
    Completions(completions::Args),
}

impl Command {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// [`CliError`] if the subcommand fails.
    pub fn run(&self, ctx: &Ctx) -> Result<ExitCode, CliError> {
        if self.moves_frames() {
            netvale::shorten_slices();
        }
        match self {
            Self::Up(args) => up::run(args, ctx),
            Self::Stop(args) => stop::run(args, ctx),
            Self::Upgrade(args) => upgrade::run(args, ctx),
            Self::Attach(args) => attach::run(args, ctx),
            Self::Detach(args) => detach::run(args, ctx),
            Self::Port(args) => port::run(args, ctx),
            Self::Filter(args) => filter::run(args, ctx),
            Self::Link(args) => link::run(args, ctx),
            Self::Apply(args) => apply::run(args, ctx),
            Self::Export(args) => export::run(args, ctx),
            Self::Vm(args) => vm::run(args, ctx),
            Self::Evpn(args) => evpn::run(args, ctx),
            Self::List(args) => list::run(args, ctx),
            Self::Show(args) => show::run(args, ctx),
            Self::Table(args) => table::run(args, ctx),
            Self::Vtep(args) => vtep::run(args, ctx),
            Self::Top(args) => top::run(args, ctx),
            Self::Metrics(args) => metrics::run(args, ctx),
            Self::Sflow(args) => sflow::run(args, ctx),
            Self::Web(args) => web::run(args, ctx),
            Self::Monitor(args) => monitor::run(args, ctx),
            Self::Trace(args) => trace::run(args, ctx),
            Self::Doctor(args) => doctor::run(args, ctx),
            Self::PktGen(args) => pkt_gen::run(args, ctx),
            Self::Bridge(args) => bridge::run(args, ctx),
            Self::Tlem(args) => tlem::run(args, ctx),
            Self::Fwd(args) => fwd::run(args, ctx),
            Self::Lb(args) => lb::run(args, ctx),
            Self::Dump(args) => dump::run(args, ctx),
            Self::Extcap(args) => extcap::run(args, ctx),
            Self::Mirror(args) => mirror::run(args, ctx),
            Self::Replay(args) => replay::run(args, ctx),
            Self::Run(args) => run::run(args, ctx),
            Self::Demo(args) => demo::run(args, ctx),
            Self::Man(args) => man::run(args, ctx),
            Self::Completions(args) => completions::run(args, ctx),
        }
    }

    /// Whether it forwards frames, or starts a program that does.
    fn moves_frames(&self) -> bool {
        use Command::*;
        matches!(
            self,
            PktGen(_) | Bridge(_) | Tlem(_) | Fwd(_) | Lb(_) | Dump(_) | Extcap(_) | Mirror(_) | Replay(_) | Run(_)
        )
    }
}
