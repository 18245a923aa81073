//! A card at a vfio-user socket, driven in a guest's place: a simulated guest for benchmarks and tests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_vfio_user::client::Client;
use netvale_vfio_user::dma::Place;
use netvale_vfio_user::irqs::MSI;

use super::queues::{DriverEgress, DriverIngress, Rings};
use super::ram::{GUEST, Ram};
use super::start::{Started, start};
use super::{DriverOptions, Registers};

/// The registers: BAR 0.
const BAR: u32 = 0;

/// Registers over a socket, as a hypervisor accesses them: writes are posted.
pub struct Remote {
    client: Mutex<Client>,
    writes: AtomicU64,
}

impl Remote {
    /// Runs another operation of the client.
    ///
    /// # Errors
    /// The error of `f`.
    pub fn with<T>(&self, f: impl FnOnce(&mut Client) -> io::Result<T>) -> io::Result<T> {
        f(&mut self.client.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers written so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

impl Registers for Remote {
    /// All ones, as on a bus, if the card has left.
    fn read(&self, at: u32) -> u32 {
        let mut value = [0; 4];
        let done = self.with(|client| client.read(BAR, at.into(), &mut value));
        done.map_or(u32::MAX, |()| u32::from_le_bytes(value))
    }

    fn write(&self, at: u32, value: u32) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        // A card that has left shows by the absence of frames.
        let _ = self.with(|client| client.post(BAR, at.into(), &value.to_le_bytes()));
    }
}

/// A simulated guest.
pub struct Guest {
    /// Its transmit queue.
    pub egress: DriverEgress,
    /// Its receive queue.
    pub ingress: DriverIngress,
    /// Its access to the card's registers.
    pub remote: Arc<Remote>,
    /// Its memory.
    pub ram: Arc<Ram>,
    /// The fault to which workers report violations by the card.
    pub fault: Fault,
    /// Whether the card has accepted a status block.
    pub has_block: bool,
    /// Its Ethernet address.
    pub mac: [u8; 6],
}

impl Guest {
    /// Drives the card at `path`; it interrupts by message.
    ///
    /// # Errors
    /// The socket's error if connecting fails; `Other` if the card does not start.
    pub fn new(path: &Path, options: DriverOptions) -> io::Result<Guest> {
        let ram = Arc::new(Ram::new(options.slots)?);
        let remote = Remote { client: Mutex::new(Client::connect(path)?), writes: AtomicU64::new(0) };
        let bell = Doorbell::new()?;
        remote.with(|client| give(client, &ram))?;
        remote.with(|client| client.interrupt(MSI, bell.as_fd()))?;
        let fault = Fault::new()?;
        ram.mapping().blame(&fault);
        Guest::drive(Arc::new(remote), ram, options, bell, fault)
    }

    fn drive(
        remote: Arc<Remote>,
        ram: Arc<Ram>,
        options: DriverOptions,
        bell: Doorbell,
        fault: Fault,
    ) -> io::Result<Guest> {
        let registers = Arc::clone(&remote) as Arc<dyn Registers>;
        let Started { tx, rx, mac, has_block } = start(&registers, &ram, options).map_err(io::Error::other)?;
        let rings = Arc::<Rings>::default();
        rings.put(tx, rx).map_err(io::Error::other)?;
        let egress = DriverEgress::new(Arc::clone(&rings), fault.clone());
        let ingress = DriverIngress::new(rings, fault.clone(), bell, Arc::new(Doorbell::new()?));
        Ok(Guest { egress, ingress, remote, ram, fault, has_block, mac })
    }
}

/// Announces a driver's memory to the card.
///
/// # Errors
/// The socket's error if the card has left or refuses the memory.
pub fn give(client: &mut Client, ram: &Ram) -> io::Result<()> {
    let fd: BorrowedFd<'_> = ram.as_fd();
    client.map(Place { flags: 3, offset: 0, address: GUEST, size: ram.mapping().len() as u64 }, fd)
}
