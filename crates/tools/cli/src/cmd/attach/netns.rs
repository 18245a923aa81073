//! `netvale attach vale0 tap:NAME --netns …`: creates the TAP with the user's own privileges, moves it into the
//! namespace, and passes it to the daemon.

use netvale_control::client::BringConnection;
use netvale_control::types::AttachParams;
use netvale_netns::{Namespace, NetnsError, make_tap_of_user};
use netvale_portspec::{AttachNeeds, AttachSpec};
use netvale_tap::TapOptions;
use rustix::io::Errno;

use crate::{CliContext, CliError, ctx};

/// Attaches the TAP. Returns the port's full name.
///
/// When this function returns, the process may be in other namespaces than before.
///
/// # Errors
/// The namespace cannot be entered, the TAP cannot be created, no daemon answers, or the daemon refuses.
pub fn attach(mut params: AttachParams, place: &str, ctx: &CliContext) -> Result<String, CliError> {
    let spec = AttachSpec::parse(&params.port).ok();
    let Some(AttachNeeds::Tap(name)) = spec.as_ref().map(AttachSpec::needs) else {
        return Err(CliError::usage(format!("--netns: {} is not a TAP", params.port), "name the port tap:NAME"));
    };
    // The daemon learns this process's user when the connection is made, so this process connects before it enters a
    // user namespace.
    let daemon = BringConnection::connect(&ctx.dir()).map_err(ctx::to_cli)?;
    let namespace = Namespace::open(place).map_err(failed)?;
    let o = &params.options;
    let mac = o.mac.map(|mac| mac.0);
    let options = TapOptions { name: name.to_owned(), queues: o.rings, mtu: o.mtu, mac, ..TapOptions::default() };
    let tap = make_tap_of_user(&namespace, &options).map_err(failed)?;
    params.options.netns = Some(namespace.place().to_owned());
    daemon.attach(params, &tap.into_queues()).map_err(ctx::to_cli)
}

fn failed(error: NetnsError) -> CliError {
    let next = match error {
        NetnsError::Move { source: Errno::EXIST, .. } => "choose another name, or remove that interface first",
        _ => {
            "name a path such as /run/netns/web, or a process of the container, as a user who may configure its network"
        }
    };
    CliError::failed(error.to_string(), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: if an interface in the namespace already has the name, the error says that the name is taken, and not
    /// that the namespace is missing.
    #[test]
    fn a_taken_name_is_reported_as_such() {
        let of = |source| failed(NetnsError::Move { place: "/run/netns/web".into(), name: "eth0".into(), source });
        let taken = of(Errno::EXIST);
        assert!(taken.to_string().contains("an interface of that name already exists there"), "{taken}");
        assert!(taken.next().contains("choose another name"), "{}", taken.next());
        assert!(of(Errno::PERM).next().contains("name a path"));
    }
}
