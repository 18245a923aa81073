//! Check: this kernel's features that netvale can use.

use std::fs::OpenOptions;
use std::io;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::files;
use super::row::Row;

const CHECK: &str = "kernel";

/// Whether the kernel has a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    Yes,
    /// Denied to this user.
    Denied,
    No,
    Unknown,
}

/// Checks this kernel.
pub fn look() -> Row {
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

fn judge(version: Option<&str>, features: &[(&str, Has)]) -> Row {
    let Some(version) = version else { return Row::unknown(CHECK, "/proc does not tell its version") };
    let those = |has: Has| features.iter().filter(|(_, it)| *it == has).map(|(name, _)| *name).collect::<Vec<_>>();
    let mut found = format!("Linux {version}");
    for (words, has) in [(" has ", Has::Yes), ("; not for this user: ", Has::Denied), ("; lacks ", Has::No)] {
        let names = those(has);
        if !names.is_empty() {
            found.push_str(&format!("{words}{}", names.join(", ")));
        }
    }
    Row::ok(CHECK, found)
        .figure("version", version)
        .figure("has", those(Has::Yes))
        .figure("denied", those(Has::Denied))
        .figure("lacks", those(Has::No))
}

fn af_xdp() -> Has {
    call(rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None))
}

fn call<T>(result: rustix::io::Result<T>) -> Has {
    match result {
        Ok(_) => Has::Yes,
        Err(Errno::PERM | Errno::ACCESS) => Has::Denied,
        Err(Errno::AFNOSUPPORT | Errno::NOSYS | Errno::PROTONOSUPPORT) => Has::No,
        Err(_) => Has::Unknown,
    }
}

fn tun() -> Has {
    match OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Has::Yes,
        Err(error) => match error.kind() {
            io::ErrorKind::PermissionDenied => Has::Denied,
            io::ErrorKind::NotFound => Has::No,
            // The device file exists, but the kernel has no driver for it.
            _ if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Has::No,
            _ => Has::Unknown,
        },
    }
}

/// Tried on a thread that ends, because the setting stays with it.
fn short_slices() -> Has {
    match std::thread::spawn(netvale::shorten_slices).join() {
        Ok(true) => Has::Yes,
        Ok(false) => Has::No,
        Err(_) => Has::Unknown,
    }
}

fn present(path: &str) -> Has {
    match std::path::Path::new(path).try_exists() {
        Ok(true) => Has::Yes,
        Ok(false) => Has::No,
        Err(_) => Has::Unknown,
    }
}

fn user_namespaces() -> Has {
    let most = files::read("/proc/sys/user/max_user_namespaces");
    let clone = files::read("/proc/sys/kernel/unprivileged_userns_clone");
    let restricted = files::read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    namespaces(most.as_deref(), clone.as_deref(), restricted.as_deref())
}

/// Debian and Ubuntu have switches of their own for unprivileged users.
fn namespaces(most: Option<&str>, clone: Option<&str>, restricted: Option<&str>) -> Has {
    match (most, clone, restricted) {
        (None, ..) => Has::No,
        (Some("0"), ..) | (_, Some("0"), _) | (_, _, Some("1")) => Has::Denied,
        _ => Has::Yes,
    }
}

/// Read from the list of security modules, which needs a mounted securityfs.
fn landlock(modules: Option<&str>) -> Has {
    match modules {
        None => Has::Unknown,
        Some(modules) if modules.split(',').any(|module| module == "landlock") => Has::Yes,
        Some(_) => Has::No,
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::State;
    use super::*;

    /// Objective: present, denied and missing features are named; unknown ones are omitted.
    #[test]
    fn features() {
        let features = [("a", Has::Yes), ("b", Has::Denied), ("c", Has::No), ("d", Has::Unknown), ("e", Has::Yes)];
        let row = judge(Some("6.18.1"), &features);
        assert_eq!(row.found, "Linux 6.18.1 has a, e; not for this user: b; lacks c");
        assert_eq!(judge(None, &features).state, State::Unknown);
    }

    /// Objective: the distributions' switches are read, and all of them are optional.
    #[test]
    fn switches() {
        assert_eq!(namespaces(Some("9000"), None, None), Has::Yes);
        assert_eq!(namespaces(Some("9000"), Some("1"), Some("0")), Has::Yes);
        assert_eq!(namespaces(Some("0"), None, None), Has::Denied);
        assert_eq!(namespaces(Some("9000"), Some("0"), None), Has::Denied);
        assert_eq!(namespaces(Some("9000"), None, Some("1")), Has::Denied);
        assert_eq!(namespaces(None, None, None), Has::No);
        let modules = ["capability,landlock,yama", "capability,yama"].map(|modules| landlock(Some(modules)));
        assert_eq!((modules, landlock(None)), ([Has::Yes, Has::No], Has::Unknown));
    }
}
