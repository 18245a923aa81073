//! Tests of the switch against a model: a map of addresses and a list of queues.

use crate::common;

use std::collections::{HashMap, VecDeque};

use common::{Make, TestPort, attach, frame};
use netvale_port::DropReason;
use netvale_switch::{ForwardMemory, Switch};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    /// The port with this index sends a frame to each of these hosts. All frames have the same source host, the last
    /// field.
    Send(usize, Vec<u8>, u8),
    /// The port with this index takes the frames that it has received.
    Take(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let to = prop_oneof![6 => 0u8..6, 1 => Just(255u8)];
    prop_oneof![
        3 => (0usize..4, proptest::collection::vec(to, 1..12), 0u8..6).prop_map(|(p, t, s)| Op::Send(p, t, s)),
        1 => (0usize..4).prop_map(Op::Take),
    ]
}

/// A model of a learning switch: the port that leads to each host, and the frames that wait at each port.
struct Model {
    table: HashMap<u8, usize>,
    queues: Vec<VecDeque<Vec<u8>>>,
    room: usize,
}

impl Model {
    fn send(&mut self, port: usize, to: u8, from: u8, bytes: &[u8]) {
        self.table.insert(from, port);
        let targets: Vec<usize> = match self.table.get(&to) {
            Some(&p) if to != 255 => vec![p],
            _ => (0..self.queues.len()).collect(),
        };
        for t in targets.into_iter().filter(|&t| t != port) {
            if self.queues[t].len() < self.room {
                self.queues[t].push_back(bytes.to_vec());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Objective: for any frames in any batches, each port receives the same frames, in the same order, as from a
    /// simple learning switch with bounded queues.
    #[test]
    fn like_a_simple_switch(ops in proptest::collection::vec(op(), 1..60)) {
        let switch = Switch::new("vale-test");
        let mut ports: Vec<TestPort> = (0..4).map(|i| attach(&switch, &format!("p{i}"), Make::default())).collect();
        let mut model = Model { table: HashMap::new(), queues: vec![VecDeque::new(); 4], room: 15 };
        let mut work = ForwardMemory::default();
        let mut tag = 0;
        for op in ops {
            match op {
                Op::Send(port, targets, from) => {
                    for to in targets {
                        tag += 1;
                        let f = frame(to, from, tag, 60 + usize::from(tag) % 100);
                        prop_assert!(ports[port].send(&f));
                        model.send(port, to, from, &f);
                    }
                    ports[port].forward(&mut work);
                }
                Op::Take(port) => {
                    let got = ports[port].take();
                    let want: Vec<Vec<u8>> = model.queues[port].drain(..).collect();
                    prop_assert_eq!(got, want);
                }
            }
        }
        for (port, queue) in ports.iter_mut().zip(&model.queues) {
            prop_assert_eq!(port.take(), queue.iter().cloned().collect::<Vec<_>>());
        }
    }

    /// Objective: frames of many slots pass between rings of different buffer sizes, complete and in order.
    #[test]
    fn frames_of_many_slots(
        lens in proptest::collection::vec(14usize..900, 1..20),
        sizes in (1u32..5, 1u32..5),
    ) {
        let switch = Switch::new("vale-test");
        let mut a = attach(&switch, "a", Make { slots: 64, buf_size: sizes.0 * 64, ..Make::default() });
        let mut b = attach(&switch, "b", Make { slots: 64, buf_size: sizes.1 * 64, ..Make::default() });
        let mut work = ForwardMemory::default();
        for (i, len) in lens.iter().enumerate() {
            let f = frame(255, 1, i as u16, *len);
            prop_assert!(a.send(&f));
            a.forward(&mut work);
            let got = b.take();
            prop_assert_eq!(got, vec![f]);
        }
        prop_assert_eq!(b.received.host().kicks().sent(), 0);
    }
}

/// Objective: a full receiver loses only frames for itself, counted as `NoRoom`, while the other port gets all of its
/// frames.
#[test]
fn full_receiver_drops_by_name() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make { slots: 64, ..Make::default() });
    let mut slow = attach(&switch, "slow", Make { slots: 4, ..Make::default() });
    let mut fast = attach(&switch, "fast", Make { slots: 64, ..Make::default() });
    let mut work = ForwardMemory::default();
    for i in 0..20 {
        a.send(&frame(255, 1, i, 60));
    }
    a.forward(&mut work);
    assert_eq!(fast.take().len(), 20);
    assert_eq!(slow.take().len(), 3);
    let drops: Vec<_> = netvale_port::Egress::counters(slow.received.as_ref()).all_drops().collect();
    assert_eq!(drops, [(DropReason::NoRoom, 17)]);
}

/// Objective: a lossless receiver holds the sender back: no frame is lost, the order is kept, and the sender's slots
/// are released only when the receiver reads.
#[test]
fn lossless_holds_the_sender_back() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make { slots: 32, ..Make::default() });
    let mut b = attach(&switch, "b", Make { slots: 4, lossless: true, ..Make::default() });
    let mut work = ForwardMemory::default();
    b.send(&frame(255, 2, 0, 60));
    b.forward(&mut work);
    a.take();
    let sent: Vec<_> = (0..20).map(|i| frame(2, 1, i, 60)).collect();
    sent.iter().for_each(|f| assert!(a.send(f)));
    let mut got = Vec::new();
    while got.len() < sent.len() {
        a.forward(&mut work);
        assert!(a.forwarder.is_held() || got.len() + 3 >= sent.len(), "held until all is delivered");
        let some = b.take();
        assert!(!some.is_empty());
        got.extend(some);
    }
    assert_eq!(got, sent);
    assert_eq!(netvale_port::Egress::counters(b.received.as_ref()).all_drops().count(), 0);
}

/// Objective: a monitor gets copies of the frames that its port sends and receives, and no other frames. After its
/// removal, the monitor gets no copies.
#[test]
fn a_monitor_copies_both_directions_of_its_port() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make::default());
    let mut b = attach(&switch, "b", Make::default());
    let mut c = attach(&switch, "c", Make::default());
    let mut m = attach(&netvale_switch::Switch::new("elsewhere"), "m", Make::default());
    let one = || -> netvale_switch::MonitorRings { vec![Some(m.received.clone())] };
    switch.monitor("a", "m", one(), one()).unwrap();
    assert!(switch.monitor("nobody", "m", one(), one()).is_err());
    let mut work = ForwardMemory::default();
    let f1 = frame(255, 1, 1, 60);
    let f2 = frame(1, 2, 2, 60);
    let f3 = frame(2, 3, 3, 60);
    a.send(&f1);
    a.forward(&mut work);
    b.send(&f2);
    b.forward(&mut work);
    c.send(&f3);
    c.forward(&mut work);
    assert_eq!(m.take(), [f1.clone(), f2.clone()]);
    switch.unmonitor("m");
    a.send(&f1);
    a.forward(&mut work);
    assert!(m.take().is_empty());
}

/// Objective: after a port is detached, frames to the addresses behind it are flooded, or dropped as `NoPort` if no
/// other port is left.
#[test]
fn detached_ports_are_forgotten() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make::default());
    let mut b = attach(&switch, "b", Make::default());
    let mut c = attach(&switch, "c", Make::default());
    let mut work = ForwardMemory::default();
    b.send(&frame(255, 2, 0, 60));
    b.forward(&mut work);
    a.take();
    c.take();
    switch.detach(b.id);
    a.send(&frame(2, 1, 1, 60));
    a.forward(&mut work);
    assert_eq!((b.take().len(), c.take().len()), (0, 1));
    assert_eq!(switch.ports().len(), 2);
    switch.detach(c.id);
    a.send(&frame(2, 1, 2, 60));
    a.forward(&mut work);
    assert_eq!(a.sent.drops(DropReason::NoPort), 1);
}

/// Objective: a switch takes 4,096 ports; a further port and a duplicate name are refused; the number of a detached
/// port is reused.
#[test]
fn a_switch_takes_4096_ports_and_no_more() {
    let switch = Switch::new("vale-test");
    let port =
        |n: usize| netvale_switch::AttachedPort { name: format!("p{n}"), ..netvale_switch::AttachedPort::default() };
    (0..4096).for_each(|n| assert_eq!(usize::from(switch.attach(port(n)).unwrap()), n));
    assert!(switch.attach(port(4096)).unwrap_err().to_string().contains("4096"));
    switch.detach(7);
    assert!(switch.attach(port(8)).unwrap_err().to_string().contains("p8"));
    assert_eq!(switch.attach(port(7)).unwrap(), 7);
}
