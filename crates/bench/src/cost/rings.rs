//! Paths between netmap rings: pipes, switches, a guest's rings.

use std::sync::Arc;

use netvale::{Port as Client, RxRing, TxRing};
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::latency::set_sampling;
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RegionSizes};
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_port::{Egress, Ingress};
use netvale_ptnet::backend::{Backend, Fresh};
use netvale_ptnet::seats::Seats;
use netvale_switch::trace::{Trace, TraceOptions};
use netvale_switch::{Forwarder, Passed, Port, PortId, Switch, Work};

use super::Lane;
use crate::case::{Case, Unit};
use crate::error::{BenchError, Result};
use crate::scenarios::embedded::{self, bell};
use crate::scenarios::own::failed;
use crate::scenarios::policies::kinds::{Kind, Pair};
use crate::scenarios::stations::{FIRST_SENDER, Plan, Stations};
use crate::scenarios::traffic::{SLOTS, Touch, address};

/// Room for all frames that are counted, and those before them.
const TRACED: usize = 1 << 16;

/// A case that no scenario has: frames of 60 bytes, one port to a number of others.
fn case(batch: u32, receivers: u32) -> Case {
    Case {
        scenario: "cost".into(),
        variant: "1-n".into(),
        frame_bytes: 60,
        batch,
        ports: 1 + receivers,
        spin_us: None,
        addresses: None,
        foreign: None,
        unit: Unit::Mpps,
    }
}

struct Pipe {
    stations: Stations<TxRing, RxRing>,
    _ends: (Client, Client),
}

impl Lane for Pipe {
    fn round(&mut self) -> u64 {
        self.stations.round()
    }
}

/// A pipe inside this program.
pub fn pipe(batch: u32) -> Result<Box<dyn Lane>> {
    let (mut a, mut b) = Client::pipe_pair(SLOTS, 0).map_err(|e| failed(&e))?;
    let (tx, rx) = (a.take_rings().0, b.take_rings().1);
    let case = case(batch, 1);
    let stations = Stations::new(Plan::of(&case), &case, Touch::Nothing, tx, rx);
    Ok(Box::new(Pipe { stations, _ends: (a, b) }))
}

/// A switch that is called by the thread that sends and receives.
struct Vale {
    stations: Stations<AppRing, AppRing>,
    forwarder: Forwarder,
    work: Work,
}

impl Lane for Vale {
    fn round(&mut self) -> u64 {
        self.stations.send();
        while let Passed::Frames(_) = self.forwarder.pass(&mut self.work) {}
        self.stations.receive()
    }
}

/// The switch knows where the stations are.
fn learn(switch: &Switch, plan: Plan, receiver: impl Fn(u16) -> PortId) {
    for index in 0..plan.receivers {
        for station in plan.behind(index) {
            let [a, b, c, d, e, f] = address(station);
            switch.fdb().learn(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), receiver(index));
        }
    }
}

/// One port to `others` in turn, all with headers of that length.
pub fn vale(batch: u32, receivers: u32, hdr_len: u32) -> Result<Box<dyn Lane>> {
    let (case, switch) = (case(batch, receivers), Switch::new("vale0"));
    let plan = Plan::of(&case);
    let (forwarder, tx, _) = embedded::port(&switch, "from", SLOTS, hdr_len)?;
    let rx: Vec<AppRing> = (0..receivers)
        .map(|i| embedded::port(&switch, &format!("to{i}"), SLOTS, hdr_len).map(|(_, _, rx)| rx))
        .collect::<Result<_>>()?;
    // The sender came first, so that receiver i is port i + 1.
    learn(&switch, plan, |index| index as PortId + 1);
    let stations = Stations::with_header(plan, (&case, hdr_len), Touch::Nothing, vec![tx], rx);
    Ok(Box::new(Vale { stations, forwarder, work: Work::default() }))
}

/// From one port to another of a switch whose ports have policies.
pub fn vale_with(batch: u32, kind: Kind) -> Result<Box<dyn Lane>> {
    let (case, switch) = (case(batch, 1), Switch::new("vale0"));
    let plan = Plan::of(&case);
    let (forwarder, tx, _) = embedded::port(&switch, "from", SLOTS, 0)?;
    let (_, _, rx) = embedded::port(&switch, "to", SLOTS, 0)?;
    // The sender came first.
    kind.set(&switch, Pair { ports: (0, 1), stations: (FIRST_SENDER, 0) })?;
    let stations = Stations::new(plan, &case, Touch::Nothing, vec![tx], vec![rx]);
    Ok(Box::new(Vale { stations, forwarder, work: Work::default() }))
}

/// From one port to another, with a trace of one frame of that many, which nobody reads meanwhile.
pub fn vale_traced(batch: u32, one_of: u32) -> Result<Box<dyn Lane>> {
    let (case, switch) = (case(batch, 1), Switch::new("vale0"));
    let plan = Plan::of(&case);
    let (forwarder, tx, _) = embedded::port(&switch, "from", SLOTS, 0)?;
    let (_, _, rx) = embedded::port(&switch, "to", SLOTS, 0)?;
    learn(&switch, plan, |index| index as PortId + 1);
    let options = TraceOptions { filter: None, only_drops: false, one_of, room: TRACED };
    switch.trace("from", &Arc::new(Trace::new(options))).map_err(|e| failed(&e))?;
    let stations = Stations::new(plan, &case, Touch::Nothing, vec![tx], vec![rx]);
    Ok(Box::new(Vale { stations, forwarder, work: Work::default() }))
}

/// While it lives, batches are timed.
struct Timed(Box<dyn Lane>);

impl Lane for Timed {
    fn round(&mut self) -> u64 {
        self.0.round()
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        set_sampling(0);
    }
}

/// From one port to another, while one of that many batches is timed.
pub fn vale_timed(batch: u32, one_of: u32) -> Result<Box<dyn Lane>> {
    set_sampling(one_of);
    Ok(Box::new(Timed(vale(batch, 1, 0)?)))
}

/// A netmap program at either end: it moves the indices in the rings' headers, then syncs.
struct NetmapApi {
    tx: AppRing,
    rx: AppRing,
    forwarder: Forwarder,
    work: Work,
    batch: u32,
}

impl Lane for NetmapApi {
    fn round(&mut self) -> u64 {
        let (mut head, _, tail) = self.tx.mem().indices();
        for _ in 0..self.batch {
            if head == tail {
                break;
            }
            self.tx.mem().set_len_flags(head, 60, 0);
            head = self.tx.mem().next(head);
        }
        self.tx.mem().set_indices(head, head, tail);
        let _ = self.tx.sync_header();
        while let Passed::Frames(_) = self.forwarder.pass(&mut self.work) {}
        let _ = self.rx.sync_header();
        let (head, _, tail) = self.rx.mem().indices();
        self.rx.mem().set_indices(tail, tail, tail);
        u64::from(netvale_abi::ring::ring_space(head, tail, self.rx.num_slots()))
    }
}

/// A switch between two netmap programs.
pub fn netmap_api(batch: u32) -> Result<Box<dyn Lane>> {
    let (case, switch) = (case(batch, 1), Switch::new("vale0"));
    let (forwarder, mut tx, _) = embedded::port(&switch, "from", SLOTS, 0)?;
    let (_, _, rx) = embedded::port(&switch, "to", SLOTS, 0)?;
    let plan = Plan::of(&case);
    learn(&switch, plan, |index| index as PortId + 1);
    plan.sender(0, case.frame_bytes, Touch::Nothing).fill(&tx);
    let _ = tx.sync_header();
    Ok(Box::new(NetmapApi { tx, rx, forwarder, work: Work::default(), batch }))
}

/// A guest's rings, as its driver uses them, and the port's queues.
struct Guest {
    tx: AppRing,
    rx: AppRing,
    egress: Vec<Arc<dyn Egress>>,
    ingress: Box<dyn Ingress>,
}

fn guest() -> Result<Guest> {
    let (seats, (egress, mut ingress)) = Seats::new(1, 1).map_err(|e| failed(&e))?;
    let mem = memory()?;
    let of = |_: usize, side: &RingSide| Ok((side.clone(), Arc::new(Doorbell::new()?)));
    seats.fill(&Fresh { mem: &mem, hdr_len: 0.into(), uso: false, goes_on: false, of: &of }).map_err(|e| failed(&e))?;
    let mut ingress = ingress.pop().ok_or_else(|| BenchError::Usage("a port without queues".into()))?;
    ingress.disarm();
    let ([tx], [rx]) = (&mem.tx[..], &mem.rx[..]) else {
        return Err(BenchError::Usage("a port without its rings".into()));
    };
    let app = |side: &RingSide, dir| Ok::<_, BenchError>(AppRing::new(side.clone(), dir, bell()?));
    Ok(Guest { tx: app(tx, Dir::Tx)?, rx: app(rx, Dir::Rx)?, egress, ingress })
}

fn memory() -> Result<Arc<PortMem>> {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: SLOTS, rx_slots: SLOTS };
    let region = Region::private(RegionSizes::for_port(2, SLOTS, DEFAULT_BUF_SIZE, 0, 0));
    region.and_then(|region| region.port(shape)).map(Arc::new).map_err(|e| failed(&e))
}

/// A switch from a guest's rings to those of a number of others in turn.
pub fn ptnet(batch: u32, receivers: u32) -> Result<Box<dyn Lane>> {
    let (case, switch) = (case(batch, receivers), Switch::new("vale0"));
    let attach = |name: String, egresses| {
        switch.attach(Port { name, egresses, lossless: false, ..Port::default() }).map_err(|e| failed(&e))
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
    let stations = Stations::new(plan, &case, Touch::Nothing, vec![from.tx], rx);
    Ok(Box::new(Vale { stations, forwarder, work: Work::default() }))
}
