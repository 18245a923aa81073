//! `netmap:p{1`, `netmap:p}1`: a pipe between two programs. The daemon connects the two ends, but does not handle
//! frames.

use std::collections::BTreeSet;

use netvale_control::attach::{AttachRequest, FLAG_HUGE, FLAG_SHARED, OffsetsRequest};
use netvale_control::types::{Direction, Owner, PortInfo, PortKind, PortState, RingInfo};
use netvale_mem::region::{Binding, RingRanges, RingSide};
use netvale_portspec::{PortSpec, Rings};
use rustix::io::Errno;

use super::attachment::{Attachment, Description, OpenedPort, gone};
use super::memory;
use super::plug::{end_monitors, tell_detached, tell_idle, tell_made, tell_open};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::handover::items::{BindingItem, HoldItem, PipeItem};
use crate::refusal::{Refusal, refuse};
use crate::registry::watches::MonitoredPort;
use crate::rings::offsets;
use crate::rings::pipe::{PipeRecord, pipe_and_end};
use crate::rings::sizes::Sizes;
use crate::rings::status::{region_info, with_indices};

/// A connection's hold on one end of a pipe.
struct OpenEnd {
    /// Name of the pipe, without the suffix that selects one of its ends.
    pipe: String,
    end: usize,
    /// The `netmap_if` of the end.
    binding: Binding,
}

impl Attachment for OpenEnd {
    fn describe(&self, d: &Daemon) -> Result<Description, Refusal> {
        d.pipes.get(&self.pipe).ok_or_else(gone)?.reply(self.end, &self.binding)
    }

    fn save(&self) -> std::io::Result<Option<HoldItem>> {
        Ok(Some(HoldItem::PipeEnd { pipe: self.pipe.clone(), end: self.end, binding: (&self.binding).into() }))
    }

    fn close(self: Box<Self>, d: &mut Daemon, client: u64) {
        let OpenEnd { pipe: name, end, binding } = *self;
        drop(binding);
        let Some(pipe) = d.pipes.get_mut(&name) else { return };
        pipe.held_by[end & 1].remove(client);
        let idle = pipe.held_by[end & 1].is_empty();
        let uid = pipe.uid;
        if idle {
            tell_idle(d, &end_name(&name, end), uid);
        }
        drop_if_unused(d, &name);
        if idle {
            end_monitors(d, &MonitoredPort::Pipe(name, end & 1));
        }
    }
}

/// Restores a pipe that another process saved.
///
/// # Errors
/// [`Refusal`] if the pipe's memory or descriptors are inconsistent.
pub fn continue_pipe(d: &mut Daemon, item: PipeItem) -> Result<(), Refusal> {
    if item.guest.is_some() {
        // If the pipe is missing, the port of its virtual machine could not be restored, and is attached anew with a
        // new pipe.
        let pipe = d.pipes.get_mut(&item.name).filter(|pipe| pipe.guest_end() == item.guest);
        if let Some(pipe) = pipe {
            pipe.go_on(item);
        }
        return Ok(());
    }
    let owner = Caller { uid: item.uid, ..Caller::daemon() };
    let name = item.name.clone();
    let region = memory::continued(d, item.region, owner)?;
    d.pipes.insert(name, PipeRecord::continued(&region, item)?);
    Ok(())
}

/// Restores a connection's hold on a pipe.
///
/// # Errors
/// [`Refusal`] if the pipe or `netmap_if` does not exist.
pub fn continue_hold(
    d: &Daemon,
    pipe: String,
    end: usize,
    binding: BindingItem,
) -> Result<Box<dyn Attachment>, Refusal> {
    let known = d.pipes.get(&pipe).ok_or_else(gone)?;
    let binding = known.end(end).continue_binding(binding.index, binding.extra_bufs)?;
    Ok(Box::new(OpenEnd { pipe, end: end & 1, binding }))
}

/// Releases the ends that connections other than `clients` hold.
pub fn release_all_but(d: &mut Daemon, clients: &BTreeSet<u64>) {
    let names: Vec<_> = d.pipes.iter().map(|(name, _)| name.to_owned()).collect();
    for name in names {
        let Some(pipe) = d.pipes.get_mut(&name) else { continue };
        for held in &mut pipe.held_by {
            let gone: Vec<u64> = held.clients().filter(|client| !clients.contains(client)).collect();
            gone.into_iter().for_each(|client| held.remove(client));
        }
        drop_if_unused(d, &name);
    }
}

/// Removes a pipe between programs if no program has one of its ends open any more.
fn drop_if_unused(d: &mut Daemon, name: &str) {
    if d.pipes.get(name).is_some_and(|pipe| pipe.guest_end().is_none() && pipe.is_unheld())
        && let Some(pipe) = d.pipes.remove(name)
    {
        for mem in [pipe.end(0), pipe.end(1)] {
            d.mirrors.end(&mut d.workers, mem, &RingRanges::all(mem.shape()));
        }
        tell_detached(d, name, pipe.uid, "its programs have closed the pipe");
    }
}

/// Opens an end for a program, and creates the pipe if it does not exist.
pub fn open(d: &mut Daemon, request: &AttachRequest, spec: &PortSpec, caller: Caller) -> Result<OpenedPort, Refusal> {
    let (name, end) = pipe_and_end(&spec.name).ok_or_else(|| Refusal::internal("the port is not a pipe"))?;
    if matches!(spec.rings, Rings::NicAndHost | Rings::AllHost | Rings::OneHost(_)) {
        return refuse(Errno::INVAL, "a pipe has no host rings");
    }
    if matches!(spec.rings, Rings::OneNic(i) if i.get() > 0) {
        return refuse(Errno::INVAL, "a pipe has one ring in each direction, number 0");
    }
    if d.pipes.get(&name).is_none() {
        make(d, request, spec, &name, caller)?;
    }
    let opened = open_end(d, request, &name, end, caller);
    if opened.is_err() {
        // If this request has created the pipe and the end could not be opened, the pipe must be removed.
        drop_if_unused(d, &name);
    }
    opened
}

fn open_end(
    d: &mut Daemon,
    request: &AttachRequest,
    name: &str,
    end: usize,
    caller: Caller,
) -> Result<OpenedPort, Refusal> {
    let pipe = d.pipes.get_mut(name).ok_or_else(|| Refusal::internal("a pipe vanished"))?;
    let shares = request.flags & FLAG_SHARED != 0;
    is_free(pipe, name, end, shares)?;
    let max_offset = request.offsets.as_ref().map_or(Ok(0), |asked| begin_offsets(pipe, end, asked))?;
    let binding = pipe.end(end).bind(&request.name, 0..1, 0..1, request.extra_bufs)?;
    let (mut reply, fds) = pipe.reply(end, &binding)?;
    reply.alone = pipe.held_by[end & 1].is_empty();
    reply.max_offset = max_offset;
    pipe.held_by[end & 1].add(caller.client, shares);
    let uid = pipe.uid;
    tracing::info!(pipe = name, end, uid = caller.uid, pid = caller.pid, "opened");
    if reply.alone {
        tell_open(d, &end_name(name, end), uid, caller);
    }
    Ok((reply, fds, Box::new(OpenEnd { pipe: name.to_owned(), end, binding })))
}

/// Returns the name of an end of a pipe.
fn end_name(name: &str, end: usize) -> String {
    if end & 1 == 0 { name.to_owned() } else { name.replace('{', "}") }
}

/// Creates a pipe in the region of the port or interface whose name is part of the pipe's name, or in a new region.
fn make(d: &mut Daemon, request: &AttachRequest, spec: &PortSpec, name: &str, caller: Caller) -> Result<(), Refusal> {
    let sizes = Sizes::new(request, &spec.conf)?;
    let (region, mem_id) = match memory::region_of(d, &spec.name.base().to_string()) {
        Some(id) => (memory::region(d, id, caller)?, id),
        None => memory::region_for(d, &spec.memory, &sizes, request.flags & FLAG_HUGE != 0, caller)?,
    };
    let slots = sizes.shape.tx_slots.min(region.layout().max_slots());
    d.pipes.insert(name.to_owned(), PipeRecord::new(&region, mem_id, slots, caller.uid)?);
    tell_made(d, name, caller, PortKind::Pipe);
    Ok(())
}

fn is_free(pipe: &PipeRecord, name: &str, end: usize, shares: bool) -> Result<(), Refusal> {
    if pipe.guest_end() == Some(end & 1) {
        return refuse(
            Errno::BUSY,
            format!("this end of pipe {name} belongs to a virtual machine; open the other end"),
        );
    }
    if !pipe.held_by[end & 1].admits(shares) {
        return refuse(
            Errno::BUSY,
            format!("this end of pipe {name} is already open; open the other end, or another pipe"),
        );
    }
    Ok(())
}

fn begin_offsets(pipe: &PipeRecord, end: usize, asked: &OffsetsRequest) -> Result<u32, Refusal> {
    if pipe.guest_end().is_some() {
        return offsets::unsupported("a pipe to a virtual machine");
    }
    let of = |end: usize| offsets::of_pipe(pipe.end(end), &pipe.held_by[end & 1]);
    let held = !pipe.held_by[(end ^ 1) & 1].is_empty();
    offsets::begin_pipe(pipe.end(end).region(), asked, &of(end), of(end ^ 1), held)
}

/// Describes a pipe for `netvale show`.
pub fn show(name: &str, pipe: &PipeRecord) -> PortInfo {
    let ring = |end: usize, dir, side: &RingSide| {
        with_indices(RingInfo { dir, index: end as u32, ..RingInfo::default() }, side, pipe.end(end).region())
    };
    let rings = [0, 1].into_iter().flat_map(|end| {
        let tx = pipe.end(end).tx.first();
        let rx = pipe.end(end).rx.first();
        tx.map(|s| ring(end, Direction::In, s)).into_iter().chain(rx.map(|s| ring(end, Direction::Out, s)))
    });
    let open = |end: usize| if pipe.held_by[end].is_empty() { "not open" } else { "open" };
    PortInfo {
        name: name.to_owned(),
        kind: PortKind::Pipe,
        state: if pipe.is_unheld() { PortState::Idle } else { PortState::Open },
        owner: Some(Owner { uid: pipe.uid, pid: 0 }),
        region: Some(region_info(pipe.end(0).region(), pipe.mem_id)),
        rings: rings.collect(),
        notes: vec![
            format!("end {{ is {}, end }} is {}", open(0), open(1)),
            "the daemon is not on a pipe's data path; the programs at its ends count frames".to_owned(),
        ],
        ..PortInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use netvale_control::attach::PoolSizes;

    use super::*;
    use crate::config::ConfigFile;

    /// Objective: if a pipe's first end cannot be opened, because the requested region has no sufficiently large
    /// `netmap_if`, neither the pipe nor its memory remains.
    #[test]
    fn what_was_made_for_nothing() {
        let mut d = Daemon::new(ConfigFile::default().into_config()).unwrap();
        let user = Caller { client: 1, uid: 70_001, pid: 1 };
        let pools = PoolSizes { ifs: (138, 64), rings: (10, 384), bufs: (47, 192) };
        let name = "netmap:p{1".to_owned();
        let request =
            AttachRequest { name, tx_slots: 8, rx_slots: 8, buf_size: 192, pools, ..AttachRequest::default() };
        let spec = PortSpec::parse(&request.name).unwrap();
        let refusal = open(&mut d, &request, &spec, user).err().unwrap();
        assert!(refusal.text.contains("netmap_if"), "{refusal}");
        assert!(d.pipes.iter().next().is_none() && d.regions.bytes_of(user.uid) == 0, "a pipe was left");
    }
}
