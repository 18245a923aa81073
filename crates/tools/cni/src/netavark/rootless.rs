//! The daemon of a rootless podman's user.
//!
//! In podman's user namespace the user is root, but the daemon is the user's own, and podman hides `/run` except for
//! the user's part of it.

use std::ffi::OsString;
use std::path::PathBuf;

use netvale_control::dirs::RUN_DIR_VARIABLE;

/// The run directory of the user's daemon; `None` for a user who is root outside, too, or names a folder by
/// `NETVALE_RUN_DIR`.
pub fn run_dir() -> Option<PathBuf> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    own_run_dir(&map, |name| std::env::var_os(name))
}

fn own_run_dir(map: &str, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if path(RUN_DIR_VARIABLE).is_some() || !is_root_of_namespace(map) {
        return None;
    }
    // As the XDG Base Directory Specification requires, a relative path counts as unset.
    path("XDG_RUNTIME_DIR").filter(|dir| dir.is_absolute()).map(|dir| dir.join("netvale"))
}

/// Whether root of this user namespace is another user outside, by the namespace's map of users
/// (user_namespaces(7)): the first number of a line is inside, the second outside.
fn is_root_of_namespace(map: &str) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        fields.next() == Some("0") && fields.next().is_some_and(|outside| outside != "0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the folder is the user's own only for root of a user namespace, and only if none is named.
    #[test]
    fn only_root_of_a_user_namespace_has_a_folder_of_its_own() {
        let rootless = "         0       1000          1\n         1     100000      65536\n";
        let of = |map: &str, named: &str, runtime: &str| {
            own_run_dir(map, |name| match name {
                "NETVALE_RUN_DIR" => Some(named.into()),
                "XDG_RUNTIME_DIR" => Some(runtime.into()),
                _ => None,
            })
        };
        assert_eq!(of(rootless, "", "/run/user/1000"), Some("/run/user/1000/netvale".into()));
        for (map, named, runtime) in [
            (rootless, "/srv/run", "/run/user/1000"),
            (rootless, "", "relative"),
            (rootless, "", ""),
            ("         0          0 4294967295\n", "", "/run/user/0"),
            ("      1000       1000          1\n", "", "/run/user/1000"),
            ("", "", "/run/user/0"),
        ] {
            assert_eq!(of(map, named, runtime), None, "{map} {named} {runtime}");
        }
        assert_eq!(own_run_dir(rootless, |_| None), None);
    }
}
