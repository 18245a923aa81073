//! Sockets at which devices listen: their paths and access rights.

use std::path::Path;

use netvale_control::options::kind::KindType;
use netvale_control::options::{OptionsOf, mode};
use netvale_port::access::Access;
use netvale_port::listener::ListenAddress;
use rustix::io::Errno;

use crate::caller::Caller;
use crate::config::Config;
use crate::permission;
use crate::refusal::{Refusal, refuse};
use crate::system::sockets::{group_id, user_id};
use crate::system::user::UserError;

/// Returns the path and access rights of the socket for a caller's device. The caller may connect to it, as may the
/// user and the group in the options.
///
/// # Errors
/// [`Refusal`] with `EINVAL` for an unknown user or group; errors of [`permission::place`].
pub fn site<K: KindType>(
    config: &Config,
    caller: Caller,
    path: &str,
    o: &OptionsOf<'_, K>,
) -> Result<ListenAddress, Refusal> {
    let place = permission::place(config, caller, Path::new(path))?;
    let known = |id: Result<u32, UserError>| id.or_else(|e| refuse(Errno::INVAL, unknown(&e)));
    let user = o.socket_user().map(|name| known(user_id(&name))).transpose()?;
    let group = o.socket_group().map(|name| known(group_id(&name))).transpose()?;
    let mode = o.socket_mode().and_then(|text| mode(&text)).unwrap_or(Access::default().mode);
    let access =
        Access { mode, users: user.into_iter().chain(place.user()).collect(), groups: group.into_iter().collect() };
    Ok(ListenAddress { place, access })
}

fn unknown(error: &UserError) -> String {
    match error {
        UserError::Unknown { what, name, .. } => {
            format!("{what} {name} does not exist; give its number, which 'getent' prints")
        }
        other => other.to_string(),
    }
}
