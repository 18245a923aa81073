//! A port that drives a card on the PCI bus, and its control thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_pci::{MappedBar, PciError, PciFunction};
use netvale_port::service::{self, Protocol, Service, ServicePeer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use thiserror::Error;

use super::queues::{CardRings, DriverEgress, DriverIngress};
use super::ram::{CardRam, GUEST};
use super::start::{CardStartError, RunningCard, start};
use super::{CardDriverOptions, CardRegisters};
use crate::port::E1000Queues;
use crate::regs::{SPACE, STATUS, STATUS_LU};
use crate::vfio::{DEVICE, VENDOR};

/// An error in driving a card.
#[derive(Debug, Error)]
pub enum CardDriverError {
    /// The PCI function cannot be opened or driven through vfio.
    #[error(transparent)]
    Pci(#[from] PciError),
    /// The device is not an 82540EM.
    #[error("{address} is device {vendor:04x}:{device:04x}: expected an 82540EM ({VENDOR:04x}:{DEVICE:04x})")]
    NotACard {
        /// Address of the device on the bus.
        address: String,
        /// PCI vendor ID.
        vendor: u16,
        /// PCI device ID.
        device: u16,
    },
    /// The card does not start.
    #[error(transparent)]
    NotStarted(#[from] CardStartError),
    /// The card violated the protocol.
    #[error("{0}")]
    ProtocolViolation(String),
    /// A worker has not returned a ring of the previous card.
    #[error("a ring is still in use: {0}")]
    InUse(#[from] InUse),
    /// The kernel requests the card back.
    #[error("the kernel requests the device's release")]
    WantedBack,
    /// A system call failed.
    #[error("cannot drive the card: {0}")]
    System(#[from] Errno),
}

impl CardDriverError {
    /// Returns the errno that is closest to this error.
    pub fn errno(&self) -> Errno {
        match self {
            CardDriverError::Pci(why) => why.errno(),
            CardDriverError::NotACard { .. } => Errno::NODEV,
            CardDriverError::NotStarted(CardStartError::Slots(_)) => Errno::INVAL,
            CardDriverError::System(why) => *why,
            CardDriverError::InUse(_) => Errno::BUSY,
            CardDriverError::NotStarted(CardStartError::Reset)
            | CardDriverError::ProtocolViolation(_)
            | CardDriverError::WantedBack => Errno::IO,
        }
    }
}

impl CardRegisters for MappedBar {
    fn read(&self, at: u32) -> u32 {
        self.read32(at as usize)
    }

    fn write(&self, at: u32, value: u32) {
        self.write32(at as usize, value);
    }
}

/// Details of a card for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct CardStatus {
    /// Whether the card runs.
    pub running: bool,
    /// Ethernet address of the card.
    pub mac: [u8; 6],
    /// Whether card and driver use a status block ([`crate::paravirt`]).
    pub has_block: bool,
    /// Whether the card reports its link as down.
    pub link_down: bool,
}

/// A port that drives a card. Dropping it ends the control thread and returns the card to the kernel.
pub struct DriverPort {
    service: Service<CardStatus>,
}

impl DriverPort {
    /// Creates a port for the card at `address` on the bus, which must exist.
    ///
    /// # Errors
    /// [`CardDriverError`] if the number of slots is invalid, there is no such card at `address`, or a descriptor or
    /// the thread cannot be created.
    pub fn new(address: &str, options: CardDriverOptions) -> Result<(DriverPort, E1000Queues), CardDriverError> {
        if !options.slots.is_power_of_two() || !(8..=4096).contains(&options.slots) {
            return Err(CardStartError::Slots(options.slots).into());
        }
        // Open the card once, so that an error is returned to the caller now, and not only logged later.
        drop(open(address)?);
        let rings = Arc::<CardRings>::default();
        let fault = Fault::new()?;
        let link = Arc::new(Doorbell::new()?);
        let call = Doorbell::new()?;
        let copy = call.try_clone().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::MFILE))?;
        let ingress = DriverIngress::new(Arc::clone(&rings), fault.clone(), copy, Arc::clone(&link));
        let egress = DriverEgress::new(Arc::clone(&rings), fault.clone());
        let driver = CardDriver { address: address.to_owned(), options, call, link, fault, rings };
        let service = Service::start("netvale-e1000d", address, None, driver).map_err(|e| e.errno())?;
        Ok((DriverPort { service }, (Arc::new(egress), Box::new(ingress))))
    }

    /// Sets the callback that a thread of the port calls after its card appeared or disappeared. Only the first call
    /// has an effect.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_peer(call);
    }

    /// State of the service for the current card, with the number of cards so far.
    pub fn state(&self) -> service::ServiceState<CardStatus> {
        self.service.state()
    }
}

/// Opens the function at `address`, which must be an 82540EM.
fn open(address: &str) -> Result<PciFunction, CardDriverError> {
    let function = PciFunction::open(address)?;
    let (vendor, device) = function.id();
    if (vendor, device) != (VENDOR, DEVICE) {
        return Err(CardDriverError::NotACard { address: address.to_owned(), vendor, device });
    }
    function.enable()?;
    Ok(function)
}

/// State of the control thread, which drives the card.
struct CardDriver {
    address: String,
    options: CardDriverOptions,
    call: Doorbell,
    /// Doorbell that the worker rings when the link changes.
    link: Arc<Doorbell>,
    /// The fault to which workers report violations by the card. All cards of the port use this fault, one after
    /// another: a card is not a process, which could still hold descriptors of netvale after it has disconnected.
    fault: Fault,
    rings: Arc<CardRings>,
}

impl Protocol for CardDriver {
    type Connection = PciFunction;
    type Detail = CardStatus;
    type Kept = ();
    const PEER: &'static str = "card";

    fn next(&mut self, _stop: BorrowedFd<'_>) -> Option<Result<PciFunction, String>> {
        Some(open(&self.address).map_err(|e| e.to_string()))
    }

    fn serve(&mut self, function: PciFunction, peer: &ServicePeer<CardStatus>) -> Result<(), String> {
        self.drive(function, peer).map_err(|e| e.to_string())
    }
}

impl CardDriver {
    /// Drives one card from its start to its end.
    fn drive(&self, mut function: PciFunction, peer: &ServicePeer<CardStatus>) -> Result<(), CardDriverError> {
        let registers: Arc<dyn CardRegisters> = Arc::new(function.bar(0, 0, SPACE.into())?);
        let ram = Arc::new(CardRam::new(self.options.slots)?);
        ram.mapping().blame(peer.fault());
        function.give(ram.mapping(), GUEST)?;
        let wanted = Doorbell::new()?;
        function.message(&self.call)?;
        function.when_wanted_back(&wanted)?;
        let RunningCard { tx, rx, mac, has_block } = start(&registers, &ram, self.options)?;
        self.fault.take();
        peer.told().update(|told| *told = CardStatus { running: true, mac, has_block, link_down: false });
        let ended = self.rings.put(tx, rx).map_err(CardDriverError::from).and_then(|()| {
            // Wake the worker: it polls the new ring, and enables interrupts before it sleeps again.
            self.call.ring();
            self.link.ring();
            self.wait(&*registers, wanted.as_fd(), peer)
        });
        // A ring that a worker does not return keeps its memory; no further card is driven until the ring is returned.
        let _ = self.rings.tx.take().map(drop).and(self.rings.rx.take());
        ended
    }

    /// Waits until the card violates the protocol, the kernel requests the card back, or the port must end.
    fn wait(
        &self,
        registers: &dyn CardRegisters,
        wanted: BorrowedFd<'_>,
        peer: &ServicePeer<CardStatus>,
    ) -> Result<(), CardDriverError> {
        loop {
            let all = [peer.ends(), self.fault.as_fd(), wanted, self.link.as_fd()];
            let mut fds = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut fds, None);
            let [ends, fault, wanted, link] = fds.map(|fd| !fd.revents().is_empty());
            if ends {
                return Ok(());
            }
            if fault && let Some(why) = self.fault.take() {
                return Err(CardDriverError::ProtocolViolation(why));
            }
            if wanted {
                return Err(CardDriverError::WantedBack);
            }
            if link {
                self.link.drain();
                let link_down = registers.read(STATUS) & STATUS_LU == 0;
                peer.told().update(|told| told.link_down = link_down);
            }
        }
    }
}
