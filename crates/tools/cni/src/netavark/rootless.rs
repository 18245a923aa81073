//! The run directory of a rootless user's daemon.
//!
//! In podman's user namespace the user is root, so the default run directory would be root's. But the daemon is the
//! user's own, and podman makes only the user's part of `/run` visible.

use std::ffi::OsString;
use std::path::PathBuf;

use netvale_control::dirs::RUN_DIR_VARIABLE;

/// Returns the run directory of the user's daemon. `None` if this process is not root in a user namespace whose root is
/// another user outside, if `NETVALE_RUN_DIR` is set, or if `XDG_RUNTIME_DIR` is not an absolute path.
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

/// Returns whether root of this user namespace is another user outside of it, according to `/proc/self/uid_map`
/// (user_namespaces(7)): the first number of a line is the user ID inside the namespace, the second is the user ID
/// outside.
fn is_root_of_namespace(map: &str) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        fields.next() == Some("0") && fields.next().is_some_and(|outside| outside != "0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the user's own run directory is returned only if this process is root in a user namespace whose root
    /// is another user outside, and only if `NETVALE_RUN_DIR` is not set.
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
