//! Kinds of ports, and requests to attach one. A kind's *methods* are requests of its own; a port starts *anew* if
//! nothing of its former state is restored. A *continuation* restores ports of another process.

use std::cell::Cell;
use std::time::Duration;

use netvale_control::options::OptionsOf;
use netvale_control::options::kind::KindType;
use netvale_control::types::{KindRequest, Policies, PortOptions};
use netvale_control::{Reply, RpcError};
use netvale_fdio::state::State;
use netvale_portspec::AttachSpec;
use rustix::io::Errno;

use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::handover::items::PortItem;
use crate::refusal::Refusal;
use crate::registry::ports::SwitchPort;
use crate::system::sandbox::KernelNeeds;

/// A request to attach a port, already admitted; its switch's name is valid.
pub struct Asked<'a> {
    /// Name of the port and its switch.
    pub at: SwitchPort,
    /// The specification of the port.
    pub spec: &'a AttachSpec,
    /// The caller.
    pub caller: Caller,
    /// The options; read them with [`Asked::options`], which checks the kind.
    options: &'a PortOptions,
    /// State of another process's port, to restore.
    continued: Cell<Option<State>>,
}

impl<'a> Asked<'a> {
    /// Creates a request.
    pub fn new(at: SwitchPort, spec: &'a AttachSpec, options: &'a PortOptions, caller: Caller) -> Asked<'a> {
        Asked { at, spec, caller, options, continued: Cell::default() }
    }

    /// Sets the state of another process's port, to restore.
    #[must_use]
    pub fn continuing(self, state: State) -> Asked<'a> {
        Asked { continued: Cell::new(Some(state)), ..self }
    }

    /// Takes the state to restore, if any.
    pub fn continued(&self) -> Option<State> {
        self.continued.take()
    }

    /// Returns the options of kind `K`.
    ///
    /// # Errors
    /// [`Refusal`] if the port is of another kind.
    pub fn options<K: KindType>(&self) -> Result<OptionsOf<'a, K>, Refusal> {
        let own = if *self.spec.kind() == K::KIND { self.options.of() } else { None };
        own.ok_or_else(|| self.mistaken())
    }

    /// Whether the port holds senders back; every kind has this option.
    pub fn lossless(&self) -> bool {
        self.options.lossless
    }

    /// The port's policies; every kind has these options.
    pub fn policies(&self) -> &'a Policies {
        &self.options.policies
    }

    /// The refusal of another kind's specification.
    pub fn mistaken(&self) -> Refusal {
        Refusal::internal("a port of another kind")
    }
}

/// How ports of some kind are restored.
pub struct Continuation {
    /// Whether it applies to a port.
    pub is_for: fn(&PortItem) -> bool,
    /// Restores a port from another process's state.
    pub go_on: fn(&mut Daemon, &PortItem, State) -> Result<(), Refusal>,
    /// Whether it depends on other ports, and follows them.
    pub is_last: bool,
    /// Whether only requests change its saved state; frames and threads do not.
    pub is_still: bool,
}

/// The refusal of a port on no switch.
pub fn nowhere(item: &PortItem) -> Refusal {
    Refusal::new(Errno::OPNOTSUPP, format!("ports of kind {} on no switch", item.kind))
}

/// The port's switch and its name there.
///
/// # Errors
/// [`Refusal`] if it is on no switch.
pub fn place_of(item: &PortItem) -> Result<SwitchPort, Refusal> {
    let (switch, port) = item.on.as_ref().ok_or_else(|| nowhere(item))?;
    Ok(SwitchPort::new(switch, port))
}

/// The rings named by netmap's `VALE_ATTACH`, as in `struct nmreq_register` (netmap.h).
#[derive(Clone, Copy, Debug)]
pub struct NamedRings {
    /// `nr_mode`.
    pub mode: u32,
    /// `nr_ringid`.
    pub ring: u16,
}

/// Creates the requested port and attaches it to its switch.
pub type Make = fn(&mut Daemon, &Asked<'_>) -> Result<(), Refusal>;

/// Removes remains of a former port of that name, before it starts anew. Returns how long they may stay in use.
pub type BeginAnew = fn(&mut Daemon, &str) -> Duration;

/// Requests specific to one kind.
pub struct Methods {
    /// Answers a request, if it is of that kind.
    pub answer: fn(&mut Daemon, &KindRequest, Caller) -> Option<Result<Reply, RpcError>>,
    /// Returns pending notifications: connection and text.
    pub due: fn(&mut Daemon) -> Vec<(u64, String)>,
}

/// An attachable kind of port.
pub struct Kind {
    /// The text before the colon in its name; empty for a local port.
    pub prefix: &'static str,
    /// Creates a port.
    pub attach: Make,
    /// Prepares a port to start anew, if needed.
    pub begin_anew: Option<BeginAnew>,
    /// Kernel requirements of its ports, attached or opened.
    pub kernel: &'static [&'static KernelNeeds],
    /// Its own requests, if any.
    pub methods: Option<&'static Methods>,
}

impl Kind {
    /// Creates a kind without further needs.
    pub const fn new(prefix: &'static str, attach: Make) -> Kind {
        Kind { prefix, attach, begin_anew: None, kernel: &[], methods: None }
    }

    /// Sets the preparation before a port starts anew.
    pub const fn with_begin_anew(self, begin_anew: BeginAnew) -> Kind {
        Kind { begin_anew: Some(begin_anew), ..self }
    }

    /// Sets the kernel requirements.
    pub const fn with_kernel(self, kernel: &'static [&'static KernelNeeds]) -> Kind {
        Kind { kernel, ..self }
    }

    /// Sets the kind's own requests.
    pub const fn with_methods(self, methods: &'static Methods) -> Kind {
        Kind { methods: Some(methods), ..self }
    }
}
