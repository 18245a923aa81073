//! `netvale vtep`: manages a tunnel's remote endpoints.

mod check;

use std::net::IpAddr;
use std::process::ExitCode;

use netvale_control::types::{Mac, PortInfo, VxlanAddress, VxlanChanges, VxlanInfo, VxlanRemote, VxlanSetParams};

use super::vxlan;
use crate::{CliContext, CliError, out};

/// Add, remove, list and check the remote endpoints (VTEPs) of a tunnel while frames pass.
///
/// An added endpoint receives flooded frames: broadcasts, multicasts, and frames for unknown addresses. If an Ethernet
/// address is given, only frames for that address are sent to the endpoint, as with 'bridge fdb' for the kernel's VXLAN
/// device.
#[derive(Debug, clap::Args)]
pub struct VtepArgs {
    #[command(subcommand)]
    command: VtepCommand,
}

#[derive(Debug, clap::Subcommand)]
enum VtepCommand {
    Add(EndpointArgs),
    Del(EndpointArgs),
    List(VtepListArgs),
    Check(check::VtepCheckArgs),
}

/// Add an endpoint, or an address behind one.
#[derive(Debug, clap::Args)]
struct EndpointArgs {
    /// The tunnel's port: SWITCH:NAME, e.g. vale0:vxlan100.
    port: String,

    /// The endpoint's IP address.
    vtep: IpAddr,

    /// An Ethernet address behind the endpoint.
    mac: Option<Mac>,
}

/// List a tunnel's endpoints, with their counters.
#[derive(Debug, clap::Args)]
struct VtepListArgs {
    /// The tunnel's port: SWITCH:NAME, e.g. vale0:vxlan100.
    port: String,

    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, the tunnel does not exist, or the address cannot be the address of an endpoint.
pub fn run(args: &VtepArgs, ctx: &CliContext) -> Result<ExitCode, CliError> {
    let (which, adds) = match &args.command {
        VtepCommand::List(args) => return list(args, ctx),
        VtepCommand::Check(args) => return check::run(args, ctx),
        VtepCommand::Add(which) => (which, true),
        VtepCommand::Del(which) => (which, false),
    };
    let mut daemon = ctx.daemon()?;
    if !adds && which.mac.is_none() {
        let port = daemon.ask(|client| client.show(&which.port))?;
        check_there(&tunnel(port, &which.port)?.remotes, which)?;
    }
    let params = change(which, adds);
    daemon.ask(|client| client.vxlan_set(params))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that the endpoint that is to be removed is on the flood list.
fn check_there(remotes: &[VxlanRemote], which: &EndpointArgs) -> Result<(), CliError> {
    if remotes.iter().any(|one| one.flood && one.vtep == which.vtep) {
        return Ok(());
    }
    let port = &which.port;
    let next = format!("'netvale vtep list {port}' shows the endpoints");
    Err(CliError::refused(format!("{} is not an endpoint of {port}", which.vtep), next))
}

fn change(which: &EndpointArgs, adds: bool) -> VxlanSetParams {
    let mut params = VxlanSetParams { port: which.port.clone(), ..VxlanSetParams::default() };
    let address = which.mac.map(|mac| VxlanAddress { mac, vtep: which.vtep, sticky: false, sequence: 0 });
    match (address, adds) {
        (Some(address), true) => params.addresses.add.push(address),
        (Some(address), false) => params.addresses.remove.push(address.mac),
        (None, true) => params.flood.add.push(which.vtep),
        (None, false) => params.flood = VxlanChanges { add: Vec::new(), remove: vec![which.vtep] },
    }
    params
}

fn list(args: &VtepListArgs, ctx: &CliContext) -> Result<ExitCode, CliError> {
    let port = ctx.daemon()?.ask(|client| client.show(&args.port))?;
    let tunnel = tunnel(port, &args.port)?;
    if args.json {
        out::json(&tunnel)?
    } else {
        out::text(vxlan::table(&tunnel))?
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the daemon's description of a tunnel.
fn tunnel(port: PortInfo, name: &str) -> Result<VxlanInfo, CliError> {
    port.detail::<VxlanInfo>()
        .cloned()
        .ok_or_else(|| CliError::usage(format!("{name} is not a VXLAN tunnel"), "'netvale list' shows the port kinds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: only existing endpoints can be removed.
    #[test]
    fn only_existing_endpoints_can_be_removed() {
        let which = EndpointArgs { port: "vale0:v".into(), vtep: [10, 0, 0, 2].into(), mac: None };
        let remote =
            |flood| VxlanRemote { vtep: which.vtep, flood, out_frames: 0, out_bytes: 0, in_frames: 0, in_bytes: 0 };
        assert!(check_there(&[remote(true)], &which).is_ok());
        for remotes in [&[][..], &[remote(false)]] {
            let error = check_there(remotes, &which).unwrap_err();
            assert_eq!(error.to_string(), "10.0.0.2 is not an endpoint of vale0:v");
        }
    }

    /// Objective: without an Ethernet address, an endpoint is added to or removed from the flood list; with one, only
    /// that address is added or removed.
    #[test]
    fn an_endpoint_alone_changes_the_flood_list() {
        let which = |mac| EndpointArgs { port: "vale0:v".into(), vtep: [10, 0, 0, 2].into(), mac };
        let ip = IpAddr::from([10, 0, 0, 2]);
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        assert_eq!(change(&which(None), true).flood.add, [ip]);
        assert_eq!(change(&which(None), false).flood.remove, [ip]);
        let added = change(&which(Some(mac)), true);
        assert_eq!((added.flood.add.len(), added.addresses.add[0].mac, added.addresses.add[0].vtep), (0, mac, ip));
        assert_eq!(change(&which(Some(mac)), false).addresses.remove, [mac]);
    }
}
