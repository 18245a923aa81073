//! What a maker of ports is asked for.

use netvale_control::types::PortOptions;
use netvale_portspec::AttachSpec;

use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::refusal::Refusal;
use crate::registry::ports::SwitchPort;

/// A port that is to be attached: the request has been admitted, and its switch's name is one.
pub struct Asked<'a> {
    /// Where.
    pub at: SwitchPort,
    /// What.
    pub spec: &'a AttachSpec,
    /// How.
    pub options: &'a PortOptions,
    /// By whom.
    pub caller: Caller,
}

impl Asked<'_> {
    /// The table of kinds took this for another kind's.
    pub fn mistaken(&self) -> Refusal {
        Refusal::internal("a port of another kind")
    }
}

/// Makes what was asked for and plugs it in.
pub type Make = fn(&mut Daemon, &Asked<'_>) -> Result<(), Refusal>;

/// A kind of port that can be attached.
pub struct Kind {
    /// What stands before the colon in its name; nothing for a local port.
    pub prefix: &'static str,
    /// Makes one.
    pub attach: Make,
}
