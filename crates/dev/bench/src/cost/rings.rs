//! Paths between netmap rings: pipes, switches, guests' rings. A *track* is a function for a path: each call sends a
//! batch, and returns the number of frames that arrive.

use std::sync::Arc;

use netvale::Port as Client;
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::latency::set_sampling;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;
use netvale_port::{Egress, Ingress};
use netvale_ptnet::backend::{Backend, GuestRings};
use netvale_ptnet::seats::Seats;
use netvale_switch::trace::{Trace, TraceOptions};
use netvale_switch::{AttachedPort, ForwardMemory, Forwarder, PassResult, PortId, Switch};

use super::Track;
use crate::case::{Case, Unit};
use crate::error::{BenchError, Result};
use crate::scenarios::embedded::{self, Lane, bell, learn};
use crate::scenarios::own::failed;
use crate::scenarios::policies::kinds::Kind;
use crate::scenarios::stations::{Plan, Stations};
use crate::scenarios::traffic::{SLOTS, Touch};

/// Maximum number of records in the trace: enough for the frames that are counted, and for the frames that are sent
/// before them.
const TRACED: usize = 1 << 16;

/// Returns a case that belongs to no scenario: frames of 60 bytes from one port to `receivers` other ports.
fn case(batch: u32, receivers: u32) -> Case {
    Case { frame_bytes: 60, batch, ports: 1 + receivers, ..Case::new("cost", "1-n", Unit::Mpps) }
}

/// Builds a pipe within this program.
pub fn pipe(batch: u32) -> Result<Track> {
    let (mut a, mut b) = Client::pipe_pair(SLOTS, 0).map_err(|e| failed(&e))?;
    let tx = a.take_rings().0;
    let rx = b.take_rings().1;
    let case = case(batch, 1);
    let mut stations = Stations::new(Plan::of(&case), &case, 0, Touch::Nothing, tx, rx);
    Ok(Box::new(move || {
        let _ = (&a, &b);
        stations.round()
    }))
}

/// Builds the path from one port to other ports in turn, through a switch. The thread that sends and receives the
/// frames also runs the switch. Frames have virtio-net headers of `hdr_len` bytes.
fn switched(
    batch: u32,
    receivers: u32,
    hdr_len: u32,
    prepare: impl FnOnce(&Arc<Switch>, Plan) -> Result<()>,
) -> Result<Lane> {
    let case = case(batch, receivers);
    let switch = Switch::new("vale0");
    let (forwarder, tx, _) = embedded::port(&switch, "from", SLOTS, hdr_len)?;
    let to = |i| embedded::port(&switch, &format!("to{i}"), SLOTS, hdr_len).map(|(_, _, rx)| rx);
    let rx = (0..receivers).map(to).collect::<Result<_>>()?;
    let plan = Plan::of(&case);
    prepare(&switch, plan)?;
    Ok(Lane::new(Stations::new(plan, &case, hdr_len, Touch::Nothing, vec![tx], rx), forwarder))
}

fn track(mut lane: Lane) -> Track {
    Box::new(move || lane.round())
}

/// Enters the addresses of the simulated hosts (stations) into the switch's table. The sender was attached first, so
/// that receiver i is port i + 1.
fn learned(switch: &Arc<Switch>, plan: Plan) -> Result<()> {
    learn(switch, plan, |index| index as PortId + 1);
    Ok(())
}

/// Builds a track from one port to `receivers` other ports in turn, with virtio-net headers of `hdr_len` bytes.
pub fn vale(batch: u32, receivers: u32, hdr_len: u32) -> Result<Track> {
    switched(batch, receivers, hdr_len, learned).map(track)
}

/// Builds a track from one port to another, with policies.
pub fn vale_with(batch: u32, kind: Kind) -> Result<Track> {
    switched(batch, 1, 0, |switch, _| kind.set(switch)).map(track)
}

/// Builds a track from one port to another on which one frame in `one_of` is traced. The trace is not read while frames
/// are counted.
pub fn vale_traced(batch: u32, one_of: u32) -> Result<Track> {
    let traced = |switch: &Arc<Switch>, plan| {
        learned(switch, plan)?;
        let options = TraceOptions { filter: None, only_drops: false, one_of, room: TRACED };
        switch.trace("from", &Arc::new(Trace::new(options))).map_err(|e| failed(&e))
    };
    switched(batch, 1, 0, traced).map(track)
}

/// A guard that ends the timing of batches when it is dropped.
struct Timing;

impl Drop for Timing {
    fn drop(&mut self) {
        set_sampling(0);
    }
}

/// Builds a track from one port to another on which one batch in `one_of` is timed.
pub fn vale_timed(batch: u32, one_of: u32) -> Result<Track> {
    set_sampling(one_of);
    let timing = Timing;
    let mut lane = switched(batch, 1, 0, learned)?;
    Ok(Box::new(move || {
        let _ = &timing;
        lane.round()
    }))
}

/// Builds a switch between two netmap programs: each program moves the indices in the rings' headers, then calls sync.
pub fn netmap_api(batch: u32) -> Result<Track> {
    let case = case(batch, 1);
    let switch = Switch::new("vale0");
    let (mut forwarder, mut tx, _) = embedded::port(&switch, "from", SLOTS, 0)?;
    let (_, _, mut rx) = embedded::port(&switch, "to", SLOTS, 0)?;
    let plan = Plan::of(&case);
    let mut work = ForwardMemory::default();
    learned(&switch, plan)?;
    plan.sender(0, case.frame_bytes, Touch::Nothing).fill(&tx);
    let _ = tx.sync_header();
    Ok(Box::new(move || {
        let (mut head, _, tail) = tx.mem().indices();
        for _ in 0..batch {
            if head == tail {
                break;
            }
            tx.mem().set_len_flags(head, 60, 0);
            head = tx.mem().next(head);
        }
        tx.mem().set_indices(head, head, tail);
        let _ = tx.sync_header();
        while let PassResult::Frames(_) = forwarder.pass(&mut work) {}
        let _ = rx.sync_header();
        let (head, _, tail) = rx.mem().indices();
        rx.mem().set_indices(tail, tail, tail);
        u64::from(netvale_abi::ring::ring_space(head, tail, rx.num_slots()))
    }))
}

/// A guest's rings as the guest's driver uses them, and the queues of the guest's port.
struct Guest {
    tx: AppRing,
    rx: AppRing,
    egress: Vec<Arc<dyn Egress>>,
    ingress: Box<dyn Ingress>,
}

fn guest() -> Result<Guest> {
    let (seats, (egress, mut ingress)) = Seats::new(1, 1).map_err(|e| failed(&e))?;
    let mem = embedded::memory(SLOTS)?;
    let of = |_: usize, side: &RingSide| Ok((side.clone(), Arc::new(Doorbell::new()?)));
    seats
        .fill(&GuestRings { mem: &mem, hdr_len: 0.into(), uso: false, goes_on: false, of: &of })
        .map_err(|e| failed(&e))?;
    let mut ingress = ingress.pop().ok_or_else(|| BenchError::Usage("the port has no queues".into()))?;
    ingress.disarm();
    let app = |side: &[RingSide], dir| Ok::<_, BenchError>(AppRing::new(embedded::only(side)?, dir, bell()?));
    Ok(Guest { tx: app(&mem.tx, Dir::Tx)?, rx: app(&mem.rx, Dir::Rx)?, egress, ingress })
}

/// Builds a track from a guest's rings through a switch to the rings of `receivers` other guests in turn.
pub fn ptnet(batch: u32, receivers: u32) -> Result<Track> {
    let case = case(batch, receivers);
    let switch = Switch::new("vale0");
    let attach = |name: String, egresses| {
        switch
            .attach(AttachedPort { name, egresses, lossless: false, ..AttachedPort::default() })
            .map_err(|e| failed(&e))
    };
    let from = guest()?;
    let id = attach("from".into(), from.egress)?;
    let to = |i: u32| {
        let to = guest()?;
        Ok((attach(format!("to{i}"), to.egress)?, to.rx))
    };
    let (receivers, rx): (Vec<_>, _) = (0..receivers).map(to).collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let plan = Plan::of(&case);
    learn(&switch, plan, |index| receivers.get(usize::from(index)).copied().unwrap_or(id));
    let forwarder = Forwarder::new(Arc::clone(&switch), id, 0, from.ingress);
    Ok(track(Lane::new(Stations::new(plan, &case, 0, Touch::Nothing, vec![from.tx], rx), forwarder)))
}
