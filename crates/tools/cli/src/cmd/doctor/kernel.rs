//! Checks: kernel features that netvale can use, and whether an ordinary user can run `netvale sandbox`.

use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::files;
use super::row::CheckRow;
use crate::cmd::sandbox::obstacle::{self, Obstacle};

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
    let af_xdp = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
    let features = [
        ("AF_XDP (network interfaces)", call(af_xdp)),
        ("TUN (TAPs)", call(rustix::fs::open("/dev/net/tun", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()))),
        ("user namespaces", user_namespaces(|file| files::read(file))),
        ("memfd", call(rustix::fs::memfd_create("netvale-doctor", MemfdFlags::CLOEXEC))),
        ("huge pages", present("/sys/kernel/mm/hugepages/hugepages-2048kB")),
        ("short time slices (Linux 6.12)", short_slices()),
        ("Landlock", landlock(files::read("/sys/kernel/security/lsm").as_deref())),
    ];
    judge(version.as_deref(), &features)
}

fn judge(version: Option<&str>, features: &[(&str, Availability)]) -> CheckRow {
    let Some(version) = version else { return CheckRow::unknown(CHECK, "/proc does not show the kernel's version") };
    let mut row = CheckRow::ok(CHECK, format!("Linux {version}")).figure("version", version);
    for (words, figure, has) in [
        (" has ", "has", Availability::Yes),
        ("; not for this user: ", "denied", Availability::Denied),
        ("; lacks ", "lacks", Availability::No),
    ] {
        let names: Vec<_> = features.iter().filter(|(_, it)| *it == has).map(|(name, _)| *name).collect();
        if !names.is_empty() {
            row.found += &format!("{words}{}", names.join(", "));
        }
        row = row.figure(figure, names);
    }
    row
}

fn call<T>(result: rustix::io::Result<T>) -> Availability {
    match result {
        Ok(_) => Availability::Yes,
        Err(Errno::PERM | Errno::ACCESS) => Availability::Denied,
        // NOENT means that a device file is missing, NODEV that the kernel has no driver for the device.
        Err(Errno::AFNOSUPPORT | Errno::NOSYS | Errno::PROTONOSUPPORT | Errno::NOENT | Errno::NODEV) => {
            Availability::No
        }
        Err(_) => Availability::Unknown,
    }
}

fn known(is_there: bool) -> Availability {
    if is_there { Availability::Yes } else { Availability::No }
}

/// Requests a short scheduler slice for a thread that ends afterwards, because the setting stays with the thread.
fn short_slices() -> Availability {
    std::thread::spawn(netvale::shorten_slices).join().map_or(Availability::Unknown, known)
}

fn present(path: &str) -> Availability {
    Path::new(path).try_exists().map_or(Availability::Unknown, known)
}

/// Returns whether this user may create user namespaces. `read` reads a file.
fn user_namespaces(read: impl Fn(&str) -> Option<String>) -> Availability {
    match read("/proc/sys/user/max_user_namespaces") {
        None => Availability::No,
        Some(_) if obstacle::find_with(&read).is_some() => Availability::Denied,
        Some(_) => Availability::Yes,
    }
}

/// Looks for Landlock in the list of security modules, which can be read only if securityfs is mounted.
fn landlock(modules: Option<&str>) -> Availability {
    let has = |modules: &str| known(modules.split(',').any(|module| module == "landlock"));
    modules.map_or(Availability::Unknown, has)
}

/// Checks the kernel's switches that deny user namespaces to ordinary users; the switches do not affect root.
pub fn sandbox() -> CheckRow {
    judge_sandbox(obstacle::find(), rustix::process::geteuid().is_root())
}

fn judge_sandbox(found: Option<Obstacle>, is_root: bool) -> CheckRow {
    const CHECK: &str = "sandbox";
    match found {
        None => CheckRow::ok(CHECK, "user namespaces are permitted: `netvale sandbox` and rootless daemons can run"),
        Some(obstacle) if is_root => {
            CheckRow::ok(CHECK, format!("only root can make user namespaces: {}", obstacle.why))
        }
        Some(obstacle) => CheckRow::ok(CHECK, format!("no user namespaces: {}", obstacle.why)).advise(
            "Without them, `netvale sandbox` and daemons in namespaces of their own cannot run.",
            obstacle.remedy,
        ),
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
        let namespaces = |most: &str, clone: &str, restricted: &str| {
            let value = |file: &str| match file.rsplit('/').next()? {
                "max_user_namespaces" => Some(most),
                "unprivileged_userns_clone" => Some(clone),
                "apparmor_restrict_unprivileged_userns" => Some(restricted),
                _ => None,
            };
            user_namespaces(|file| value(file).filter(|text| !text.is_empty()).map(str::to_owned))
        };
        assert_eq!(namespaces("9000", "", ""), Availability::Yes);
        assert_eq!(namespaces("9000", "1", "0"), Availability::Yes);
        assert_eq!(namespaces("0", "", ""), Availability::Denied);
        assert_eq!(namespaces("9000", "0", ""), Availability::Denied);
        assert_eq!(namespaces("9000", "", "1"), Availability::Denied);
        assert_eq!(namespaces("", "", ""), Availability::No);
        let modules = ["capability,landlock,yama", "capability,yama"].map(|modules| landlock(Some(modules)));
        assert_eq!((modules, landlock(None)), ([Availability::Yes, Availability::No], Availability::Unknown));
    }

    /// Objective: a switch that denies user namespaces yields advice for an ordinary user; for root, the switch is
    /// reported without advice.
    #[test]
    fn an_obstacle_is_advice_to_ordinary_users() {
        let obstacle = Obstacle { why: "a switch is 0", remedy: "set it" };
        assert_eq!(judge_sandbox(None, false).state, CheckState::Ok);
        let row = judge_sandbox(Some(obstacle.clone()), false);
        assert_eq!((row.state, row.what_to_do.as_str()), (CheckState::Advice, "set it"));
        let row = judge_sandbox(Some(obstacle), true);
        assert_eq!((row.state, row.found.contains("a switch is 0")), (CheckState::Ok, true));
    }
}
