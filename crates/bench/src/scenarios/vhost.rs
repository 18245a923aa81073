//! A vhost-user device under DPDK's virtio-user driver: our device and DPDK's, with the same driver on the other core.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netvale_port::{Batch, Scratch};
use netvale_vhost::port::{Mode, VhostOptions, VhostPort};
use serde::{Deserialize, Serialize};

use super::traffic::frame;
use super::{Scenario, Variant};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result, Skip};
use crate::interrupt;
use crate::peers::testpmd::{self, Place, PortCounters, Setup, Testpmd};
use crate::sys::worker::{Context, Worker};

/// Role of our device's process.
pub const DEVICE: &str = "vhost-device";
/// Counter of frames received.
const FRAMES: usize = 0;
/// Frames of a burst that our device sends, as testpmd's.
const BURST: usize = 32;
/// How long the driver and the device may take to find each other.
const MEETING: Duration = Duration::from_secs(15);
const SETTLE: Duration = Duration::from_millis(50);

const SHORT: Variant = Variant { frame_bytes: &[64], ..Variant::TWO_PORTS };
const LONG: Variant = Variant { frame_bytes: &[1518], unit: Unit::Gbps, ..Variant::TWO_PORTS };

/// The scenario: a direction, then the driver's path.
pub const SCENARIO: Scenario = Scenario {
    name: "vhost",
    about: "a vhost-user device and DPDK's virtio-user driver: to the host, to the guest, io loop, in each of the driver's paths",
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
    ours: Some(|| Box::new(Ours)),
};

/// Where frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Way {
    ToHost,
    ToGuest,
    Loop,
}

impl Way {
    fn of(case: &Case) -> Way {
        match case.variant.split(' ').next() {
            Some("to-host") => Way::ToHost,
            Some("to-guest") => Way::ToGuest,
            _ => Way::Loop,
        }
    }

    /// testpmd's forwarding modes of device and driver.
    fn modes(self) -> (&'static str, &'static str) {
        match self {
            Way::ToHost => ("rxonly", "txonly"),
            Way::ToGuest => ("txonly", "rxonly"),
            Way::Loop => ("io", "io"),
        }
    }
}

/// What DPDK's driver is told, to take that path.
fn path_options(case: &Case) -> (&'static str, &'static [&'static str]) {
    const WIDE: &[&str] = &["--force-max-simd-bitwidth=512"];
    match case.variant.split(' ').nth(1) {
        Some("non-mergeable") => ("mrg_rxbuf=0,in_order=0", &[]),
        Some("in-order") => ("mrg_rxbuf=1,in_order=1", &[]),
        Some("vector") => ("mrg_rxbuf=0,in_order=1,vectorized=1", WIDE),
        Some("packed") => ("packed_vq=1,mrg_rxbuf=1,in_order=0", &[]),
        Some("packed-vector") => ("packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1", WIDE),
        _ => ("mrg_rxbuf=1,in_order=0", &[]),
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    path: String,
    way: Way,
    frame_bytes: u32,
}

/// Our device, polled.
///
/// # Errors
/// The socket cannot be made.
pub fn device_role(context: &Context) -> Result<()> {
    let task: Task = context.arguments()?;
    let options = VhostOptions { path: task.path.into(), mode: Mode::Server, pairs: 1, mac: [2; 6], mtu: 1500 };
    let (_port, (egress, mut ingress)) =
        VhostPort::new(&options).map_err(|e| BenchError::Usage(format!("the device: {e}")))?;
    let (Some(egress), Some(mut ingress)) = (egress.into_iter().next(), ingress.pop()) else { return Ok(()) };
    context.ready()?;
    let counter = context.counters.counter(FRAMES);
    let mut total = 0u64;
    let mut count = |n: usize| {
        total += n as u64;
        counter.store(total, Ordering::Relaxed);
    };
    let (mut batch, mut scratch) = (Batch::new(), Scratch::new());
    let picks: Vec<u16> = (0..netvale_port::BATCH as u16).collect();
    let bytes = frame(2, 1, task.frame_bytes);
    match task.way {
        Way::ToHost => loop {
            ingress.take(&mut batch);
            count(batch.len());
            batch.clear();
            ingress.release();
        },
        Way::ToGuest => {
            for _ in 0..BURST {
                // SAFETY: the frame outlives the batch: this loop does not end.
                unsafe { batch.push(bytes.as_ptr(), task.frame_bytes) };
            }
            loop {
                egress.deliver(&batch, &picks[..BURST], &mut scratch);
            }
        }
        Way::Loop => loop {
            ingress.take(&mut batch);
            if !batch.is_empty() {
                egress.deliver(&batch, &picks[..batch.len()], &mut scratch);
                count(batch.len());
            }
            batch.clear();
            ingress.release();
        },
    }
}

fn available(env: &Env) -> std::result::Result<(), Skip> {
    testpmd::available(env, 2)
}

/// Our device.
pub struct Ours;

/// DPDK's device.
#[derive(Clone, Copy, Debug)]
pub struct DpdkVhost;

impl Contender for Ours {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "our vhost-user device, polled, under DPDK's virtio-user driver"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        available(env)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        Ok(Box::new(Running::start(case, env, |_place, socket, core| {
            let task = Task { path: socket.to_owned(), way: Way::of(case), frame_bytes: case.frame_bytes };
            Ok(Device::Ours(Worker::spawn(DEVICE, core, &task)?))
        })?))
    }
}

impl Contender for DpdkVhost {
    fn name(&self) -> &str {
        "dpdk-vhost"
    }

    fn about(&self) -> &str {
        "DPDK's vhost-user device (net_vhost) under the same driver"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        available(env)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        Ok(Box::new(Running::start(case, env, |place, socket, core| {
            let setup = Setup {
                name: "device",
                cores: &[core],
                vdevs: &[format!("net_vhost0,iface={socket}")],
                single_file: false,
                forward: Way::of(case).modes().0,
                frame_bytes: case.frame_bytes,
                burst: BURST as u32,
                more: &[],
                eal: &[],
            };
            let mut device = Testpmd::start(&setup, place)?;
            device.command("start")?;
            Ok(Device::Dpdk(device))
        })?))
    }
}

enum Device {
    Ours(Worker),
    Dpdk(Testpmd),
}

struct Running {
    case: Case,
    cores: (usize, usize),
    driver: Testpmd,
    device: Device,
    _place: Place,
}

impl Running {
    fn start(case: &Case, env: &Env, device: impl FnOnce(&Place, &str, usize) -> Result<Device>) -> Result<Self> {
        let cores = env.two_cores()?;
        let place = Place::new(2, 0)?;
        let socket = place.file("vhost.sock");
        let device = device(&place, &socket, cores.0)?;
        let (flags, eal) = path_options(case);
        let setup = Setup {
            name: "driver",
            cores: &[cores.1],
            vdevs: &[format!("net_virtio_user0,path={socket},{flags},queue_size=1024")],
            single_file: true,
            forward: Way::of(case).modes().1,
            frame_bytes: case.frame_bytes,
            burst: BURST as u32,
            more: &[],
            eal,
        };
        let mut driver = Testpmd::start(&setup, &place)?;
        driver.command(if Way::of(case) == Way::Loop { "start tx_first 32" } else { "start" })?;
        let mut this = Self { case: case.clone(), cores, driver, device, _place: place };
        let first = this.count()?.0;
        let flowing = interrupt::poll_until(MEETING, || Ok((this.count()?.0 > first).then_some(())))?;
        flowing.ok_or_else(|| BenchError::NoTraffic("the driver".into()))?;
        this.pause()?;
        Ok(this)
    }

    /// Frames received where this case counts them, and when.
    fn count(&mut self) -> Result<(u64, Instant)> {
        let of = |ports: Vec<PortCounters>| ports.iter().map(|p| p.rx).sum();
        if Way::of(&self.case) != Way::ToHost {
            let (ports, when) = self.driver.counters()?;
            return Ok((of(ports), when));
        }
        match &mut self.device {
            Device::Ours(worker) => Ok((worker.count(FRAMES), Instant::now())),
            Device::Dpdk(device) => {
                let (ports, when) = device.counters()?;
                Ok((of(ports), when))
            }
        }
    }
}

impl Session for Running {
    fn resume(&mut self) -> Result<()> {
        match &self.device {
            Device::Ours(worker) => worker.thaw()?,
            Device::Dpdk(device) => device.thaw()?,
        }
        self.driver.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.driver.freeze()?;
        match &self.device {
            Device::Ours(worker) => worker.freeze(),
            Device::Dpdk(device) => device.freeze(),
        }
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let mut threads = self.driver.threads().to_vec();
        let device = match &self.device {
            Device::Ours(worker) => {
                threads.push((worker.pid(), worker.pid()));
                worker.pid()
            }
            Device::Dpdk(device) => {
                threads.extend_from_slice(device.threads());
                device.pid()
            }
        };
        interrupt::sleep(SETTLE)?;
        let watch = Watch::start(&[self.driver.pid(), device], &threads);
        let (before, start) = self.count()?;
        interrupt::sleep(window)?;
        let (after, end) = self.count()?;
        let seconds = end.duration_since(start).as_secs_f64();
        let beside = watch.finish();
        let rate = self.case.unit.rate(after - before, self.case.frame_bytes, seconds).unwrap_or(0.0);
        Ok(Sample::new(rate, beside))
    }

    fn cores(&self) -> String {
        format!("device {}, driver {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        true
    }
}
