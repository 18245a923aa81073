//! Rings with no backend (netmap's `NR_REG_NULL`), on no switch and without a name.

use netvale_control::attach::{AttachRequest, Pools};
use netvale_fdio::state::State;
use netvale_mem::region::{Binding, RingRanges};
use netvale_portspec::Conf;
use rustix::io::Errno;

use super::attachment::{Attachment, Description, Opened};
use super::memory;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::handover::items::{BindingItem, HoldItem};
use crate::refusal::{Refusal, refuse};
use crate::rings::continued::RingsState;
use crate::rings::local::LocalPort;
use crate::rings::offsets;
use crate::rings::sizes::Sizes;
use crate::rings::switched::Rings;

/// The rings, known only to their connection.
struct BareRings {
    local: LocalPort,
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

/// Opens such rings for a program.
pub fn open(d: &mut Daemon, request: &AttachRequest, caller: Caller) -> Result<Opened, Refusal> {
    let sizes = Sizes::new(request, &Conf::default())?;
    if request.mem_id == 0 && request.pools == Pools::default() {
        return refuse(Errno::INVAL, "rings with nothing behind them lie in memory that is there: name a region");
    }
    let (region, mem_id) = memory::region_or_new(d, request.mem_id, &sizes, caller)?;
    let (rings, _no_ingress) = Rings::new(&region, mem_id, sizes.shape, 0, d.evictions.new_fault(caller))?;
    let all = RingRanges::all(sizes.shape);
    let max_offset = match &request.offsets {
        Some(asked) => offsets::begin(&region, asked, &offsets::rings(&rings.mem, &all, |_, _| true))?,
        None => 0,
    };
    let binding = rings.mem.bind(&request.name, all.tx, all.rx, request.extra_bufs)?;
    let bare = BareRings { local: LocalPort::unheld(rings), binding };
    let (mut reply, fds) = bare.describe(d)?;
    reply.alone = true;
    reply.max_offset = max_offset;
    d.regions.add_bare(mem_id);
    Ok((reply, fds, Box::new(bare)))
}

/// Restores a connection's hold.
///
/// # Errors
/// [`Refusal`] if its memory is gone, or a bell is not a doorbell.
pub fn continue_hold(
    d: &mut Daemon,
    rings: State,
    binding: BindingItem,
    caller: Caller,
) -> Result<Box<dyn Attachment>, Refusal> {
    let rings = rings.read::<RingsState>()?;
    let region = memory::continued(d, rings.region, caller)?;
    let (local, _no_ingress) = LocalPort::continued(&region, rings, d.evictions.new_fault(caller))?;
    let binding = local.rings.mem.continue_binding(binding.index, binding.extra_bufs)?;
    d.regions.add_bare(local.rings.mem_id);
    Ok(Box::new(BareRings { local, binding }))
}
