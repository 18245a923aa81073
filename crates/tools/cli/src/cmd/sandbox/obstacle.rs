//! Why this machine denies user namespaces, and the remedy.

use std::fs;

/// A reason why user namespaces are denied, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub why: &'static str,
    pub remedy: &'static str,
}

/// The settings of the kernel and of distributions (the second is Debian's, the third is Ubuntu's): file, value that
/// denies user namespaces, reason and remedy.
const SWITCHES: [(&str, &str, &str, &str); 3] = [
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "user.max_user_namespaces is 0",
        "as root: sysctl user.max_user_namespaces=10000, and a file in /etc/sysctl.d to keep it",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "kernel.unprivileged_userns_clone is 0",
        "as root: sysctl kernel.unprivileged_userns_clone=1, and a file in /etc/sysctl.d to keep it",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)",
        "as root: an AppArmor profile for netvale with the rule 'userns,', or \
         sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
];

/// The obstacle that is reported if none of the settings is the reason.
const UNKNOWN: Obstacle = Obstacle {
    why: "the kernel, or a container's seccomp profile, forbids it",
    remedy: "run it outside the container, or permit clone and unshare with namespaces in the container's profile",
};

/// Returns the kernel setting that denies user namespaces to ordinary users; `None` if no known setting does.
pub(crate) fn find() -> Option<Obstacle> {
    find_with(|file| fs::read_to_string(file).ok())
}

/// Returns the obstacle to report after the kernel has refused a user namespace.
pub(super) fn of_refusal() -> Obstacle {
    find().unwrap_or(UNKNOWN)
}

/// As [`find`], with a function that reads a file.
pub(crate) fn find_with(read: impl Fn(&str) -> Option<String>) -> Option<Obstacle> {
    let denies = |file: &str, value: &str| read(file).is_some_and(|text| text.trim() == value);
    let found = SWITCHES.into_iter().find(|(file, value, ..)| denies(file, value));
    found.map(|(.., why, remedy)| Obstacle { why, remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_is_an_obstacle_with_a_remedy() {
        assert_eq!(find_with(|_| None), None);
        for (file, value, why, remedy) in SWITCHES {
            let found = find_with(|read| (read == file).then(|| format!("{value}\n")));
            assert_eq!(found, Some(Obstacle { why, remedy }));
            let (_, name) = file.split_once("sys/").unwrap();
            assert!(remedy.contains(&name.replace('/', ".")), "{file}");
            assert_eq!(find_with(|read| (read == file).then(|| "9".to_owned())), None);
        }
    }
}
