//! Requests to attach a port, as the kinds of ports get them.

use netvale_control::types::PortOptions;
use netvale_portspec::AttachSpec;

use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::refusal::Refusal;
use crate::registry::ports::SwitchPort;

/// A port to attach: the request has been admitted, and its switch's name is valid.
pub struct Asked<'a> {
    /// Name of the port and its switch.
    pub at: SwitchPort,
    /// The specification of the port.
    pub spec: &'a AttachSpec,
    /// The port's options.
    pub options: &'a PortOptions,
    /// The caller.
    pub caller: Caller,
}

impl Asked<'_> {
    /// The refusal of a kind that got another kind's specification.
    pub fn mistaken(&self) -> Refusal {
        Refusal::internal("a port of another kind")
    }
}

/// Makes the requested port and puts it on its switch.
pub type Make = fn(&mut Daemon, &Asked<'_>) -> Result<(), Refusal>;

/// A kind of port that can be attached.
pub struct Kind {
    /// The text before the colon in its name; empty for a local port.
    pub prefix: &'static str,
    /// The function that makes such a port.
    pub attach: Make,
}
