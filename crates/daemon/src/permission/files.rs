//! Files and sockets. They are opened with the daemon's rights, so other users than its own may name only those that
//! lie in `allow_dirs`. The text of a path decides whether it is looked up at all; the look-up decides the rest.

use std::path::{Path, PathBuf};

use netvale_port::folder::Place;
use netvale_portspec::AttachSpec;
use rustix::io::Errno;

use super::is_trusted;
use crate::caller::Caller;
use crate::config::Config;
use crate::refusal::{Refusal, refuse};
use crate::system::keep;

/// The place that a path means for a caller. Nothing is looked up.
///
/// # Errors
/// [`Refusal`]: `EINVAL` if the path is not absolute, `EACCES` if the caller may not name it.
pub fn place(config: &Config, caller: Caller, path: &Path) -> Result<Place, Refusal> {
    if !path.is_absolute() {
        return refuse(Errno::INVAL, format!("{}: give an absolute path", path.display()));
    }
    if is_trusted(caller) {
        return Ok(path.into());
    }
    let folders = config.allow_dirs.iter().map(PathBuf::as_path);
    Place::of_user(path, folders, caller.uid).ok_or_else(|| {
        let text = "lies in none of the daemon's allow-dirs: use one, or 'netvale replay' and 'netvale dump'";
        Refusal::new(Errno::ACCESS, format!("{} {text}", path.display()))
    })
}

/// Whether a caller may name these.
pub(super) fn may_name<'a>(
    config: &Config,
    caller: Caller,
    paths: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Refusal> {
    paths.into_iter().try_for_each(|path| place(config, caller, path).map(drop))
}

/// The folders of the configured ports' files and sockets: they stay reachable in the sandbox without being listed
/// again.
pub fn configured_folders(config: &Config) -> Vec<PathBuf> {
    // A specification that cannot be parsed is refused when it is attached.
    let specs = config.ports.iter().filter_map(|port| AttachSpec::parse(&port.port).ok());
    let folders = |spec: AttachSpec| -> Vec<PathBuf> {
        spec.files().into_iter().map(Path::new).filter_map(Path::parent).map(Path::to_owned).collect()
    };
    specs.flat_map(folders).collect()
}

/// Refuses a path that could not be used, perhaps because of the sandbox.
pub fn unreached(config: &Config, errno: Errno, mut text: String) -> Refusal {
    let advice = match errno {
        // What systemd shows of a file system by ProtectSystem=, ProtectHome= and PrivateTmp=.
        Errno::ROFS if keep::is_there() => {
            "the daemon's unit has the folder read-only: add it to ReadWritePaths= (systemctl edit netvale) and to allow_dirs"
        }
        Errno::ACCESS if config.sandbox => {
            "the daemon's sandbox only reaches its run directory and its allow-dirs: add the folder there"
        }
        _ => return Refusal::new(errno, text),
    };
    text.push_str("; ");
    text.push_str(advice);
    Refusal::new(errno, text)
}
