//! Our workers: a device, a driver, each with one queue pair, polled.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_port::{Batch, Egress, Scratch, Source};
use netvale_vhost::frontend::BackEnd;
use netvale_vhost::port::{Mode, VhostOptions, VhostPort};
use netvale_virtio::Queues;
use netvale_virtio::driver::port::VirtioPort;
use serde::{Deserialize, Serialize};

use super::paths::Path;
use super::process::FRAMES;
use crate::case::Case;
use crate::error::{BenchError, Result};
use crate::scenarios::traffic::frame;
use crate::sys::worker::{Context, Role};

/// Role of a device's process.
const DEVICE: &str = "vhost-device";
/// Role of a driver's process.
const DRIVER: &str = "vhost-driver";
/// The roles by name.
pub const ROLES: [(&str, Role); 2] = [(DEVICE, device_role), (DRIVER, driver_role)];

/// Bytes of a frame that hold its addresses.
const ADDRESSES: usize = 12;
/// Frames of a burst, as testpmd's.
pub const BURST: usize = 32;
/// Bursts that set a loop going, as testpmd's `start tx_first 32`.
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
    /// The same, after it has sent some frames of its own.
    EchoAfterSending,
    /// Echo with addresses exchanged.
    MacEcho,
    /// Sends, and receives what comes back: the generator of a PVP test.
    Generate,
    /// Has two ports, and sends back through each one what came to it, addressed to the other one.
    Between,
}

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    paths: Vec<String>,
    work: Work,
    case: Case,
}

/// A device that listens at `socket`, or a driver that connects to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The device.
    Device,
    /// The driver.
    Driver,
}

impl End {
    /// Starts a netvale process at this end of each socket.
    ///
    /// # Errors
    /// The process does not start.
    pub fn spawn(self, case: &Case, sockets: &[String], work: Work, core: usize) -> Result<crate::sys::worker::Worker> {
        let task = Task { paths: sockets.to_vec(), work, case: case.clone() };
        let role = if self == End::Device { DEVICE } else { DRIVER };
        crate::sys::worker::Worker::spawn(role, core, &task)
    }
}

fn device_role(context: &Context) -> Result<()> {
    let task: Task = context.arguments()?;
    let mut ports = Vec::new();
    let mut keep = Vec::new();
    for path in &task.paths {
        let options = VhostOptions {
            site: std::path::PathBuf::from(path).into(),
            mode: Mode::Server,
            pairs: 1,
            mac: [2; 6],
            mtu: 1500,
        };
        let (port, queues) = VhostPort::new(&options).map_err(|e| failed(&e))?;
        keep.push(port);
        ports.extend(Port::first(queues));
    }
    context.ready()?;
    work(context, &task, ports)
}

fn driver_role(context: &Context) -> Result<()> {
    let task: Task = context.arguments()?;
    let mut ports = Vec::new();
    let mut keep = Vec::new();
    for path in &task.paths {
        let (port, queues) =
            VirtioPort::new(BackEnd(std::path::PathBuf::from(path).into()), Path::of(&task.case).driver_options())
                .map_err(|e| failed(&e))?;
        keep.push(port);
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
    source: Source,
}

impl Port {
    fn first((egress, mut ingress): Queues) -> Option<Port> {
        Some(Port { egress: egress.into_iter().next()?, source: Source::new(ingress.pop()?) })
    }
}

/// The state that all kinds of work need.
struct Bench<'a> {
    counter: &'a AtomicU64,
    total: u64,
    spare: Box<Batch>,
    scratch: Scratch,
    picks: Vec<u16>,
    /// A burst of generated frames.
    burst: Batch,
}

fn work(context: &Context, task: &Task, mut ports: Vec<Port>) -> Result<()> {
    let bytes = frame(2, 1, task.case.frame_bytes).leak();
    let mut burst = Batch::new();
    for _ in 0..BURST {
        // SAFETY: leaked, so it outlives the batch.
        unsafe { burst.push(bytes.as_ptr(), task.case.frame_bytes) };
    }
    let mut bench = Bench {
        counter: context.counters.counter(FRAMES),
        total: 0,
        spare: Box::default(),
        scratch: Scratch::new(),
        picks: (0..netvale_port::BATCH as u16).collect(),
        burst,
    };
    if task.work == Work::Between {
        let [one, two] = &mut ports[..] else { return Ok(()) };
        bench.between(one, two);
    }
    let Some(port) = ports.first_mut() else { return Ok(()) };
    if task.work == Work::EchoAfterSending {
        bench.send_first(port);
    }
    loop {
        match task.work {
            Work::Receive => bench.receive(port),
            Work::Send => bench.send(port),
            Work::Echo | Work::EchoAfterSending => bench.echo(port, |_| ()),
            Work::MacEcho => bench.echo(port, exchange_addresses),
            Work::Generate => {
                bench.send(port);
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
        let n = port.source.take(&mut self.spare).len();
        self.count(n);
        port.source.release(&mut self.spare);
    }

    fn send(&mut self, port: &Port) {
        port.egress.deliver(&self.burst, &self.picks[..BURST], &mut self.scratch);
    }

    /// Until the other end is there, what is sent is dropped: what counts is what comes back.
    fn send_first(&mut self, port: &mut Port) {
        while self.total == 0 {
            for _ in 0..FIRST_BURSTS {
                self.send(port);
            }
            self.echo(port, |_| ());
        }
    }

    fn echo(&mut self, port: &mut Port, change: fn(*mut u8)) {
        let frames = port.source.take(&mut self.spare);
        self.pass_on(&port.egress, frames, change);
        port.source.release(&mut self.spare);
    }

    fn pass_on(&mut self, egress: &Arc<dyn Egress>, frames: &Batch, change: fn(*mut u8)) {
        if frames.is_empty() {
            return;
        }
        for frame in frames.iter() {
            let (at, len) = frame.piece(0).raw();
            if len >= ADDRESSES {
                change(at.cast_mut());
            }
        }
        let n = frames.len();
        egress.deliver(frames, &self.picks[..n], &mut self.scratch);
        self.count(n);
    }

    /// Two stations behind a switch: what came to one goes back through it, to the other. Never ends.
    fn between(&mut self, one: &mut Port, two: &mut Port) {
        loop {
            while self.total == 0 {
                for _ in 0..FIRST_BURSTS / 2 {
                    self.send(one);
                }
                self.echo(one, exchange_addresses);
                self.echo(two, exchange_addresses);
            }
            self.echo(one, exchange_addresses);
            self.echo(two, exchange_addresses);
        }
    }
}

/// Exchanges the addresses of an Ethernet frame, as testpmd's `macswap` and, to the same effect here, `mac` do.
fn exchange_addresses(frame: *mut u8) {
    // SAFETY: a frame of at least 12 bytes in a buffer of the port it came to, which is ours until it is released, and
    // private memory of a driver or, for a device, of its guest: bytes that nobody relies on.
    unsafe {
        let (to, from) = (frame.cast::<[u8; 6]>().read_unaligned(), frame.add(6).cast::<[u8; 6]>().read_unaligned());
        frame.cast::<[u8; 6]>().write_unaligned(from);
        frame.add(6).cast::<[u8; 6]>().write_unaligned(to);
    }
}
