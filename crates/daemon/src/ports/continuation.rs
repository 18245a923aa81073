//! Restores ports that another process saved. Most ports are attached again with their former parameters, and get the
//! state that the other process saved. Ports that are restored in another way have a row in [`WAYS`].

use std::time::Duration;

use netvale_fdio::state::State;
use netvale_portspec::AttachSpec;
use rustix::io::Errno;

use super::kind::{AdmittedRequest, Continuation, nowhere, place_of};
use super::{attach, brought_tap, kind_of, local, monitor, nic, passthrough, persistent, socket};
use crate::daemon::Daemon;
use crate::handover::items::{Item, PortItem};
use crate::refusal::{Refusal, refuse};

/// The ways of restoration for ports that are not simply attached again. For each port, the first way that applies is
/// used.
const WAYS: &[&Continuation] = &[
    &monitor::CONTINUATION,
    &persistent::CONTINUATION,
    &passthrough::CONTINUATION,
    &local::CONTINUATION,
    &brought_tap::CONTINUATION,
    &nic::attach::STACK,
    &socket::LINE,
];

fn way_of(item: &PortItem) -> Option<&'static Continuation> {
    WAYS.iter().find(|way| (way.is_for)(item)).copied()
}

/// Restores a port from the state that another process saved.
///
/// # Errors
/// [`Refusal`] if the state is not valid for the port's kind.
pub fn continue_port(d: &mut Daemon, item: &PortItem, state: State) -> Result<(), Refusal> {
    if let Some(way) = way_of(item) {
        return (way.go_on)(d, item, state);
    }
    let at = place_of(item)?;
    let (params, _) = item.declared.as_ref().ok_or_else(|| nowhere(item))?;
    let spec = params.check().or_else(|e| refuse(Errno::INVAL, format!("{e:#}")))?;
    let spec = spec.settled(|ifname| d.interfaces.known(ifname).is_some());
    attach(d, &AdmittedRequest::new(at, &spec, &params.options, item.owner.into()).continuing(state))
}

/// Whether an item is restored after all other items, while the workers already forward frames. True for monitors and
/// connections.
pub fn is_last(item: &Item) -> bool {
    match item {
        Item::Port(port) => way_of(port).is_some_and(|way| way.is_last),
        Item::Client(_) => true,
        _ => false,
    }
}

/// Whether a port's saved state changes only through requests, not through frames or threads.
pub fn is_still(item: &PortItem) -> bool {
    way_of(item).is_some_and(|way| way.is_still)
}

/// Removes what remains of a port before the port is attached anew, without its saved state. Returns how long the
/// port's resources may stay in use; `None` if the usual limit applies.
pub fn begin_anew(d: &mut Daemon, item: &PortItem) -> Option<Duration> {
    let (params, _) = item.declared.as_ref()?;
    let kind = kind_of(&AttachSpec::parse(&params.port).ok()?)?;
    kind.begin_anew.map(|begin_anew| begin_anew(d, &item.name))
}
