//! The choice of a port's queue: frames go to open queues, and all frames of a flow go to the same queue.

use crate::common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use common::{bell, mac};
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::layout::RegionSizes;
use netvale_mem::region::RingSide;
use netvale_mem::{PortShape, Region};
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_port::{Batch, Egress, RingCounters, Scratch};
use netvale_switch::{AttachedPort, CompiledPolicies, ForwardMemory, Forwarder, PassResult, PortId, Switch};

const QUEUES: usize = 4;
const RECEIVER: u8 = 9;

/// An egress that stores its frames.
struct Queue {
    open: AtomicBool,
    got: Mutex<Vec<Vec<u8>>>,
    counters: Arc<RingCounters>,
}

impl Egress for Queue {
    fn deliver(&self, batch: &Batch, picks: &[u16], _scratch: &mut Scratch) -> usize {
        let frames = picks.iter().filter_map(|&pick| batch.get(pick.into())).map(|frame| {
            let mut bytes = vec![0; frame.len()];
            frame.copy_out(0, &mut bytes);
            bytes
        });
        self.got.lock().unwrap().extend(frames);
        picks.len()
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// A port with several queues.
struct Receiver {
    id: PortId,
    queues: Vec<Arc<Queue>>,
}

impl Receiver {
    fn attach(switch: &Arc<Switch>) -> Receiver {
        let queue = |_| Arc::new(Queue { open: true.into(), got: Mutex::default(), counters: Arc::default() });
        let queues: Vec<_> = (0..QUEUES).map(queue).collect();
        let egresses = queues.iter().map(|queue| Arc::clone(queue) as Arc<dyn Egress>).collect();
        let port = AttachedPort { name: "receiver".into(), egresses, rings: QUEUES, ..AttachedPort::default() };
        Receiver { id: switch.attach(port).unwrap(), queues }
    }

    fn learn(&self, switch: &Switch) {
        let [a, b, c, d, e, f] = mac(RECEIVER);
        switch.fdb().learn(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), self.id);
    }

    /// Opens these queues and closes the others.
    fn open(&self, open: &[usize]) {
        for (number, queue) in self.queues.iter().enumerate() {
            queue.open.store(open.contains(&number), Ordering::Relaxed);
        }
    }

    /// The frames that each queue has received since the last call.
    fn take(&self) -> Vec<Vec<Vec<u8>>> {
        self.queues.iter().map(|queue| std::mem::take(&mut *queue.got.lock().unwrap())).collect()
    }
}

/// Datagram number `number` of flow `flow`.
fn datagram(to: u8, flow: u16, number: u16) -> Vec<u8> {
    let mut frame = Vec::from(mac(to));
    frame.extend(mac(1));
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(flow.to_be_bytes());
    frame.extend([0, 7, 0, 26, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn flow_and_number(frame: &[u8]) -> (u16, u16) {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (word(34), word(42))
}

/// A port of a program that sends from one or more rings.
struct Sender {
    tx: Vec<AppRing>,
    forwarders: Vec<Forwarder>,
    id: PortId,
}

impl Sender {
    fn attach(switch: &Arc<Switch>, rings: u32) -> Sender {
        let shape = PortShape { tx_rings: rings, rx_rings: rings, tx_slots: 512, rx_slots: 16 };
        let sizes = RegionSizes::for_port(2 * rings, 512, 256, 0, 0);
        let mem = Arc::new(Region::private(sizes).unwrap().port(shape).unwrap());
        let egress = |rx: &RingSide| {
            let host = HostRx::new(rx.clone(), bell());
            Arc::new(RingEgress::new(Arc::clone(&mem), host, 0, Arc::default())) as Arc<dyn Egress>
        };
        let egresses = mem.rx.iter().map(egress).collect();
        let port = AttachedPort { name: "sender".into(), egresses, rings: rings as usize, ..AttachedPort::default() };
        let id = switch.attach(port).unwrap();
        let forwarder = |(ring, tx): (usize, &RingSide)| {
            let host = HostTx::new(tx.clone(), bell());
            let ingress = RingIngress::new(Arc::clone(&mem), host, bell(), 0, Arc::default());
            Forwarder::new(Arc::clone(switch), id, ring, Box::new(ingress))
        };
        let forwarders = mem.tx.iter().enumerate().map(forwarder).collect();
        let tx = mem.tx.iter().map(|tx| AppRing::new(tx.clone(), Dir::Tx, bell())).collect();
        Sender { tx, forwarders, id }
    }

    fn send(&mut self, ring: usize, frames: &[Vec<u8>], work: &mut ForwardMemory) {
        let tx = &mut self.tx[ring];
        for (k, frame) in frames.iter().enumerate() {
            let slot = tx.at(k as u32);
            assert!(tx.mem().write(tx.slot(slot).buf_idx, 0, frame));
            tx.mem().set_len_flags(slot, frame.len() as u16, 0);
        }
        tx.advance(frames.len() as u32);
        tx.sync();
        while let PassResult::Frames(_) = self.forwarders[ring].pass(work) {}
        tx.sync();
    }
}

/// A switch with a receiver and a sender of `rings` rings. If `policed`, frames take the path of switches with
/// policies.
fn bed(rings: u32, policed: bool) -> (Arc<Switch>, Sender, Receiver) {
    let switch = Switch::new("vale0");
    let sender = Sender::attach(&switch, rings);
    let receiver = Receiver::attach(&switch);
    let policies = policed.then(|| Arc::new(CompiledPolicies { isolated: true, ..CompiledPolicies::default() }));
    switch.set_policies(sender.id, policies, None);
    (switch, sender, receiver)
}

/// Objective: frames from ring *i* of a sender go to open queue *i* modulo the number of open queues, for any set of
/// open queues, which may change at any time; if no queue is open, frames go to queue *i*.
#[test]
fn each_ring_sends_to_its_open_queue() {
    for policed in [false, true] {
        let (switch, mut sender, receiver) = bed(QUEUES as u32, policed);
        receiver.learn(&switch);
        let mut work = ForwardMemory::default();
        let pair = [1, 2].map(|flow| datagram(RECEIVER, flow, 0));
        for mask in 0..1usize << QUEUES {
            let open: Vec<_> = (0..QUEUES).filter(|queue| mask & 1 << queue != 0).collect();
            receiver.open(&open);
            for ring in 0..QUEUES {
                sender.send(ring, &pair, &mut work);
                let expected = open.get(ring % open.len().max(1)).copied().unwrap_or(ring);
                let counts: Vec<_> = receiver.take().iter().map(Vec::len).collect();
                let all = |queue| if queue == expected { pair.len() } else { 0 };
                assert_eq!(counts, (0..QUEUES).map(all).collect::<Vec<_>>(), "{policed} {open:?}, ring {ring}");
            }
        }
    }
}

/// Objective: a flooded frame reaches exactly one open queue, once.
#[test]
fn a_flood_reaches_one_open_queue_once() {
    for policed in [false, true] {
        let (_switch, mut sender, receiver) = bed(QUEUES as u32, policed);
        let mut work = ForwardMemory::default();
        receiver.open(&[2, 3]);
        for ring in 0..QUEUES {
            sender.send(ring, &[datagram(255, 1, 0), datagram(7, 1, 1)], &mut work);
            assert_eq!(receiver.take().iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 2, 0], "{policed} ring {ring}");
        }
    }
}

/// Objective: frames of many flows from one ring are spread over all open queues and no other queues. Each flow stays
/// in order on one queue, for known and unknown destinations and for batches with several destinations.
#[test]
fn flows_are_spread_over_all_open_queues() {
    const FLOWS: u16 = 64;
    const EACH: u16 = 5;
    for (policed, known) in [(false, false), (false, true), (true, false), (true, true)] {
        let (switch, mut sender, receiver) = bed(1, policed);
        if known {
            receiver.learn(&switch);
        }
        let mut work = ForwardMemory::default();
        for open in [&[0, 1, 2, 3][..], &[1, 3], &[2]] {
            receiver.open(open);
            let frames: Vec<_> = (0..EACH)
                .flat_map(|number| (0..FLOWS).map(move |flow| datagram(RECEIVER, flow, number)))
                .chain([datagram(255, 1000, 0)])
                .collect();
            sender.send(0, &frames, &mut work);
            let got = receiver.take();
            let mut all: BTreeMap<u16, (usize, Vec<u16>)> = BTreeMap::new();
            for (queue, frames) in got.iter().enumerate() {
                assert_eq!(open.contains(&queue), !frames.is_empty(), "{policed} {known} {open:?}: queue {queue}");
                for (flow, number) in frames.iter().map(|frame| flow_and_number(frame)) {
                    let (at, numbers) = all.entry(flow).or_insert((queue, Vec::new()));
                    assert_eq!(*at, queue, "flow {flow}");
                    numbers.push(number);
                }
            }
            assert_eq!(all.remove(&1000).map(|(_, numbers)| numbers), Some(vec![0]));
            assert_eq!(all.len(), usize::from(FLOWS));
            assert!(all.values().all(|(_, numbers)| numbers.iter().copied().eq(0..EACH)), "{policed} {known} {open:?}");
        }
    }
}

/// Objective: frames that are not IP have no flow; they stay on one queue in the order of the sender's ring, as with
/// netmap.
#[test]
fn others_stay_in_order() {
    for policed in [false, true] {
        let (_switch, mut sender, receiver) = bed(1, policed);
        let frames: Vec<_> = (0..50).map(|number| common::frame(RECEIVER, 1, number, 60)).collect();
        sender.send(0, &frames, &mut ForwardMemory::default());
        assert_eq!(receiver.take(), [frames, Vec::new(), Vec::new(), Vec::new()], "{policed}");
    }
}
