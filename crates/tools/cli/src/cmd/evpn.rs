//! `netvale evpn`: FRR as the control plane of VXLAN ports.

use std::time::Duration;

use netvale_evpn::agent::{self, AgentError, AgentOptions};
use netvale_evpn::report::{self, VniStatus};
use netvale_evpn::{HOLD, MIRROR_UDP_PORT};
use serde::Serialize;

use crate::cmd::up::LogLevel;
use crate::grid;
use crate::grid::Align::{Left, Right};
use crate::{CliContext, CliError, out, signals};

/// Connect VXLAN ports to FRR, which distributes addresses (EVPN).
///
/// For each VXLAN port with EVPN ('netvale attach vale0 vxlan:VNI,local=IP --evpn'), makes devices in its network
/// namespace that zebra takes for a VTEP, announces the switch's addresses through them, and gives the port the flood
/// list and the addresses that BGP has learned. Run it where FRR runs; FRR is not changed. The devices carry no
/// traffic. They stay when the command ends, so that FRR does not notice a restart; --clean removes them.
#[derive(Debug, clap::Args)]
pub struct EvpnArgs {
    /// Seconds for which a withdrawn VTEP and its addresses are kept, because FRR may be restarting. Also the seconds
    /// for which announcements stay after a daemon has started or ended.
    #[arg(
        long, value_name = "SECONDS", default_value_t = HOLD.as_secs(),
        value_parser = clap::value_parser!(u64).range(0..=86_400)
    )]
    pub hold: u64,

    /// UDP port of the devices; it differs from the ports' own, 4789, which the daemon uses.
    #[arg(
        long, value_name = "PORT", default_value_t = MIRROR_UDP_PORT,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub udp_port: u16,

    /// Log messages of this level and above, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    /// Show the addresses announced to FRR and those that FRR has learned, and exit.
    #[arg(long, conflicts_with_all = ["clean", "hold", "udp_port", "log_level"])]
    pub show: bool,

    /// With --show: print one JSON object.
    #[arg(long, requires = "show")]
    pub json: bool,

    /// Remove the devices and exit. FRR withdraws all that it has announced through them.
    #[arg(long, conflicts_with_all = ["hold", "udp_port", "log_level"])]
    pub clean: bool,
}

/// The object of `--show --json`.
#[derive(Serialize)]
struct VniListing<'a> {
    vnis: &'a [VniStatus],
}

/// Runs the subcommand.
///
/// # Errors
/// Netlink is unavailable, or the privilege to configure networks is missing.
pub fn run(args: &EvpnArgs, ctx: &CliContext) -> Result<(), CliError> {
    if args.clean {
        return clean();
    }
    if args.show {
        return show(args.json);
    }
    super::up::log_from(args.log_level);
    let hold = Duration::from_secs(args.hold);
    let options = AgentOptions { run_dir: ctx.dir(), udp_port: args.udp_port, hold };
    let stop = signals::stop_flag()?;
    agent::run(options, &stop).map_err(failed)
}

fn failed(error: AgentError) -> CliError {
    CliError::failed(
        error.to_string(),
        "run this command with the privilege to configure networks (CAP_NET_ADMIN) in this network namespace",
    )
}

fn clean() -> Result<(), CliError> {
    let vnis = agent::clean().map_err(failed)?;
    vnis.iter().try_for_each(|vni| out::line(format_args!("VNI {vni}: devices removed")))
}

fn show(json: bool) -> Result<(), CliError> {
    let vnis = report::read().map_err(failed)?;
    if json { out::json(&VniListing { vnis: &vnis }) } else { out::text(render(&vnis)) }
}

fn render(vnis: &[VniStatus]) -> String {
    if vnis.is_empty() {
        return "no VNIs: no port of a running 'netvale evpn' has EVPN\n".to_owned();
    }
    let heads =
        [("VNI", Right), ("VTEP", Left), ("DEVICES", Left), ("FLOODS TO", Right), ("LOCAL", Right), ("REMOTE", Right)];
    let row = |one: &VniStatus| {
        let local = one.local.map_or("-".into(), |ip| ip.to_string());
        let [flood, locals, remotes] = [one.flood.len(), one.locals.len(), one.remotes.len()].map(|n| n.to_string());
        [one.vni.to_string(), local, one.devices.join(" "), flood, locals, remotes]
    };
    let summary = grid::render(heads, vnis.iter().map(row));
    let heads = [("VNI", Right), ("ADDRESS", Left), ("BEHIND", Left), ("IP ADDRESSES", Left)];
    let beyond = vnis.iter().filter(|one| one.beyond > 0);
    let notes: String =
        beyond.map(|one| format!("VNI {}: {} entries are beyond the limits\n", one.vni, one.beyond)).collect();
    format!("{summary}{notes}\n{}", grid::render(heads, vnis.iter().flat_map(addresses)))
}

fn addresses(one: &VniStatus) -> Vec<[String; 4]> {
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

    /// Objective: each VNI and each Ethernet address has a line; the line of an address names the VTEP behind which the
    /// address is.
    #[test]
    fn each_vni_and_each_address_has_a_line() {
        let vtep: std::net::IpAddr = [10, 0, 0, 2].into();
        let status = VniStatus {
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
