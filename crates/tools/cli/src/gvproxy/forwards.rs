//! `-forward-sock`: sockets of the host that lead to sockets in the guest, over SSH.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use super::GvFailure;
use super::config::SshForward;
use super::endpoint::GvEndpoint;
use super::relay;
use super::settings::SSH_PLACE;
use super::ssh::{self, SshPlaces, SshTarget, SshTunnel};
use super::stream::GvListener;

/// Listens at a forward's socket, and carries its connections to the guest.
///
/// # Errors
/// The forward is invalid, or a file other than a socket exists at the path.
pub(super) fn begin(forward: &SshForward, number: usize, places: &SshPlaces) -> Result<Arc<GvListener>, GvFailure> {
    let path = local_path(&forward.socket)?;
    let guest: SocketAddr = SSH_PLACE.parse().map_err(GvFailure::step("the guest's address"))?;
    let target = SshTarget {
        user: forward.user.clone(),
        guest,
        identity: std::path::absolute(&forward.identity).map_err(GvFailure::step("identity file"))?,
        dest: forward.dest.clone(),
    };
    ssh::check(&target).map_err(GvFailure)?;
    let listener = Arc::new(GvListener::in_place_of(Path::new(&path))?);
    let tunnel = SshTunnel::new(target, places, &format!("forward-{number}"));
    let started = relay::serve(&listener, Box::new(move || tunnel.connect()));
    started.map_err(GvFailure::step("cannot start a thread"))?;
    Ok(listener)
}

fn local_path(socket: &str) -> Result<String, GvFailure> {
    if !socket.contains("://") {
        return Ok(socket.to_owned());
    }
    let endpoint = GvEndpoint::parse(socket)?;
    match endpoint.scheme.as_str() {
        "unix" => Ok(endpoint.path),
        "npipe" => Err(GvFailure("named pipes are not supported by this platform".to_owned())),
        other => Err(GvFailure(format!("URI scheme not supported: {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwards_socket_is_a_path_or_a_unix_address() {
        let of = |text: &str| local_path(text).map_err(|why| why.to_string());
        assert_eq!(of("/run/a.sock"), Ok("/run/a.sock".to_owned()));
        assert_eq!(of("unix:///run/a.sock"), Ok("/run/a.sock".to_owned()));
        assert_eq!(of("npipe:////./pipe/a"), Err("named pipes are not supported by this platform".to_owned()));
        assert_eq!(of("tcp://a:1"), Err("URI scheme not supported: tcp".to_owned()));
    }
}
