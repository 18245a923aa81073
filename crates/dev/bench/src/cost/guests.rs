//! Paths between netvale's own drivers and devices over their sockets. One thread uses the queues, another thread
//! answers the messages on the sockets.
#![allow(unsafe_code)]

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use netvale_e1000::device::Card;
use netvale_e1000::driver::CardDriverOptions as CardOptions;
use netvale_e1000::driver::remote::SimulatedGuest;
use netvale_e1000::paravirt::SUBSYSTEM;
use netvale_e1000::port::{E1000Options, E1000Port};
use netvale_port::{BATCH, Batch, Egress, Ingress};
use netvale_vhost::frontend::BackEnd;
use netvale_vhost::port::{VhostMode, VhostOptions, VhostPort};
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;

use super::{START_LIMIT, Track};
use crate::error::{BenchError, Result};
use crate::scenarios::bursts::{Burst, Outlet};
use crate::scenarios::own::failed;

/// All queues of one end.
type Queues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);
/// The queues of an end that has one queue in each direction.
type End = (Arc<dyn Egress>, Box<dyn Ingress>);

/// Returns a path from an egress at one end to an ingress at the other end. The queues of the other direction, and
/// `kept`, are not used, but are kept alive.
fn across(batch: u32, from: End, to: End, kept: impl Any) -> Track {
    let mut burst = Burst::new(2, 1, 60, batch.clamp(1, BATCH as u32) as usize);
    let (egress, idle_ingress) = from;
    let (idle_egress, ingress) = to;
    let mut outlet = Outlet::new(ingress);
    Box::new(move || {
        let _ = (&kept, &idle_ingress, &idle_egress);
        burst.send(&*egress);
        outlet.take() as u64
    })
}

/// Polls until `ready` returns true.
fn until(what: &str, ready: impl FnMut() -> bool) -> Result<()> {
    let is_ready = netvale_harness::until(START_LIMIT, Duration::ZERO, ready);
    is_ready.then_some(()).ok_or_else(|| BenchError::NoTraffic(what.to_owned()))
}

fn only(queues: Queues) -> Result<End> {
    let (egress, ingress) = queues;
    let both = egress.into_iter().next().zip(ingress.into_iter().next());
    both.ok_or_else(|| BenchError::Usage("the port has no queues".into()))
}

/// Builds a vhost-user device and its driver. If `inward` is set, frames go from the driver to the device, otherwise
/// from the device to the driver.
pub fn vhost(batch: u32, packed: bool, inward: bool) -> Result<Track> {
    let dir = crate::sys::scratch("cost")?;
    let path = dir.path().join("vhost");
    let options = VhostOptions { site: path.clone().into(), mode: VhostMode::Server, pairs: 1, mac: [2; 6], mtu: 1500 };
    let (device, queues) = VhostPort::new(&options).map_err(|e| failed(&e))?;
    let mut device_end = only(queues)?;
    let options = DriverOptions { size: 1024, offloads: false, packed, ..DriverOptions::default() };
    let (driver, queues) = VirtioPort::new(BackEnd(path.into()), options).map_err(|e| failed(&e))?;
    let mut driver_end = only(queues)?;
    until("vhost-user", || driver.state().now.running && device.state().now.queues == 2)?;
    // The driver posts its buffers when it is polled for the first time; neither end waits for a kick.
    let mut batch_of = Batch::new();
    // SAFETY: the bytes of the frames are not read.
    unsafe { driver_end.1.take(&mut batch_of) };
    driver_end.1.release();
    driver_end.1.disarm();
    device_end.1.disarm();
    let (from, to) = if inward { (driver_end, device_end) } else { (device_end, driver_end) };
    Ok(across(batch, from, to, (device, driver, dir)))
}

/// Builds an e1000 with a status block, and its driver. If `inward` is set, frames go from the driver to the card,
/// otherwise from the card to the driver.
pub fn e1000(batch: u32, inward: bool) -> Result<Track> {
    let dir = crate::sys::scratch("cost")?;
    let path = dir.path().join("e1000");
    let card = Card { mac: [2; 6], subsystem: SUBSYSTEM, forced_interval: None };
    let options = E1000Options { site: path.clone().into(), card };
    let (port, (card_egress, mut card_ingress)) = E1000Port::new(&options).map_err(|e| failed(&e))?;
    let guest =
        SimulatedGuest::new(&path, CardOptions { csb: true, ..CardOptions::default() }).map_err(|e| failed(&e))?;
    card_ingress.disarm();
    let SimulatedGuest { egress, mut ingress, remote, ram, fault, .. } = guest;
    ingress.disarm();
    let driver_end: End = (Arc::new(egress), Box::new(ingress));
    let card_end: End = (card_egress, card_ingress);
    let (from, to) = if inward { (driver_end, card_end) } else { (card_end, driver_end) };
    Ok(across(batch, from, to, (port, remote, ram, fault, dir)))
}
