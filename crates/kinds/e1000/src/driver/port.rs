//! A port that drives a card on the bus, and the thread that keeps it up.

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

/// Why a card is not driven.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The bus.
    #[error(transparent)]
    Pci(#[from] PciError),
    /// Another device.
    #[error("{address} is device {vendor:04x}:{device:04x}, not an 82540EM ({VENDOR:04x}:{DEVICE:04x})")]
    NotACard {
        /// Where it is.
        address: String,
        /// PCI vendor ID.
        vendor: u16,
        /// PCI device ID.
        device: u16,
    },
    /// It does not start.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// The card broke the rules.
    #[error("{0}")]
    ProtocolViolation(String),
    /// A ring of the card before it is not handed back.
    #[error("a ring: {0}")]
    InUse(#[from] InUse),
    /// The kernel wants it back.
    #[error("the device is wanted back")]
    WantedBack,
    /// The system.
    #[error("cannot drive it: {0}")]
    System(#[from] Errno),
}

impl DriverError {
    /// The error number that fits.
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

/// What is told of a card, for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct Driven {
    /// The card runs.
    pub running: bool,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// It has a status block.
    pub has_block: bool,
    /// The card says that its link is down.
    pub link_down: bool,
}

/// A port. Dropping it ends the thread and gives the card back to the kernel.
pub struct DriverPort {
    service: Service<Driven>,
}

impl DriverPort {
    /// Takes the card at `address` on the bus, which has to be there.
    ///
    /// # Errors
    /// [`DriverError`] when the number of slots is impossible, no such card is at `address`, or the system refuses a
    /// descriptor or the thread.
    pub fn new(address: &str, options: DriverOptions) -> Result<(DriverPort, Queues), DriverError> {
        if !options.slots.is_power_of_two() || !(8..=4096).contains(&options.slots) {
            return Err(NotStarted::Slots(options.slots).into());
        }
        // An error in it is best reported immediately.
        drop(open(address)?);
        let (rings, fault) = (Arc::<Rings>::default(), Fault::new()?);
        let (link, call) = (Arc::new(Doorbell::new()?), Doorbell::new()?);
        let copy = call.try_clone().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::MFILE))?;
        let ingress = DriverIngress::new(Arc::clone(&rings), fault.clone(), copy, Arc::clone(&link));
        let egress = DriverEgress::new(Arc::clone(&rings), fault.clone());
        let driver = Driver { address: address.to_owned(), options, call, link, fault, rings };
        let service = Service::start("netvale-e1000d", address, None, driver).map_err(|e| e.errno())?;
        Ok((DriverPort { service }, (Arc::new(egress), Box::new(ingress))))
    }

    /// Has a thread of the port call this whenever its card has connected or is gone. Only the first call counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_peer(call);
    }

    /// Its card, and those before.
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

/// The control thread's part.
struct Driver {
    address: String,
    options: DriverOptions,
    call: Doorbell,
    /// Rung by the worker when the link changed.
    link: Arc<Doorbell>,
    /// Where workers report what the card did. A card has none of netvale's descriptors: one fault serves for all of
    /// them.
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
    /// One card from its beginning to its end.
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
            // The worker asks for interrupts when it first looks.
            self.call.ring();
            self.link.ring();
            self.wait(&*registers, wanted.as_fd(), peer)
        });
        // What a worker does not hand back keeps its own memory, and there is no next card before it is gone.
        let _ = self.rings.tx.take().map(drop).and(self.rings.rx.take());
        ended
    }

    /// Until the card breaks the rules or is wanted back, or the port is to end.
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
