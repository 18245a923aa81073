//! A process that plays two guests: our driver twice, over vfio-user, polled.

use std::sync::atomic::Ordering;

use netvale_e1000::driver::CardDriverOptions;
use netvale_e1000::driver::remote::SimulatedGuest;

use super::*;
use crate::scenarios::bursts::{Burst, Outlet};

/// The role.
pub const GUESTS: &str = "e1000-guests";

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cards {
    /// Sockets of the sender's card, and the receiver's.
    pub paths: [PathBuf; 2],
    /// With status blocks.
    pub csb: bool,
    /// Send Combining: packets that may wait.
    pub combine: u32,
    /// Bytes of a frame.
    pub frame_bytes: u32,
    /// Frames of a burst.
    pub burst: u32,
}

fn guest(path: &Path, options: CardDriverOptions) -> Result<SimulatedGuest> {
    let failed = |why: &dyn std::fmt::Display| BenchError::Usage(format!("the card: {why}"));
    let guest = SimulatedGuest::new(path, options).map_err(|e| failed(&e))?;
    if guest.has_block != options.csb {
        return Err(failed(&"it does not take the status block"));
    }
    Ok(guest)
}

/// Both guests, until the process is killed.
pub fn guests(context: &Context) -> Result<()> {
    let task: Cards = context.arguments()?;
    let options = CardDriverOptions { csb: task.csb, combine: task.combine, ..CardDriverOptions::default() };
    let from = guest(&task.paths[0], options)?;
    let to = guest(&task.paths[1], options)?;
    context.ready()?;
    let mut burst = Burst::new(2, 1, task.frame_bytes, task.burst as usize);
    let mut outlet = Outlet::new(Box::new(to.ingress));
    let mut total = 0u64;
    let frames = context.counter(FRAMES);
    // The switch learns where the receiver is.
    Burst::new(1, 2, 60, 1).send(&to.egress);
    loop {
        burst.send(&from.egress);
        total += outlet.take() as u64;
        frames.store(total, Ordering::Relaxed);
    }
}
