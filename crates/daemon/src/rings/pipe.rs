//! netmap pipes between processes. The daemon connects the two ends, but does not handle frames.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_control::attach::{AttachReply, Role};
use netvale_fdio::state::Fd;
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::Binding;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_portspec::{PipeEnd, PortName};
use netvale_ptnet::pipe::PipeBackend;
use rustix::io::Errno;

use super::continued::{offset_rules, set_offset_rules};
use super::holders::Holders;
use super::reply::{descriptors, region_reply};
use crate::handover::items::PipeItem;
use crate::refusal::Refusal;

/// The doorbells for one direction of a pipe.
struct PipeLane {
    /// Rung when frames have arrived at the receiver.
    arrived: Doorbell,
    /// Rung when the sender has room again.
    room: Doorbell,
}

/// The threads that move the frames of a pipe.
enum PipeMover {
    /// The programs at the ends. The index of a lane is the index of its sending end.
    Ends(Box<[PipeLane; 2]>),
    /// Workers, because the end with this index belongs to a virtual machine.
    Workers(usize, Arc<PipeBackend>),
}

/// A pipe: two ends in one region.
pub struct PipeRecord {
    /// User ID of the owner. Both ends belong to this user.
    pub uid: u32,
    /// Number of the region that contains the pipe's rings.
    pub mem_id: u32,
    ends: [Arc<PortMem>; 2],
    moved_by: PipeMover,
    /// Connections that hold each end.
    pub held_by: [Holders; 2],
}

/// Returns the shape of a pipe's end: one ring of `slots` slots in each direction.
fn shape(slots: u32) -> PortShape {
    PortShape { tx_rings: 1, rx_rings: 1, tx_slots: slots, rx_slots: slots }
}

/// Splits the name of a pipe's end into the pipe's name and the index of the end. Returns `None` if the name is not the
/// name of a pipe's end.
pub fn pipe_and_end(name: &PortName) -> Option<(String, usize)> {
    let pipe = name.pipe()?;
    let end = match pipe.end {
        PipeEnd::Master => 0,
        PipeEnd::Slave => 1,
    };
    Some((format!("{}{{{}", name.base(), pipe.id), end))
}

impl PipeRecord {
    /// Creates a pipe in `region`. Each end has one ring of `slots` slots in each direction.
    ///
    /// # Errors
    /// [`Refusal`] if the region is full or the daemon is out of descriptors.
    pub fn new(region: &Arc<Region>, mem_id: u32, slots: u32, uid: u32) -> Result<PipeRecord, Refusal> {
        let shape = shape(slots);
        let lane =
            || -> Result<PipeLane, Refusal> { Ok(PipeLane { arrived: Doorbell::new()?, room: Doorbell::new()? }) };
        let ends = [Arc::new(region.port(shape)?), Arc::new(region.port(shape)?)];
        // Each end acts as the host of the other end's rings. Initially, neither end requests kicks.
        let sides: Vec<_> = ends.iter().flat_map(|e| e.tx.iter().chain(&e.rx)).cloned().collect();
        region.touch(move || sides.iter().for_each(|s| netvale_mem::notify::disarm(s.csb.kern_need_kick())))?;
        Ok(PipeRecord {
            uid,
            mem_id,
            ends,
            moved_by: PipeMover::Ends(Box::new([lane()?, lane()?])),
            held_by: Default::default(),
        })
    }

    /// Saves the pipe for another process. If the pipe belongs to a virtual machine, its item has no descriptors,
    /// because the machine's port saves them.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    pub fn save(&self, name: &str) -> std::io::Result<PipeItem> {
        let lanes: &[PipeLane] = if let PipeMover::Ends(lanes) = &self.moved_by { &**lanes } else { &[] };
        let ends = [self.end(0), self.end(1)];
        let bells = lanes.iter().map(|lane| Ok([Fd::copy_of(&lane.arrived)?, Fd::copy_of(&lane.room)?]));
        Ok(PipeItem {
            name: name.to_owned(),
            uid: self.uid,
            region: self.mem_id,
            slots: self.end(0).shape().tx_slots,
            first: ends.map(|end| end.csb_first()),
            held: [0, 1].map(|end| self.held_by[end].list()),
            offsets: ends.map(|end| offset_rules(end.tx.iter().chain(&end.rx))),
            guest: self.guest_end(),
            bells: bells.collect::<std::io::Result<_>>()?,
        })
    }

    /// Restores a pipe that another process saved.
    ///
    /// # Errors
    /// [`Refusal`] if the region has no such rings, or descriptors are missing.
    pub fn continued(region: &Arc<Region>, item: PipeItem) -> Result<PipeRecord, Refusal> {
        let shape = shape(item.slots);
        let mut bells = item.bells.into_iter();
        let mut lane = || -> Result<_, Refusal> {
            let missing = || Refusal::new(Errno::INVAL, "a pipe's doorbells are missing");
            let [arrived, room] = bells.next().ok_or_else(missing)?;
            Ok(PipeLane { arrived: Doorbell::from_fd(arrived.take()?), room: Doorbell::from_fd(room.take()?) })
        };
        let lanes = Box::new([lane()?, lane()?]);
        let end = |first| region.continue_port(shape, 0, 0, first).map(Arc::new);
        let ends = [end(item.first[0])?, end(item.first[1])?];
        for (end, rules) in ends.iter().zip(&item.offsets) {
            set_offset_rules(end.tx.iter().chain(&end.rx), rules);
        }
        let uid = item.uid;
        let mem_id = item.region;
        let held_by = item.held.map(Holders::from_list);
        Ok(PipeRecord { uid, mem_id, ends, moved_by: PipeMover::Ends(lanes), held_by })
    }

    /// Restores the owner, the region number and the holders of a virtual machine's pipe. The machine's port has
    /// already been restored, and has created the pipe.
    pub fn go_on(&mut self, item: PipeItem) {
        self.uid = item.uid;
        self.mem_id = item.region;
        self.held_by = item.held.map(Holders::from_list);
    }

    /// Creates a pipe whose end `guest` belongs to a virtual machine.
    pub fn to_guest(backend: Arc<PipeBackend>, guest: usize, mem_id: u32, uid: u32) -> PipeRecord {
        let beside = backend.beside();
        let theirs = Arc::clone(&beside.guest);
        let ours = Arc::clone(&beside.other);
        let ends = if guest == 0 { [theirs, ours] } else { [ours, theirs] };
        PipeRecord { uid, mem_id, ends, moved_by: PipeMover::Workers(guest, backend), held_by: Default::default() }
    }

    /// Returns the index of the virtual machine's end; `None` for a pipe between programs.
    pub fn guest_end(&self) -> Option<usize> {
        match &self.moved_by {
            PipeMover::Ends(_) => None,
            PipeMover::Workers(guest, _) => Some(*guest),
        }
    }

    /// Whether a program has opened that end, or one of the ends belongs to a virtual machine.
    pub fn is_in_use(&self, end: usize) -> bool {
        self.guest_end().is_some() || !self.held_by[end & 1].is_empty()
    }

    /// Whether no program holds either end.
    pub fn is_unheld(&self) -> bool {
        self.held_by.iter().all(Holders::is_empty)
    }

    /// For a virtual machine's pipe, returns a text that tells whether a program has opened the other end; `None` for
    /// other pipes.
    pub fn far_end(&self) -> Option<String> {
        let far = self.guest_end()? ^ 1;
        let held = !self.held_by.get(far)?.is_empty();
        let name = if far == 0 { '{' } else { '}' };
        let open = if held { "open" } else { "not open" };
        Some(format!("the other end ({name}) is {open}"))
    }

    /// Returns the fault of the program at the other end of a virtual machine's pipe; `None` for other pipes.
    pub fn fault(&self) -> Option<&Fault> {
        match &self.moved_by {
            PipeMover::Ends(_) => None,
            PipeMover::Workers(_, backend) => Some(backend.fault()),
        }
    }

    /// Returns the memory of the end with this index.
    pub fn end(&self, end: usize) -> &Arc<PortMem> {
        &self.ends[end & 1]
    }

    /// Returns the reply to a client that is bound to an end, and the descriptors to send with it.
    ///
    /// # Errors
    /// [`Refusal`] if the daemon is out of descriptors.
    pub fn reply(&self, end: usize, binding: &Binding) -> Result<(AttachReply, Vec<OwnedFd>), Refusal> {
        let own = self.end(end);
        let peer = self.end(end ^ 1);
        let base = AttachReply {
            nifp: binding.nifp(),
            csb_first: own.csb_first(),
            extra_bufs: binding.extra_bufs(),
            mem_id: self.mem_id,
            tx_bound: 0..1,
            rx_bound: 0..1,
            ..region_reply(own)
        };
        match &self.moved_by {
            PipeMover::Ends(lanes) => {
                let out = &lanes[end & 1];
                let back = &lanes[(end ^ 1) & 1];
                // For the tx ring, the program rings `arrived` of the outgoing lane and waits on that lane's `room`;
                // for the rx ring, the program rings `room` of the incoming lane and waits on that lane's `arrived`.
                let bells = [(&out.arrived, &out.room), (&back.room, &back.arrived)];
                let fds = descriptors(own.region(), bells.into_iter())?;
                Ok((AttachReply { role: Role::Pipe, peer_csb_first: peer.csb_first(), ..base }, fds))
            }
            PipeMover::Workers(_, backend) => {
                let fds = descriptors(own.region(), backend.bells().into_iter())?;
                Ok((AttachReply { role: Role::Switch, ..base }, fds))
            }
        }
    }
}
