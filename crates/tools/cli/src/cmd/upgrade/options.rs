//! The options with which a daemon was started, for its successor.
//!
//! A process can change its own /proc/PID/cmdline. Since the successor starts as root, this module trusts only two
//! sources: the options that the daemon recorded while it was root, in a file that root still owns, and the kernel's
//! data about the process.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use netvale_control::dirs::OPTIONS;

/// The option that makes a new daemon take over from the running one.
pub const TAKE_OVER: &str = "--take-over";
/// Options that extend a daemon's privileges: root refuses them from another user's process.
const WIDER: [&str; 9] = [
    "--config",
    "--allow-dir",
    "--allow-nic",
    "--allow-tap",
    "--share-switch",
    "--socket-owner",
    "--socket-group",
    "--socket-mode",
    "--rt-priority",
];
/// Maximum length in bytes of a file with recorded options.
const MOST: u64 = 1 << 20;

/// Returns the arguments for a successor of the daemon whose folder in /proc is `proc`.
///
/// # Errors
/// The process has ended, its options cannot be found, or some of the options are not trusted.
pub fn of(proc: &Path, run_dir: &Path) -> io::Result<Vec<OsString>> {
    let owner = std::fs::metadata(proc)?.uid();
    let is_anothers = rustix::process::geteuid().is_root() && owner != 0;
    let said = || Ok::<_, io::Error>(words(std::fs::read(proc.join("cmdline"))?));
    let mut options = match is_anothers {
        true => written(&run_dir.join(OPTIONS)).map_or_else(|| said().and_then(narrow), Ok)?,
        false => said()?,
    };
    if !options.iter().any(|word| word == "up") {
        // The process id belongs to systemd, which created the daemon's socket: the daemon is too old to report its own
        // process id.
        return Err(io::Error::other(
            "the process is the service manager, because the daemon is too old to report its own process id; \
             restart the daemon",
        ));
    }
    let is_confined = status(proc, "Seccomp:").is_some_and(|mode| mode != "0");
    options.retain(|word| word != TAKE_OVER && !(is_confined && word == "--no-sandbox"));
    if is_anothers {
        options = without_user(options);
        options.extend(["--user".into(), owner.to_string().into()]);
    }
    options.push(TAKE_OVER.into());
    Ok(options)
}

/// Returns the options that a daemon recorded as root; `None` if another user could have written them.
fn written(path: &Path) -> Option<Vec<OsString>> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    let is_roots = found.is_file() && found.uid() == 0 && found.mode() & 0o022 == 0;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes).ok().filter(|_| is_roots)?;
    Some(words(bytes))
}

/// Returns the options if none extends privileges; otherwise an error.
fn narrow(options: Vec<OsString>) -> io::Result<Vec<OsString>> {
    let is_wider = |word: &&OsString| {
        let word = word.to_string_lossy();
        WIDER.contains(&word.split('=').next().unwrap_or_default())
    };
    match options.iter().find(is_wider) {
        None => Ok(options),
        Some(word) => Err(io::Error::other(format!(
            "cannot trust {}, which another user's process has set and root has not recorded; restart the daemon",
            word.display()
        ))),
    }
}

fn without_user(options: Vec<OsString>) -> Vec<OsString> {
    let mut is_value = false;
    let stays = |word: &OsString| {
        let was_value = std::mem::replace(&mut is_value, word == "--user");
        !(was_value || is_value || word.as_encoded_bytes().starts_with(b"--user="))
    };
    options.into_iter().filter(stays).collect()
}

/// Returns the value of a field of /proc/PID/status; `name` includes the colon.
fn status(proc: &Path, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(proc.join("status")).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

/// Splits a NUL-separated command line into its arguments, without the program's name.
fn words(bytes: Vec<u8>) -> Vec<OsString> {
    let words = bytes.split(|&b| b == 0).filter(|word| !word.is_empty()).skip(1);
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    /// Objective: the option `--user` is removed in each of its forms, and no other option is removed.
    #[test]
    fn a_user_is_taken_out_in_each_form() {
        for text in ["up --user 0 --workers 2", "up --user=0 --workers 2", "--user 0 up --workers 2 --user=root"] {
            let mut left = without_user(all(text));
            left.sort();
            assert_eq!(left, all("--workers 2 up"), "{text}");
        }
    }

    /// Objective: options that extend privileges are refused in each of their forms; all other options are accepted.
    #[test]
    fn what_gives_more_is_refused() {
        assert_eq!(narrow(all("up --workers 2 --spin-us=7")).unwrap(), all("up --workers 2 --spin-us=7"));
        for text in ["up --allow-dir /", "up --config=/tmp/x.toml", "up --socket-mode 0666", "up --share-switch=*"] {
            assert!(narrow(all(text)).is_err(), "{text}");
        }
    }

    /// Objective: a file of options that a user other than root may have written is ignored.
    #[test]
    fn only_roots_file_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(OPTIONS);
        assert_eq!(written(&path), None);
        std::fs::write(&path, b"netvale\0up\0--workers\x002\0").unwrap();
        let is_roots = rustix::process::geteuid().is_root();
        assert_eq!(written(&path).is_some(), is_roots);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(written(&path), None);
        std::fs::rename(&path, dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("real"), &path).unwrap();
        assert_eq!(written(&path), None);
    }
}
