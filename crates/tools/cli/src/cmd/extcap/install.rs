//! Creates the link `netvale-extcap` to this program in Wireshark's extcap folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::PROGRAM;
use crate::{CliError, out};

/// Creates a link to this program in a folder; by default, this is the extcap folder that Wireshark reports.
///
/// # Errors
/// Wireshark is missing, or the folder cannot be written.
pub fn install(folder: Option<&Path>) -> Result<(), CliError> {
    let folder = folder.map_or_else(wiresharks, |folder| Ok(folder.to_owned()))?;
    let link = folder.join(PROGRAM);
    let failed = |e: std::io::Error| {
        let next = "run this as root to install for all users; or name a folder of your own, and start Wireshark with \
                    WIRESHARK_EXTCAP_DIR=FOLDER";
        CliError::failed(format!("cannot make {}: {e}", link.display()), next)
    };
    let program = std::env::current_exe().map_err(failed)?;
    std::fs::create_dir_all(&folder).map_err(failed)?;
    if link.is_symlink() {
        std::fs::remove_file(&link).map_err(failed)?;
    }
    std::os::unix::fs::symlink(&program, &link).map_err(failed)?;
    out::line(format_args!("{} -> {}", link.display(), program.display()))
}

/// Returns the extcap folder that tshark or Wireshark reports: the user's own folder if this version of Wireshark
/// supports one, otherwise the folder of all users.
fn wiresharks() -> Result<PathBuf, CliError> {
    let asked = ["tshark", "wireshark"].iter().find_map(|program| {
        let answer = Command::new(program).args(["-G", "folders"]).output().ok()?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        choose(&text, rustix::process::geteuid().is_root())
    });
    asked.ok_or_else(|| {
        CliError::failed("neither tshark nor wireshark reports its extcap folder", "give one: --install DIR")
    })
}

fn choose(folders: &str, root: bool) -> Option<PathBuf> {
    let lines =
        || folders.lines().filter_map(|line| line.split_once(':')).map(|(what, path)| (what.trim(), path.trim()));
    let extcap = |(what, path): (&str, &str)| {
        (what.to_ascii_lowercase().contains("extcap path") && path.starts_with('/'))
            .then(|| (what.starts_with("Personal"), PathBuf::from(path)))
    };
    let found: Vec<_> = lines().filter_map(extcap).collect();
    let own = found.iter().find(|(personal, _)| *personal != root);
    own.or_else(|| found.first()).map(|(_, path)| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the extcap folder is found for Wireshark versions that have a folder for each user, and for older
    /// versions that have one folder for all users.
    #[test]
    fn versions_with_and_without_own_folders_are_supported() {
        let old = "Temp:\t/tmp\nExtcap path:         \t/usr/lib/wireshark/extcap\n";
        let new = "Personal Extcap path:\t/home/me/.local/lib/wireshark/extcap\n\
                   Global Extcap path:\t/usr/lib/wireshark/extcap\n";
        let all = Some(PathBuf::from("/usr/lib/wireshark/extcap"));
        assert_eq!((choose(old, false), choose(old, true)), (all.clone(), all.clone()));
        assert_eq!(choose(new, true), all);
        assert_eq!(choose(new, false), Some("/home/me/.local/lib/wireshark/extcap".into()));
        assert_eq!(choose("", true), None);
    }
}
