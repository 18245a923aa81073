//! A port that drives a card on the bus, and the thread that keeps it up.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_pci::{Bar, Function, PciError};
use netvale_port::door::nap;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use thiserror::Error;

use super::queues::{DriverEgress, DriverIngress, Rings, Trouble};
use super::ram::{GUEST, Ram};
use super::start::{NotStarted, Started, start};
use super::{BadCard, Registers, Wish};
use crate::port::Queues;
use crate::regs::{SPACE, STATUS, STATUS_LU};
use crate::vfio::{DEVICE, VENDOR};

/// How long to wait before the next try.
const RETRY: Duration = Duration::from_millis(200);

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
        /// What it is.
        vendor: u16,
        /// See above.
        device: u16,
    },
    /// It does not start.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// It broke the rules.
    #[error(transparent)]
    Bad(#[from] BadCard),
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
            DriverError::NotStarted(NotStarted::Reset) | DriverError::Bad(_) | DriverError::WantedBack => Errno::IO,
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

/// What the port is doing, for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct DriverState {
    /// The card runs.
    pub running: bool,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// It has a status block.
    pub has_block: bool,
    /// The card says that its link is down.
    pub link_down: bool,
    /// Why there is no card, or why the last one was given up.
    pub last_error: Option<String>,
}

struct Shared {
    state: Mutex<DriverState>,
    stop: Doorbell,
    link: Arc<Doorbell>,
    trouble: Trouble,
    rings: Arc<Rings>,
}

/// A port. Dropping it ends the thread and gives the card back to the kernel.
pub struct DriverPort {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl DriverPort {
    /// Takes the card at `address` on the bus, which has to be there.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn new(address: &str, wish: Wish) -> Result<(DriverPort, Queues), DriverError> {
        if !wish.slots.is_power_of_two() || !(8..=4096).contains(&wish.slots) {
            return Err(NotStarted::Slots(wish.slots).into());
        }
        // What is wrong with it is best said at once.
        drop(open(address)?);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            stop: Doorbell::new()?,
            link: Arc::new(Doorbell::new()?),
            trouble: Trouble::new()?,
            rings: Arc::default(),
        });
        let call = Doorbell::new()?;
        let failed = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN);
        let ingress = DriverIngress::new(
            Arc::clone(&shared.rings),
            shared.trouble.clone(),
            call.try_clone().map_err(failed)?,
            Arc::clone(&shared.link),
        );
        let egress = DriverEgress::new(Arc::clone(&shared.rings), shared.trouble.clone());
        let driver = Driver { shared: Arc::clone(&shared), address: address.to_owned(), wish, call };
        let thread = std::thread::Builder::new().name("netvale-e1000d".into()).spawn(move || driver.run());
        let port = DriverPort { shared, thread: Some(thread.map_err(failed)?) };
        Ok((port, (Arc::new(egress), Box::new(ingress))))
    }

    /// What it is doing.
    pub fn state(&self) -> DriverState {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for DriverPort {
    fn drop(&mut self) {
        self.shared.stop.ring();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the runtime.
            let _ = thread.join();
        }
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

/// The control thread.
struct Driver {
    shared: Arc<Shared>,
    address: String,
    wish: Wish,
    call: Doorbell,
}

impl Driver {
    fn run(&self) {
        loop {
            let why = match self.once() {
                Ok(()) => return,
                Err(why) => why.to_string(),
            };
            let mut state = self.state();
            if state.running || state.last_error.as_ref() != Some(&why) {
                tracing::info!(device = %self.address, why, "no card");
            }
            *state = DriverState { last_error: Some(why), ..DriverState::default() };
            drop(state);
            if nap(self.shared.stop.as_fd(), RETRY) {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, DriverState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One card from its beginning to its end.
    fn once(&self) -> Result<(), DriverError> {
        let mut function = open(&self.address)?;
        let registers: Arc<dyn Registers> = Arc::new(function.bar(0, 0, SPACE.into())?);
        let ram = Arc::new(Ram::new(self.wish.slots)?);
        function.give(ram.mapping(), GUEST)?;
        let wanted = Doorbell::new()?;
        function.message(&self.call)?;
        function.when_wanted_back(&wanted)?;
        let Started { tx, rx, mac, has_block } = start(&registers, &ram, self.wish)?;
        tracing::info!(device = %self.address, "card runs");
        *self.state() = DriverState { running: true, mac, has_block, ..DriverState::default() };
        let rings = &self.shared.rings;
        let ended = rings.put(tx, rx).map_err(DriverError::from).and_then(|()| {
            // The worker asks for interrupts when it first looks.
            self.call.ring();
            self.shared.link.ring();
            self.wait(&*registers, wanted.as_fd())
        });
        // What a worker does not hand back keeps its own memory, and there is no next card before it is gone.
        let _ = rings.tx.take().map(drop).and(rings.rx.take());
        ended
    }

    /// Until the card breaks the rules or is wanted back, or the port is to end.
    fn wait(&self, registers: &dyn Registers, wanted: BorrowedFd<'_>) -> Result<(), DriverError> {
        let shared = &self.shared;
        loop {
            let all = [shared.stop.as_fd(), shared.trouble.as_fd(), wanted, shared.link.as_fd()];
            let mut fds = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut fds, None);
            let [stop, trouble, wanted, link] = fds.map(|fd| !fd.revents().is_empty());
            if stop {
                return Ok(());
            }
            if let Some(why) = shared.trouble.take().filter(|_| trouble) {
                return Err(why.into());
            }
            if wanted {
                return Err(DriverError::WantedBack);
            }
            if link {
                shared.link.drain();
                self.state().link_down = registers.read(STATUS) & STATUS_LU == 0;
            }
        }
    }
}
