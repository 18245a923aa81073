//! An interface as a port of a switch, and the stack behind it as another one.

use std::sync::Arc;

use netvale_abi::nmreq::{NR_REG_ALL_NIC, NR_REG_NIC_SW};
use netvale_afxdp::Nic;
use netvale_afxdp::iface::Interface;
use netvale_afxdp::sizes;
use netvale_afxdp::socket::{BindResult, Buffers};
use netvale_control::options::kind;
use netvale_control::types::{PortKind, PortOptions};
use netvale_mem::Mapping;
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RING_SLOTS_RANGE};
use netvale_nic::egress::NicEgress;
use netvale_nic::ingress::NicIngress;
use netvale_nic::stack::OpenRing;
use netvale_port::{Egress, Ingress};
use netvale_portspec::{AttachSpec, NicSpec, PortSpec};
use netvale_tap::{TapEgress, TapIngress};
use rustix::io::Errno;

use super::names::wanted;
use super::stack;
use crate::caller::Caller;
use crate::daemon::{Attached, Daemon};
use crate::policy;
use crate::ports::kind::{Asked, NamedRings};
use crate::ports::plug::{NewPort, plug, unplug};
use crate::refusal::{Refusal, refuse};
use crate::registry::ports::SwitchPort;
use crate::rings::nic::mode_words;

/// An interface behind a port.
struct InterfacePort {
    nic: Arc<Nic>,
    /// How its bound queues work, in words; `None` if none is bound.
    detail: Option<String>,
}

impl Attached for InterfacePort {
    fn kind(&self) -> PortKind {
        PortKind::Nic
    }

    fn notes(&self) -> Vec<String> {
        self.detail.iter().cloned().collect()
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.nic.interface().name)
    }

    fn wrapped_queues(&self) -> Option<u32> {
        Some(self.nic.interface().queues)
    }

    /// Its frames have no header, and get none.
    fn set_header(&self, len: u32) -> bool {
        len == 0
    }

    /// Detaches the stack behind it, too.
    fn stop(self: Box<Self>, d: &mut Daemon, full: &str) {
        let stack = host_port(full);
        if d.ports.get(&stack).is_some_and(|record| record.behind.get::<StackPort>().is_some()) {
            // It was found just now.
            let _ = unplug(d, &stack, "its interface is detached");
        }
    }
}

/// The stack of an interface, behind a port.
struct StackPort {
    detail: String,
    /// Redirects the stack's frames here while it lives.
    _open: OpenRing,
}

impl Attached for StackPort {
    fn kind(&self) -> PortKind {
        PortKind::Nic
    }

    fn notes(&self) -> Vec<String> {
        vec![self.detail.clone()]
    }
}

/// The name of the port for the stack behind an interface that is the port `name`.
fn host_port(name: &str) -> String {
    format!("{name}^")
}

/// Attaches an interface to a switch.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let AttachSpec::Netmap(spec) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Netmap>()?;
    let ifname = spec.ifname().as_str();
    let nic = d.interfaces.nic(ifname)?;
    let queues = nic.interface().queues;
    let which = wanted(spec.spec().rings, (queues, 1), (queues, 1))?;
    if o.slots() > *RING_SLOTS_RANGE.end() {
        return refuse(Errno::INVAL, format!("at most {} slots a ring are possible", RING_SLOTS_RANGE.end()));
    }
    let entries = sizes::entries(sizes::shape(1, (0, 0), (o.slots(), o.slots())));
    let (mut egress, mut ingresses) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
    let mut detail = None;
    for queue in which.start..which.end.min(queues) {
        let (ingress, out, got) = switch_queue(&nic, queue, entries)?;
        ingresses.push(Box::new(ingress));
        egress.push(Arc::new(out));
        detail = Some(format!("interface {ifname}, {}", mode_words(&nic, got.zero_copy)));
    }
    let behind = InterfacePort { nic: Arc::clone(&nic), detail };
    plug(d, &asked.at, (egress, ingresses), NewPort::new(behind, asked).with_gro(o.gro()))?;
    if (o.host() || which.end > queues)
        && let Err(why) = attach_stack(d, asked, &nic)
    {
        unplug(d, &asked.at.full(), "its host stack cannot be attached")?;
        return Err(why);
    }
    Ok(())
}

/// Attaches the interface that a port is named after, as netmap's `VALE_ATTACH` does.
pub fn attach_named(d: &mut Daemon, at: SwitchPort, rings: NamedRings, caller: Caller) -> Result<(), Refusal> {
    let port = at.port.as_str();
    let missing = || Refusal::new(Errno::INVAL, format!("there is no interface {port}: 'ip link' shows them"));
    let spec = PortSpec::parse(&format!("netmap:{port}")).ok().and_then(NicSpec::new);
    Interface::find(port).map_err(|_| missing())?;
    if !matches!(rings.mode, NR_REG_ALL_NIC | NR_REG_NIC_SW) || rings.ring != 0 {
        return refuse(Errno::INVAL, format!("{port} is attached with all its rings, and its stack or without"));
    }
    if d.interfaces.port_on(port).is_some() {
        return refuse(Errno::BUSY, format!("{port} is open in a program: end that first"));
    }
    let options = PortOptions { host: rings.mode == NR_REG_NIC_SW, ..PortOptions::default() };
    let spec = AttachSpec::Netmap(spec.ok_or_else(missing)?);
    attach(d, &Asked::new(at, &spec, &options, caller))
}

/// Attaches the stack behind an interface to a switch, as the port `NAME^`.
fn attach_stack(d: &mut Daemon, asked: &Asked<'_>, nic: &Nic) -> Result<(), Refusal> {
    let at = SwitchPort::new(&asked.at.switch, host_port(&asked.at.port));
    policy::is_free(d, &at)?;
    let ifname = &nic.interface().name;
    if d.interfaces.stack(ifname).is_some() {
        return refuse(
            Errno::BUSY,
            format!("the host rings of {ifname} are in use: close the program that has them open"),
        );
    }
    let stack = stack::make(&mut d.interfaces, nic, 1, false)?;
    let open = |e| Refusal::new(e, format!("host rings of {ifname}: {e}"));
    let queue = Arc::clone(stack.queue(0).map_err(open)?);
    let ring = stack.open_ring(0).map_err(open)?;
    let egress: Arc<dyn Egress> = Arc::new(TapEgress::new(Arc::clone(&queue), Arc::default()));
    let ingress = Box::new(TapIngress::new(queue, Arc::default()));
    let behind = StackPort { detail: format!("the host's stack behind interface {ifname}"), _open: ring };
    let gro = asked.options::<kind::Netmap>()?.gro();
    plug(d, &at, (vec![egress], vec![ingress]), NewPort::new(behind, asked).with_gro(gro))
}

/// Opens a queue for a switch, with its own memory: half of it to receive into, half to send from.
fn switch_queue(nic: &Arc<Nic>, queue: u32, entries: u32) -> Result<(NicIngress, NicEgress, BindResult), Refusal> {
    // Buffer 0 has no room for the kernel's headroom before it.
    let count = 1 + 2 * entries;
    let bytes = (count as usize * DEFAULT_BUF_SIZE as usize).next_multiple_of(4096);
    let missing =
        || Refusal::new(Errno::NOMEM, format!("no memory for {count} frames of interface {}", nic.interface().name));
    let memory = Arc::new(Mapping::private(bytes).ok_or_else(missing)?);
    let buffers = Buffers { first: 0, stride: DEFAULT_BUF_SIZE, count };
    let opened = nic.queue(queue, entries, (&memory, buffers), true)?;
    let halves = opened.socket.receiver().and_then(|receiver| Ok((receiver, opened.socket.sender()?)));
    let failed = |e| Refusal::new(e, format!("{}: cannot map the socket's rings: {e}", nic.interface().name));
    let (receiver, sender) = halves.map_err(failed)?;
    let got = opened.bind()?;
    let queue = opened.queue;
    let ours = (got.multi_buffer, Arc::clone(&queue));
    let egress = NicEgress::new(sender, Arc::clone(&memory), buffers, 1 + entries..count, ours);
    Ok((NicIngress::new(receiver, memory, buffers, 1..1 + entries, queue), egress, got))
}
