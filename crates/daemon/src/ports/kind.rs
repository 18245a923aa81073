//! Requests to attach a port, as the kinds of ports get them.

use std::cell::Cell;

use netvale_control::options::OptionsOf;
use netvale_control::options::kind::KindType;
use netvale_control::types::{Policies, PortOptions};
use netvale_fdio::state::State;
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
    /// The caller.
    pub caller: Caller,
    /// The options; read them with [`Asked::options`], which checks the kind.
    options: &'a PortOptions,
    /// What another process left to continue the port with.
    continued: Cell<Option<State>>,
}

impl<'a> Asked<'a> {
    /// Creates a request.
    pub fn new(at: SwitchPort, spec: &'a AttachSpec, options: &'a PortOptions, caller: Caller) -> Asked<'a> {
        Asked { at, spec, caller, options, continued: Cell::default() }
    }

    /// Continues the port of another process.
    #[must_use]
    pub fn continuing(self, state: State) -> Asked<'a> {
        Asked { continued: Cell::new(Some(state)), ..self }
    }

    /// What another process left to continue the port with, once.
    pub fn continued(&self) -> Option<State> {
        self.continued.take()
    }

    /// The options, as those of kind `K`.
    ///
    /// # Errors
    /// [`Refusal`] if the port is of another kind.
    pub fn options<K: KindType>(&self) -> Result<OptionsOf<'a, K>, Refusal> {
        let own = if *self.spec.kind() == K::KIND { self.options.of() } else { None };
        own.ok_or_else(|| self.mistaken())
    }

    /// Whether it holds senders back: the option that every kind takes.
    pub fn lossless(&self) -> bool {
        self.options.lossless
    }

    /// Its policies: options that every kind takes.
    pub fn policies(&self) -> &'a Policies {
        &self.options.policies
    }

    /// The refusal of a kind that got another kind's specification.
    pub fn mistaken(&self) -> Refusal {
        Refusal::internal("a port of another kind")
    }
}

/// The rings that netmap's `VALE_ATTACH` names, as in `struct nmreq_register` (netmap.h).
#[derive(Clone, Copy, Debug)]
pub struct NamedRings {
    /// `nr_mode`.
    pub mode: u32,
    /// `nr_ringid`.
    pub ring: u16,
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
