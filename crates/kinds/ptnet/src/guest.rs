//! State of a port's virtual machine, shown by all ports.

use serde::{Deserialize, Serialize};

/// Name of the threads.
pub(crate) const THREAD: &str = "netvale-ptnet";

/// State of a virtual machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Guest {
    /// Bytes of header before each frame, while its driver runs the rings.
    pub running: Option<u32>,
    /// Number of commands of its driver.
    pub commands: u64,
}

impl Guest {
    /// Records a driver's command and whether the rings run after it.
    pub(crate) fn obeyed(&mut self, running: Option<u32>) {
        *self = Guest { running, commands: self.commands + 1 };
    }
}
