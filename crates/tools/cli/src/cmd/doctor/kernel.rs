//! Check: kernel features that netvale can use.

use std::fs::OpenOptions;
use std::io;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::files;
use super::row::CheckRow;

const CHECK: &str = "kernel";

/// Whether the kernel has a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Availability {
    Yes,
    /// The kernel has the feature, but denies it to this user.
    Denied,
    No,
    Unknown,
}

/// Checks which features this kernel has.
pub fn look() -> CheckRow {
    let version = files::read("/proc/sys/kernel/osrelease");
    let features = [
        ("AF_XDP (network interfaces)", af_xdp()),
        ("TUN (TAPs)", tun()),
        ("user namespaces", user_namespaces()),
        ("memfd", call(rustix::fs::memfd_create("netvale-doctor", MemfdFlags::CLOEXEC))),
        ("huge pages", present("/sys/kernel/mm/hugepages/hugepages-2048kB")),
        ("short time slices (Linux 6.12)", short_slices()),
        ("Landlock", landlock(files::read("/sys/kernel/security/lsm").as_deref())),
    ];
    judge(version.as_deref(), &features)
}

fn judge(version: Option<&str>, features: &[(&str, Availability)]) -> CheckRow {
    let Some(version) = version else { return CheckRow::unknown(CHECK, "/proc does not show the kernel's version") };
    let those =
        |has: Availability| features.iter().filter(|(_, it)| *it == has).map(|(name, _)| *name).collect::<Vec<_>>();
    let mut found = format!("Linux {version}");
    for (words, has) in
        [(" has ", Availability::Yes), ("; not for this user: ", Availability::Denied), ("; lacks ", Availability::No)]
    {
        let names = those(has);
        if !names.is_empty() {
            found.push_str(&format!("{words}{}", names.join(", ")));
        }
    }
    CheckRow::ok(CHECK, found)
        .figure("version", version)
        .figure("has", those(Availability::Yes))
        .figure("denied", those(Availability::Denied))
        .figure("lacks", those(Availability::No))
}

fn af_xdp() -> Availability {
    call(rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None))
}

fn call<T>(result: rustix::io::Result<T>) -> Availability {
    match result {
        Ok(_) => Availability::Yes,
        Err(Errno::PERM | Errno::ACCESS) => Availability::Denied,
        Err(Errno::AFNOSUPPORT | Errno::NOSYS | Errno::PROTONOSUPPORT) => Availability::No,
        Err(_) => Availability::Unknown,
    }
}

fn tun() -> Availability {
    match OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Availability::Yes,
        Err(error) => match error.kind() {
            io::ErrorKind::PermissionDenied => Availability::Denied,
            io::ErrorKind::NotFound => Availability::No,
            // The device file exists, but the kernel has no driver for it.
            _ if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Availability::No,
            _ => Availability::Unknown,
        },
    }
}

/// Requests a short scheduler slice for a thread that ends afterwards, because the setting stays with the thread.
fn short_slices() -> Availability {
    match std::thread::spawn(netvale::shorten_slices).join() {
        Ok(true) => Availability::Yes,
        Ok(false) => Availability::No,
        Err(_) => Availability::Unknown,
    }
}

fn present(path: &str) -> Availability {
    match std::path::Path::new(path).try_exists() {
        Ok(true) => Availability::Yes,
        Ok(false) => Availability::No,
        Err(_) => Availability::Unknown,
    }
}

fn user_namespaces() -> Availability {
    let most = files::read("/proc/sys/user/max_user_namespaces");
    let clone = files::read("/proc/sys/kernel/unprivileged_userns_clone");
    let restricted = files::read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    namespaces(most.as_deref(), clone.as_deref(), restricted.as_deref())
}

/// Checks user namespaces. Debian and Ubuntu have additional sysctls that deny user namespaces to ordinary users.
fn namespaces(most: Option<&str>, clone: Option<&str>, restricted: Option<&str>) -> Availability {
    match (most, clone, restricted) {
        (None, ..) => Availability::No,
        (Some("0"), ..) | (_, Some("0"), _) | (_, _, Some("1")) => Availability::Denied,
        _ => Availability::Yes,
    }
}

/// Looks for Landlock in the list of security modules, which can be read only if securityfs is mounted.
fn landlock(modules: Option<&str>) -> Availability {
    match modules {
        None => Availability::Unknown,
        Some(modules) if modules.split(',').any(|module| module == "landlock") => Availability::Yes,
        Some(_) => Availability::No,
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::CheckState;
    use super::*;

    /// Objective: present, denied and missing features are listed; features with unknown availability are omitted.
    #[test]
    fn missing_features_are_named() {
        let features = [
            ("a", Availability::Yes),
            ("b", Availability::Denied),
            ("c", Availability::No),
            ("d", Availability::Unknown),
            ("e", Availability::Yes),
        ];
        let row = judge(Some("6.18.1"), &features);
        assert_eq!(row.found, "Linux 6.18.1 has a, e; not for this user: b; lacks c");
        assert_eq!(judge(None, &features).state, CheckState::Unknown);
    }

    /// Objective: the sysctls of the distributions are respected, and each of them may be missing.
    #[test]
    fn the_switches_of_distributions_are_read() {
        assert_eq!(namespaces(Some("9000"), None, None), Availability::Yes);
        assert_eq!(namespaces(Some("9000"), Some("1"), Some("0")), Availability::Yes);
        assert_eq!(namespaces(Some("0"), None, None), Availability::Denied);
        assert_eq!(namespaces(Some("9000"), Some("0"), None), Availability::Denied);
        assert_eq!(namespaces(Some("9000"), None, Some("1")), Availability::Denied);
        assert_eq!(namespaces(None, None, None), Availability::No);
        let modules = ["capability,landlock,yama", "capability,yama"].map(|modules| landlock(Some(modules)));
        assert_eq!((modules, landlock(None)), ([Availability::Yes, Availability::No], Availability::Unknown));
    }
}
