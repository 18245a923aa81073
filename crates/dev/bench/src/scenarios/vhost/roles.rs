//! netvale's workers: a device and a driver, each with one queue pair, polled.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use netvale_port::Egress;
use netvale_vhost::frontend::BackEnd;
use netvale_vhost::port::{VhostMode, VhostOptions, VhostPort};
use netvale_virtio::driver::port::VirtioPort;

use super::paths::DriverPath;
use super::*;
use crate::scenarios::bursts::{Burst, Outlet};

/// Name of the worker role [`device`].
pub const DEVICE: &str = "vhost-device";
/// Name of the worker role [`driver`].
pub const DRIVER: &str = "vhost-driver";

/// Length of a frame's two Ethernet addresses in bytes.
const ADDRESSES: usize = 12;
/// Number of frames per burst, as in testpmd.
pub const BURST: usize = 32;
/// Number of bursts that start a loop, as with testpmd's `start tx_first 32`.
const FIRST_BURSTS: usize = 32;

/// The work of a process with its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Receives.
    Receive,
    /// Sends.
    Send,
    /// Sends back what it receives.
    Echo,
    /// Sends frames of its own first, then sends back what it receives.
    EchoAfterSending,
    /// Sends back what it receives, with addresses exchanged.
    MacEcho,
    /// Sends, and receives the frames that return: the generator of a PVP test.
    Generate,
    /// Has two ports, and sends each received frame back on the port where it arrived, addressed to the other port.
    Between,
}

/// The parameters of a process: a device listens at these sockets, a driver connects to them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Queues {
    /// Paths of the vhost-user sockets.
    pub paths: Vec<PathBuf>,
    /// What the process does.
    pub work: Work,
    /// The case.
    pub case: Case,
}

/// Runs a process with a vhost-user device at each socket.
pub fn device(context: &Context) -> Result<()> {
    play(context, |path, _| {
        let site = path.into();
        let mode = VhostMode::Server;
        let mac = [2; 6];
        VhostPort::new(&VhostOptions { site, mode, pairs: 1, mac, mtu: 1500 }).map_err(|e| failed(&e))
    })
}

/// Runs a process with a virtio driver at each socket.
pub fn driver(context: &Context) -> Result<()> {
    play(context, |path, case| {
        VirtioPort::new(BackEnd(path.into()), DriverPath::of(case).driver_options()).map_err(|e| failed(&e))
    })
}

/// Opens a port at each socket, and does the work.
fn play<P>(
    context: &Context,
    open: impl Fn(PathBuf, &Case) -> Result<(P, netvale_virtio::VirtioQueues)>,
) -> Result<()> {
    let task: Queues = context.arguments()?;
    let mut ports = Vec::new();
    let mut kept = Vec::new();
    for path in &task.paths {
        let (port, queues) = open(path.clone(), &task.case)?;
        kept.push(port);
        ports.extend(Port::first(queues));
    }
    context.ready()?;
    work(context, &task, ports)
}

fn failed(why: &dyn std::fmt::Display) -> BenchError {
    BenchError::Usage(format!("the port: {why}"))
}

struct Port {
    egress: Arc<dyn Egress>,
    outlet: Outlet,
}

impl Port {
    fn first((egress, mut ingress): netvale_virtio::VirtioQueues) -> Option<Port> {
        Some(Port { egress: egress.into_iter().next()?, outlet: Outlet::new(ingress.pop()?) })
    }
}

/// The common state of all kinds of work.
struct Bench<'a> {
    counter: &'a AtomicU64,
    total: u64,
    burst: Burst,
}

fn work(context: &Context, task: &Queues, mut ports: Vec<Port>) -> Result<()> {
    let burst = Burst::new(2, 1, task.case.frame_bytes, BURST);
    let mut bench = Bench { counter: context.counter(FRAMES), total: 0, burst };
    if task.work == Work::Between {
        let [one, two] = &mut ports[..] else { return Ok(()) };
        bench.between(one, two);
    }
    let Some(port) = ports.first_mut() else { return Ok(()) };
    // Frames are dropped until the other end is connected, so they are sent until the first frames have returned.
    while task.work == Work::EchoAfterSending && bench.total == 0 {
        bench.send_often(port, FIRST_BURSTS);
        bench.echo(port, |_| ());
    }
    loop {
        match task.work {
            Work::Receive => bench.receive(port),
            Work::Send => bench.burst.send(&*port.egress),
            Work::Echo | Work::EchoAfterSending => bench.echo(port, |_| ()),
            Work::MacEcho => bench.echo(port, exchange_addresses),
            Work::Generate => {
                bench.burst.send(&*port.egress);
                bench.receive(port);
            }
            Work::Between => return Ok(()),
        }
    }
}

impl Bench<'_> {
    fn count(&mut self, n: usize) {
        self.total += n as u64;
        self.counter.store(self.total, Ordering::Relaxed);
    }

    fn receive(&mut self, port: &mut Port) {
        let n = port.outlet.take();
        self.count(n);
    }

    fn send_often(&mut self, port: &Port, bursts: usize) {
        (0..bursts).for_each(|_| self.burst.send(&*port.egress));
    }

    fn echo(&mut self, Port { egress, outlet }: &mut Port, change: fn(*mut u8)) {
        outlet.take_with(|frames| {
            if frames.is_empty() {
                return;
            }
            for frame in frames.iter() {
                let (at, len) = frame.piece(0).raw();
                if len >= ADDRESSES {
                    change(at.cast_mut());
                }
            }
            self.burst.pass_on(&**egress, frames);
            self.count(frames.len());
        });
    }

    /// Runs two stations behind a switch: each sends the frames that it receives back through the switch to the other
    /// station. Never returns.
    fn between(&mut self, one: &mut Port, two: &mut Port) {
        loop {
            if self.total == 0 {
                self.send_often(one, FIRST_BURSTS / 2);
            }
            self.echo(one, exchange_addresses);
            self.echo(two, exchange_addresses);
        }
    }
}

/// Exchanges the addresses of an Ethernet frame, as testpmd's `macswap` does; testpmd's mode `mac` has the same effect
/// here.
fn exchange_addresses(frame: *mut u8) {
    // SAFETY: the frame has at least 12 bytes, in a buffer of the port that received it. The buffer is ours until it is
    // released: a driver's private memory or, for a device, the guest's memory, on whose content nothing relies.
    unsafe {
        let to = frame.cast::<[u8; 6]>().read_unaligned();
        let from = frame.add(6).cast::<[u8; 6]>().read_unaligned();
        frame.cast::<[u8; 6]>().write_unaligned(from);
        frame.add(6).cast::<[u8; 6]>().write_unaligned(to);
    }
}
