//! Frames for multicast groups go to the groups' members; multicast control messages go to routers and to the code that
//! keeps the groups.

use crate::common;

use std::sync::Arc;

use common::{Make, TestPort, attach, frame, igmp};
use netvale_mem::notify::Doorbell;
use netvale_policy::snoop::{MessageClass, Multicast, Router, Snoop, SnoopSettings};
use netvale_policy::vlan::Vlans;
use netvale_port::DropReason;
use netvale_switch::snooping::Snooping;
use netvale_switch::{CompiledPolicies, ForwardMemory, PassResult, QueryTask, Switch, Task};
use netvale_wire::MacAddr;

/// A time in nanoseconds by which hosts have had time to answer the first query.
const LATER: u64 = 60_000_000_000;

/// A switch with four ports. The test keeps the switch's multicast groups as the daemon does.
struct Bed {
    switch: Arc<Switch>,
    ports: [TestPort; 4],
    work: ForwardMemory,
    snoop: Snoop,
}

impl Bed {
    fn new(of: impl Fn(usize) -> CompiledPolicies) -> Bed {
        let switch = Switch::new("vale-test");
        let make = Make { slots: 128, buf_size: 256, ..Make::default() };
        let ports = std::array::from_fn(|n| attach(&switch, &format!("p{n}"), make));
        let mut bed = Bed {
            switch,
            ports,
            work: ForwardMemory::default(),
            snoop: Snoop::new(SnoopSettings { querier: true, ..SnoopSettings::new(MacAddr([2, 0, 0, 0, 0, 0x73])) }),
        };
        (0..4).for_each(|n| bed.set(n, of(n)));
        for port in bed.switch.groups_of().ports {
            bed.snoop.set_router(port.id, port.multicast.router);
            port.vlan.iter().for_each(|&vlan| bed.snoop.watch(0, vlan));
        }
        bed.snoop.tick(LATER);
        bed.tell();
        bed
    }

    fn set(&self, port: usize, policies: CompiledPolicies) {
        self.switch.set_policies(self.ports[port].id, Some(Arc::new(policies)), None);
    }

    fn snooping(&self) -> &Arc<Snooping> {
        self.switch.snooping().unwrap()
    }

    /// Reads the waiting control messages, and publishes the groups that result from them. Returns the classes of the
    /// messages.
    fn tell(&mut self) -> Vec<MessageClass> {
        let snooping = Arc::clone(self.snooping());
        let heard = std::iter::from_fn(|| snooping.read());
        let observe = |heard: netvale_switch::snooping::HeardMessage| {
            self.snoop.observe(LATER, heard.vlan, heard.port, heard.frame()).message
        };
        let heard = heard.map(observe).collect();
        snooping.tell(Some(self.snoop.snapshot()));
        heard
    }

    /// Sends a frame from a port. Returns the ports that get it unchanged.
    fn send(&mut self, from: usize, bytes: &[u8]) -> Vec<usize> {
        assert!(self.ports[from].send(bytes));
        self.ports[from].forward(&mut self.work);
        let mut got = Vec::new();
        for (n, port) in self.ports.iter_mut().enumerate() {
            let frames = port.take();
            assert!(frames.iter().all(|frame| frame == bytes) && frames.len() <= 1, "port {n}");
            got.extend((!frames.is_empty()).then_some(n));
        }
        got
    }
}

fn snooping(multicast: Multicast) -> CompiledPolicies {
    CompiledPolicies { multicast: Multicast { snooping: true, ..multicast }, ..CompiledPolicies::default() }
}

/// A frame from host `from` to 239.1.1.`group`.
fn to_group(from: u8, group: u8) -> Vec<u8> {
    let mut bytes = frame(9, from, 0, 100);
    bytes[..6].copy_from_slice(&[1, 0, 0x5e, 1, 1, group]);
    bytes
}

const QUERY: u8 = 0x11;
const JOIN: u8 = 0x16;

/// Objective: a group's frames go to its members. Ports that do not snoop get everything; a port that snoops gets no
/// reports unless a router is behind it. Queries go to all ports; a query from a port that may have no router is
/// dropped as `RogueQuery`.
#[test]
fn frames_of_a_group_go_to_its_members() {
    let mut bed = Bed::new(|n| match n {
        3 => CompiledPolicies::default(),
        2 => snooping(Multicast { router: Router::Never, ..Multicast::default() }),
        _ => snooping(Multicast::default()),
    });
    assert_eq!(bed.send(0, &to_group(1, 5)), [3]);
    assert_eq!(bed.send(1, &igmp(JOIN, 2, Some(5))), [3]);
    assert_eq!(bed.tell(), [MessageClass::Report]);
    assert_eq!(bed.send(0, &to_group(1, 5)), [1, 3]);
    assert_eq!(bed.send(0, &to_group(1, 6)), [3]);
    // Frames for a link-local group (224.0.0.0/24) go to all ports, as hosts need not join such a group.
    let mut local = to_group(1, 1);
    local[3..6].copy_from_slice(&[0, 0, 251]);
    assert_eq!(bed.send(0, &local), [1, 2, 3]);
    assert_eq!(bed.send(2, &igmp(QUERY, 3, None)), Vec::<usize>::new());
    assert_eq!(bed.ports[2].sent.drops(DropReason::RogueQuery), 1);
    assert_eq!(bed.tell(), []);
    assert_eq!(bed.send(0, &igmp(QUERY, 1, None)), [1, 2, 3]);
    assert_eq!(bed.tell(), [MessageClass::Query]);
    // The query above has made port 0 a router port.
    assert_eq!(bed.send(2, &igmp(JOIN, 3, Some(7))), [0, 3]);
    bed.tell();
    assert_eq!(bed.send(1, &to_group(2, 6)), [0, 3]);
    assert_eq!(bed.send(1, &to_group(2, 7)), [0, 2, 3]);
    // Unknown unicast and broadcast frames are flooded as usual.
    assert_eq!(bed.send(1, &frame(77, 2, 0, 60)), [0, 2, 3]);
    assert_eq!(bed.send(1, &frame(255, 2, 0, 60)), [0, 2, 3]);
}

/// Objective: control messages are read whole, even if they are longer than the part that is copied of other frames. If
/// a port exceeds its limit of messages per second, its further messages are forwarded but not read; other ports'
/// messages are read.
#[test]
fn long_messages_are_heard_whole() {
    let mut bed = Bed::new(|_| snooping(Multicast { router: Router::Always, ..Multicast::default() }));
    let long = [igmp(JOIN, 1, Some(5)), vec![0; 1000]].concat();
    assert_eq!(bed.send(0, &long), [1, 2, 3]);
    let heard = bed.snooping().read().unwrap();
    assert_eq!((heard.port, heard.frame().len()), (bed.ports[0].id, long.len()));
    for _ in 0..2000 {
        assert_eq!(bed.send(0, &igmp(JOIN, 1, Some(5))), [1, 2, 3]);
    }
    let heard = bed.tell().len();
    assert!((250..1500).contains(&heard), "{heard}");
    bed.send(1, &igmp(JOIN, 2, Some(6)));
    assert_eq!(bed.tell(), [MessageClass::Report]);
}

/// Objective: a query reaches all ports of its VLAN and no others, with the tag that each port requires.
#[test]
fn queries_reach_only_the_ports_they_are_for() {
    let vlans = |n| match n {
        0 => Vlans::access(10),
        1 => Vlans::trunk("10,20".parse().unwrap(), None),
        _ => Vlans::access(20),
    };
    let mut bed = Bed::new(|n| CompiledPolicies { vlans: Some(vlans(n).unwrap()), ..snooping(Multicast::default()) });
    let snooping = Arc::clone(bed.snooping());
    let bell = Arc::new(Doorbell::new().unwrap());
    let mut task = QueryTask::new(Arc::clone(&bed.switch), Arc::clone(&snooping), bell);
    assert!(!task.arm() && task.pass(&mut bed.work) == PassResult::Idle);
    let mut snoop = Snoop::new(SnoopSettings { querier: true, ..SnoopSettings::new(MacAddr([2, 0, 0, 0, 0, 0x73])) });
    snoop.watch(0, 10);
    let query = snoop.next_query(0).unwrap();
    snooping.send(query);
    assert!(task.arm());
    assert_eq!(task.pass(&mut bed.work), PassResult::Frames(1));
    let tagged = [&query.frame()[..12], &[0x81, 0, 0, 10], &query.frame()[12..]].concat();
    assert_eq!(bed.ports[0].take(), [query.frame().to_vec()]);
    assert_eq!(bed.ports[1].take(), [tagged]);
    assert!(bed.ports[2].take().is_empty() && bed.ports[3].take().is_empty());
}
