//! Kinds of ports, and requests to attach one. The *methods* of a kind are control requests that only it answers. A
//! port starts *anew* if nothing of its former state is restored. A *continuation* restores ports from another process.

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

/// An admitted request to attach a port. The name of its switch is valid.
pub struct AdmittedRequest<'a> {
    /// Name of the port and its switch.
    pub at: SwitchPort,
    /// The specification of the port.
    pub spec: &'a AttachSpec,
    /// The caller.
    pub caller: Caller,
    /// The options; read them with [`AdmittedRequest::options`], which checks the kind.
    options: &'a PortOptions,
    /// State from another process's port, if the port is to be restored.
    continued: Cell<Option<State>>,
}

impl<'a> AdmittedRequest<'a> {
    /// Creates a request.
    pub fn new(at: SwitchPort, spec: &'a AttachSpec, options: &'a PortOptions, caller: Caller) -> AdmittedRequest<'a> {
        AdmittedRequest { at, spec, caller, options, continued: Cell::default() }
    }

    /// Sets the state from another process's port that is to be restored.
    #[must_use]
    pub fn continuing(self, state: State) -> AdmittedRequest<'a> {
        AdmittedRequest { continued: Cell::new(Some(state)), ..self }
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

    /// Whether the port is lossless, an option of every kind.
    pub fn lossless(&self) -> bool {
        self.options.lossless
    }

    /// Returns the port's policies, which are options of every kind.
    pub fn policies(&self) -> &'a Policies {
        &self.options.policies
    }

    /// Returns the refusal of another kind's specification.
    pub fn mistaken(&self) -> Refusal {
        Refusal::internal("a port of another kind")
    }
}

/// How some ports are restored from another process.
pub struct Continuation {
    /// Returns whether this way applies to a port.
    pub is_for: fn(&PortItem) -> bool,
    /// Restores a port from another process's state.
    pub go_on: fn(&mut Daemon, &PortItem, State) -> Result<(), Refusal>,
    /// Whether the ports depend on other ports, and are restored after them.
    pub is_last: bool,
    /// Whether only requests change the saved state; frames and threads do not.
    pub is_still: bool,
}

/// Returns the refusal of a port on no switch.
pub fn nowhere(item: &PortItem) -> Refusal {
    Refusal::new(Errno::OPNOTSUPP, format!("ports of kind {} need a switch", item.kind))
}

/// Returns the port's switch and its name there.
///
/// # Errors
/// [`Refusal`] if the port is on no switch.
pub fn place_of(item: &PortItem) -> Result<SwitchPort, Refusal> {
    let (switch, port) = item.on.as_ref().ok_or_else(|| nowhere(item))?;
    Ok(SwitchPort::new(switch, port))
}

/// The rings that a `VALE_ATTACH` request of netmap names, as in `struct nmreq_register` (netmap.h).
#[derive(Clone, Copy, Debug)]
pub struct NamedRings {
    /// `nr_mode`.
    pub mode: u32,
    /// `nr_ringid`.
    pub ring: u16,
}

/// A function that creates the requested port and attaches it to its switch.
pub type AttachMethod = fn(&mut Daemon, &AdmittedRequest<'_>) -> Result<(), Refusal>;

/// A function that removes what remains of a former port of that name, before the port starts anew. Returns for how
/// long its resources may stay in use.
pub type BeginAnewMethod = fn(&mut Daemon, &str) -> Duration;

/// Control requests that only one kind answers.
pub struct Methods {
    /// Answers a request, if it belongs to the kind.
    pub answer: fn(&mut Daemon, &KindRequest, Caller) -> Option<Result<Reply, RpcError>>,
    /// Returns pending notifications: connection and text.
    pub due: fn(&mut Daemon) -> Vec<(u64, String)>,
}

/// An attachable kind of port.
pub struct AttachKind {
    /// Text before the colon in the name; empty for a local port.
    pub prefix: &'static str,
    /// Creates a port.
    pub attach: AttachMethod,
    /// Prepares a port to start anew, if needed.
    pub begin_anew: Option<BeginAnewMethod>,
    /// Kernel needs of the kind's ports, attached or opened.
    pub kernel: &'static [&'static KernelNeeds],
    /// The kind's own requests, if any.
    pub methods: Option<&'static Methods>,
}

impl AttachKind {
    /// Creates a kind without preparation, kernel needs or requests.
    pub const fn new(prefix: &'static str, attach: AttachMethod) -> AttachKind {
        AttachKind { prefix, attach, begin_anew: None, kernel: &[], methods: None }
    }

    /// Sets the preparation before a port starts anew.
    pub const fn with_begin_anew(self, begin_anew: BeginAnewMethod) -> AttachKind {
        AttachKind { begin_anew: Some(begin_anew), ..self }
    }

    /// Sets the kernel needs.
    pub const fn with_kernel(self, kernel: &'static [&'static KernelNeeds]) -> AttachKind {
        AttachKind { kernel, ..self }
    }

    /// Sets the kind's own requests.
    pub const fn with_methods(self, methods: &'static Methods) -> AttachKind {
        AttachKind { methods: Some(methods), ..self }
    }
}
