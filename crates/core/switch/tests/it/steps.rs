//! Delivery of a batch in steps (reserve, fill, publish, kick) to many destinations: rings of programs and of guests,
//! with and without merging.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Make, TestPort, attach, bell, frame, mac};
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::HostRx;
use netvale_mem::layout::RegionSizes;
use netvale_mem::region::RingSide;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_port::gro::GroEgress;
use netvale_port::ring_out::RingEgress;
use netvale_port::{Batch, DropReason, Egress, Reservation, RingCounters, Scratch};
use netvale_ptnet::backend::{Backend, GuestRings};
use netvale_ptnet::seats::Seats;
use netvale_switch::{AttachedPort, ForwardMemory, Switch};

const SLOTS: u32 = 256;

/// An egress that counts the deliveries in steps and the deliveries in a single call.
struct Counted {
    inner: Arc<dyn Egress>,
    steps: AtomicU64,
    deliveries: AtomicU64,
}

impl Counted {
    /// Number of deliveries in steps, and number of other deliveries, since the last call.
    fn ways(&self) -> (u64, u64) {
        (self.steps.swap(0, Ordering::Relaxed), self.deliveries.swap(0, Ordering::Relaxed))
    }
}

impl Egress for Counted {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        self.deliveries.fetch_add(1, Ordering::Relaxed);
        self.inner.deliver(batch, picks, scratch)
    }

    fn reserve<'b>(&'b self, batch: &'b Batch, picks: &'b [u16]) -> Option<Reservation<'b>> {
        let room = self.inner.reserve(batch, picks);
        self.steps.fetch_add(u64::from(room.is_some()), Ordering::Relaxed);
        room
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.inner.counters()
    }
}

/// A destination host.
struct Station {
    host: u8,
    egress: Arc<Counted>,
    rx: AppRing,
    /// The seats that hold the guest's rings, which can be removed from them; `None` for a program.
    seats: Option<Seats>,
}

fn memory() -> Arc<PortMem> {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: SLOTS, rx_slots: SLOTS };
    Arc::new(Region::private(RegionSizes::for_port(2, SLOTS, 2048, 0, 0)).unwrap().port(shape).unwrap())
}

fn fill(seats: &Seats, mem: &Arc<PortMem>) {
    let of = |_: usize, side: &RingSide| Ok((side.clone(), Arc::new(bell())));
    seats.fill(&GuestRings { mem, hdr_len: 0.into(), uso: false, goes_on: false, of: &of }).unwrap();
}

/// Attaches an egress as a port, and adds the address of host `host` behind it to the forwarding table.
fn join(switch: &Arc<Switch>, host: u8, egress: Arc<dyn Egress>) {
    let id = switch
        .attach(AttachedPort { name: format!("host{host}"), egresses: vec![egress], ..AttachedPort::default() })
        .unwrap();
    let [a, b, c, d, e, f] = mac(host);
    switch.fdb().learn(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), id);
}

/// Attaches host `host`: a guest or a program, with or without merging of frames (GRO).
fn station(switch: &Arc<Switch>, host: u8, is_guest: bool, gro: bool) -> Station {
    let mem = memory();
    let (inner, seats) = if is_guest {
        let (seats, (mut egress, _)) = Seats::new(1, 1).unwrap();
        fill(&seats, &mem);
        (egress.pop().unwrap(), Some(seats))
    } else {
        let ring = HostRx::new(mem.rx[0].clone(), bell());
        let egress = RingEgress::new(Arc::clone(&mem), ring, 0, Arc::default());
        (Arc::new(egress) as Arc<dyn Egress>, None)
    };
    let inner = if gro { Arc::new(GroEgress::new(inner)) } else { inner };
    let egress = Arc::new(Counted { inner, steps: AtomicU64::new(0), deliveries: AtomicU64::new(0) });
    join(switch, host, egress.clone());
    Station { host, egress, rx: AppRing::new(mem.rx[0].clone(), Dir::Rx, bell()), seats }
}

impl Station {
    /// Asserts that the host received exactly these frames since the last call.
    fn check(&mut self, frames: &[Vec<u8>]) {
        self.rx.sync();
        let slots: Vec<_> = (0..self.rx.space()).map(|k| self.rx.slot(self.rx.at(k))).collect();
        let received = slots.iter().map(|slot| {
            let mut bytes = vec![0; usize::from(slot.len)];
            assert!(self.rx.mem().read(slot.buf_idx, 0, &mut bytes));
            bytes
        });
        let received: Vec<_> = received.collect();
        let mine = frames.iter().filter(|frame| frame[..6] == mac(self.host)).cloned();
        assert_eq!(received, mine.collect::<Vec<_>>(), "host {}", self.host);
        self.rx.advance(self.rx.space());
        self.rx.sync();
    }
}

/// Creates four guests and two programs, of which one guest and one program merge frames, and a sender.
fn stations() -> (TestPort, [Station; 6]) {
    let switch = Switch::new("vale-test");
    let sender = attach(&switch, "sender", Make { slots: SLOTS, ..Make::default() });
    let kinds = [(true, false), (true, false), (true, false), (true, true), (false, false), (false, true)];
    let mut hosts = 1..;
    (sender, kinds.map(|(is_guest, gro)| station(&switch, hosts.next().unwrap(), is_guest, gro)))
}

fn send(sender: &mut TestPort, work: &mut ForwardMemory, frames: &[Vec<u8>]) {
    frames.iter().for_each(|f| assert!(sender.send(f)));
    sender.forward(work);
}

/// Objective: frames of one sender to guests, programs and receivers with merging are delivered in steps together. They
/// arrive at each receiver in order, unchanged and counted, even after rings have wrapped around.
#[test]
fn frames_to_all_kinds_of_receivers_arrive_in_order() {
    let (mut sender, mut stations) = stations();
    let mut work = ForwardMemory::default();
    let mut sent = [0; 6];
    for round in 0..40 {
        let hosts = |k: u16| 1 + (k * 7 + round) % 13 % 6;
        let frames: Vec<_> = (0..97).map(|k| frame(hosts(k) as u8, 100, round * 97 + k, 60 + usize::from(k))).collect();
        send(&mut sender, &mut work, &frames);
        for (station, sent) in stations.iter_mut().zip(&mut sent) {
            station.check(&frames);
            *sent += frames.iter().filter(|frame| frame[5] == station.host).count() as u64;
            assert_eq!((station.egress.counters().frames(), station.egress.ways()), (*sent, (1, 0)));
        }
    }
}

/// Objective: frames for a missing guest are dropped with a reason, and the other receivers get their frames; after the
/// guest returns, it gets its frames.
#[test]
fn without_one_of_them() {
    let (mut sender, mut stations) = stations();
    let mut work = ForwardMemory::default();
    let frames: Vec<_> = (0..60).map(|k| frame(1 + k as u8 % 6, 100, k, 60)).collect();
    stations[1].seats.as_ref().unwrap().empty().unwrap();
    send(&mut sender, &mut work, &frames);
    for station in &mut stations {
        let is_gone = station.host == 2;
        station.check(if is_gone { &[] } else { &frames });
        assert_eq!(station.egress.ways(), if is_gone { (0, 1) } else { (1, 0) });
        assert_eq!(station.egress.counters().idle(), if is_gone { 10 } else { 0 });
    }
    let mem = memory();
    fill(stations[1].seats.as_ref().unwrap(), &mem);
    stations[1].rx = AppRing::new(mem.rx[0].clone(), Dir::Rx, bell());
    send(&mut sender, &mut work, &frames);
    stations.iter_mut().for_each(|station| station.check(&frames));
}

/// Objective: each receiver gets the frames for which its ring has room, and the other frames are dropped with a
/// reason.
#[test]
fn each_receiver_gets_what_its_ring_has_room_for() {
    let (mut sender, mut stations) = stations();
    let mut work = ForwardMemory::default();
    let frames: Vec<_> = (0..240).map(|k| frame(1 + (k as u8 % 16).min(5), 100, k, 60)).collect();
    (0..2).for_each(|_| send(&mut sender, &mut work, &frames));
    for station in &mut stations {
        let sent: Vec<_> = [&frames[..], &frames].concat().into_iter().filter(|f| f[5] == station.host).collect();
        let fit = sent.len().min(SLOTS as usize - 1);
        station.check(&sent[..fit]);
        let counters = station.egress.counters();
        assert_eq!((counters.frames(), counters.drops(DropReason::NoRoom)), (fit as u64, (sent.len() - fit) as u64));
    }
    assert!(stations[5].egress.counters().drops(DropReason::NoRoom) > 0);
}

/// Objective: frames that are longer than a guest's buffers, in one batch with shorter frames, are delivered without
/// steps and arrive.
#[test]
fn too_long_for_steps() {
    let (mut sender, mut stations) = stations();
    let mut work = ForwardMemory::default();
    let frames: Vec<_> = (0..24).map(|k| frame(1 + k as u8 % 6, 100, k, if k == 20 { 400 } else { 200 })).collect();
    send(&mut sender, &mut work, &frames);
    for station in &mut stations {
        station.check(&frames);
        assert_eq!(station.egress.ways(), (0, 1), "a frame of two slots in the batch");
    }
}

/// An egress that does not support steps. When it delivers frames, it removes a guest's rings from the guest's seats.
struct Stepless {
    guest: Seats,
    counters: Arc<RingCounters>,
}

impl Egress for Stepless {
    fn deliver(&self, _batch: &Batch, picks: &[u16], _scratch: &mut Scratch) -> usize {
        self.guest.empty().unwrap();
        self.counters.passed(picks.len() as u64, 0);
        picks.len()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// Objective: while a destination without steps delivers its frames, no other receiver's rings are in use: a guest's
/// rings can be removed, and contain the guest's frames.
#[test]
fn nobody_is_held_up() {
    let switch = Switch::new("vale-test");
    let mut sender = attach(&switch, "sender", Make { slots: SLOTS, ..Make::default() });
    let mut guest = station(&switch, 2, true, false);
    let stepless = Arc::new(Stepless { guest: guest.seats.take().unwrap(), counters: Arc::default() });
    join(&switch, 1, stepless.clone());
    let frames: Vec<_> = (0..20).map(|k| frame(2 - k as u8 % 2, 100, k, 60)).collect();
    send(&mut sender, &mut ForwardMemory::default(), &frames);
    guest.check(&frames);
    assert_eq!(stepless.counters.frames(), 10);
}
