//! The PVP test (physical, virtual, physical) of DPDK's vhost/virtio document: a generator's frames go through the host
//! to a guest, which forwards them, and back.
//!
//! There is no NIC here: the physical side is a port in the host process that makes frames and counts what comes back,
//! as DPDK's `net_null` does. Host and guest have one core each.

use super::super::{Scenario, Variant};
use super::process::Process;
use super::roles::{End, Work};
use super::session::Pair;
use super::{dpdk_device, dpdk_driver};
use crate::case::Case;
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::peers::testpmd::{self, Place};

const SHORT: Variant = Variant { frame_bytes: &[64], ..Variant::TWO_PORTS };

/// The scenario: what the guest does, then its driver's path.
pub const SCENARIO: Scenario = Scenario {
    name: "pvp",
    about: "generator, physical side, vhost port, a guest that forwards (io, mac), and back: the driver's paths",
    variants: &[
        Variant { name: "io mergeable", ..SHORT },
        Variant { name: "io non-mergeable", ..SHORT },
        Variant { name: "io in-order", ..SHORT },
        Variant { name: "io vector", ..SHORT },
        Variant { name: "io packed", ..SHORT },
        Variant { name: "io packed-vector", ..SHORT },
        Variant { name: "mac mergeable", ..SHORT },
        Variant { name: "mac non-mergeable", ..SHORT },
        Variant { name: "mac in-order", ..SHORT },
        Variant { name: "mac vector", ..SHORT },
        Variant { name: "mac packed", ..SHORT },
        Variant { name: "mac packed-vector", ..SHORT },
    ],
    ours: Some(|| Box::new(Pvp::OurHost)),
};

/// The pairings of a host with a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pvp {
    /// Our device, DPDK's driver in the guest.
    OurHost,
    /// Our driver in the guest, too.
    Both,
    /// DPDK on both sides.
    Dpdk,
}

fn is_mac(case: &Case) -> bool {
    case.variant.starts_with("mac ")
}

impl Contender for Pvp {
    fn name(&self) -> &str {
        match self {
            Pvp::OurHost => "netvale",
            Pvp::Both => "netvale-both",
            Pvp::Dpdk => "dpdk-pvp",
        }
    }

    fn about(&self) -> &str {
        match self {
            Pvp::OurHost => "our vhost-user device; the guest is testpmd on virtio-user",
            Pvp::Both => "our vhost-user device; the guest is our virtio driver",
            Pvp::Dpdk => "testpmd with net_null and net_vhost; the guest is testpmd on virtio-user",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        testpmd::available(env, 2)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        let place = Place::new(2, 0)?;
        let socket = place.file("vhost.sock");
        let host = if *self == Pvp::Dpdk {
            let vdevs = [format!("net_null0,size={}", case.frame_bytes), format!("net_vhost0,iface={socket}")];
            match dpdk_device(case, &vdevs, "io", cores.0, &place)? {
                // The null port makes frames without end: what counts is what comes back on the other one.
                Process::Dpdk(testpmd, _) => Process::Dpdk(testpmd, Some(1)),
                other => other,
            }
        } else {
            Process::Ours(End::Device.spawn(case, std::slice::from_ref(&socket), Work::Generate, cores.0)?)
        };
        let guest = if *self == Pvp::Both {
            let work = if is_mac(case) { Work::MacEcho } else { Work::Echo };
            Process::Ours(End::Driver.spawn(case, &[socket], work, cores.1)?)
        } else {
            dpdk_driver(case, &socket, if is_mac(case) { "mac" } else { "io" }, cores.1, &place)?
        };
        let words = format!("host {}, guest {}", cores.0, cores.1);
        Ok(Box::new(Pair::settled(case, [host, guest], words, Box::new(place))?))
    }
}
