//! A process that plays two guests: our driver twice, over vfio-user, polled.
#![allow(unsafe_code)]

use std::path::Path;
use std::sync::atomic::Ordering;

use netvale_e1000::driver::DriverOptions;
use netvale_e1000::driver::remote::Guest;
use netvale_port::{Batch, Egress, Scratch, Source};
use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};
use crate::scenarios::traffic::frame;
use crate::scenarios::vhost::process::FRAMES;
use crate::sys::worker::{Context, Role};

/// The role.
pub const GUESTS: &str = "e1000-guests";
/// The roles by name.
pub const ROLES: [(&str, Role); 1] = [(GUESTS, guests_role)];
/// Counter of register writes of the sender.
pub const WRITES: usize = 1;

/// The task of the process.
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

fn guest(path: &str, options: DriverOptions) -> Result<Guest> {
    let failed = |why: &dyn std::fmt::Display| BenchError::Usage(format!("the card: {why}"));
    let guest = Guest::new(Path::new(path), options).map_err(|e| failed(&e))?;
    if guest.has_block != options.csb {
        return Err(failed(&"it does not take the status block"));
    }
    Ok(guest)
}

fn guests_role(context: &Context) -> Result<()> {
    let task: Task = context.arguments()?;
    let options = DriverOptions { csb: task.csb, combine: task.combine, ..DriverOptions::default() };
    let (from, to) = (guest(&task.paths[0], options)?, guest(&task.paths[1], options)?);
    context.ready()?;
    let (there, back) = (frame(2, 1, task.frame_bytes), frame(1, 2, 60));
    let (mut burst, mut hello) = (Batch::new(), Batch::new());
    let (mut source, mut spare) = (Source::new(Box::new(to.ingress)), Box::default());
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
        total += source.take(&mut spare).len() as u64;
        source.release(&mut spare);
        frames.store(total, Ordering::Relaxed);
        writes.store(from.remote.writes(), Ordering::Relaxed);
    }
}
