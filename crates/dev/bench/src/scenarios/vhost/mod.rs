//! vhost-user from both ends: netvale's or DPDK's device with netvale's or DPDK's driver, in all four pairings.
//!
//! PVP (physical, virtual, physical) is a test of DPDK's vhost/virtio document: a generator's frames pass the host to a
//! guest, which forwards them back. There is no NIC here: the physical side is a port in the host process that makes
//! frames and counts the frames that return, as DPDK's `net_null` does. Host and guest have one core each.

pub mod booted;
pub mod out;
pub mod outside;
mod paths;
mod releases;
pub mod roles;

use paths::DriverPath;
use roles::{DEVICE, DRIVER, Queues, Work};

use super::*;
use crate::peers::ovs;
use crate::peers::testpmd::{self, Arguments, Place, Testpmd};

const SHORT: Variant = Variant { frame_bytes: &[64], ..Variant::TWO_PORTS };
const LONG: Variant = Variant { frame_bytes: &[1518], unit: Unit::Gbps, ..Variant::TWO_PORTS };

/// The scenario with a device and a driver. A variant's name is a direction and the driver's path.
pub const SCENARIO: Scenario = Scenario {
    name: "vhost",
    about: "a vhost-user device and a virtio driver, ours and DPDK's: to the host, to the guest, io loop, in each of \
        the driver's paths",
    variants: variants![
        SHORT =>
            "to-host mergeable", "to-host non-mergeable", "to-host in-order",
            "to-host vector", "to-host packed", "to-host packed-vector",
            "to-guest mergeable", "to-guest non-mergeable", "to-guest in-order",
            "to-guest vector", "to-guest packed", "to-guest packed-vector",
            "loop mergeable", "loop non-mergeable", "loop in-order",
            "loop vector", "loop packed", "loop packed-vector";
        LONG => "to-host mergeable", "to-guest mergeable", "loop mergeable"
    ],
    needs: &[testpmd::NEEDS],
    start: |case, cores| pairing(case, cores, true, false),
};

/// The scenario of the PVP test. A variant's name is the guest's forwarding mode and its driver's path.
pub const PVP: Scenario = Scenario {
    name: "pvp",
    about: "generator, physical side, vhost port, a guest that forwards (io, mac), and back: the driver's paths",
    variants: variants![
        SHORT =>
            "io mergeable", "io non-mergeable", "io in-order", "io vector", "io packed", "io packed-vector",
            "mac mergeable", "mac non-mergeable", "mac in-order", "mac vector", "mac packed", "mac packed-vector"
    ],
    needs: &[testpmd::NEEDS],
    start: |case, cores| pvp("netvale", case, cores, [true, false], Place::new(2, 0)?),
};

/// The scenario with two guests on one switch, by the driver's path: a process with two virtio ports, one for each
/// guest, sends each received frame back through the switch. The figure is the sum of both directions.
pub const GUESTS: Scenario = Scenario {
    name: "guests",
    about: "guest, switch, guest: two virtio ports in one process, a learning switch on the other core; both \
        directions",
    variants: variants![SHORT => "mergeable", "in-order"; LONG => "mergeable", "in-order"],
    needs: &[testpmd::NEEDS],
    start: |case, cores| guests(case, cores, false),
};

/// Description of the pairing of DPDK's device with its driver.
pub const DPDK: &str = "DPDK's vhost-user device (net_vhost) under its virtio-user driver";
/// Description of two guests that both use netvale's driver.
pub const BOTH_GUESTS: &str = "a VALE switch with two vhost ports; our driver twice";

/// Returns the other pairings: all except netvale's device or switch with DPDK's driver.
pub fn peers() -> Vec<Contender> {
    let is_pairing = |case: &Case| SCENARIO.has(case);
    let is_pvp = |case: &Case| PVP.has(case);
    let mut all = contenders! {
        "dpdk-vhost", DPDK; SCENARIO.needs, is_pairing, |case, cores| pairing(case, cores, false, false);
        "netvale-driver", "our virtio driver, polled, on DPDK's vhost-user device (net_vhost)";
        SCENARIO.needs, is_pairing, |case, cores| pairing(case, cores, false, true);
        "netvale-both", "our driver on our device";
        SCENARIO.needs, is_pairing, |case, cores| pairing(case, cores, true, true);
        "dpdk-pvp", "testpmd with net_null and net_vhost; the guest is testpmd on virtio-user";
        PVP.needs, is_pvp, |case, cores| pvp("dpdk-pvp", case, cores, [false, false], Place::new(2, 0)?);
        "netvale-both", "our vhost-user device; the guest is our virtio driver";
        PVP.needs, is_pvp, |case, cores| pvp("netvale-both", case, cores, [true, true], Place::new(2, 0)?);
        "netvale-both", BOTH_GUESTS; GUESTS.needs, |case| GUESTS.has(case), |case, cores| guests(case, cores, true);
    };
    all.extend(releases::peers());
    all.extend(out::peers());
    all.extend(outside::peers());
    all.extend(booted::peers());
    all
}

/// A direction of frames: what netvale's processes and DPDK's processes do at each end.
struct Direction {
    /// The work of netvale's device and driver.
    ours: [Work; 2],
    /// testpmd's forwarding modes as device and as driver.
    modes: [&'static str; 2],
}

impl Direction {
    fn of(case: &Case) -> Direction {
        match case.variant.split(' ').next() {
            Some("to-host") => Direction { ours: [Work::Receive, Work::Send], modes: ["rxonly", "txonly"] },
            Some("to-guest") => Direction { ours: [Work::Send, Work::Receive], modes: ["txonly", "rxonly"] },
            _ => Direction { ours: [Work::Echo, Work::EchoAfterSending], modes: ["io", "io"] },
        }
    }
}

/// A process at one end of a vhost-user connection.
enum End {
    /// A netvale worker, which counts what it receives.
    Ours(Rc<Worker>),
    /// DPDK's testpmd, with the port whose frames count; `None`: all ports.
    Dpdk(Rc<Testpmd>, Option<usize>),
}

impl End {
    fn part(&self) -> Rc<dyn Part> {
        match self {
            End::Ours(worker) => Rc::clone(worker) as Rc<dyn Part>,
            End::Dpdk(testpmd, _) => Rc::clone(testpmd) as Rc<dyn Part>,
        }
    }

    fn received(&self) -> Result<Tally> {
        match self {
            End::Ours(worker) => Ok(worker.tally()),
            End::Dpdk(testpmd, port) => testpmd.received(*port),
        }
    }

    /// Returns DPDK's release, if the process is testpmd; otherwise `None`.
    fn release(&self) -> Option<String> {
        match self {
            End::Ours(_) => None,
            End::Dpdk(testpmd, _) => testpmd.release().map(str::to_owned),
        }
    }

    /// Starts the host of a PVP test: a device, and a physical side that makes frames and counts the frames that
    /// return.
    fn host(case: &Case, is_ours: bool, socket: &str, core: usize, place: &Place) -> Result<End> {
        if is_ours {
            return End::ours(DEVICE, case, &[socket.to_owned()], Work::Generate, core);
        }
        let vdevs = [format!("net_null0,size={}", case.frame_bytes), format!("net_vhost0,iface={socket}")];
        // The null port makes frames endlessly. Only frames that return at the other port are counted.
        Ok(End::Dpdk(End::device(case, &vdevs, "io", core, place)?, Some(1)))
    }

    /// Starts a netvale process that is the device or the driver (`role`) at each socket.
    fn ours(role: &str, case: &Case, sockets: &[String], work: Work, core: usize) -> Result<End> {
        let paths = sockets.iter().map(Into::into).collect();
        let queues = Queues { paths, work, case: case.clone() };
        Worker::spawn(Wrapper::None, role, Some(core), &queues).map(End::Ours)
    }

    /// Starts testpmd with DPDK's vhost-user device, in the given forwarding mode.
    fn device(case: &Case, vdevs: &[String], forward: &str, core: usize, place: &Place) -> Result<Rc<Testpmd>> {
        Testpmd::start(&Arguments::new("device", case, &[core], vdevs, forward), place, &["start"])
    }

    /// Starts testpmd with DPDK's virtio-user driver in the case's path. If the case's frames go round in a loop, this
    /// testpmd sends the first frames.
    fn driver(case: &Case, socket: &str, forward: &str, core: usize, place: &Place) -> Result<End> {
        let (flags, eal) = DriverPath::of(case).dpdk();
        let is_one_way = case.variant.starts_with("to-");
        let vdev = format!("net_virtio_user0,path={socket},{flags},queue_size=1024");
        let driver = Arguments { eal, ..Arguments::new("driver", case, &[core], &[vdev], forward) };
        let start = if is_one_way { "start" } else { "start tx_first 32" };
        Ok(End::Dpdk(Testpmd::start(&driver, place, &[start])?, None))
    }
}

/// Creates a session of a process whose received frames are the figure, and of the process at its other end.
fn settled(case: &Case, words: String, counted: End, other: Rc<dyn Part>) -> Result<Session> {
    let set = ProcessSet { who: "the other end", is_strict: false, settle: SETTLE, parts: vec![counted.part(), other] };
    set.session(case, words, true, move || counted.received())
}

/// Starts a device and a driver, each from netvale or from DPDK.
pub fn pairing(case: &Case, cores: Cores, our_device: bool, our_driver: bool) -> Result<Session> {
    let direction = Direction::of(case);
    let place = Place::new(2, 0)?;
    let socket = place.file("vhost.sock");
    let sockets = std::slice::from_ref(&socket);
    let device = if our_device {
        End::ours(DEVICE, case, sockets, direction.ours[0], cores.0)?
    } else {
        let vdev = format!("net_vhost0,iface={socket}");
        End::Dpdk(End::device(case, &[vdev], direction.modes[0], cores.0, &place)?, None)
    };
    let driver = if our_driver {
        End::ours(DRIVER, case, sockets, direction.ours[1], cores.1)?
    } else {
        End::driver(case, &socket, direction.modes[1], cores.1, &place)?
    };
    let words = format!("device on CPU {}, driver on CPU {}", cores.0, cores.1);
    let is_to_host = direction.ours[0] == Work::Receive;
    let (counted, other) = if is_to_host { (device, driver.part()) } else { (driver, device.part()) };
    Ok(settled(case, words, counted, other)?.keeping(place))
}

/// Starts a host and a guest, each from netvale or from DPDK.
fn pvp(who: &str, case: &Case, cores: Cores, [our_host, our_guest]: [bool; 2], place: Place) -> Result<Session> {
    let is_mac = case.variant.starts_with("mac ");
    let socket = place.file("vhost.sock");
    let host = End::host(case, our_host, &socket, cores.0, &place)?;
    let guest = if our_guest {
        let work = if is_mac { Work::MacEcho } else { Work::Echo };
        End::ours(DRIVER, case, &[socket], work, cores.1)?
    } else {
        End::driver(case, &socket, if is_mac { "mac" } else { "io" }, cores.1, &place)?
    };
    let words = format!("host on CPU {}, guest on CPU {}", cores.0, cores.1);
    let release = host.release().or_else(|| guest.release());
    let session = settled(case, words, host, guest.part())?.keeping(place);
    Ok(match release {
        Some(release) => session.fact(&format!("{who} release"), release),
        None => session,
    })
}

/// Starts two drivers, from netvale or from DPDK, on netvale's switch.
pub fn guests(case: &Case, cores: Cores, our_drivers: bool) -> Result<Session> {
    let place = Place::new(1, 0)?;
    let daemon = Daemon::start(None, cores.1, &format!("allow_dirs = [{:?}]\n", place.path()))?;
    let sockets = ["v0", "v1"].map(|name| place.file(name));
    for socket in &sockets {
        daemon.attach(VALE, format!("vhost:{socket}"), PortOptions::default())?;
    }
    let ports = if our_drivers {
        End::ours(DRIVER, case, &sockets, Work::Between, cores.0)?
    } else {
        let testpmd = ovs::ports(case, cores.0, &sockets, &place, case.variant == "in-order")?;
        testpmd.command("start tx_first 16")?;
        End::Dpdk(testpmd, None)
    };
    let words = format!("switch on CPU {}, both guests on CPU {}", cores.1, cores.0);
    Ok(settled(case, words, ports, daemon)?.keeping(place))
}
