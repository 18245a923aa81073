//! Monitors. A monitor gets copies of another port's frames for one program. As in netmap, each ring of the port has
//! its own ring of the monitor.

mod continued;
mod copies;
mod parent;

use std::ops::Range;
use std::sync::Arc;

use netvale_control::attach::{AttachReply, AttachRequest, Role};
use netvale_control::types::PortKind;
use netvale_fdio::state::State;
use netvale_mem::PortShape;
use netvale_mem::layout::RegionSizes;
use netvale_mem::mapping::PageKind;
use netvale_mem::region::RingRanges;
use netvale_port::Egress;
use netvale_port::ring_out::{RingEgress, SentCopies};
use netvale_portspec::{Directions, Memory, MonitorSpec, PortSpec};
use netvale_switch::{MonitorRings, Switch, SwitchSettings};

pub use self::continued::{CONTINUATION, continue_hold};
pub use self::copies::watch_too;

use self::continued::WatchState;
use self::copies::watch;
use self::parent::{Parent, TX_RINGS, WantedRings, parent};
use super::attachment::{Attachment, Description, OpenedPort};
use super::handed::{HandedQueues, domain_of};
use super::local::OpenRings;
use super::memory;
use super::plug::tell_attached;
use crate::caller::Caller;
use crate::daemon::{Daemon, PortBackend};
use crate::handover::items::HoldItem;
use crate::refusal::Refusal;
use crate::registry::ports::PortRecord;
use crate::registry::watches::WatchRecord;
use crate::rings::holders::Holders;
use crate::rings::local::LocalRings;
use crate::rings::offsets;
use crate::rings::switched::PortRings;

/// Permitted number of slots in a monitor's rings (netmap's limits).
const SLOTS: std::ops::RangeInclusive<u32> = 2..=4096;

/// Backend of a monitor: its rings and its target.
struct MonitorPort(LocalRings, WatchState);

impl PortBackend for MonitorPort {
    fn kind(&self) -> PortKind {
        PortKind::Monitor
    }

    fn programs(&self) -> Option<&LocalRings> {
        Some(&self.0)
    }

    fn programs_mut(&mut self) -> Option<&mut LocalRings> {
        Some(&mut self.0)
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        self.state().map(Some)
    }
}

/// Rings of a monitor that a program has opened. Frames that the program sends on them are ignored.
struct OpenMonitor(OpenRings);

impl Attachment for OpenMonitor {
    fn describe(&self, d: &Daemon) -> Result<Description, Refusal> {
        let (reply, fds) = self.0.describe(d)?;
        Ok((AttachReply { role: Role::Monitor, ..reply }, fds))
    }

    fn save(&self) -> std::io::Result<Option<HoldItem>> {
        Ok(match self.0.save()? {
            Some(HoldItem::Rings { port, rings, binding }) => Some(HoldItem::Monitor { port, rings, binding }),
            _ => None,
        })
    }

    fn close(self: Box<Self>, d: &mut Daemon, client: u64) {
        Box::new(self.0).close(d, client);
    }
}

/// Limits the number of slots as netmap does: if 0 is requested, `usual` applies; the result is clamped to [`SLOTS`].
fn slots(asked: u32, usual: u32) -> u32 {
    if asked == 0 { usual.clamp(*SLOTS.start(), *SLOTS.end()) } else { asked.clamp(*SLOTS.start(), *SLOTS.end()) }
}

/// Returns an entry for each of a monitor's rings: the egress that `of` returns, or `None` for a ring outside `bound`.
fn bound(
    rings: &[Arc<RingEgress>],
    bound: &Range<u32>,
    of: impl Fn(&Arc<RingEgress>) -> Arc<dyn Egress>,
) -> MonitorRings {
    rings.iter().enumerate().map(|(i, ring)| bound.contains(&(i as u32)).then(|| of(ring))).collect()
}

/// Opens a monitor of the port in `spec`.
pub fn open(d: &mut Daemon, request: &AttachRequest, spec: &PortSpec, caller: Caller) -> Result<OpenedPort, Refusal> {
    if let Memory::Id(id) = spec.memory {
        // The named region is not used: a copying monitor has its own region, and a zero-copy monitor uses the region
        // of the monitored port. As in netmap, the named region must nevertheless exist.
        memory::region(d, id.get().into(), caller)?;
    }
    let parent = parent(d, spec, caller)?;
    let flags = spec.flags.monitor.ok_or_else(|| Refusal::internal("the port is not a monitor"))?;
    let directions = if flags.zero_copy { Directions::Both } else { flags.directions };
    let wanted = WantedRings::new(spec, &parent)?;
    let rings = monitor_rings(d, request, spec, flags.zero_copy, &parent, &wanted, caller)?;
    let ranges = wanted.rings;
    let max_offset = match &request.offsets {
        // A zero-copy monitor shares the buffers of its target, so it cannot choose separate offsets.
        Some(_) if flags.zero_copy => return offsets::unsupported("a zero-copy monitor"),
        Some(asked) => offsets::begin(rings.mem.region(), asked, &offsets::rings(&rings.mem, &ranges, |_, _| true))?,
        None => 0,
    };
    let RingRanges { tx, rx } = ranges.clone();
    let binding = rings.mem.bind(&monitor_name(d, &parent, flags), tx.clone(), rx.clone(), request.extra_bufs)?;
    let (reply, fds) = rings.reply(binding.nifp(), binding.extra_bufs(), tx.clone(), rx.clone())?;
    let full = format!("{}/monitor-{}", parent.name, caller.client);
    let egress = |on: bool| if on { rings.rx.as_slice() } else { &[] };
    let sent = bound(egress(directions != Directions::Rx), &rx, |e| Arc::new(SentCopies(Arc::clone(e))));
    let received = bound(egress(directions != Directions::Tx), &rx, |e| Arc::clone(e) as Arc<dyn Egress>);
    let what = parent.watched;
    let released = flags.zero_copy;
    let watching = WatchRecord { what, released, sent, received, client: caller.client, uid: caller.uid };
    let mut held = Holders::default();
    held.add(caller.client, false);
    let local = LocalRings { rings, tx_held: Vec::new(), rx_held: vec![held], is_joint: false };
    begin(d, local, watching, caller, &full)?;
    tracing::info!(port = full, uid = caller.uid, pid = caller.pid, "opened");
    tell_attached(d, &full);
    let reply = AttachReply { alone: true, role: Role::Monitor, max_offset, ..reply };
    Ok((reply, fds, Box::new(OpenMonitor(OpenRings { port: full, rings: ranges, binding }))))
}

/// Creates the rings of a monitor. A zero-copy monitor has its rings in the region of the monitored port, if the port
/// has a region. Any other monitor has a separate region.
fn monitor_rings(
    d: &mut Daemon,
    request: &AttachRequest,
    spec: &PortSpec,
    zero_copy: bool,
    parent: &Parent,
    wanted: &WantedRings,
    caller: Caller,
) -> Result<PortRings, Refusal> {
    let shape = PortShape {
        tx_rings: TX_RINGS + wanted.host,
        rx_rings: parent.rings + wanted.host,
        tx_slots: slots(spec.conf.tx_slots.max(request.tx_slots), parent.tx_slots),
        rx_slots: slots(spec.conf.rx_slots.max(request.rx_slots), parent.rx_slots),
    };
    let (region, mem_id) = match parent.memory.clone().filter(|_| zero_copy) {
        Some(shared) => shared,
        None => {
            let buf_size = if request.buf_size == 0 { parent.buf_size } else { request.buf_size };
            let rings = shape.tx_rings + shape.rx_rings;
            let most = shape.tx_slots.max(shape.rx_slots);
            let sizes = RegionSizes::for_port(rings, most, buf_size, 0, request.extra_bufs.min(1 << 20));
            memory::make(d, sizes, PageKind::Ordinary, caller)?
        }
    };
    let mem = Arc::new(region.port_in_part(shape, wanted.host, wanted.host, &RingRanges::all(shape))?);
    let (rings, _takes_nothing) = PortRings::of(mem, mem_id, parent.hdr_len, d.evictions.new_fault(caller))?;
    let mem = Arc::clone(&rings.mem);
    region.touch(move || mem.tx.iter().for_each(|side| netvale_mem::notify::disarm(side.csb.kern_need_kick())))?;
    Ok(rings)
}

/// Returns the name for a monitor's `netmap_if`, in netmap's form: port, mode, number.
fn monitor_name(d: &Daemon, parent: &Parent, flags: MonitorSpec) -> String {
    let number = d.watches.of(&parent.watched).count();
    let name = parent.name.strip_prefix("netmap:").unwrap_or(&parent.name);
    let letter = |on: bool, letter: &'static str| if on { letter } else { "" };
    let z = flags.zero_copy;
    let both = flags.zero_copy || flags.directions == Directions::Both;
    let r = letter(both || flags.directions == Directions::Rx, "r");
    let t = letter(both || flags.directions == Directions::Tx, "t");
    format!("{name}/{}{r}{t}#{number}", letter(z, "z"))
}

/// Starts copying frames to the monitor's rings, and registers the monitor as a port.
fn begin(d: &mut Daemon, local: LocalRings, watching: WatchRecord, owner: Caller, full: &str) -> Result<(), Refusal> {
    let copies = watching.sent.iter().chain(&watching.received).flatten().count();
    let mut handed = HandedQueues::new(d, owner, domain_of(owner), copies)?;
    let mut all = |rings: MonitorRings| -> Result<MonitorRings, Refusal> {
        rings.into_iter().map(|ring| ring.map(|own| handed.queue(own)).transpose()).collect()
    };
    let sent = all(watching.sent)?;
    let received = all(watching.received)?;
    let watching = WatchRecord { sent, received, ..watching };
    let switch = watch(d, &watching, full)?;
    let egress = local.rings.rx.iter().map(|e| Arc::clone(e.counters())).collect();
    let behind = Box::new(MonitorPort(local, WatchState::of(&watching))) as Box<dyn PortBackend>;
    d.watches.insert(full, watching);
    // The tasks that make the copies need a switch, for packet traces. This switch has no ports, so that frames that a
    // monitor receives are never traced.
    let nowhere = Switch::with("", SwitchSettings { table_entries: 8, ..SwitchSettings::default() });
    let handed = handed.place(d, &nowhere, 0);
    d.ports.insert(full, PortRecord { switch, egress, handed, persistent: false, ..PortRecord::new(behind, owner) });
    Ok(())
}
