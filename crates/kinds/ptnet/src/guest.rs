//! The state that every port shows of the virtual machine it serves.

use serde::{Deserialize, Serialize};

/// Name of the threads.
pub(crate) const THREAD: &str = "netvale-ptnet";

/// The state of a virtual machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Guest {
    /// Its driver runs the rings, with this many bytes of header before each frame.
    pub running: Option<u32>,
    /// Number of commands of its driver.
    pub commands: u64,
}

impl Guest {
    /// Records a command of its driver, after which the rings run, or do not.
    pub(crate) fn obeyed(&mut self, running: Option<u32>) {
        *self = Guest { running, commands: self.commands + 1 };
    }
}
