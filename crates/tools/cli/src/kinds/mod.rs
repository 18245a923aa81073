//! Output of commands that depends on a port's kind: one file per kind.

mod installed;
mod machine;
pub(crate) mod member;
mod ptnet;
mod vfio_user;
mod vhost;
pub mod vtep;
mod vxlan;

use netvale_control::types::PortDetail;

pub use self::installed::VmSupport;
pub use self::machine::{GuestArguments, GuestMachine, Vmm};
use crate::CliError;

/// A command that attaches a port which is suitable for any virtual machine.
pub const FOR_ANY_MACHINE: &str = "netvale attach vale0 vhost:/run/netvale/vm1.sock";

/// Returns a port's description in one line; `None` if its kind has none.
pub fn facts(detail: &PortDetail) -> Option<String> {
    match detail {
        PortDetail::Vxlan(tunnel) => Some(vxlan::facts(tunnel)),
        PortDetail::Vhost(_) | PortDetail::Ptnet(_) | PortDetail::E1000(_) | PortDetail::Vde(_) => None,
    }
}

/// Returns a table of a tunnel's remote endpoints; `None` if the port has none.
pub fn table(detail: &PortDetail) -> Option<String> {
    match detail {
        PortDetail::Vxlan(tunnel) if !tunnel.remotes.is_empty() => Some(vxlan::table(tunnel)),
        _ => None,
    }
}

/// Returns the arguments that attach a virtual machine to a port; `None` if the port is not for virtual machines.
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
