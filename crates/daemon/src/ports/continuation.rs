//! How ports of another process go on. Most are attached again with what they were attached with, which then finds what
//! the other process has left; kinds that go on in another way have a row of [`WAYS`].

use std::time::Duration;

use netvale_fdio::state::State;
use netvale_portspec::AttachSpec;
use rustix::io::Errno;

use super::kind::{Asked, Continuation, nowhere, place_of};
use super::{attach, brought_tap, kind_of, local, monitor, nic, passthrough, persistent, socket};
use crate::daemon::Daemon;
use crate::handover::items::{ConnectionItem, HoldItem, Item, PortItem};
use crate::refusal::{Refusal, refuse};

/// The ways. The first that is for a port is its way.
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

/// Continues a port where another process stopped.
///
/// # Errors
/// [`Refusal`] when what came of it is not what its kind needs.
pub fn continue_port(d: &mut Daemon, item: &PortItem, state: State) -> Result<(), Refusal> {
    if let Some(way) = way_of(item) {
        return (way.go_on)(d, item, state);
    }
    let at = place_of(item)?;
    let (params, _) = item.declared.as_ref().ok_or_else(|| nowhere(item))?;
    let spec = params.check().or_else(|e| refuse(Errno::INVAL, format!("{e:#}")))?;
    let spec = spec.settled(|ifname| d.interfaces.known(ifname).is_some());
    attach(d, &Asked::new(at, &spec, &params.options, item.owner.into()).continuing(state))
}

/// Whether an item is continued once all other ports are there and in use.
pub fn is_last(item: &Item) -> bool {
    match item {
        Item::Port(port) => way_of(port).is_some_and(|way| way.is_last),
        Item::Client(client) => {
            matches!(client.connection, ConnectionItem::Attach { holds: Some((HoldItem::Monitor { .. }, _)) })
        }
        _ => false,
    }
}

/// Whether requests alone change what is kept of a port.
pub fn is_still(item: &PortItem) -> bool {
    way_of(item).is_some_and(|way| way.is_still)
}

/// Takes away what else is there of a port that begins anew. Returns how long what it takes may be in use still, if
/// the kind says so.
pub fn begin_anew(d: &mut Daemon, item: &PortItem) -> Option<Duration> {
    let (params, _) = item.declared.as_ref()?;
    let kind = kind_of(&AttachSpec::parse(&params.port).ok()?)?;
    kind.begin_anew.map(|begin_anew| begin_anew(d, &item.name))
}
