//! vhost-user from both ends: our device and DPDK's, our driver and DPDK's, in all four pairings.

pub mod guests;
pub mod paths;
pub mod process;
pub mod pvp;
pub mod roles;
pub mod session;

use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::peers::testpmd::{self, Place, Setup, Testpmd};
use paths::Path;
use process::Process;
use roles::{BURST, End, Work};
use session::Pair;

const SHORT: Variant = Variant { frame_bytes: &[64], ..Variant::TWO_PORTS };
const LONG: Variant = Variant { frame_bytes: &[1518], unit: Unit::Gbps, ..Variant::TWO_PORTS };

/// The scenario: a direction, then the driver's path.
pub const SCENARIO: Scenario = Scenario {
    name: "vhost",
    about: "a vhost-user device and a virtio driver, ours and DPDK's: to the host, to the guest, io loop, in each of the driver's paths",
    variants: &[
        Variant { name: "to-host mergeable", ..SHORT },
        Variant { name: "to-host non-mergeable", ..SHORT },
        Variant { name: "to-host in-order", ..SHORT },
        Variant { name: "to-host vector", ..SHORT },
        Variant { name: "to-host packed", ..SHORT },
        Variant { name: "to-host packed-vector", ..SHORT },
        Variant { name: "to-guest mergeable", ..SHORT },
        Variant { name: "to-guest non-mergeable", ..SHORT },
        Variant { name: "to-guest in-order", ..SHORT },
        Variant { name: "to-guest vector", ..SHORT },
        Variant { name: "to-guest packed", ..SHORT },
        Variant { name: "to-guest packed-vector", ..SHORT },
        Variant { name: "loop mergeable", ..SHORT },
        Variant { name: "loop non-mergeable", ..SHORT },
        Variant { name: "loop in-order", ..SHORT },
        Variant { name: "loop vector", ..SHORT },
        Variant { name: "loop packed", ..SHORT },
        Variant { name: "loop packed-vector", ..SHORT },
        Variant { name: "to-host mergeable", ..LONG },
        Variant { name: "to-guest mergeable", ..LONG },
        Variant { name: "loop mergeable", ..LONG },
    ],
    ours: Some(|| Box::new(Pairing::OurDevice)),
};

/// The direction of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToHost,
    ToGuest,
    Loop,
}

impl Direction {
    fn of(case: &Case) -> Direction {
        match case.variant.split(' ').next() {
            Some("to-host") => Direction::ToHost,
            Some("to-guest") => Direction::ToGuest,
            // Also where a guest is only there to send back.
            _ => Direction::Loop,
        }
    }

    /// testpmd's forwarding modes of device and driver.
    fn modes(self) -> (&'static str, &'static str) {
        match self {
            Direction::ToHost => ("rxonly", "txonly"),
            Direction::ToGuest => ("txonly", "rxonly"),
            Direction::Loop => ("io", "io"),
        }
    }

    /// The work of our device.
    fn device(self) -> Work {
        match self {
            Direction::ToHost => Work::Receive,
            Direction::ToGuest => Work::Send,
            Direction::Loop => Work::Echo,
        }
    }

    /// The work of our driver.
    fn driver(self) -> Work {
        match self {
            Direction::ToHost => Work::Send,
            Direction::ToGuest => Work::Receive,
            Direction::Loop => Work::EchoAfterSending,
        }
    }
}

/// The pairings of a device with a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Our device under DPDK's driver.
    OurDevice,
    /// Our driver on DPDK's device.
    OurDriver,
    /// Ours at both ends.
    Both,
    /// DPDK's at both ends.
    Dpdk,
}

impl Contender for Pairing {
    fn name(&self) -> &str {
        match self {
            Pairing::OurDevice => "netvale",
            Pairing::OurDriver => "netvale-driver",
            Pairing::Both => "netvale-both",
            Pairing::Dpdk => "dpdk-vhost",
        }
    }

    fn about(&self) -> &str {
        match self {
            Pairing::OurDevice => "our vhost-user device, polled, under DPDK's virtio-user driver",
            Pairing::OurDriver => "our virtio driver, polled, on DPDK's vhost-user device (net_vhost)",
            Pairing::Both => "our driver on our device",
            Pairing::Dpdk => "DPDK's vhost-user device (net_vhost) under its virtio-user driver",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        testpmd::available(env, 2)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (direction, cores) = (Direction::of(case), env.two_cores()?);
        let place = Place::new(2, 0)?;
        let socket = place.file("vhost.sock");
        let device = if matches!(self, Pairing::OurDevice | Pairing::Both) {
            Process::Ours(End::Device.spawn(case, std::slice::from_ref(&socket), direction.device(), cores.0)?)
        } else {
            let vdev = format!("net_vhost0,iface={socket}");
            dpdk_device(case, &[vdev], direction.modes().0, cores.0, &place)?
        };
        let driver = if matches!(self, Pairing::OurDriver | Pairing::Both) {
            Process::Ours(End::Driver.spawn(case, &[socket], direction.driver(), cores.1)?)
        } else {
            dpdk_driver(case, &socket, direction.modes().1, cores.1, &place)?
        };
        let processes = if direction == Direction::ToHost { [device, driver] } else { [driver, device] };
        let words = format!("device {}, driver {}", cores.0, cores.1);
        Ok(Box::new(Pair::settled(case, processes, words, Box::new(place))?))
    }
}

/// testpmd with DPDK's vhost-user device.
fn dpdk_device(case: &Case, vdevs: &[String], forward: &str, core: usize, place: &Place) -> Result<Process> {
    let setup = Setup {
        name: "device",
        cores: &[core],
        vdevs,
        single_file: false,
        forward,
        frame_bytes: case.frame_bytes,
        burst: BURST as u32,
        more: &[],
        eal: &[],
    };
    let mut device = Testpmd::start(&setup, place)?;
    device.command("start")?;
    Ok(Process::Dpdk(device, None))
}

/// testpmd with DPDK's virtio-user driver in the case's path.
fn dpdk_driver(case: &Case, socket: &str, forward: &str, core: usize, place: &Place) -> Result<Process> {
    let (flags, eal) = Path::of(case).dpdk();
    let setup = Setup {
        name: "driver",
        cores: &[core],
        vdevs: &[format!("net_virtio_user0,path={socket},{flags},queue_size=1024")],
        single_file: true,
        forward,
        frame_bytes: case.frame_bytes,
        burst: BURST as u32,
        more: &[],
        eal,
    };
    let mut driver = Testpmd::start(&setup, place)?;
    driver.command(if Direction::of(case) == Direction::Loop { "start tx_first 32" } else { "start" })?;
    Ok(Process::Dpdk(driver, None))
}
