//! Permissions on files and sockets. The daemon opens files with its own rights, so other users may name only paths in
//! `allow_dirs`. The text of a path alone decides whether the daemon looks it up; links and permissions are checked
//! during the look-up.

use std::path::{Path, PathBuf};

use netvale_port::folder::UserPath;
use netvale_portspec::AttachSpec;
use rustix::io::Errno;

use super::is_trusted;
use crate::caller::Caller;
use crate::config::Config;
use crate::refusal::{Refusal, refuse};
use crate::system::keep;

/// Checks a caller's path by its text alone, and returns the path with the user whose rights the look-up must check.
///
/// # Errors
/// [`Refusal`]: `EINVAL` if the path is not absolute, `EACCES` if the caller may not name it.
pub fn place(config: &Config, caller: Caller, path: &Path) -> Result<UserPath, Refusal> {
    if !path.is_absolute() {
        return refuse(Errno::INVAL, format!("expected an absolute path, found {}", path.display()));
    }
    if is_trusted(caller) {
        return Ok(path.into());
    }
    let folders = config.allow_dirs.iter().map(PathBuf::as_path);
    UserPath::of_user(path, folders, caller.uid).ok_or_else(|| {
        let text = "is outside the daemon's allow-dirs; use a path in one of them, or 'netvale replay' and 'netvale \
                    dump'";
        Refusal::new(Errno::ACCESS, format!("{} {text}", path.display()))
    })
}

/// Checks that a caller may name these paths.
pub(super) fn may_name<'a>(
    config: &Config,
    caller: Caller,
    paths: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Refusal> {
    paths.into_iter().try_for_each(|path| place(config, caller, path).map(drop))
}

/// Returns the folders of the configured ports' files and sockets. The sandboxed daemon can access these folders even
/// if `allow_dirs` does not contain them.
pub fn configured_folders(config: &Config) -> Vec<PathBuf> {
    // Attaching a port with a malformed specification fails, so such a specification is skipped here.
    let specs = config.ports.iter().filter_map(|port| AttachSpec::parse(&port.port).ok());
    let folders = |spec: AttachSpec| -> Vec<PathBuf> {
        spec.files().into_iter().map(Path::new).filter_map(Path::parent).map(Path::to_owned).collect()
    };
    specs.flat_map(folders).collect()
}

/// Returns a refusal for a path that cannot be used, with advice if the sandbox or the unit's restrictions are the
/// cause.
pub fn unreached(config: &Config, errno: Errno, mut text: String) -> Refusal {
    let advice = match errno {
        // systemd's ProtectSystem=, ProtectHome= and PrivateTmp= make folders read-only.
        Errno::ROFS if keep::is_there() => {
            "the folder is read-only for the daemon's unit: add it to ReadWritePaths= (systemctl edit netvale) and to \
             allow_dirs"
        }
        Errno::ACCESS if config.sandbox => {
            "the daemon's sandbox allows only its run directory and its allow-dirs: add the folder to allow_dirs"
        }
        _ => return Refusal::new(errno, text),
    };
    text.push_str("; ");
    text.push_str(advice);
    Refusal::new(errno, text)
}
