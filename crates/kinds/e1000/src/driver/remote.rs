//! A simulated guest that drives a card at a vfio-user socket, for benchmarks and tests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_vfio_user::client::VfioUserClient;
use netvale_vfio_user::dma::WindowPlace;
use netvale_vfio_user::irqs::MSI;

use super::queues::{CardRings, DriverEgress, DriverIngress};
use super::ram::{CardRam, GUEST};
use super::start::{RunningCard, start};
use super::{CardDriverOptions, CardRegisters};

/// BAR of the registers.
const BAR: u32 = 0;

/// Access to registers over a socket, as a hypervisor does it: writes are posted.
pub struct RemoteRegisters {
    client: Mutex<VfioUserClient>,
    writes: AtomicU64,
}

impl RemoteRegisters {
    /// Calls `f` with the vfio-user client.
    ///
    /// # Errors
    /// The error of `f`.
    pub fn with<T>(&self, f: impl FnOnce(&mut VfioUserClient) -> io::Result<T>) -> io::Result<T> {
        f(&mut self.client.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of registers written so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

impl CardRegisters for RemoteRegisters {
    /// Returns all ones, as on a bus, if the card is gone.
    fn read(&self, at: u32) -> u32 {
        let mut value = [0; 4];
        let done = self.with(|client| client.read(BAR, at.into(), &mut value));
        done.map_or(u32::MAX, |()| u32::from_le_bytes(value))
    }

    fn write(&self, at: u32, value: u32) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        // Errors are ignored: if the card is gone, no frames arrive.
        let _ = self.with(|client| client.post(BAR, at.into(), &value.to_le_bytes()));
    }
}

/// A simulated guest.
pub struct SimulatedGuest {
    /// The transmit queue.
    pub egress: DriverEgress,
    /// The receive queue.
    pub ingress: DriverIngress,
    /// Access to the card's registers.
    pub remote: Arc<RemoteRegisters>,
    /// The guest's memory.
    pub ram: Arc<CardRam>,
    /// The fault to which workers report violations by the card.
    pub fault: Fault,
    /// Whether the card has accepted the status block ([`crate::paravirt`]).
    pub has_block: bool,
    /// The card's Ethernet address.
    pub mac: [u8; 6],
}

impl SimulatedGuest {
    /// Starts the card at the socket `path`, with message interrupts.
    ///
    /// # Errors
    /// The socket's error if connecting fails; `Other` if the card does not start.
    pub fn new(path: &Path, options: CardDriverOptions) -> io::Result<SimulatedGuest> {
        let ram = Arc::new(CardRam::new(options.slots)?);
        let remote = RemoteRegisters { client: Mutex::new(VfioUserClient::connect(path)?), writes: AtomicU64::new(0) };
        let bell = Doorbell::new()?;
        remote.with(|client| give(client, &ram))?;
        remote.with(|client| client.interrupt(MSI, bell.as_fd()))?;
        let fault = Fault::new()?;
        ram.mapping().blame(&fault);
        let remote = Arc::new(remote);
        let registers = Arc::clone(&remote) as Arc<dyn CardRegisters>;
        let RunningCard { tx, rx, mac, has_block } = start(&registers, &ram, options).map_err(io::Error::other)?;
        let rings = Arc::<CardRings>::default();
        rings.put(tx, rx).map_err(io::Error::other)?;
        let egress = DriverEgress::new(Arc::clone(&rings), fault.clone());
        let ingress = DriverIngress::new(rings, fault.clone(), bell, Arc::new(Doorbell::new()?));
        Ok(SimulatedGuest { egress, ingress, remote, ram, fault, has_block, mac })
    }
}

/// Maps a driver's memory for the card.
///
/// # Errors
/// The socket's error if the card is gone or refuses the memory.
pub fn give(client: &mut VfioUserClient, ram: &CardRam) -> io::Result<()> {
    let fd: BorrowedFd<'_> = ram.as_fd();
    client.map(WindowPlace { flags: 3, offset: 0, address: GUEST, size: ram.mapping().len() as u64 }, fd)
}
