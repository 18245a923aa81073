//! Output of commands for one kind of port only: each kind has a file here.

mod installed;
mod machine;
mod ptnet;
mod vfio_user;
mod vhost;
pub mod vtep;
mod vxlan;

use netvale_control::types::PortDetail;

pub use self::installed::VmSupport;
pub use self::machine::{GuestArguments, GuestMachine, Vmm};
use crate::CliError;

/// A port suitable for any machine.
pub const FOR_ANY_MACHINE: &str = "netvale attach vale0 vhost:/run/netvale/vm1.sock";

/// A port's description, in one line.
pub fn facts(detail: &PortDetail) -> Option<String> {
    match detail {
        PortDetail::Vxlan(tunnel) => Some(vxlan::facts(tunnel)),
        PortDetail::Vhost(_) | PortDetail::Ptnet(_) | PortDetail::E1000(_) | PortDetail::Vde(_) => None,
    }
}

/// A table of a port's entries, if it has any.
pub fn table(detail: &PortDetail) -> Option<String> {
    match detail {
        PortDetail::Vxlan(tunnel) if !tunnel.remotes.is_empty() => Some(vxlan::table(tunnel)),
        _ => None,
    }
}

/// The arguments that attach a machine; `None` if the port is not for machines.
pub fn arguments(detail: &PortDetail, machine: GuestMachine<'_>) -> Option<Result<GuestArguments, CliError>> {
    match detail {
        PortDetail::Vhost(device) => Some(Ok(vhost::arguments(device, machine))),
        PortDetail::Ptnet(device) => Some(ptnet::arguments(device, machine)),
        PortDetail::E1000(card) => {
            let other = format!("attach it to a vhost port: {FOR_ANY_MACHINE}");
            Some(vfio_user::arguments(&[&card.path], machine, &other))
        }
        PortDetail::Vxlan(_) | PortDetail::Vde(_) => None,
    }
}
