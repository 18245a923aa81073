//! Paths between a driver and a device, both ours, over their protocols' sockets: queues are used by one thread,
//! messages are answered by another.
#![allow(unsafe_code)]

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use netvale_e1000::device::Card;
use netvale_e1000::driver::DriverOptions as CardOptions;
use netvale_e1000::driver::remote::Guest;
use netvale_e1000::paravirt::SUBSYSTEM;
use netvale_e1000::port::{E1000Options, E1000Port};
use netvale_port::{BATCH, Batch, Egress, Ingress, Scratch, Source};
use netvale_vhost::frontend::BackEnd;
use netvale_vhost::port::{Mode, VhostOptions, VhostPort};
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;

use super::{Lane, START_LIMIT};
use crate::error::{BenchError, Result};
use crate::scenarios::own::failed;
use crate::scenarios::traffic::frame;

const FRAME_BYTES: u32 = 60;

/// From an egress at one end to an ingress at the other.
struct Across {
    egress: Arc<dyn Egress>,
    source: Source,
    burst: Batch,
    spare: Box<Batch>,
    picks: Vec<u16>,
    scratch: Scratch,
    /// The other directions' queues, which have to be looked at for the connection to come up, and what keeps all of it
    /// alive.
    _rest: Box<dyn Any>,
}

impl Across {
    fn new(batch: u32, egress: Arc<dyn Egress>, ingress: Box<dyn Ingress>, rest: Box<dyn Any>) -> Across {
        let bytes = frame(2, 1, FRAME_BYTES).leak();
        let batch = batch.clamp(1, BATCH as u32);
        let mut burst = Batch::new();
        for _ in 0..batch {
            // SAFETY: leaked, so it outlives the batch.
            unsafe { burst.push(bytes.as_ptr(), FRAME_BYTES) };
        }
        let picks = (0..batch as u16).collect();
        Across {
            egress,
            source: Source::new(ingress),
            burst,
            spare: Box::default(),
            picks,
            scratch: Scratch::new(),
            _rest: rest,
        }
    }
}

impl Lane for Across {
    fn round(&mut self) -> u64 {
        self.egress.deliver(&self.burst, &self.picks, &mut self.scratch);
        let frames = self.source.take(&mut self.spare).len() as u64;
        self.source.release(&mut self.spare);
        frames
    }
}

/// Waits until `ready`.
fn until(what: &str, ready: impl FnMut() -> bool) -> Result<()> {
    let is_ready = netvale_harness::until(START_LIMIT, Duration::ZERO, ready);
    is_ready.then_some(()).ok_or_else(|| BenchError::NoTraffic(what.to_owned()))
}

type Queues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

fn only((egress, ingress): Queues) -> Result<(Arc<dyn Egress>, Box<dyn Ingress>)> {
    let both = egress.into_iter().next().zip(ingress.into_iter().next());
    both.ok_or_else(|| BenchError::Usage("a port without queues".into()))
}

/// A vhost-user device and its driver; `way` says the layout and whether frames go in to the device or out of it.
pub fn vhost(batch: u32, way: &str) -> Result<Box<dyn Lane>> {
    let dir = crate::sys::scratch("cost")?;
    let path = dir.path().join("vhost");
    let options = VhostOptions { site: path.clone().into(), mode: Mode::Server, pairs: 1, mac: [2; 6], mtu: 1500 };
    let (device, queues) = VhostPort::new(&options).map_err(|e| failed(&e))?;
    let (device_egress, mut device_ingress) = only(queues)?;
    let options =
        DriverOptions { size: 1024, offloads: false, packed: way.starts_with("packed"), ..DriverOptions::default() };
    let (driver, queues) = VirtioPort::new(BackEnd(path.into()), options).map_err(|e| failed(&e))?;
    let (driver_egress, mut driver_ingress) = only(queues)?;
    until("vhost-user", || driver.state().now.running && device.state().now.queues == 2)?;
    // The driver posts its buffers with its first look; neither end waits to be woken.
    let mut batch_of = Batch::new();
    // SAFETY: no frame is read.
    unsafe { driver_ingress.take(&mut batch_of) };
    driver_ingress.release();
    driver_ingress.disarm();
    device_ingress.disarm();
    let keep = (device, driver, dir);
    Ok(Box::new(if way.ends_with("in") {
        Across::new(batch, driver_egress, device_ingress, Box::new((keep, driver_ingress, device_egress)))
    } else {
        Across::new(batch, device_egress, driver_ingress, Box::new((keep, device_ingress, driver_egress)))
    }))
}

/// An e1000 with a status block and its driver; `inward`: frames go in to the card.
pub fn e1000(batch: u32, inward: bool) -> Result<Box<dyn Lane>> {
    let dir = crate::sys::scratch("cost")?;
    let path = dir.path().join("e1000");
    let (card, (card_egress, mut card_ingress)) = E1000Port::new(&options(&path)).map_err(|e| failed(&e))?;
    let options = CardOptions { csb: true, ..CardOptions::default() };
    let guest = Guest::new(&path, options).map_err(|e| failed(&e))?;
    card_ingress.disarm();
    let Guest { egress, mut ingress, remote, ram, fault, .. } = guest;
    ingress.disarm();
    let (egress, ingress): (Arc<dyn Egress>, Box<dyn Ingress>) = (Arc::new(egress), Box::new(ingress));
    let keep = (card, remote, ram, fault, dir);
    Ok(Box::new(if inward {
        Across::new(batch, egress, card_ingress, Box::new((keep, ingress, card_egress)))
    } else {
        Across::new(batch, card_egress, ingress, Box::new((keep, card_ingress, egress)))
    }))
}

fn options(path: &Path) -> E1000Options {
    let card = Card { mac: [2; 6], subsystem: SUBSYSTEM, forced_interval: None };
    E1000Options { site: path.to_path_buf().into(), card, news: None }
}
