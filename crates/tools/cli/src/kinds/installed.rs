//! The QEMU installed on this host, and its features.

use std::fs::File;
use std::process::Command;

/// A version: major, minor.
pub type QemuVersion = (u32, u32);

/// The first version of QEMU that takes the reconnect interval in milliseconds.
const RECONNECT_MS: QemuVersion = (9, 2);
/// The first version of QEMU in which vhost-user devices may have MSI-X vectors without KVM.
const VECTORS: QemuVersion = (8, 0);
/// The first version of QEMU that has vfio-user devices.
const VFIO_USER: QemuVersion = (10, 1);
/// Name of QEMU for this machine's architecture in most distributions.
const PROGRAM: &str = if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" };
/// QEMU's path in Red Hat's distributions.
const RED_HAT: &str = "/usr/libexec/qemu-kvm";

/// This host's support for virtual machines: the version of QEMU, and whether this user may use KVM.
#[derive(Clone, Copy, Debug)]
pub struct VmSupport {
    version: Option<QemuVersion>,
    kvm: bool,
}

impl VmSupport {
    /// Runs the installed QEMU to get its version, and checks whether this user may use KVM.
    pub fn ask() -> VmSupport {
        let kvm = File::options().read(true).write(true).open("/dev/kvm").is_ok();
        VmSupport { version: [PROGRAM, RED_HAT].into_iter().find_map(ask_version), kvm }
    }

    /// Returns whether the installed QEMU is older than `version`. A missing QEMU counts as the newest.
    fn is_before(self, version: QemuVersion) -> bool {
        self.version.is_some_and(|installed| installed < version)
    }

    /// Returns the option that makes QEMU reconnect, so that the guest survives a restart of the daemon.
    pub fn reconnect(self) -> &'static str {
        if self.is_before(RECONNECT_MS) { ",reconnect=1" } else { ",reconnect-ms=1000" }
    }

    /// Returns whether this QEMU crashes when the guest's driver uses the MSI-X vectors of a vhost-user device, which
    /// older versions do without KVM.
    pub fn crashes_with_vectors(self) -> bool {
        !self.kvm && self.is_before(VECTORS)
    }

    /// Returns the reason why this QEMU has no vfio-user devices, or `None` if it has.
    pub fn lacks_vfio_user(self) -> Option<String> {
        let (major, minor) = self.version.filter(|_| self.is_before(VFIO_USER))?;
        Some(format!("QEMU {major}.{minor} is installed and has no vfio-user-pci: install QEMU 10.1 or newer"))
    }
}

fn ask_version(program: &str) -> Option<QemuVersion> {
    let output = Command::new(program).arg("--version").output().ok()?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the version in a line such as `QEMU emulator version 7.2.17 (Debian …)`.
fn parse(line: &str) -> Option<QemuVersion> {
    let mut numbers = line.split_once("version ")?.1.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
pub fn sample(version: QemuVersion, kvm: bool) -> VmSupport {
    VmSupport { version: Some(version), kvm }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: versions are parsed as distributions' programs print them.
    #[test]
    fn versions_of_distributions_are_parsed() {
        assert_eq!(parse("QEMU emulator version 7.2.17 (Debian 1:7.2+dfsg-7+deb12u13)"), Some((7, 2)));
        assert_eq!(parse("QEMU emulator version 11.1.3"), Some((11, 1)));
        assert_eq!(parse("none"), None);
    }

    /// Objective: each version gets options that it supports, with and without KVM; a missing QEMU counts as the
    /// newest.
    #[test]
    fn each_version_gets_options_it_supports() {
        let abilities = |version, kvm| {
            let installed = VmSupport { version, kvm };
            (installed.reconnect(), installed.crashes_with_vectors(), installed.lacks_vfio_user().is_some())
        };
        assert_eq!(abilities(Some((7, 2)), false), (",reconnect=1", true, true));
        assert_eq!(abilities(Some((7, 2)), true), (",reconnect=1", false, true));
        assert_eq!(abilities(Some((9, 1)), false), (",reconnect=1", false, true));
        assert_eq!(abilities(Some((10, 0)), false), (",reconnect-ms=1000", false, true));
        assert_eq!(abilities(Some((10, 1)), false), (",reconnect-ms=1000", false, false));
        assert_eq!(abilities(None, false), (",reconnect-ms=1000", false, false));
    }
}
