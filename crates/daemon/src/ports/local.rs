//! `NAME`: a port on a switch whose rings programs open.

use std::ops::Range;
use std::sync::Arc;

use netvale_control::attach::{
    AttachRequest, FLAG_CUT, FLAG_HUGE, FLAG_LOSSLESS, FLAG_NO_HEADER, FLAG_SHARED, OffsetsRequest,
};
use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::Policies;
use netvale_control::types::PortKind;
use netvale_fdio::state::State;
use netvale_mem::region::{Binding, RingRanges};
use netvale_port::ring_in::RingIngress;
use netvale_port::{Egress, HdrLen, Ingress};
use netvale_portspec::{AttachSpec, PortName, PortSpec};
use rustix::io::Errno;

use super::attachment::{Attachment, Description, OpenedPort, gone};
use super::kind::{AdmittedRequest, Continuation, place_of};
use super::memory;
use super::plug::{NewPort, drain, end_monitors, plug, tell_idle, tell_open, unplug};
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort, PortBackend};
use crate::handover::items::{BindingItem, HoldItem, PortItem};
use crate::naming;
use crate::refusal::{Refusal, refuse};
use crate::registry::ports::SwitchPort;
use crate::registry::watches::MonitoredPort;
use crate::rings::continued::PortRingsState;
use crate::rings::local::LocalRings;
use crate::rings::offsets;
use crate::rings::sizes::Sizes;
use crate::rings::switched::PortRings;
use crate::worker::Worker;

impl PortBackend for LocalRings {
    fn kind(&self) -> PortKind {
        PortKind::Local
    }

    fn programs(&self) -> Option<&LocalRings> {
        Some(self)
    }

    fn programs_mut(&mut self) -> Option<&mut LocalRings> {
        Some(self)
    }

    fn set_header(&self, len: u32) -> bool {
        self.rings.hdr_len.set(len);
        true
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        Ok(Some(State::of(&self.state()?)?))
    }
}

/// Open rings of a port on a switch, or of a monitor.
pub struct OpenRings {
    /// Full name of the port; for a persistent port, the port's own name.
    pub port: String,
    /// The rings that the connection has opened.
    pub rings: RingRanges,
    /// The `netmap_if` of the rings.
    pub binding: Binding,
}

impl Attachment for OpenRings {
    fn describe(&self, d: &Daemon) -> Result<Description, Refusal> {
        let record = d.ports.get(d.persistent.place_of(&self.port)).ok_or_else(gone)?;
        record.behind.programs().ok_or_else(gone)?.reply(&self.binding, &self.rings)
    }

    fn save(&self) -> std::io::Result<Option<HoldItem>> {
        let RingRanges { tx, rx } = self.rings.clone();
        Ok(Some(HoldItem::Rings { port: self.port.clone(), rings: [tx, rx], binding: (&self.binding).into() }))
    }

    fn close(self: Box<Self>, d: &mut Daemon, client: u64) {
        let OpenRings { port, binding, .. } = *self;
        drop(binding);
        let port = d.persistent.place_of(&port).to_owned();
        if let Some(local) = d.ports.get_mut(&port).and_then(|record| record.behind.programs_mut()) {
            local.let_go(client);
        }
        if let Some(uid) = d.ports.get(&port).filter(|record| record.is_idle()).map(|record| record.owner.uid) {
            tell_idle(d, &port, uid);
            end_monitors(d, &MonitoredPort::Port(port.clone()));
        }
        end_offsets(d, &port);
        drop_if_unused(d, &port, "its program has closed the port");
    }
}

/// Ends the use of frame offsets (netmap's offsets option) at a port after the last program has closed the port.
fn end_offsets(d: &Daemon, full: &str) {
    let Some(local) = d.ports.get(full).and_then(|record| record.behind.get::<LocalRings>()) else { return };
    if offsets::are_left(local) {
        drain(d, full);
        offsets::end(&d.workers.list(), local);
    }
}

/// Removes a port that exists only because a program opened it, if no program has the port open any more.
pub fn drop_if_unused(d: &mut Daemon, full: &str, why: &str) {
    if let Some(record) = d.ports.get(full).filter(|record| !record.persistent && record.is_idle()) {
        d.workers.finish(&record.placed);
        let _ = unplug(d, full, why);
    }
}

/// Attaches a port, which remains until it is detached. At first, no program has opened the port.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Local(local) = asked.spec else { return Err(asked.mistaken()) };
    let at = &asked.at;
    if local.switch.as_ref().is_some_and(|named| naming::switch_meant(d, named.as_str()) != at.switch) {
        let text = format!(
            "invalid port {local}: expected a port of switch {}, or the prefix of a kind such as tap:; see 'netvale \
             attach --help'",
            at.switch
        );
        return refuse(Errno::INVAL, text);
    }
    if naming::is_interface(&at.port) {
        tracing::warn!(
            at = at.full(),
            "attached a port for programs that has the name of an interface; the interface itself is netmap:{}",
            at.port
        );
    }
    let name = PortName::parse(&at.full()).or_else(|e| refuse(Errno::INVAL, format!("{e:#}")))?;
    make(d, at, &PortSpec::from(name), &request(asked.options()?), asked.caller, Some(asked.policies().clone()))
        .map(|_| ())
}

/// Returns the request with which a program would create the port that these attach options describe.
fn request(o: OptionsOf<'_, kind::Local>) -> AttachRequest {
    let flags = [(o.lossless(), FLAG_LOSSLESS), (o.huge(), FLAG_HUGE), (o.no_segments(), FLAG_CUT)];
    AttachRequest {
        flags: flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag),
        tx_rings: o.rings(),
        rx_rings: o.rings(),
        tx_slots: o.slots(),
        rx_slots: o.slots(),
        buf_size: o.buf_size(),
        extra_bufs: o.extra_bufs(),
        hdr_len: o.vnet_hdr(),
        ..AttachRequest::default()
    }
}

/// Creates a port, either for an attach request (`attached` then contains the port's policies) or for a program that
/// opens the port. If that program requested offsets, returns the maximum offset of frames in their buffers.
fn make(
    d: &mut Daemon,
    at: &SwitchPort,
    spec: &PortSpec,
    request: &AttachRequest,
    owner: Caller,
    attached: Option<Policies>,
) -> Result<Option<u32>, Refusal> {
    let persistent = attached.is_some();
    let sizes = Sizes::new(request, &spec.conf)?;
    let (region, mem_id) = memory::region_for(d, &spec.memory, &sizes, request.flags & FLAG_HUGE != 0, owner)?;
    let hdr_len = HdrLen::from(request.hdr_len).with_segments_cut(request.flags & FLAG_CUT != 0);
    let (rings, ingresses) = PortRings::new(&region, mem_id, sizes.shape, hdr_len, d.evictions.new_fault(owner))?;
    let egress = rings.rx.iter().map(|e| Arc::clone(e) as Arc<dyn Egress>).collect();
    let ingresses = ingresses.into_iter().map(|i| Box::new(i) as Box<dyn Ingress>).collect();
    let local = LocalRings::unheld(rings);
    // The offsets must be in effect before the switch delivers the first frame.
    let max_offset = match &request.offsets {
        Some(asked) if !persistent => {
            let rings = local.wanted(spec)?;
            Some(offsets::begin(&region, asked, &offsets::rings(&local.rings.mem, &rings, |_, _| true))?)
        }
        _ => None,
    };
    let lossless = request.flags & FLAG_LOSSLESS != 0;
    let policies = attached.unwrap_or_default();
    let new = NewPort { persistent, lossless, policies, ..NewPort::of(Box::new(local), owner) };
    plug(d, at, (egress, ingresses), new)?;
    Ok(max_offset)
}

/// Restores ports that programs open.
pub const CONTINUATION: Continuation =
    Continuation { is_for: |item| item.kind == PortKind::Local, go_on: continue_port, is_last: false, is_still: true };

/// Restores a port that another process saved.
///
/// # Errors
/// [`Refusal`] if the port's memory or descriptors are inconsistent.
fn continue_port(d: &mut Daemon, item: &PortItem, state: State) -> Result<(), Refusal> {
    let at = place_of(item)?;
    let owner = item.owner.into();
    let (local, ingresses) = continued(d, owner, state)?;
    let egress = local.rings.rx.iter().map(|e| Arc::clone(e) as Arc<dyn Egress>).collect();
    let ingresses = ingresses.into_iter().map(|i| Box::new(i) as Box<dyn Ingress>).collect();
    let persistent = item.persistent;
    let lossless = item.lossless;
    let policies = item.policies.clone();
    let new = NewPort { persistent, lossless, policies, ..NewPort::of(Box::new(local), owner) };
    plug(d, &at, (egress, ingresses), new)
}

/// Restores a port's rings, with their ingresses, from the state that another daemon process saved.
///
/// # Errors
/// As [`continue_port`].
pub fn continued(d: &mut Daemon, owner: Caller, state: State) -> Result<(LocalRings, Vec<RingIngress>), Refusal> {
    let state = state.read::<PortRingsState>()?;
    let region = memory::continued(d, state.region, owner)?;
    LocalRings::continued(&region, state, d.evictions.new_fault(owner))
}

/// Restores a connection's hold on a port.
///
/// # Errors
/// [`Refusal`] if the port or `netmap_if` does not exist.
pub fn continue_hold(
    d: &Daemon,
    port: String,
    [tx, rx]: [Range<u32>; 2],
    binding: BindingItem,
) -> Result<OpenRings, Refusal> {
    let local =
        d.ports.get(d.persistent.place_of(&port)).and_then(|record| record.behind.programs()).ok_or_else(gone)?;
    let binding = local.rings.mem.continue_binding(binding.index, binding.extra_bufs)?;
    Ok(OpenRings { port, rings: RingRanges { tx, rx }, binding })
}

/// Opens a port for a program, and creates it if it does not exist.
pub fn open(
    d: &mut Daemon,
    request: &AttachRequest,
    spec: &PortSpec,
    at: &SwitchPort,
    caller: Caller,
) -> Result<OpenedPort, Refusal> {
    let full = at.full();
    let max_offset = if d.ports.contains(&full) { None } else { make(d, at, spec, request, caller, None)? };
    let opened = bind(d, &full, spec, request, caller, max_offset);
    if opened.is_err() {
        drop_if_unused(d, &full, "the port could not be opened");
    }
    opened
}

/// Binds a program to rings of an existing port. If the port was just created for this program with the requested
/// offsets, `max_offset` contains their maximum.
pub fn bind(
    d: &mut Daemon,
    full: &str,
    spec: &PortSpec,
    request: &AttachRequest,
    caller: Caller,
    max_offset: Option<u32>,
) -> Result<OpenedPort, Refusal> {
    is_not_joined(d, full)?;
    let lasting = d.persistent.lasting_name(full);
    let local = programs(d.ports.get_mut(full), full)?;
    if request.flags & FLAG_NO_HEADER != 0 && local.rings.hdr_len.get() != 0 {
        return refuse(
            Errno::IO,
            format!("{full} has virtio-net headers, and this program has not declared that it accepts them"),
        );
    }
    let rings = local.wanted(spec)?;
    let was_idle = local.is_unheld();
    local.hold(full, &rings, caller.client, request.flags & FLAG_SHARED != 0)?;
    let agreed = match (&request.offsets, max_offset) {
        (Some(asked), None) => live_offsets(&d.workers.list(), local, asked, &rings),
        (_, already) => Ok(already.unwrap_or(0)),
    };
    let bound = agreed.and_then(|max| Ok((max, local.bind(full, &rings, request.extra_bufs)?)));
    match bound {
        Ok((max_offset, (mut reply, fds, binding))) => {
            reply.alone = local.holds_alone(caller.client);
            reply.max_offset = max_offset;
            let owner = d.ports.get(full).filter(|_| was_idle).map(|record| record.owner.uid);
            owner.into_iter().for_each(|uid| tell_open(d, full, uid, caller));
            Ok((reply, fds, Box::new(OpenRings { port: lasting, rings, binding })))
        }
        Err(refusal) => {
            local.let_go(caller.client);
            Err(refusal)
        }
    }
}

/// Returns the rings of a port that programs can open. Fails for other ports and for monitors.
fn programs<'a>(record: Option<&'a mut DaemonPort>, full: &str) -> Result<&'a mut LocalRings, Refusal> {
    let behind = &mut record.ok_or_else(|| Refusal::internal("a port vanished"))?.behind;
    let is_local = behind.get::<LocalRings>().is_some();
    behind.programs_mut().filter(|_| is_local).ok_or_else(|| {
        let text = format!("programs cannot open {full}; open {full}/z to monitor it");
        Refusal::new(Errno::BUSY, text)
    })
}

/// Applies netmap's offsets option to rings that may already be in use. Returns the maximum offset in effect, in bytes.
fn live_offsets(
    workers: &[&Worker],
    local: &LocalRings,
    asked: &OffsetsRequest,
    rings: &RingRanges,
) -> Result<u32, Refusal> {
    let alone = |is_rx: bool, i| offsets::is_alone(if is_rx { &local.rx_held } else { &local.tx_held }, i);
    let mem = &local.rings.mem;
    offsets::begin_live(mem.region(), workers, asked, &offsets::rings(mem, rings, alone))
}

/// Refuses a port that joins two switches, because no program can open such a port.
pub fn is_not_joined(d: &Daemon, place: &str) -> Result<(), Refusal> {
    match d.persistent.joint_of(place) {
        Some(joint) => {
            refuse(Errno::BUSY, format!("{place} is joined to another switch, as {joint}; detach {joint} first"))
        }
        None => Ok(()),
    }
}
