//! `netvale attach vale0 tap:NAME --netns …`: makes the TAP with the user's own privileges, moves it there, and passes
//! it to the daemon.

use netvale_control::client::Bringing;
use netvale_control::types::AttachParams;
use netvale_netns::{Namespace, NetnsError, make_tap_of_user};
use netvale_portspec::{AttachSpec, Needs};
use netvale_tap::TapOptions;
use rustix::io::Errno;

use crate::{CliError, Ctx, ctx};

/// Attaches the port. Returns its full name.
///
/// This process may be in other namespaces afterwards.
///
/// # Errors
/// The namespace cannot be entered, the TAP cannot be made, no daemon answers, or it refuses.
pub fn attach(mut params: AttachParams, place: &str, ctx: &Ctx) -> Result<String, CliError> {
    let spec = AttachSpec::parse(&params.port).ok();
    let Some(Needs::Tap(name)) = spec.as_ref().map(AttachSpec::needs) else {
        return Err(CliError::usage(format!("--netns: {} is no TAP", params.port), "name the port tap:NAME"));
    };
    // First: the daemon learns a connection's user when the connection is made.
    let daemon = Bringing::connect(&ctx.dir()).map_err(ctx::to_cli)?;
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

    /// Objective: a name that an interface there already has is reported as such, and not as a missing namespace.
    #[test]
    fn taken_names() {
        let of = |source| failed(NetnsError::Move { place: "/run/netns/web".into(), name: "eth0".into(), source });
        let taken = of(Errno::EXIST);
        assert!(taken.to_string().contains("an interface of that name is there already"), "{taken}");
        assert!(taken.next().contains("choose another name"), "{}", taken.next());
        assert!(of(Errno::PERM).next().contains("name a path"));
    }
}
