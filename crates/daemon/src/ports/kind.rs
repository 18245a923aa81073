//! Requests to attach a port, as the kinds of ports get them, and what a row says of a kind: its *methods* are requests
//! of its own, and a port begins *anew* if nothing of what it was goes on. A *continuation* is how ports go on in
//! another process.

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

/// A way in which ports go on.
pub struct Continuation {
    /// Whether a port goes on in this way.
    pub is_for: fn(&PortItem) -> bool,
    /// Continues it where another process stopped.
    pub go_on: fn(&mut Daemon, &PortItem, State) -> Result<(), Refusal>,
    /// Whether it needs other ports in use, and comes after them.
    pub is_last: bool,
    /// Whether requests alone change what is kept of it, and neither frames nor threads.
    pub is_still: bool,
}

/// The refusal of a port that is on no switch.
pub fn nowhere(item: &PortItem) -> Refusal {
    Refusal::new(Errno::OPNOTSUPP, format!("ports of kind {} on no switch", item.kind))
}

/// The switch that a port is on, and its name there.
///
/// # Errors
/// [`Refusal`] if it is on none.
pub fn place_of(item: &PortItem) -> Result<SwitchPort, Refusal> {
    let (switch, port) = item.on.as_ref().ok_or_else(|| nowhere(item))?;
    Ok(SwitchPort::new(switch, port))
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

/// Takes away what else is there of a port with that name that begins anew. Returns how long what it takes may be in
/// use still.
pub type BeginAnew = fn(&mut Daemon, &str) -> Duration;

/// Requests that ports of one kind alone answer.
pub struct Methods {
    /// Answers one, if it is of that kind.
    pub answer: fn(&mut Daemon, &KindRequest, Caller) -> Option<Result<Reply, RpcError>>,
    /// Notifications that are due: the connection, and what it is told.
    pub due: fn(&mut Daemon) -> Vec<(u64, String)>,
}

/// A kind of port that can be attached.
pub struct Kind {
    /// The text before the colon in its name; empty for a local port.
    pub prefix: &'static str,
    /// The function that makes such a port.
    pub attach: Make,
    /// What is done before one begins anew, if something is.
    pub begin_anew: Option<BeginAnew>,
    /// What its ports need of the kernel, also those that are opened and not attached.
    pub kernel: &'static [&'static KernelNeeds],
    /// Its own requests, if it has some.
    pub methods: Option<&'static Methods>,
}

impl Kind {
    /// A kind that needs nothing else.
    pub const fn new(prefix: &'static str, attach: Make) -> Kind {
        Kind { prefix, attach, begin_anew: None, kernel: &[], methods: None }
    }

    /// The same with what is done before a port begins anew.
    pub const fn with_begin_anew(self, begin_anew: BeginAnew) -> Kind {
        Kind { begin_anew: Some(begin_anew), ..self }
    }

    /// The same with what its ports need of the kernel.
    pub const fn with_kernel(self, kernel: &'static [&'static KernelNeeds]) -> Kind {
        Kind { kernel, ..self }
    }

    /// The same with requests of its own.
    pub const fn with_methods(self, methods: &'static Methods) -> Kind {
        Kind { methods: Some(methods), ..self }
    }
}
