//! Switches with thousands of ports: addresses are learned behind any port and reached there, and floods take turns
//! with other tasks.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Make, TestPort, attach, frame, igmp, mac};
use netvale_policy::snoop::{Multicast, Snoop, SnoopSettings};
use netvale_policy::vlan::Vlans;
use netvale_port::{Batch, DropReason, Egress, RingCounters, Scratch};
use netvale_switch::{AttachedPort, CompiledPolicies, ForwardMemory, MAX_PORTS, PortId, Switch, Task};
use netvale_wire::MacAddr;

/// Maximum number of copies of flooded frames in one pass.
const MOST_COPIES: u64 = 65_536;

/// An egress that counts its frames, and checks the order of the frames by the numbers that they contain.
#[derive(Default)]
struct CountingEgress {
    got: AtomicU64,
    counters: Arc<RingCounters>,
}

impl Egress for CountingEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], _scratch: &mut Scratch) -> usize {
        for frame in picks.iter().filter_map(|&pick| batch.get(pick.into())) {
            let mut bytes = [0; 20];
            frame.copy_out(0, &mut bytes);
            let at = if bytes[12..14] == [0x81, 0] { 18 } else { 14 };
            let number = u64::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            assert_eq!(self.got.fetch_add(1, Ordering::Relaxed), number, "frames arrive in order, each once");
        }
        picks.len()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

/// A switch whose first port sends, and whose other ports count the frames that they get.
struct Bed {
    switch: Arc<Switch>,
    sender: TestPort,
    counting: Vec<Arc<CountingEgress>>,
    work: ForwardMemory,
}

fn join(switch: &Switch, name: &str, policies: Option<CompiledPolicies>) -> Arc<CountingEgress> {
    let egress = Arc::<CountingEgress>::default();
    let port = AttachedPort {
        name: name.into(),
        egresses: vec![Arc::clone(&egress) as Arc<dyn Egress>],
        policies: policies.map(Arc::new),
        ..AttachedPort::default()
    };
    switch.attach(port).unwrap();
    egress
}

impl Bed {
    fn new(ports: usize, policies: impl Fn(usize) -> Option<CompiledPolicies>) -> Bed {
        let switch = Switch::new("vale-test");
        let sender = attach(&switch, "sender", Make { slots: 512, ..Make::default() });
        if let Some(policies) = policies(0) {
            switch.set_policies(sender.id, Some(Arc::new(policies)), None);
        }
        let counting = (1..ports).map(|n| join(&switch, &format!("p{n}"), policies(n))).collect();
        Bed { switch, sender, counting, work: ForwardMemory::default() }
    }

    fn got(&self) -> u64 {
        self.counting.iter().map(|port| port.got.load(Ordering::Relaxed)).sum()
    }

    /// Sends the queued frames. Returns the number of passes. Fails if a pass makes too many copies.
    fn forward(&mut self) -> usize {
        self.sender.tx.sync();
        let mut passes = 0;
        let mut before = self.got();
        loop {
            self.sender.forwarder.pass(&mut self.work);
            let got = self.got();
            if got == before && !self.sender.forwarder.is_held() {
                self.sender.tx.sync();
                return passes;
            }
            assert!(got - before <= MOST_COPIES, "{} copies in one pass", got - before);
            before = got;
            passes += 1;
        }
    }

    fn broadcast(&mut self, numbers: std::ops::Range<u16>) {
        numbers.for_each(|number| assert!(self.sender.send(&frame(255, 1, number, 60))));
    }
}

/// Objective: broadcasts on a full switch reach every port in order and exactly once, in passes of a bounded number of
/// copies; on a small switch, a single pass suffices. Steps: without policies, and with a policy on one port.
#[test]
fn broadcasts_reach_all_ports_in_bounded_passes() {
    for (ports, policies, passes) in [(MAX_PORTS, false, 13), (MAX_PORTS, true, 13), (256, false, 1), (257, true, 1)] {
        let guarded = || Some(CompiledPolicies { loop_guard: true, ..CompiledPolicies::default() });
        let mut bed = Bed::new(ports, |n| if policies && n == 3 { guarded() } else { None });
        bed.broadcast(0..200);
        assert_eq!(bed.forward(), passes, "{ports} ports");
        assert!(bed.counting.iter().all(|port| port.got.load(Ordering::Relaxed) == 200));
        assert_eq!(bed.sender.sent.drops(DropReason::Rate), 0);
    }
}

/// Objective: if some frames of a flood wait for further passes when the worker pauses, they are delivered before the
/// pause.
#[test]
fn a_pause_loses_nothing_of_a_flood() {
    let mut bed = Bed::new(MAX_PORTS, |_| None);
    bed.broadcast(0..100);
    bed.sender.tx.sync();
    bed.sender.forwarder.pass(&mut bed.work);
    assert!(bed.sender.forwarder.is_held());
    bed.sender.forwarder.hurry(&mut bed.work);
    assert!(!bed.sender.forwarder.is_held());
    assert!(bed.counting.iter().all(|port| port.got.load(Ordering::Relaxed) == 100));
    assert_eq!(bed.sender.sent.drops(DropReason::Rate), 0);
}

/// Objective: an address is learned behind the last port of a full switch, and frames to this address go only to that
/// port; after the port is detached, they are flooded.
#[test]
fn the_last_port_learns_and_gets_its_frames() {
    let mut bed = Bed::new(MAX_PORTS - 1, |_| None);
    let mut last = attach(&bed.switch, "last", Make::default());
    assert_eq!(usize::from(last.id), MAX_PORTS - 1);
    last.send(&frame(1, 2, 0, 60));
    last.forward(&mut bed.work);
    let word = MacAddr(mac(2)).to_word();
    assert_eq!((bed.switch.fdb().lookup(word), bed.got()), (Some(last.id), (MAX_PORTS - 2) as u64));
    let sent = frame(2, 1, 1, 60);
    bed.sender.send(&sent);
    bed.forward();
    assert_eq!((last.take(), bed.got()), (vec![sent.clone()], (MAX_PORTS - 2) as u64));
    bed.switch.detach(last.id);
    bed.sender.send(&sent);
    bed.forward();
    assert_eq!((bed.switch.fdb().lookup(word), bed.got()), (None, 2 * (MAX_PORTS - 2) as u64));
}

/// Objective: VLANs keep thousands of ports apart, in bounded passes. Steps: the ports alternate between two VLANs, and
/// one port is in both.
#[test]
fn vlans_keep_thousands_of_ports_apart() {
    let vlans = |n: usize| match n {
        5 => Vlans::trunk("2-3".parse().unwrap(), None).unwrap(),
        n => Vlans::access(2 + n as u16 % 2).unwrap(),
    };
    let of = |n| Some(CompiledPolicies { vlans: Some(vlans(n)), ..CompiledPolicies::default() });
    let mut bed = Bed::new(3000, of);
    let trunk = bed.counting.remove(4);
    bed.broadcast(0..64);
    bed.forward();
    for (n, port) in bed.counting.iter().enumerate() {
        let number = if n < 4 { n + 1 } else { n + 2 };
        assert_eq!(port.got.load(Ordering::Relaxed), if number % 2 == 0 { 64 } else { 0 }, "port {number}");
    }
    assert_eq!(trunk.got.load(Ordering::Relaxed), 64);
}

/// Objective: frames for a multicast group go only to its member, in this test the port with the highest index.
#[test]
fn a_group_has_its_member_behind_the_last_port() {
    let snooping = Multicast { snooping: true, ..Multicast::default() };
    let of = |_| Some(CompiledPolicies { multicast: snooping, ..CompiledPolicies::default() });
    let mut bed = Bed::new(MAX_PORTS, of);
    let mut snoop = Snoop::new(SnoopSettings { querier: true, ..SnoopSettings::new(MacAddr([2, 0, 0, 0, 0, 9])) });
    snoop.watch(0, 0);
    let member = (MAX_PORTS - 1) as PortId;
    snoop.tick(60_000_000_000);
    snoop.observe(60_000_000_000, 0, member, &igmp(0x16, 3, Some(2)));
    bed.switch.snooping().unwrap().tell(Some(snoop.snapshot()));
    let mut sent = frame(9, 1, 0, 60);
    sent[..6].copy_from_slice(&[1, 0, 0x5e, 1, 1, 2]);
    bed.sender.send(&sent);
    bed.forward();
    let got: Vec<_> = bed.counting.iter().map(|port| port.got.load(Ordering::Relaxed)).collect();
    assert_eq!((got[MAX_PORTS - 2], got.iter().sum::<u64>()), (1, 1));
}

/// Objective: thousands of ports are attached and detached while frames pass; the ports that stay get every frame
/// exactly once.
#[test]
fn ports_come_and_go_while_floods_pass() {
    let mut bed = Bed::new(1000, |_| None);
    let switch = Arc::clone(&bed.switch);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let switch = &switch;
            let is_done = &is_done;
            scope.spawn(move || {
                let mut rounds = 0;
                while rounds < 3 || !is_done.load(Ordering::Relaxed) {
                    let port = |n| AttachedPort { name: format!("t{thread}-{n}"), ..AttachedPort::default() };
                    let ids: Vec<_> = (0..300).map(|n| switch.attach(port(n)).unwrap()).collect();
                    ids.iter().for_each(|&id| switch.learn(0, 0x200 | u64::from(id) << 16, id));
                    ids.into_iter().for_each(|id| switch.detach(id));
                    rounds += 1;
                }
            });
        }
        for round in 0..10 {
            bed.broadcast(round * 100..(round + 1) * 100);
            bed.forward();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(bed.counting.iter().all(|port| port.got.load(Ordering::Relaxed) == 1000));
    assert_eq!(bed.switch.ports().len(), 1000);
    // The forwarding table contains only the sender's address.
    assert_eq!(bed.switch.fdb().entries().len(), 1);
}
