//! The state of a port's virtual machine, for display.

use serde::{Deserialize, Serialize};

/// Name of ptnet's threads.
pub(crate) const THREAD: &str = "netvale-ptnet";

/// State of a virtual machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PtnetGuest {
    /// Bytes of header before each frame; `None` while the guest's driver does not run the rings.
    pub running: Option<u32>,
    /// Number of commands of the guest's driver.
    pub commands: u64,
}

impl PtnetGuest {
    /// Records a command of the driver, and the header length if the rings run after the command.
    pub(crate) fn obeyed(&mut self, running: Option<u32>) {
        *self = PtnetGuest { running, commands: self.commands + 1 };
    }
}
