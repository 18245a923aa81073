//! Candidates for completion: names from the daemon and from the machine, and netvale's own words.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netvale_control::client::Client;
use netvale_control::dirs;
use netvale_control::options::OPTIONS;
use netvale_control::types::PortKind;
use netvale_portspec::AttachSpec;

use crate::values::LINK_WORDS;

/// Time limit for the daemon's answer; it is short, since a completion must be quick.
const PATIENCE: Duration = Duration::from_millis(500);

/// Returns the words of the command line so far, which a shell passes after `--`.
fn line() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.skip_while(|word| word != "--").skip(1).collect()
}

/// Connects to the daemon that `--run-dir` names on the command line, or to the default daemon. Returns `None` if it
/// does not answer.
fn daemon() -> Option<Client> {
    let line = line();
    let named = line.windows(2).find(|pair| pair[0] == "--run-dir").map(|pair| pair[1].clone());
    let named = named.or_else(|| line.iter().find_map(|word| word.strip_prefix("--run-dir=").map(str::to_owned)));
    let dir = named.map_or_else(|| dirs::daemon_run_dir(dirs::CONTROL_SOCKET), PathBuf::from);
    Client::connect_within(&dir, PATIENCE).ok()
}

/// Returns the full names of the ports visible to this user.
fn full_names() -> Vec<String> {
    let ports = daemon().and_then(|mut client| client.ports(None).ok()).unwrap_or_default();
    ports.into_iter().filter(|port| port.kind != PortKind::Monitor).map(|port| port.name).collect()
}

/// Returns the names of switches.
pub fn switches(_: &str) -> Vec<String> {
    let switches = daemon().and_then(|mut client| client.switches().ok()).unwrap_or_default();
    switches.into_iter().map(|switch| switch.name).collect()
}

/// Returns the full names of ports. If there are ports on several switches, returns the switches' names with a colon
/// until the word has a colon; the shell then continues after the colon.
pub fn ports(current: &str) -> Vec<String> {
    let names = full_names();
    if current.contains(':') {
        return names;
    }
    let switches: BTreeSet<_> = names.iter().filter_map(|name| name.split_once(':')).map(|(first, _)| first).collect();
    match switches.len() {
        // If there is only one switch, its ports are offered immediately.
        0 | 1 => names,
        _ => switches.into_iter().map(|switch| format!("{switch}:")).collect(),
    }
}

/// Returns the names, without the switch, of the ports on the switch that the command line names.
pub fn ports_alone(_: &str) -> Vec<String> {
    let line = line();
    let names = full_names();
    let split = names.iter().filter_map(|name| name.split_once(':'));
    split.filter(|(switch, _)| line.iter().any(|word| word == switch)).map(|(_, port)| port.to_owned()).collect()
}

/// Returns candidates for a port to attach: kinds of ports and, after `netmap:`, network interfaces.
pub fn kinds(current: &str) -> Vec<String> {
    if current.starts_with("netmap:") {
        let interfaces = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        return interfaces.map(|entry| format!("netmap:{}", entry.file_name().to_string_lossy())).collect();
    }
    if let Some((kind, path)) = current.split_once(':') {
        return files(path).into_iter().map(|path| format!("{kind}:{path}")).collect();
    }
    AttachSpec::PREFIXES.iter().filter(|prefix| !prefix.is_empty()).map(|prefix| format!("{prefix}:")).collect()
}

/// Returns the policies of ports.
pub fn policies(_: &str) -> Vec<String> {
    OPTIONS.iter().filter(|option| option.can_be_set()).map(|option| option.key.to_owned()).collect()
}

/// Returns the keywords for link impairments.
pub fn link(_: &str) -> Vec<String> {
    let words =
        LINK_WORDS.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with("netvale"));
    let words = words.filter_map(|line| line.split(' ').next());
    let all: BTreeSet<_> = ["in", "out", "both", "off"].into_iter().chain(words).collect();
    all.into_iter().map(str::to_owned).collect()
}

/// Returns candidates for words after `--`: programs for the first word, files for all later words.
pub fn programs(current: &str) -> Vec<String> {
    let line = line();
    let is_first = line.iter().rev().nth(1).is_some_and(|word| word == "--");
    if !is_first || current.contains('/') {
        return files(current);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter_map(|folder| std::fs::read_dir(folder).ok());
    let files = folders.flatten().flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(current));
    let is_program = |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let programs = files.filter(|entry| is_program(&entry.path()));
    let names: BTreeSet<_> = programs.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.into_iter().collect()
}

/// Returns the files and folders whose paths begin with `current`.
fn files(current: &str) -> Vec<String> {
    let (folder, _) = current.rsplit_once('/').map_or(("", current), |(folder, _)| current.split_at(folder.len() + 1));
    let entries = std::fs::read_dir(if folder.is_empty() { "." } else { folder }).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| {
        let slash = if entry.path().is_dir() { "/" } else { "" };
        format!("{folder}{}{slash}", entry.file_name().to_string_lossy())
    };
    entries.map(name).filter(|path| path.starts_with(current)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the candidates for `link` are the keywords in the help, including the directions but not the
    /// examples.
    #[test]
    fn words_of_links_are_those_of_the_help() {
        let words = link("");
        for word in ["delay", "loss", "rate", "reorder", "in", "both", "off"] {
            assert!(words.iter().any(|known| known == word), "{words:?}");
        }
        assert!(words.iter().all(|word| word.chars().all(|c| c.is_ascii_lowercase())), "{words:?}");
    }

    /// Objective: policies are offered, but no other options; candidates for kinds of ports end in a colon.
    #[test]
    fn policies_are_offered_and_other_options_are_not() {
        let words = policies("");
        assert!(words.contains(&"access".to_owned()) && !words.contains(&"slots".to_owned()), "{words:?}");
        assert!(kinds("").contains(&"vhost:".to_owned()) && kinds("").iter().all(|kind| kind.ends_with(':')));
    }

    /// Objective: candidates for a path begin with the given part; folders end in a slash.
    #[test]
    fn paths_continue_from_their_given_part() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ab")).unwrap();
        std::fs::write(dir.path().join("ac"), "").unwrap();
        let begun = format!("{}/a", dir.path().display());
        let mut found = kinds(&format!("pcap:{begun}"));
        found.sort();
        assert_eq!(found, [format!("pcap:{begun}b/"), format!("pcap:{begun}c")]);
        assert_eq!(files(&begun).len(), 2);
    }
}
