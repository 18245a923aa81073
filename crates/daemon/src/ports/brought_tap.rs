//! `tap:NAME`: a TAP that a client created in a network namespace of its choice, and passed to the daemon.
//!
//! The client may keep copies of the descriptors, with which it can read the frames of its own interface, change the
//! format of frames, and make the descriptors blocking. No other port is affected: an operation that would block a
//! worker ends this port ([`TapLink`]). The port ends when its interface or the namespace ends.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_control::options::kind;
use netvale_control::types::PortKind;
use netvale_fdio::state::{Fd, State};
use netvale_mem::fault::Fault;
use netvale_port::{Egress, Ingress};
use netvale_portspec::is_hidden;
use netvale_tap::restore::name_of;
use netvale_tap::{AdoptedInterface, Tap, TapEgress, TapIngress, TapLink, adopt};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::kind::{AdmittedRequest, Continuation, place_of};
use super::plug::{NewPort, PortQueues, plug};
use crate::caller::Caller;
use crate::daemon::{Daemon, PortBackend};
use crate::handover::items::PortItem;
use crate::refusal::{Refusal, refuse};
use crate::system::closing::{self, Strangers};

/// Maximum number of characters of the network namespace's name, a text from the client.
const MOST_PLACE: usize = 128;

/// Backend of a port with a client's TAP.
struct BroughtTap {
    link: TapLink,
    notes: Vec<String>,
    uso: bool,
    /// Whether TCP segments and UDP datagrams to the interface are merged (GRO).
    gro: bool,
    queues: HeldQueues,
}

/// Queues of a user's TAP. When the last queue is closed, the kernel removes the interface. This takes milliseconds, so
/// a separate thread closes the queues.
struct HeldQueues {
    queues: Vec<Arc<OwnedFd>>,
    uid: u32,
}

impl Drop for HeldQueues {
    fn drop(&mut self) {
        // If another thread is still dropping a task that uses a queue, that thread closes the queue instead.
        self.queues.drain(..).filter_map(Arc::into_inner).for_each(|queue| closing::close(queue, self.uid));
    }
}

/// The state from which another process restores the port.
#[derive(Serialize, Deserialize)]
struct BroughtState {
    name: String,
    uso: bool,
    gro: bool,
    notes: Vec<String>,
    queues: Vec<Fd>,
}

impl PortBackend for BroughtTap {
    fn kind(&self) -> PortKind {
        PortKind::Tap
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        // The current name is saved, as the interface may have been renamed. If the kernel returns no name, the
        // interface no longer exists.
        let queues = &self.queues.queues;
        let Some(Ok(name)) = queues.first().map(|queue| name_of(queue)) else { return Ok(None) };
        let BroughtTap { uso, gro, .. } = *self;
        let queues = queues.iter().map(Fd::shared).collect();
        Ok(Some(State::of(&BroughtState { name, uso, gro, notes: self.notes.clone(), queues })?))
    }

    fn set_mtu(&self, _mtu: Option<u32>) -> Result<(), Refusal> {
        let text = "the interface is in another network namespace; set the MTU there with 'ip link set NAME mtu BYTES'";
        refuse(Errno::OPNOTSUPP, text)
    }

    fn may_be_received(&self) -> bool {
        !self.link.is_down()
    }

    fn look(&self) -> Option<String> {
        self.link.look(self.queues.queues.first()?)
    }

    fn fault(&self) -> Option<&Fault> {
        self.link.fault()
    }
}

/// Attaches a TAP whose queues came with the request.
///
/// # Errors
/// [`Refusal`] if the descriptors are not TAP queues, or the port cannot be created.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>, queues: Strangers) -> Result<(), Refusal> {
    let o = asked.options::<kind::Tap>()?;
    let count = u32::try_from(queues.all().len()).unwrap_or(u32::MAX);
    if o.rings().max(1) != count {
        return refuse(Errno::INVAL, format!("expected {} TAP queues (one per ring), found {count}", o.rings().max(1)));
    }
    let adopted = adopt(queues.all())?;
    let link = new_link(d, asked.caller);
    let queues = shared(queues.into_known());
    let held = || HeldQueues { queues: queues.clone(), uid: asked.caller.uid };
    // If the port cannot be created, this copy is the last owner of the queues, and closes them on a separate thread.
    let last = held();
    let uso = adopted.has_uso;
    let gro = o.gro();
    let notes = notes(&adopted, o.netns().as_deref());
    let behind = BroughtTap { link: link.clone(), notes, uso, gro, queues: held() };
    let done = plug(d, &asked.at, of(&queues, &link), NewPort::new(behind, asked).with_gro(gro));
    drop(queues);
    drop(last);
    done
}

/// Restores ports with clients' TAPs.
pub const CONTINUATION: Continuation = Continuation {
    is_for: |item| item.kind == PortKind::Tap && item.declared.is_none(),
    go_on: continue_port,
    is_last: false,
    is_still: false,
};

/// Restores a client's TAP that another process saved.
///
/// # Errors
/// [`Refusal`] if the descriptors are not TAP queues.
fn continue_port(d: &mut Daemon, item: &PortItem, state: State) -> Result<(), Refusal> {
    let at = place_of(item)?;
    let BroughtState { name, uso, gro, notes, queues } = state.read()?;
    let tap = Tap::restore(&name, uso, Fd::take_all(queues)?)?;
    let owner = Caller::from(item.owner);
    let link = new_link(d, owner);
    let queues = shared(tap.into_queues());
    let of = of(&queues, &link);
    let behind = Box::new(BroughtTap { link, notes, uso, gro, queues: HeldQueues { queues, uid: owner.uid } });
    let PortItem { persistent, lossless, .. } = *item;
    let policies = item.policies.clone();
    plug(d, &at, of, NewPort { persistent, lossless, gro, policies, ..NewPort::of(behind, owner) })
}

/// Creates the [`TapLink`], which reports that the interface is down or no longer exists.
fn new_link(d: &mut Daemon, owner: Caller) -> TapLink {
    let link = TapLink::held_by(d.evictions.new_fault(owner));
    link.on_change(d.on_news());
    link
}

fn shared(queues: Vec<OwnedFd>) -> Vec<Arc<OwnedFd>> {
    queues.into_iter().map(Arc::new).collect()
}

fn of(queues: &[Arc<OwnedFd>], link: &TapLink) -> PortQueues {
    let mut egress = Vec::<Arc<dyn Egress>>::new();
    let mut ingresses = Vec::<Box<dyn Ingress>>::new();
    for queue in queues {
        egress.push(Arc::new(TapEgress::new(Arc::clone(queue), link.clone())));
        ingresses.push(Box::new(TapIngress::new(Arc::clone(queue), link.clone())));
    }
    (egress, ingresses)
}

/// Returns notes for `netvale show`. The kernel reports the namespace's inode; the namespace's name is a text from the
/// client.
fn notes(adopted: &AdoptedInterface, place: Option<&str>) -> Vec<String> {
    let uso = if adopted.has_uso { "TSO, USO" } else { "TSO" };
    let inode = adopted.netns.map_or_else(|| "unknown".to_owned(), |inode| inode.to_string());
    let place: String = place.unwrap_or("").chars().filter(|c| !is_hidden(*c)).take(MOST_PLACE).collect();
    let place = if place.is_empty() { place } else { format!(" ({place})") };
    vec![
        format!("interface {}, offloads: checksum, {uso}", adopted.name),
        format!("network namespace {inode}{place}; the client that attached the interface created it"),
    ]
}
