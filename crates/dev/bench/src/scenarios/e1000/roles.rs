//! A process that simulates two guests: netvale's driver twice, over vfio-user, polled.

use std::sync::atomic::Ordering;

use netvale_e1000::driver::CardDriverOptions;
use netvale_e1000::driver::remote::SimulatedGuest;

use super::*;
use crate::scenarios::bursts::{Burst, Outlet};

/// Name of the worker role [`guests`], a process that simulates two guests.
pub const GUESTS: &str = "e1000-guests";

/// The direction of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CardPath {
    /// From one guest to the other guest.
    Between,
    /// From a guest to a port of the host.
    ToHost,
    /// From a port of the host to a guest.
    FromHost,
}

/// The parameters of the process that simulates two guests.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cards {
    /// The daemon's folder, in which the cards' sockets are.
    pub dir: PathBuf,
    /// The direction of frames.
    pub path: CardPath,
    /// Whether the cards have status blocks.
    pub csb: bool,
    /// Send Combining: number of packets that may wait.
    pub combine: u32,
    /// Bytes of a frame.
    pub frame_bytes: u32,
    /// Frames of a burst.
    pub burst: u32,
}

/// A simulated guest with its card.
pub struct CardUser(SimulatedGuest);

impl CardUser {
    /// The sender's card.
    pub const FROM: &str = "e0";
    /// The receiver's card.
    pub const TO: &str = "e1";

    fn new(task: &Cards, name: &str) -> Result<CardUser> {
        let options = CardDriverOptions { csb: task.csb, combine: task.combine, ..CardDriverOptions::default() };
        let failed = |why: &dyn std::fmt::Display| BenchError::Usage(format!("the card: {why}"));
        let guest = SimulatedGuest::new(&task.dir.join(name), options).map_err(|e| failed(&e))?;
        if guest.has_block != options.csb {
            return Err(failed(&"the driver does not use the status block"));
        }
        Ok(CardUser(guest))
    }

    fn send(&self, burst: &mut Burst) {
        burst.send(&self.0.egress);
    }
}

/// A function that sends a burst.
type Sends = Box<dyn FnMut()>;
/// A function that takes the available frames and returns their number.
type Takes = Box<dyn FnMut() -> u64>;

fn sender(task: &Cards) -> Result<Sends> {
    if task.path == CardPath::FromHost {
        let mut port = own::open(&task.dir, "vale0:host", SLOTS)?;
        let mut sender = Sender::new(1, (2, 1), task.frame_bytes, Touch::Line);
        sender.fill(port.tx().first().ok_or_else(no_ring)?);
        let burst = task.burst;
        return Ok(Box::new(move || {
            sender.send(&mut port.tx()[0], burst);
        }));
    }
    let from = CardUser::new(task, CardUser::FROM)?;
    let mut burst = Burst::new(2, 1, task.frame_bytes, task.burst as usize);
    Ok(Box::new(move || from.send(&mut burst)))
}

/// Opens the receiver, and sends a frame from which the switch learns where the receiver is.
fn receiver(task: &Cards) -> Result<Takes> {
    if task.path == CardPath::ToHost {
        let mut port = own::open(&task.dir, "vale0:host", SLOTS)?;
        let ring = port.tx().first_mut().ok_or_else(no_ring)?;
        ring.send(&frame(1, 2, 60));
        ring.sync();
        let mut receiver = Receiver::new(Touch::Line);
        return Ok(Box::new(move || u64::from(receiver.receive(&mut port.rx()[0], SLOTS))));
    }
    let to = CardUser::new(task, CardUser::TO)?;
    to.send(&mut Burst::new(1, 2, 60, 1));
    let SimulatedGuest { ingress, egress, remote, ram, fault, .. } = to.0;
    let rest = (egress, remote, ram, fault);
    let mut outlet = Outlet::new(Box::new(ingress));
    Ok(Box::new(move || {
        // The other parts of the guest must exist for as long as frames are taken.
        let _alive = &rest;
        outlet.take() as u64
    }))
}

fn no_ring() -> BenchError {
    BenchError::Usage("the port has no ring".into())
}

/// Runs both ends until the process is killed.
pub fn guests(context: &Context) -> Result<()> {
    let task: Cards = context.arguments()?;
    let mut send = sender(&task)?;
    let mut take = receiver(&task)?;
    context.ready()?;
    let mut total = 0u64;
    let frames = context.counter(FRAMES);
    loop {
        send();
        total += take();
        frames.store(total, Ordering::Relaxed);
    }
}
