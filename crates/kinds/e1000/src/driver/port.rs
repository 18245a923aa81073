//! A port that drives a card on the bus, and the thread that runs it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_pci::{Bar, Function, PciError};
use netvale_port::service::{self, Peer, Protocol, Service};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use thiserror::Error;

use super::queues::{DriverEgress, DriverIngress, Rings};
use super::ram::{GUEST, Ram};
use super::start::{NotStarted, Started, start};
use super::{DriverOptions, Registers};
use crate::port::Queues;
use crate::regs::{SPACE, STATUS, STATUS_LU};
use crate::vfio::{DEVICE, VENDOR};

/// An error driving a card.
#[derive(Debug, Error)]
pub enum DriverError {
    /// Access to the bus failed.
    #[error(transparent)]
    Pci(#[from] PciError),
    /// The device is not such a card.
    #[error("{address} is device {vendor:04x}:{device:04x}, not an 82540EM ({VENDOR:04x}:{DEVICE:04x})")]
    NotACard {
        /// Its address on the bus.
        address: String,
        /// PCI vendor ID.
        vendor: u16,
        /// PCI device ID.
        device: u16,
    },
    /// The card does not start.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// The card violated the protocol.
    #[error("{0}")]
    ProtocolViolation(String),
    /// A ring of the previous card has not been handed back.
    #[error("a ring: {0}")]
    InUse(#[from] InUse),
    /// The kernel demands the card back.
    #[error("the device is wanted back")]
    WantedBack,
    /// A system call failed.
    #[error("cannot drive it: {0}")]
    System(#[from] Errno),
}

impl DriverError {
    /// The closest error number.
    pub fn errno(&self) -> Errno {
        match self {
            DriverError::Pci(why) => why.errno(),
            DriverError::NotACard { .. } => Errno::NODEV,
            DriverError::NotStarted(NotStarted::Slots(_)) => Errno::INVAL,
            DriverError::System(why) => *why,
            DriverError::InUse(_) => Errno::BUSY,
            DriverError::NotStarted(NotStarted::Reset)
            | DriverError::ProtocolViolation(_)
            | DriverError::WantedBack => Errno::IO,
        }
    }
}

impl Registers for Bar {
    fn read(&self, at: u32) -> u32 {
        self.read32(at as usize)
    }

    fn write(&self, at: u32, value: u32) {
        self.write32(at as usize, value);
    }
}

/// A card's state, for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct Driven {
    /// Whether the card runs.
    pub running: bool,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Whether it has a status block.
    pub has_block: bool,
    /// Whether the card reports its link as down.
    pub link_down: bool,
}

/// A port. Dropping it ends the thread and returns the card to the kernel.
pub struct DriverPort {
    service: Service<Driven>,
}

impl DriverPort {
    /// Takes the card at `address` on the bus, which must exist.
    ///
    /// # Errors
    /// [`DriverError`] if the number of slots is invalid, no such card is at `address`, or the system refuses a
    /// descriptor or the thread.
    pub fn new(address: &str, options: DriverOptions) -> Result<(DriverPort, Queues), DriverError> {
        if !options.slots.is_power_of_two() || !(8..=4096).contains(&options.slots) {
            return Err(NotStarted::Slots(options.slots).into());
        }
        // Reports an error in it immediately.
        drop(open(address)?);
        let rings = Arc::<Rings>::default();
        let fault = Fault::new()?;
        let link = Arc::new(Doorbell::new()?);
        let call = Doorbell::new()?;
        let copy = call.try_clone().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::MFILE))?;
        let ingress = DriverIngress::new(Arc::clone(&rings), fault.clone(), copy, Arc::clone(&link));
        let egress = DriverEgress::new(Arc::clone(&rings), fault.clone());
        let driver = Driver { address: address.to_owned(), options, call, link, fault, rings };
        let service = Service::start("netvale-e1000d", address, None, driver).map_err(|e| e.errno())?;
        Ok((DriverPort { service }, (Arc::new(egress), Box::new(ingress))))
    }

    /// Has a thread of the port call `call` whenever its card connects or leaves. Only the first registration counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_peer(call);
    }

    /// State of the current card, with counts of earlier ones.
    pub fn state(&self) -> service::State<Driven> {
        self.service.state()
    }
}

/// The function at `address`, if it is a card.
fn open(address: &str) -> Result<Function, DriverError> {
    let function = Function::open(address)?;
    let (vendor, device) = function.id();
    if (vendor, device) != (VENDOR, DEVICE) {
        return Err(DriverError::NotACard { address: address.to_owned(), vendor, device });
    }
    function.enable()?;
    Ok(function)
}

/// State of the control thread.
struct Driver {
    address: String,
    options: DriverOptions,
    call: Doorbell,
    /// Rung by the worker when the link changes.
    link: Arc<Doorbell>,
    /// The fault to which workers report the card's violations. A card has none of netvale's descriptors: one fault
    /// serves all cards.
    fault: Fault,
    rings: Arc<Rings>,
}

impl Protocol for Driver {
    type Connection = Function;
    type Detail = Driven;
    type Kept = ();
    const PEER: &'static str = "card";

    fn next(&mut self, _stop: BorrowedFd<'_>) -> Option<Result<Function, String>> {
        Some(open(&self.address).map_err(|e| e.to_string()))
    }

    fn serve(&mut self, function: Function, peer: &Peer<Driven>) -> Result<(), String> {
        self.drive(function, peer).map_err(|e| e.to_string())
    }
}

impl Driver {
    /// Drives one card from start to end.
    fn drive(&self, mut function: Function, peer: &Peer<Driven>) -> Result<(), DriverError> {
        let registers: Arc<dyn Registers> = Arc::new(function.bar(0, 0, SPACE.into())?);
        let ram = Arc::new(Ram::new(self.options.slots)?);
        ram.mapping().blame(peer.fault());
        function.give(ram.mapping(), GUEST)?;
        let wanted = Doorbell::new()?;
        function.message(&self.call)?;
        function.when_wanted_back(&wanted)?;
        let Started { tx, rx, mac, has_block } = start(&registers, &ram, self.options)?;
        self.fault.take();
        peer.told().update(|told| *told = Driven { running: true, mac, has_block, link_down: false });
        let ended = self.rings.put(tx, rx).map_err(DriverError::from).and_then(|()| {
            // The worker enables interrupts when it first polls.
            self.call.ring();
            self.link.ring();
            self.wait(&*registers, wanted.as_fd(), peer)
        });
        // A ring that a worker does not hand back keeps its memory; no further card is driven until it is back.
        let _ = self.rings.tx.take().map(drop).and(self.rings.rx.take());
        ended
    }

    /// Waits until the card violates the protocol or is demanded back, or the port must end.
    fn wait(&self, registers: &dyn Registers, wanted: BorrowedFd<'_>, peer: &Peer<Driven>) -> Result<(), DriverError> {
        loop {
            let all = [peer.ends(), self.fault.as_fd(), wanted, self.link.as_fd()];
            let mut fds = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut fds, None);
            let [ends, fault, wanted, link] = fds.map(|fd| !fd.revents().is_empty());
            if ends {
                return Ok(());
            }
            if fault && let Some(why) = self.fault.take() {
                return Err(DriverError::ProtocolViolation(why));
            }
            if wanted {
                return Err(DriverError::WantedBack);
            }
            if link {
                self.link.drain();
                let link_down = registers.read(STATUS) & STATUS_LU == 0;
                peer.told().update(|told| told.link_down = link_down);
            }
        }
    }
}
