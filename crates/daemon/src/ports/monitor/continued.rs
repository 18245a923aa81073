//! Hand-over of monitors. Monitors get no copies of frames that pass during the hand-over.

use std::ops::Range;
use std::sync::Arc;

use netvale_control::types::PortKind;
use netvale_fdio::state::State;
use netvale_port::Egress;
use netvale_port::ring_out::{RingEgress, SentCopies};
use netvale_switch::MonitorRings;
use serde::{Deserialize, Serialize};

use super::{MonitorPort, OpenMonitor, begin};
use crate::daemon::Daemon;
use crate::handover::items::{BindingItem, PortItem};
use crate::ports::attachment::Attachment;
use crate::ports::kind::Continuation;
use crate::ports::{local, memory};
use crate::refusal::Refusal;
use crate::registry::watches::{MonitoredPort, WatchRecord};
use crate::rings::continued::PortRingsState;
use crate::rings::local::LocalRings;

/// The port that a monitor watches, and the monitor's rings that get the copies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WatchState {
    what: WatchedItem,
    released: bool,
    sent: Vec<bool>,
    received: Vec<bool>,
    client: u64,
    uid: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WatchedItem {
    Port(String),
    Wire(String),
    Pipe(String, usize),
    Nic(String),
}

impl WatchState {
    pub(super) fn of(watching: &WatchRecord) -> WatchState {
        let flags = |rings: &MonitorRings| rings.iter().map(Option::is_some).collect();
        WatchState {
            what: match watching.what.clone() {
                MonitoredPort::Port(name) => WatchedItem::Port(name),
                MonitoredPort::Wire(name) => WatchedItem::Wire(name),
                MonitoredPort::Pipe(name, end) => WatchedItem::Pipe(name, end),
                MonitoredPort::Nic(name) => WatchedItem::Nic(name),
            },
            released: watching.released,
            sent: flags(&watching.sent),
            received: flags(&watching.received),
            client: watching.client,
            uid: watching.uid,
        }
    }

    fn watching(self, rings: &[Arc<RingEgress>]) -> WatchRecord {
        let sent = |e: &Arc<RingEgress>| Arc::new(SentCopies(Arc::clone(e))) as Arc<dyn Egress>;
        let received = |e: &Arc<RingEgress>| Arc::clone(e) as Arc<dyn Egress>;
        WatchRecord {
            what: match self.what {
                WatchedItem::Port(name) => MonitoredPort::Port(name),
                WatchedItem::Wire(name) => MonitoredPort::Wire(name),
                WatchedItem::Pipe(name, end) => MonitoredPort::Pipe(name, end & 1),
                WatchedItem::Nic(name) => MonitoredPort::Nic(name),
            },
            released: self.released,
            sent: rings.iter().zip(self.sent).map(|(e, on)| on.then(|| sent(e))).collect(),
            received: rings.iter().zip(self.received).map(|(e, on)| on.then(|| received(e))).collect(),
            client: self.client,
            uid: self.uid,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct MonitorState {
    rings: PortRingsState,
    seen: WatchState,
}

impl MonitorPort {
    pub(super) fn state(&self) -> std::io::Result<State> {
        let MonitorPort(local, seen) = self;
        Ok(State::of(&MonitorState { rings: local.state()?, seen: seen.clone() })?)
    }
}

/// Restores monitors. They are restored after their targets.
pub const CONTINUATION: Continuation = Continuation {
    is_for: |item| item.kind == PortKind::Monitor,
    go_on: continue_port,
    is_last: true,
    is_still: false,
};

/// Restores a monitor that another process saved. Must be called after its target is restored.
///
/// # Errors
/// [`Refusal`] if the target does not exist, or the monitor's memory or descriptors are inconsistent.
fn continue_port(d: &mut Daemon, item: &PortItem, state: State) -> Result<(), Refusal> {
    let MonitorState { rings, seen } = state.read()?;
    let owner = item.owner.into();
    let region = memory::continued(d, rings.region, owner)?;
    let (local, _takes_nothing) = LocalRings::continued(&region, rings, d.evictions.new_fault(owner))?;
    let watching = seen.watching(&local.rings.rx);
    begin(d, local, watching, owner, &item.name)
}

/// Restores a connection's hold on a monitor.
///
/// # Errors
/// [`Refusal`] if the monitor or `netmap_if` does not exist.
pub fn continue_hold(
    d: &Daemon,
    port: String,
    rings: [Range<u32>; 2],
    binding: BindingItem,
) -> Result<Box<dyn Attachment>, Refusal> {
    Ok(Box::new(OpenMonitor(local::continue_hold(d, port, rings, binding)?)))
}
