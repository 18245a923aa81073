//! `netvale evpn`: FRR as the control plane of VXLAN ports.

use std::process::ExitCode;
use std::time::Duration;

use netvale_evpn::agent::{self, AgentError, Options};
use netvale_evpn::report::{self, Status};
use netvale_evpn::{HOLD, MIRROR_UDP_PORT};
use serde::Serialize;

use crate::cmd::up::LogLevel;
use crate::grid::{self, Align};
use crate::{CliError, Ctx, out, signals};

/// Let FRR be the control plane of VXLAN ports (EVPN).
///
/// For each VXLAN port with EVPN ('netvale attach vale0 vxlan:VNI,local=IP --evpn') it makes devices in its network
/// namespace that zebra takes for a VTEP, announces the switch's addresses through them, and gives the port the flood
/// list and the addresses that BGP has learned. Run it where FRR runs; FRR stays as it is. The devices carry no
/// traffic. They stay when it ends, so that a restart goes unnoticed, and --clean removes them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds for which a VTEP that is withdrawn, with its addresses, is kept all the same: FRR may be restarting.
    /// Also for which what was announced stays so when a daemon has just started, or is gone.
    #[arg(long, value_name = "SECONDS", default_value_t = HOLD.as_secs(), value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub hold: u64,

    /// UDP port of the devices; the ports' own, 4789, is the daemon's.
    #[arg(long, value_name = "PORT", default_value_t = MIRROR_UDP_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub udp_port: u16,

    /// Log messages from this level on, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    /// Show what FRR is told and what it has learned, and exit.
    #[arg(long, conflicts_with_all = ["clean", "hold", "udp_port", "log_level"])]
    pub show: bool,

    /// With --show: print one JSON object.
    #[arg(long, requires = "show")]
    pub json: bool,

    /// Remove the devices, and exit: FRR withdraws all it has announced through them.
    #[arg(long, conflicts_with_all = ["hold", "udp_port", "log_level"])]
    pub clean: bool,
}

/// The object of `--show --json`.
#[derive(Serialize)]
struct Shown<'a> {
    vnis: &'a [Status],
}

/// Runs the subcommand.
///
/// # Errors
/// Netlink is unavailable, or the privilege to configure networks is missing.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    if args.clean {
        clean()?;
    } else if args.show {
        show(args.json)?;
    } else {
        super::up::log_from(args.log_level);
        let options =
            Options { udp_port: args.udp_port, hold: Duration::from_secs(args.hold), ..Options::new(ctx.dir()) };
        let stop = signals::stop_flag()?;
        agent::run(options, &stop).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn failed(error: AgentError) -> CliError {
    CliError::failed(
        error.to_string(),
        "it takes the right to configure networks (CAP_NET_ADMIN) in this network namespace",
    )
}

fn clean() -> Result<(), CliError> {
    let vnis = agent::clean().map_err(failed)?;
    for vni in vnis {
        out::line(format_args!("VNI {vni}: its devices are removed"))?;
    }
    Ok(())
}

fn show(json: bool) -> Result<(), CliError> {
    let vnis = report::read().map_err(failed)?;
    if json { out::json(&Shown { vnis: &vnis }) } else { out::text(render(&vnis)) }
}

fn render(vnis: &[Status]) -> String {
    if vnis.is_empty() {
        return "no VNIs: no port of a running 'netvale evpn' has EVPN\n".to_owned();
    }
    let heads = [
        ("VNI", Align::Right),
        ("VTEP", Align::Left),
        ("DEVICES", Align::Left),
        ("FLOODS TO", Align::Right),
        ("LOCAL", Align::Right),
        ("REMOTE", Align::Right),
    ];
    let row = |one: &Status| {
        let local = one.local.map_or("-".into(), |ip| ip.to_string());
        let counts = [one.flood.len(), one.locals.len(), one.remotes.len()].map(|n| n.to_string());
        let [flood, locals, remotes] = counts;
        [one.vni.to_string(), local, one.devices.join(" "), flood, locals, remotes]
    };
    let summary = grid::render(heads, vnis.iter().map(row));
    let heads =
        [("VNI", Align::Right), ("ADDRESS", Align::Left), ("BEHIND", Align::Left), ("IP ADDRESSES", Align::Left)];
    let beyond = vnis.iter().filter(|one| one.beyond > 0);
    let notes: String =
        beyond.map(|one| format!("VNI {}: {} entries are beyond the limits\n", one.vni, one.beyond)).collect();
    format!("{summary}{notes}\n{}", grid::render(heads, vnis.iter().flat_map(addresses)))
}

fn addresses(one: &Status) -> Vec<[String; 4]> {
    let row = |mac: String, behind: String, ips: &[std::net::IpAddr]| {
        let ips: Vec<_> = ips.iter().map(ToString::to_string).collect();
        [one.vni.to_string(), mac, behind, ips.join(" ")]
    };
    let locals = one.locals.iter().map(|local| row(local.mac.to_string(), "this host".into(), &local.ips));
    let remotes = one.remotes.iter().map(|remote| {
        let sticky = if remote.sticky { ", sticky" } else { "" };
        row(remote.mac.to_string(), format!("{}{sticky}", remote.vtep), &remote.ips)
    });
    locals.chain(remotes).collect()
}

#[cfg(test)]
mod tests {
    use netvale_control::types::Mac;
    use netvale_evpn::report::{LocalStatus, RemoteStatus};

    use super::*;

    /// Objective: each VNI has a line, and so has each address, with its place.
    #[test]
    fn table() {
        let vtep: std::net::IpAddr = [10, 0, 0, 2].into();
        let status = Status {
            vni: 100,
            local: Some([10, 0, 0, 1].into()),
            devices: ["nvb100", "nvx100", "nvl100"].map(str::to_owned),
            flood: vec![vtep],
            locals: vec![LocalStatus { mac: Mac([2, 0, 0, 0, 0, 1]), ips: vec![[192, 168, 0, 1].into()] }],
            remotes: vec![RemoteStatus { mac: Mac([2, 0, 0, 0, 0, 2]), vtep, sticky: true, ips: vec![] }],
            beyond: 3,
        };
        let expected = "\
VNI  VTEP      DEVICES               FLOODS TO  LOCAL  REMOTE
100  10.0.0.1  nvb100 nvx100 nvl100          1      1       1
VNI 100: 3 entries are beyond the limits

VNI  ADDRESS            BEHIND            IP ADDRESSES
100  02:00:00:00:00:01  this host         192.168.0.1
100  02:00:00:00:00:02  10.0.0.2, sticky
";
        let trim = |text: String| text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>();
        assert_eq!(trim(render(&[status])), expected);
        assert!(render(&[]).starts_with("no VNIs"));
    }
}
