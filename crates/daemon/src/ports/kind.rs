//! Kinds of ports, and requests to attach a port. The *methods* of a kind are the control requests that only this kind
//! answers. A port starts *anew* if it is attached with its former parameters, but without its former state. A
//! *continuation* restores ports with the state that another process saved.

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

/// A request to attach a port, whose caller has been found to have the right.
pub struct AdmittedRequest<'a> {
    /// The port's switch, whose name has been checked, and the port's name on that switch.
    pub at: SwitchPort,
    /// The parsed specification, such as `tap:NAME`.
    pub spec: &'a AttachSpec,
    /// The caller, who becomes the port's owner.
    pub caller: Caller,
    /// The options. They must be read with [`AdmittedRequest::options`], which checks the kind.
    options: &'a PortOptions,
    /// The state to restore, from the same port in another process; `None` for a new port, and after the state is
    /// taken.
    continued: Cell<Option<State>>,
}

impl<'a> AdmittedRequest<'a> {
    /// Creates a request for a new port.
    pub fn new(at: SwitchPort, spec: &'a AttachSpec, options: &'a PortOptions, caller: Caller) -> AdmittedRequest<'a> {
        AdmittedRequest { at, spec, caller, options, continued: Cell::default() }
    }

    /// Sets the state to restore, from the same port in another process.
    #[must_use]
    pub fn continuing(self, state: State) -> AdmittedRequest<'a> {
        AdmittedRequest { continued: Cell::new(Some(state)), ..self }
    }

    /// Takes the state to restore; `None` for a new port, and if the state has already been taken.
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

    /// Returns the refusal for a specification that belongs to another kind.
    pub fn mistaken(&self) -> Refusal {
        Refusal::internal("the port is of another kind")
    }
}

/// A way in which certain ports are restored from the state that another process saved.
pub struct Continuation {
    /// Returns whether this way applies to a port.
    pub is_for: fn(&PortItem) -> bool,
    /// Restores a port from the state that another process saved.
    pub go_on: fn(&mut Daemon, &PortItem, State) -> Result<(), Refusal>,
    /// Whether these ports depend on other ports, and are thus restored after them.
    pub is_last: bool,
    /// Whether the saved state changes only with control requests, not with the port's frames or through its threads.
    pub is_still: bool,
}

/// Returns the refusal to restore a port that is on no switch.
pub fn nowhere(item: &PortItem) -> Refusal {
    Refusal::new(Errno::OPNOTSUPP, format!("ports of kind {} need a switch", item.kind))
}

/// Returns the port's switch and the port's name on that switch.
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

/// A function that removes what remains of a former port with the given name, before the port is attached anew. Returns
/// how long the former port's resources may stay in use.
pub type BeginAnewMethod = fn(&mut Daemon, &str) -> Duration;

/// Control requests that only one kind answers.
pub struct Methods {
    /// Answers a request. Returns `None` if the request belongs to another kind.
    pub answer: fn(&mut Daemon, &KindRequest, Caller) -> Option<Result<Reply, RpcError>>,
    /// Returns pending notifications, each with the number of the connection and the text.
    pub due: fn(&mut Daemon) -> Vec<(u64, String)>,
}

/// An attachable kind of port.
pub struct AttachKind {
    /// Text before the colon in the name; empty for a local port.
    pub prefix: &'static str,
    /// Creates a port, and attaches it to its switch.
    pub attach: AttachMethod,
    /// Removes what remains of a former port before it is attached anew; `None` for kinds that do not need this.
    pub begin_anew: Option<BeginAnewMethod>,
    /// System calls and files that the sandbox permits for ports of this kind, whether a request attaches them or a
    /// program opens them.
    pub kernel: &'static [&'static KernelNeeds],
    /// The kind's own requests, if any.
    pub methods: Option<&'static Methods>,
}

impl AttachKind {
    /// Creates a kind with only the required fields.
    pub const fn new(prefix: &'static str, attach: AttachMethod) -> AttachKind {
        AttachKind { prefix, attach, begin_anew: None, kernel: &[], methods: None }
    }

    /// Sets [`AttachKind::begin_anew`].
    pub const fn with_begin_anew(self, begin_anew: BeginAnewMethod) -> AttachKind {
        AttachKind { begin_anew: Some(begin_anew), ..self }
    }

    /// Sets [`AttachKind::kernel`].
    pub const fn with_kernel(self, kernel: &'static [&'static KernelNeeds]) -> AttachKind {
        AttachKind { kernel, ..self }
    }

    /// Sets [`AttachKind::methods`].
    pub const fn with_methods(self, methods: &'static Methods) -> AttachKind {
        AttachKind { methods: Some(methods), ..self }
    }
}
