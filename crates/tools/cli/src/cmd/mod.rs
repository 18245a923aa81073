//! The subcommands, one file each.

use std::process::ExitCode;

use clap::ValueEnum;

use crate::kinds::vtep;
use crate::{CliContext, CliError};

pub mod apply;
pub mod attach;
pub mod bridge;
pub mod completions;
pub mod demo;
pub mod detach;
pub mod doctor;
pub mod dump;
pub mod egress;
pub mod evpn;
pub mod export;
pub mod extcap;
pub mod filter;
pub mod flows;
pub mod fwd;
pub mod gateway;
pub mod lab;
pub mod lb;
pub mod link;
pub mod list;
pub mod man;
pub mod metrics;
pub mod mirror;
pub mod monitor;
pub mod pkt_gen;
pub mod port;
pub mod publish;
pub mod replay;
pub mod run;
pub mod sandbox;
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

/// Returns the word that selects a value on the command line.
fn word_of<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// A subcommand with its arguments.
#[derive(Debug, clap::Subcommand)]
#[expect(missing_docs, reason = "a variant's documentation is its help, which its Args have")]
pub enum CliCommand {
    Up(up::UpArgs),
    Stop(stop::StopArgs),
    Upgrade(upgrade::UpgradeArgs),
    Attach(Box<attach::AttachArgs>),
    Detach(detach::DetachArgs),
    Port(port::PortArgs),
    Filter(filter::FilterArgs),
    Link(link::LinkArgs),
    Apply(apply::ApplyArgs),
    Export(export::ExportArgs),
    Vm(vm::VmArgs),
    Gateway(Box<gateway::GatewayArgs>),
    Egress(egress::EgressArgs),
    Publish(publish::PublishArgs),
    Flows(flows::FlowsArgs),
    Sandbox(Box<sandbox::SandboxArgs>),
    Lab(lab::LabArgs),
    Evpn(evpn::EvpnArgs),
    List(list::PortListArgs),
    Show(show::ShowArgs),
    Table(table::TableArgs),
    Vtep(vtep::VtepArgs),
    Top(top::TopArgs),
    Metrics(metrics::MetricsArgs),
    Sflow(sflow::SflowArgs),
    Web(web::WebArgs),
    Monitor(monitor::MonitorArgs),
    Trace(trace::TraceArgs),
    Doctor(doctor::DoctorArgs),
    PktGen(pkt_gen::PktGenArgs),
    Bridge(bridge::BridgeArgs),
    Tlem(tlem::TlemArgs),
    Fwd(fwd::FwdArgs),
    Lb(lb::LbArgs),
    Dump(dump::DumpArgs),
    Extcap(extcap::ExtcapArgs),
    Mirror(mirror::MirrorArgs),
    Replay(replay::ReplayArgs),
    Run(run::RunArgs),
    Demo(demo::DemoArgs),
    Man(man::ManArgs),
    Completions(completions::CompletionsArgs),
}

impl CliCommand {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// [`CliError`] if the subcommand fails.
    pub fn run(&self, ctx: &CliContext) -> Result<ExitCode, CliError> {
        if self.moves_frames() {
            netvale::shorten_slices();
        }
        let done = match self {
            Self::Vtep(args) => return vtep::run(args, ctx),
            Self::Sandbox(args) => return sandbox::run(args, ctx),
            Self::Run(args) => return run::run(args, ctx),
            Self::Demo(args) => return demo::run(args, ctx),
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
            Self::Gateway(args) => gateway::run(args, ctx),
            Self::Egress(args) => egress::run(args, ctx),
            Self::Publish(args) => publish::run(args, ctx),
            Self::Flows(args) => flows::run(args, ctx),
            Self::Lab(args) => lab::run(args, ctx),
            Self::Evpn(args) => evpn::run(args, ctx),
            Self::List(args) => list::run(args, ctx),
            Self::Show(args) => show::run(args, ctx),
            Self::Table(args) => table::run(args, ctx),
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
            Self::Man(args) => man::run(args, ctx),
            Self::Completions(args) => completions::run(args, ctx),
        };
        done.map(|()| ExitCode::SUCCESS)
    }

    /// Returns whether the subcommand forwards frames, or starts a program that does.
    fn moves_frames(&self) -> bool {
        use CliCommand::*;
        matches!(
            self,
            PktGen(_) | Bridge(_) | Tlem(_) | Fwd(_) | Lb(_) | Dump(_) | Extcap(_) | Mirror(_) | Replay(_) | Run(_)
        )
    }
}
