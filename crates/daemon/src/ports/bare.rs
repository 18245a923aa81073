//! Rings that are connected to nothing (netmap's `NR_REG_NULL`). They are on no switch, and have no name.

use netvale_control::attach::{AttachRequest, PoolSizes};
use netvale_fdio::state::State;
use netvale_mem::region::{Binding, RingRanges};
use netvale_portspec::Conf;
use rustix::io::Errno;

use super::attachment::{Attachment, Description, OpenedPort};
use super::memory;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::handover::items::{BindingItem, HoldItem};
use crate::refusal::{Refusal, refuse};
use crate::rings::continued::PortRingsState;
use crate::rings::local::LocalRings;
use crate::rings::offsets;
use crate::rings::sizes::Sizes;
use crate::rings::switched::PortRings;

/// The rings of one connection, which are in no registry.
struct BareRings {
    local: LocalRings,
    binding: Binding,
}

impl Attachment for BareRings {
    fn describe(&self, _d: &Daemon) -> Result<Description, Refusal> {
        let rings = &self.local.rings;
        let binding = &self.binding;
        let shape = rings.mem.shape();
        rings.reply(binding.nifp(), binding.extra_bufs(), 0..shape.tx_rings, 0..shape.rx_rings)
    }

    fn save(&self) -> std::io::Result<Option<HoldItem>> {
        let rings = State::of(&self.local.state()?)?;
        Ok(Some(HoldItem::Bare { rings, binding: (&self.binding).into() }))
    }

    fn close(self: Box<Self>, d: &mut Daemon, _client: u64) {
        d.regions.remove_bare(self.local.rings.mem_id);
    }
}

/// Opens rings that are connected to nothing for a program.
pub fn open(d: &mut Daemon, request: &AttachRequest, caller: Caller) -> Result<OpenedPort, Refusal> {
    let sizes = Sizes::new(request, &Conf::default())?;
    if request.mem_id == 0 && request.pools == PoolSizes::default() {
        return refuse(Errno::INVAL, "missing memory region: rings without a port need an existing one");
    }
    let (region, mem_id) = memory::region_or_new(d, request.mem_id, &sizes, caller)?;
    let (rings, _no_ingress) = PortRings::new(&region, mem_id, sizes.shape, 0, d.evictions.new_fault(caller))?;
    let all = RingRanges::all(sizes.shape);
    let max_offset = match &request.offsets {
        Some(asked) => offsets::begin(&region, asked, &offsets::rings(&rings.mem, &all, |_, _| true))?,
        None => 0,
    };
    let binding = rings.mem.bind(&request.name, all.tx, all.rx, request.extra_bufs)?;
    let bare = BareRings { local: LocalRings::unheld(rings), binding };
    let (mut reply, fds) = bare.describe(d)?;
    reply.alone = true;
    reply.max_offset = max_offset;
    d.regions.add_bare(mem_id);
    Ok((reply, fds, Box::new(bare)))
}

/// Restores a connection's hold on rings that are connected to nothing.
///
/// # Errors
/// [`Refusal`] if the memory no longer exists, or a descriptor is not a doorbell.
pub fn continue_hold(
    d: &mut Daemon,
    rings: State,
    binding: BindingItem,
    caller: Caller,
) -> Result<Box<dyn Attachment>, Refusal> {
    let rings = rings.read::<PortRingsState>()?;
    let region = memory::continued(d, rings.region, caller)?;
    let (local, _no_ingress) = LocalRings::continued(&region, rings, d.evictions.new_fault(caller))?;
    let binding = local.rings.mem.continue_binding(binding.index, binding.extra_bufs)?;
    d.regions.add_bare(local.rings.mem_id);
    Ok(Box::new(BareRings { local, binding }))
}
