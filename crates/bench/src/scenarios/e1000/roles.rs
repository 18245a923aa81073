//! A process that plays two guests: our driver twice, over vfio-user, polled.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use netvale_e1000::driver::queues::{DriverEgress, DriverIngress, Rings, Trouble};
use netvale_e1000::driver::ram::{GUEST, Ram};
use netvale_e1000::driver::start::start;
use netvale_e1000::driver::{Registers, Wish};
use netvale_mem::notify::Doorbell;
use netvale_port::{Batch, Egress, Ingress, Scratch};
use netvale_vfio_user::client::Client;
use netvale_vfio_user::dma::Place;
use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};
use crate::scenarios::traffic::frame;
use crate::scenarios::vhost::process::FRAMES;
use crate::sys::worker::{Context, Role};

/// The role.
pub const GUESTS: &str = "e1000-guests";
/// By name.
pub const ROLES: [(&str, Role); 1] = [(GUESTS, guests_role)];
/// Counter of register writes of the sender.
pub const WRITES: usize = 1;
/// Registers are BAR 0; reads and writes of whole registers.
const BAR: u32 = 0;

/// What the process is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// Sockets of the sender's card, and the receiver's.
    pub paths: [String; 2],
    /// With status blocks.
    pub csb: bool,
    /// Send Combining: packets that may wait.
    pub combine: u32,
    /// Bytes of a frame.
    pub frame_bytes: u32,
    /// Frames of a burst.
    pub burst: u32,
}

/// Registers through a socket, as a hypervisor reaches them: writes are posted.
struct Remote {
    client: Mutex<Client>,
    writes: std::sync::atomic::AtomicU64,
}

impl Remote {
    fn with<T>(&self, f: impl FnOnce(&mut Client) -> io::Result<T>) -> Option<T> {
        f(&mut self.client.lock().unwrap_or_else(PoisonError::into_inner)).ok()
    }
}

impl Registers for Remote {
    fn read(&self, at: u32) -> u32 {
        let mut value = [0; 4];
        self.with(|client| client.read(BAR, at.into(), &mut value)).map_or(u32::MAX, |()| u32::from_le_bytes(value))
    }

    fn write(&self, at: u32, value: u32) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        // A daemon that is gone is found out by the frames that do not come.
        let _ = self.with(|client| client.post(BAR, at.into(), &value.to_le_bytes()));
    }
}

/// A guest's card, driven.
struct Guest {
    egress: DriverEgress,
    ingress: DriverIngress,
    remote: Arc<Remote>,
}

fn failed(why: &dyn std::fmt::Display) -> BenchError {
    BenchError::Usage(format!("the card: {why}"))
}

fn guest(path: &str, wish: Wish) -> Result<Guest> {
    let mut client = Client::connect(Path::new(path)).map_err(|e| failed(&e))?;
    let ram = Arc::new(Ram::new(wish.slots).map_err(|e| failed(&e))?);
    let place = Place { flags: 3, offset: 0, address: GUEST, size: ram.mapping().len() as u64 };
    client.map(place, ram.as_fd()).map_err(|e| failed(&e))?;
    let remote = Arc::new(Remote { client: Mutex::new(client), writes: 0.into() });
    let started = start(&(Arc::clone(&remote) as Arc<dyn Registers>), &ram, wish).map_err(|e| failed(&e))?;
    if started.has_block != wish.csb {
        return Err(failed(&"it does not take the status block"));
    }
    let (rings, trouble) = (Arc::<Rings>::default(), Trouble::new().map_err(|e| failed(&e))?);
    *rings.tx.enter() = Some(started.tx);
    *rings.rx.enter() = Some(started.rx);
    let bell = || Doorbell::new().map_err(|e| failed(&e));
    let egress = DriverEgress::new(Arc::clone(&rings), trouble.clone());
    let ingress = DriverIngress::new(rings, trouble, bell()?, Arc::new(bell()?));
    Ok(Guest { egress, ingress, remote })
}

fn guests_role(context: &Context) -> Result<()> {
    let task: Task = context.arguments()?;
    let wish = Wish { csb: task.csb, combine: task.combine, ..Wish::default() };
    let (from, mut to) = (guest(&task.paths[0], wish)?, guest(&task.paths[1], wish)?);
    context.ready()?;
    let (there, back) = (frame(2, 1, task.frame_bytes), frame(1, 2, 60));
    let (mut burst, mut hello, mut got) = (Batch::new(), Batch::new(), Batch::new());
    // SAFETY: the frames outlive the batches: this function does not end.
    unsafe {
        (0..task.burst).for_each(|_| _ = burst.push(there.as_ptr(), task.frame_bytes));
        hello.push(back.as_ptr(), 60);
    }
    let picks: Vec<u16> = (0..netvale_port::BATCH as u16).collect();
    let (mut scratch, mut total) = (Scratch::new(), 0u64);
    let (frames, writes) = (context.counters.counter(FRAMES), context.counters.counter(WRITES));
    // The switch learns where the receiver is.
    to.egress.deliver(&hello, &picks[..1], &mut scratch);
    loop {
        from.egress.deliver(&burst, &picks[..task.burst as usize], &mut scratch);
        to.ingress.take(&mut got);
        total += got.len() as u64;
        got.clear();
        to.ingress.release();
        frames.store(total, Ordering::Relaxed);
        writes.store(from.remote.writes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
