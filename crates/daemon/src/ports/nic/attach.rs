//! Attaches an interface to a switch as a port, and its host stack as another port.

use std::sync::Arc;
use std::time::Duration;

use netvale_abi::nmreq::{NR_REG_ALL_NIC, NR_REG_NIC_SW};
use netvale_afxdp::Nic;
use netvale_afxdp::iface::{Interface, has_carrier, is_loopback, is_up};
use netvale_afxdp::sizes;
use netvale_control::options::kind;
use netvale_control::types::{AttachParams, PortKind, PortOptions};
use netvale_fdio::state::State;
use netvale_mem::PortShape;
use netvale_mem::layout::RING_SLOTS_RANGE;
use netvale_nic::ingress::NicIngress;
use netvale_nic::stack::{OpenRing, Stack};
use netvale_port::{Egress, Ingress};
use netvale_portspec::{AttachSpec, NicSpec, PortName, PortSpec};
use netvale_tap::{TapEgress, TapIngress, TapLink};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::names::wanted;
use super::queue::{NicQueueState, SwitchQueue};
use super::stack;
use crate::caller::Caller;
use crate::daemon::{Daemon, PortBackend};
use crate::handover::items::{ParkedPort, PortItem};
use crate::permission;
use crate::ports::kind::{AdmittedRequest, Continuation, NamedRings, place_of};
use crate::ports::plug::{NewPort, PortQueues, plug, unplug};
use crate::refusal::{Refusal, refuse};
use crate::registry::ports::{DeclaredPort, SwitchPort};
use crate::rings::nic::mode_words;

/// Backend of an interface's port.
struct InterfacePort {
    nic: Arc<Nic>,
    /// Number of entries in the rings of each queue's socket.
    entries: u32,
    queues: Vec<SwitchQueue>,
    /// Description of the interface, and of the mode in which its queues' sockets are bound; `None` if it has no
    /// queues.
    detail: Option<String>,
}

/// The state from which another process restores the port.
#[derive(Serialize, Deserialize)]
struct InterfaceState {
    entries: u32,
    queues: Vec<NicQueueState>,
}

impl PortBackend for InterfacePort {
    fn kind(&self) -> PortKind {
        PortKind::Nic
    }

    fn notes(&self) -> Vec<String> {
        let name = &self.nic.interface().name;
        let down = (!is_up(name)).then(|| format!("interface {name} is down; 'ip link set {name} up' sets it up"));
        let lost = self.nic.lost_tags().map(|why| why.to_string());
        self.detail.iter().cloned().chain(lost).chain(down).collect()
    }

    fn gone(&self) -> Option<String> {
        self.nic.gone()
    }

    fn is_link_reported(&self) -> bool {
        true
    }

    fn link(&self) -> Option<bool> {
        Some(has_carrier(&self.nic.interface().name))
    }

    fn may_be_received(&self) -> bool {
        has_carrier(&self.nic.interface().name)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.nic.interface().name)
    }

    fn wrapped_queues(&self) -> Option<u32> {
        Some(self.nic.interface().queues)
    }

    /// Saves the queues. The positions of their buffers need not be saved, because they can be derived from the rings
    /// of the sockets.
    fn save(&self) -> std::io::Result<Option<State>> {
        if !self.nic.is_there() {
            return Ok(None);
        }
        let queues = self.queues.iter().map(SwitchQueue::save).collect::<std::io::Result<_>>()?;
        Ok(Some(State::of(&InterfaceState { entries: self.entries, queues })?))
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        let queues = self.queues.iter().map(SwitchQueue::save_parked).collect::<std::io::Result<Option<_>>>()?;
        let Some(queues) = queues.filter(|_| self.nic.is_there()) else { return Ok(None) };
        Ok(Some(State::of(&InterfaceState { entries: self.entries, queues })?.into()))
    }

    /// Frames of interfaces have no virtio-net header.
    fn set_header(&self, len: u32) -> bool {
        len == 0
    }

    /// Detaches the port of the interface's host stack as well.
    fn stop(self: Box<Self>, d: &mut Daemon, full: &str) {
        let stack = host_port(full);
        if d.ports.get(&stack).is_some_and(|record| record.behind.get::<StackPort>().is_some()) {
            // This cannot fail, because the port was just found.
            let _ = unplug(d, &stack, "the interface of this host stack is detached");
        }
    }
}

/// Backend of a host stack's port.
struct StackPort {
    interface: Arc<Nic>,
    /// Whether TCP segments to the stack are merged (GRO).
    gro: bool,
    /// Keeps the redirection of the stack's frames to this port in effect until this field is dropped.
    _open: OpenRing,
}

/// State of a host stack's port, from which a successor restores it.
#[derive(Serialize, Deserialize)]
struct StackState {
    interface: String,
    gro: bool,
}

impl PortBackend for StackPort {
    fn kind(&self) -> PortKind {
        PortKind::Nic
    }

    fn notes(&self) -> Vec<String> {
        vec![format!("the host's stack behind interface {}", self.interface.interface().name)]
    }

    fn gone(&self) -> Option<String> {
        self.interface.gone()
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        let interface = self.interface.interface().name.clone();
        let state = State::of(&StackState { interface, gro: self.gro })?;
        Ok(self.interface.is_there().then_some(state))
    }
}

/// Returns the name of the host stack's port that belongs to the interface port `name`.
fn host_port(name: &str) -> String {
    format!("{name}^")
}

/// How long the kernel may take to free the queues of a process that has ended.
const TAKEN_BACK: Duration = Duration::from_secs(1);

/// Removes the port of the host stack before the port of its interface is attached anew; attaching the interface
/// creates the host stack's port again. Returns how long the queues may stay in use.
pub fn begin_anew(d: &mut Daemon, name: &str) -> Duration {
    // The interface may have been attached without its host stack.
    let _ = unplug(d, &host_port(name), "the interface of this host stack is attached again");
    TAKEN_BACK
}

/// Attaches an interface to a switch.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Netmap(spec) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Netmap>()?;
    let ifname = spec.ifname().as_str();
    if let Some(state) = asked.continued() {
        return continue_port(d, asked, ifname, state);
    }
    let nic = d.interfaces.nic(ifname)?;
    if is_loopback(ifname) {
        let text = format!("{ifname} is a loopback interface: a switch would learn all addresses behind it");
        return refuse(Errno::INVAL, format!("{text}; attach a TAP for the host"));
    }
    let queues = nic.interface().queues;
    let which = wanted(spec.spec().rings, (queues, 1), (queues, 1))?;
    if o.slots() > *RING_SLOTS_RANGE.end() {
        return refuse(
            Errno::INVAL,
            format!("{} slots requested: expected at most {} per ring", o.slots(), RING_SLOTS_RANGE.end()),
        );
    }
    let host = PortShape { tx_rings: 0, rx_rings: 0, tx_slots: o.slots(), rx_slots: o.slots() };
    let entries = sizes::entries(sizes::shape(1, host));
    let opened = (which.start..which.end.min(queues)).map(|queue| SwitchQueue::open(&nic, queue, entries));
    on_switch(d, asked, &nic, entries, opened.collect::<Result<_, _>>()?)?;
    if (o.host() || which.end > queues)
        && let Err(why) = attach_stack(d, asked, &nic)
    {
        unplug(d, &asked.at.full(), "the host stack of this interface cannot be attached")?;
        return Err(why);
    }
    Ok(())
}

/// Restores the queues of an interface.
fn continue_port(d: &mut Daemon, asked: &AdmittedRequest<'_>, ifname: &str, state: State) -> Result<(), Refusal> {
    let InterfaceState { entries, queues } = state.read()?;
    let nic = d.interfaces.known(ifname).ok_or_else(missing)?;
    let restored = queues.into_iter().map(|queue| SwitchQueue::restore(&nic, entries, queue));
    let restored = restored.collect::<Result<_, _>>()?;
    on_switch(d, asked, &nic, entries, restored)
}

fn missing() -> Refusal {
    Refusal::new(Errno::INVAL, "the interface of this port is missing")
}

/// Attaches an interface's queues to the switch.
fn on_switch(
    d: &mut Daemon,
    asked: &AdmittedRequest<'_>,
    nic: &Arc<Nic>,
    entries: u32,
    all: Vec<(SwitchQueue, NicIngress)>,
) -> Result<(), Refusal> {
    let (queues, ingresses): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let egress = queues.iter().map(|queue| Arc::clone(&queue.egress) as Arc<dyn Egress>).collect();
    let ingresses = ingresses.into_iter().map(|ingress| Box::new(ingress) as Box<dyn Ingress>).collect();
    let words = |queue: &SwitchQueue| mode_words(nic, queue.is_zero_copy());
    let detail = queues.last().map(|queue| format!("interface {}, {}", nic.interface().name, words(queue)));
    let behind = InterfacePort { nic: Arc::clone(nic), entries, queues, detail };
    let gro = asked.options::<kind::Netmap>()?.gro();
    plug(d, &asked.at, (egress, ingresses), NewPort::new(behind, asked).with_gro(gro))
}

/// Attaches the interface whose name is the port's name, as netmap's `VALE_ATTACH` does.
pub fn attach_named(d: &mut Daemon, at: SwitchPort, rings: NamedRings, caller: Caller) -> Result<(), Refusal> {
    let port = at.port.as_str();
    let missing =
        || Refusal::new(Errno::INVAL, format!("interface {port} does not exist: 'ip link' shows the interfaces"));
    let spec = PortName::parse(&format!("netmap:{port}")).ok().map(PortSpec::from).and_then(NicSpec::new);
    Interface::find(port).map_err(|_| missing())?;
    if !matches!(rings.mode, NR_REG_ALL_NIC | NR_REG_NIC_SW) || rings.ring != 0 {
        return refuse(Errno::INVAL, format!("expected all rings of {port}, with or without the host stack"));
    }
    if d.interfaces.port_on(port).is_some() {
        return refuse(Errno::BUSY, format!("a program has {port} open; end the program first"));
    }
    let options = PortOptions { host: rings.mode == NR_REG_NIC_SW, ..PortOptions::default() };
    let spec = AttachSpec::Netmap(spec.ok_or_else(missing)?);
    let full = at.full();
    let switch = at.switch.clone();
    attach(d, &AdmittedRequest::new(at, &spec, &options, caller))?;
    if let Some(record) = d.ports.get_mut(&full) {
        let params = AttachParams { switch, port: spec.to_string(), options };
        record.declared = Some(DeclaredPort { params, from_file: false });
    }
    Ok(())
}

/// Attaches an interface's host stack to a switch, as the port `NAME^`.
fn attach_stack(d: &mut Daemon, asked: &AdmittedRequest<'_>, nic: &Arc<Nic>) -> Result<(), Refusal> {
    let at = SwitchPort::new(&asked.at.switch, host_port(&asked.at.port));
    permission::is_free(d, &at)?;
    let ifname = &nic.interface().name;
    if d.interfaces.stack(ifname).is_some() {
        return refuse(
            Errno::BUSY,
            format!("the host rings of {ifname} are in use; end the program that has them open"),
        );
    }
    let stack = stack::make(&mut d.interfaces, nic, 1, false)?;
    let open = |e| Refusal::new(e, format!("cannot open the host rings of {ifname}: {e}"));
    let queues = stack_queues(&stack).map_err(open)?;
    let ring = stack.open_ring(0).map_err(open)?;
    let gro = asked.options::<kind::Netmap>()?.gro();
    let behind = StackPort { interface: Arc::clone(nic), gro, _open: ring };
    plug(d, &at, queues, NewPort::new(behind, asked).with_gro(gro))
}

/// Restores ports of host stacks.
pub const STACK: Continuation = Continuation {
    is_for: |item| item.kind == PortKind::Nic && item.declared.is_none(),
    go_on: continue_stack,
    is_last: false,
    is_still: false,
};

/// Restores the port of an interface's host stack.
///
/// # Errors
/// [`Refusal`] if the interface, or the TAP that replaces its stack, does not exist.
fn continue_stack(d: &mut Daemon, item: &PortItem, state: State) -> Result<(), Refusal> {
    let at = place_of(item)?;
    let StackState { interface, gro } = state.read()?;
    let nic = d.interfaces.known(&interface).ok_or_else(missing)?;
    let stack = d.interfaces.stack(&interface).ok_or_else(missing)?;
    let behind = Box::new(StackPort { interface: nic, gro, _open: stack.continue_ring(0) });
    let PortItem { persistent, lossless, .. } = *item;
    let owner = item.owner.into();
    let policies = item.policies.clone();
    plug(d, &at, stack_queues(&stack)?, NewPort { persistent, lossless, gro, policies, ..NewPort::of(behind, owner) })
}

fn stack_queues(stack: &Stack) -> Result<PortQueues, Errno> {
    let queue = Arc::clone(stack.queue(0)?);
    let egress: Arc<dyn Egress> = Arc::new(TapEgress::new(Arc::clone(&queue), TapLink::default()));
    Ok((vec![egress], vec![Box::new(TapIngress::new(queue, TapLink::default()))]))
}
