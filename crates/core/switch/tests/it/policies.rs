//! Tests of policies against a simple model: destinations, tags, and drop reasons.

use crate::common;

use std::collections::HashMap;
use std::sync::Arc;

use common::{Make, TestPort, attach, frame, mac};
use netvale_policy::bpf::{FilterProgram, Insn};
use netvale_policy::bucket::RateLimit;
use netvale_policy::vlan::{TagProtocol, Tagging, Vlans};
use netvale_port::{DropReason, Egress};
use netvale_switch::filters::{FilterRule, Filters};
use netvale_switch::policies::Classes;
use netvale_switch::{CompiledPolicies, ForwardMemory, PassResult, Switch, Task};
use proptest::prelude::*;

fn ports<const N: usize>(switch: &Arc<Switch>) -> [TestPort; N] {
    let make = Make { slots: 128, buf_size: 256, ..Make::default() };
    std::array::from_fn(|n| attach(switch, &format!("p{n}"), make))
}

fn set(switch: &Switch, port: &TestPort, policies: CompiledPolicies) {
    switch.set_policies(port.id, Some(Arc::new(policies)), None);
}

fn word(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

fn tag(protocol: TagProtocol, control: u16) -> [u8; 4] {
    let [a, b] = protocol.bytes();
    let [c, d] = control.to_be_bytes();
    [a, b, c, d]
}

/// Generates VLAN settings of a port; `None`: the port has no VLANs.
fn any_vlans() -> impl Strategy<Value = Option<Vlans>> {
    let service = |vlans: Vlans| vlans.with_protocol(TagProtocol::Dot1ad);
    prop_oneof![
        Just(None),
        (1u16..4).prop_map(|vlan| Some(Vlans::access(vlan).unwrap())),
        (1u16..4).prop_map(move |vlan| Some(service(Vlans::access(vlan).unwrap()))),
        Just(Some(Vlans::trunk("1-3".parse().unwrap(), None).unwrap())),
        Just(Some(service(Vlans::trunk("2,3".parse().unwrap(), Some(1)).unwrap()))),
        (1u16..4).prop_map(|native| Some(Vlans::trunk("2,4094".parse().unwrap(), Some(native)).unwrap())),
    ]
}

#[derive(Clone, Debug)]
struct Sent {
    from: usize,
    to: u8,
    tags: Vec<[u8; 4]>,
    len: usize,
}

fn any_sent() -> impl Strategy<Value = Sent> {
    let any_tag =
        (prop_oneof![Just(TagProtocol::Dot1q), Just(TagProtocol::Dot1ad)], prop_oneof![0u16..4, Just(4095)], 0u16..16);
    let any_tag = any_tag.prop_map(|(protocol, vlan, priority)| tag(protocol, priority << 12 | vlan));
    let len = prop_oneof![16usize..20, Just(60), 120usize..136, 200usize..700];
    let to = prop_oneof![Just(255u8), 1u8..7];
    (0usize..5, to, proptest::collection::vec(any_tag, 0..4), len).prop_map(|(from, to, tags, len)| Sent {
        from,
        to,
        tags,
        len,
    })
}

/// Policies that set only a port's VLANs.
fn with_vlans(vlans: Vlans) -> CompiledPolicies {
    CompiledPolicies { vlans: Some(vlans), ..CompiledPolicies::default() }
}

/// A simple model of a switch with VLANs.
struct Model {
    vlans: Vec<Vlans>,
    table: HashMap<(u16, u8), usize>,
}

impl Model {
    /// Returns the frame that each port gets, or the reason for dropping the frame.
    fn forward(&mut self, sent: &Sent, bytes: &[u8]) -> Result<Vec<(usize, Vec<u8>)>, DropReason> {
        use netvale_policy::vlan::VlanViolation;
        let vlan = self.vlans[sent.from].of(bytes).map_err(|why| match why {
            VlanViolation::NoMember => DropReason::Vlan,
            VlanViolation::BadTag => DropReason::BadTag,
        })?;
        self.table.insert((vlan.id, sent.from as u8 + 1), sent.from);
        let to = self.table.get(&(vlan.id, sent.to)).copied();
        if to == Some(sent.from) {
            return Err(DropReason::SamePort);
        }
        let bare = if vlan.tagged { [&bytes[..12], &bytes[16..]].concat() } else { bytes.to_vec() };
        let all = (0..self.vlans.len()).filter(|&port| port != sent.from && to.is_none_or(|to| to == port));
        let get = |port: usize| match self.vlans[port].tagging(vlan.id)? {
            Tagging::Plain => Some((port, bare.clone())),
            Tagging::Tagged(protocol) => Some((port, tagged(&bare, &[vlan.tag(protocol)]))),
        };
        Ok(all.filter_map(get).collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Objective: for any VLANs of five ports, and any tags and lengths, each port gets exactly the frames of the
    /// model, byte for byte; frames that the sender's port refuses are counted with the reason.
    #[test]
    fn ports_get_exactly_the_frames_of_the_model(
        vlans in proptest::collection::vec(any_vlans(), 5),
        sent in proptest::collection::vec(any_sent(), 1..40),
    ) {
        prop_assume!(vlans.iter().any(Option::is_some));
        let switch = Switch::new("vale-test");
        let mut work = ForwardMemory::default();
        let mut ports: [TestPort; 5] = ports(&switch);
        for (port, vlans) in ports.iter().zip(&vlans) {
            let policies = vlans.clone().map(|vlans| Arc::new(with_vlans(vlans)));
            switch.set_policies(port.id, policies, None);
        }
        let vlans = vlans.into_iter().map(Option::unwrap_or_default).collect();
        let mut model = Model { vlans, table: HashMap::new() };
        let mut drops: HashMap<(usize, DropReason), u64> = HashMap::new();
        for (n, sent) in sent.iter().enumerate() {
            let bytes = tagged(&frame(sent.to, sent.from as u8 + 1, n as u16, sent.len), &sent.tags);
            prop_assert!(ports[sent.from].send(&bytes));
            ports[sent.from].forward(&mut work);
            let expected = model.forward(sent, &bytes);
            if let Err(reason) = expected {
                *drops.entry((sent.from, reason)).or_default() += 1;
            }
            let mut expected: HashMap<usize, Vec<u8>> = expected.unwrap_or_default().into_iter().collect();
            for (i, port) in ports.iter_mut().enumerate() {
                let got = port.take();
                prop_assert_eq!(got, expected.remove(&i).into_iter().collect::<Vec<_>>(), "port {} of {:?}", i, sent);
            }
        }
        for reason in [DropReason::Vlan, DropReason::BadTag, DropReason::SamePort] {
            for (i, port) in ports.iter().enumerate() {
                prop_assert_eq!(port.sent.drops(reason), drops.get(&(i, reason)).copied().unwrap_or(0));
            }
        }
    }

    /// Objective: a batch of frames in several VLANs to several ports arrives in the same order as if the frames were
    /// sent one by one, with and without a filter.
    #[test]
    fn batches_are_in_order(sent in proptest::collection::vec((any_sent(), 1usize..6), 1..30), filtered: bool) {
        let switch = Switch::new("vale-test");
        let mut work = ForwardMemory::default();
        let mut ports: [TestPort; 5] = ports(&switch);
        let trunk = || with_vlans(Vlans::trunk("1-3".parse().unwrap(), Some(1)).unwrap());
        ports[..2].iter().for_each(|port| set(&switch, port, trunk()));
        set(&switch, &ports[2], with_vlans(Vlans::access(2).unwrap()));
        let vlans = [trunk().vlans, trunk().vlans, Some(Vlans::access(2).unwrap()), None, None];
        let mut model = Model { vlans: vlans.map(Option::unwrap_or_default).into(), table: HashMap::new() };
        // Learn the addresses, so that most frames go to one port.
        for (i, port) in ports.iter().enumerate() {
            for vlan in 1..4u16 {
                switch.learn(vlan, word(mac(i as u8 + 1)), port.id);
                model.table.insert((vlan, i as u8 + 1), i);
            }
        }
        if filtered {
            set(&switch, &ports[0], CompiledPolicies { filters: [odd_only(), Filters::default()], ..trunk() });
        }
        let mut expected = vec![Vec::new(); 5];
        let all = sent.iter().flat_map(|(one, times)| std::iter::repeat_n(one, *times));
        for (n, one) in all.enumerate() {
            let mut bytes = tagged(&frame(one.to, 1, 0, one.len.min(240)), &one.tags);
            // Number the frames at an offset beyond the first bytes, which are equal in a conversation.
            let at = 40.min(bytes.len() - 1);
            bytes[at] = if at < 18 { bytes[at] } else { n as u8 };
            if !ports[0].send(&bytes) {
                break;
            }
            if filtered && (bytes.len() <= 40 || bytes[40].is_multiple_of(2)) {
                continue;
            }
            let got = model.forward(&Sent { from: 0, ..one.clone() }, &bytes);
            got.unwrap_or_default().into_iter().for_each(|(port, bytes)| expected[port].push(bytes));
        }
        ports[0].forward(&mut work);
        let got: Vec<_> = ports.iter_mut().map(TestPort::take).collect();
        prop_assert_eq!(got, expected);
    }
}

/// A filter that passes only frames with an odd byte at offset 40.
fn odd_only() -> Filters {
    let insn = |code, k| Insn { code, jt: 0, jf: 0, k };
    let odd = FilterProgram::verify(&[insn(0x30, 40), insn(0x54, 1), insn(0x16, 0)]).unwrap();
    let any = FilterProgram::verify(&[insn(0x06, 1)]).unwrap();
    Filters::new(vec![FilterRule::new(false, odd), FilterRule::new(true, any)])
}

/// Objective: an address can be behind different ports in two VLANs; after the last VLAN is removed, forwarding starts
/// with an empty table.
#[test]
fn the_same_address_is_learned_in_each_vlan() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 5] = ports(&switch);
    for (port, vlan) in ports.iter().zip([1, 2, 1, 2, 2]) {
        set(&switch, port, with_vlans(Vlans::access(vlan).unwrap()));
    }
    for port in &mut ports[..2] {
        assert!(port.send(&frame(255, 7, 0, 60)));
        port.forward(&mut work);
    }
    ports.iter_mut().for_each(|port| drop(port.take()));
    let entries = switch.addresses().entries();
    let mut known: Vec<_> = entries.iter().map(|e| (e.vlan, e.mac, e.port)).collect();
    known.sort_unstable();
    assert_eq!(known, [(1, word(mac(7)), ports[0].id), (2, word(mac(7)), ports[1].id)]);
    for (from, to) in [(2, 0), (3, 1)] {
        assert!(ports[from].send(&frame(7, 9, 0, 60)));
        ports[from].forward(&mut work);
        let got: Vec<_> = ports.iter_mut().map(|port| port.take().len()).collect();
        assert_eq!(got.iter().sum::<usize>(), 1);
        assert_eq!(got[to], 1);
    }
    ports.iter().for_each(|port| switch.set_policies(port.id, None, None));
    assert!(switch.addresses().entries().is_empty());
}

/// Objective: a flooded frame is counted as `NoPort` if and only if no other port is in its VLAN or takes such frames.
#[test]
fn frames_that_nobody_gets_are_counted() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 3] = ports(&switch);
    let access = |vlan| with_vlans(Vlans::access(vlan).unwrap());
    set(&switch, &ports[0], access(10));
    for (to, vlan, lost) in [(255, 20, 1), (77, 20, 2), (255, 10, 2), (77, 10, 2)] {
        set(&switch, &ports[1], access(vlan));
        set(&switch, &ports[2], access(20));
        send(&mut ports[0], &mut work, &[frame(to, 1, 0, 60)]);
        assert_eq!(ports[1].take().len(), usize::from(vlan == 10));
        assert_eq!(ports[0].sent.drops(DropReason::NoPort), lost, "to {to} with VLAN {vlan} beside it");
    }
    // In a batch of several frames, only the frames that reach no port are counted.
    set(&switch, &ports[1], CompiledPolicies { flood: Classes([false, true, true]), ..access(10) });
    send(&mut ports[0], &mut work, &[frame(255, 1, 0, 60), frame(77, 1, 0, 60), frame(255, 1, 0, 60)]);
    assert_eq!((ports[1].take().len(), ports[0].sent.drops(DropReason::NoPort)), (2, 3));
}

fn send(port: &mut TestPort, work: &mut ForwardMemory, frames: &[Vec<u8>]) {
    frames.iter().for_each(|frame| assert!(port.send(frame)));
    port.forward(work);
}

/// Objective: each rule of port security drops exactly the frames that it forbids, with its own drop reason.
#[test]
fn each_rule_drops_exactly_its_frames_by_name() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 4] = ports(&switch);
    let from = |n: u8| frame(255, n, 0, 60);
    let drops = |port: &TestPort, reason| port.sent.drops(reason);
    // Static address: a policy fixes the address behind the port from the start.
    set(&switch, &ports[0], CompiledPolicies { addresses: vec![word(mac(1))], ..CompiledPolicies::default() });
    send(&mut ports[1], &mut work, &[frame(1, 2, 0, 60)]);
    assert_eq!([0, 2, 3].map(|i: usize| ports[i].take().len()), [1, 0, 0]);
    send(&mut ports[1], &mut work, &[from(1)]);
    assert_eq!(drops(&ports[1], DropReason::AddressTaken), 1);
    // Limit of two addresses: frames from a third address are dropped.
    set(&switch, &ports[2], CompiledPolicies { most_addresses: Some(2), ..CompiledPolicies::default() });
    send(&mut ports[2], &mut work, &[from(20), from(21), from(22), from(20), from(22)]);
    assert_eq!(drops(&ports[2], DropReason::AddressLimit), 2);
    // Sticky addresses: addresses that were learned behind the port do not move.
    set(&switch, &ports[2], CompiledPolicies { sticky: true, ..CompiledPolicies::default() });
    send(&mut ports[3], &mut work, &[from(20)]);
    assert_eq!(drops(&ports[3], DropReason::AddressTaken), 1);
    for _ in 0..150 {
        switch.advance();
    }
    send(&mut ports[3], &mut work, &[from(20)]);
    assert_eq!(drops(&ports[3], DropReason::AddressTaken), 2, "nor does it expire");
    // Locked: only frames from addresses in the forwarding table pass.
    set(&switch, &ports[3], CompiledPolicies { locked: true, ..CompiledPolicies::default() });
    send(&mut ports[3], &mut work, &[from(30)]);
    switch.learn(0, word(mac(30)), ports[3].id);
    send(&mut ports[3], &mut work, &[from(30)]);
    assert_eq!(drops(&ports[3], DropReason::Locked), 1);
    // If learning is off, no address is added behind the port.
    set(&switch, &ports[3], CompiledPolicies { learning: false, ..CompiledPolicies::default() });
    send(&mut ports[3], &mut work, &[from(33)]);
    assert_eq!(switch.addresses().lookup(word(mac(33))), None);
}

/// Objective: a sender that marks frames not to be learned evades no rule of port security.
#[test]
fn unlearned_sources_evade_no_rule() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 4] = ports(&switch);
    let mut send = |port: &mut TestPort, source: u8| {
        assert!(port.send_with(&frame(255, source, 0, 60), netvale_abi::slot::NS_NO_LEARN));
        port.forward(&mut work);
    };
    set(
        &switch,
        &ports[0],
        CompiledPolicies { addresses: vec![word(mac(1))], sticky: true, ..CompiledPolicies::default() },
    );
    send(&mut ports[1], 1);
    assert_eq!(ports[1].sent.drops(DropReason::AddressTaken), 1);
    switch.learn(0, word(mac(5)), ports[0].id);
    send(&mut ports[1], 5);
    assert_eq!(ports[1].sent.drops(DropReason::AddressTaken), 2);
    set(&switch, &ports[1], CompiledPolicies { locked: true, ..CompiledPolicies::default() });
    send(&mut ports[1], 7);
    assert_eq!(ports[1].sent.drops(DropReason::Locked), 1);
    set(&switch, &ports[1], CompiledPolicies { most_addresses: Some(2), ..CompiledPolicies::default() });
    send(&mut ports[1], 7);
    assert_eq!(ports[1].sent.drops(DropReason::AddressLimit), 1);
    switch.learn(0, word(mac(7)), ports[1].id);
    set(&switch, &ports[3], CompiledPolicies::default());
    send(&mut ports[1], 7);
    send(&mut ports[3], 33);
    assert_eq!(ports[2].take().len(), 2, "the frames that may pass");
    assert_eq!(switch.addresses().lookup(word(mac(33))), None);
}

/// Objective: an address behind a locked port does not expire while it is in use.
#[test]
fn a_locked_address_in_use_does_not_expire() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 2] = ports(&switch);
    set(&switch, &ports[0], CompiledPolicies { locked: true, ..CompiledPolicies::default() });
    switch.learn(0, word(mac(1)), ports[0].id);
    for n in 0..200 {
        switch.advance();
        send(&mut ports[0], &mut work, &[frame(255, 1, n, 60)]);
        assert_eq!(ports[1].take().len(), 1, "{n}");
    }
}

/// Objective: each batch adds a bounded number of new addresses, but all its frames pass; later batches learn the
/// remaining addresses. The port's limit of addresses, and the refusal of addresses of another port, still apply to
/// each frame.
#[test]
fn a_batch_brings_bounded_news() {
    const ALL: std::ops::Range<u8> = 10..210;
    let learned = |switch: &Switch| ALL.filter(|n| switch.addresses().lookup(word(mac(*n))).is_some()).count();
    let frames: Vec<_> = ALL.map(|n| frame(255, n, 0, 60)).collect();
    let make = Make { slots: 256, buf_size: 256, ..Make::default() };
    for policies in [None, Some(CompiledPolicies::default())] {
        let switch = Switch::new("vale-test");
        let mut work = ForwardMemory::default();
        let mut ports: [TestPort; 3] = std::array::from_fn(|n| attach(&switch, &format!("p{n}"), make));
        ports.iter().for_each(|port| switch.set_policies(port.id, policies.clone().map(Arc::new), None));
        let mut counts = Vec::new();
        for _ in 0..7 {
            send(&mut ports[0], &mut work, &frames);
            assert_eq!(ports[1].take().len(), frames.len());
            counts.push(learned(&switch));
        }
        assert_eq!(counts, [32, 64, 96, 128, 160, 192, 200]);

        set(&switch, &ports[0], CompiledPolicies { sticky: true, ..CompiledPolicies::default() });
        send(&mut ports[2], &mut work, &frames);
        assert_eq!(ports[2].sent.drops(DropReason::AddressTaken), 200);
    }
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 2] = std::array::from_fn(|n| attach(&switch, &format!("p{n}"), make));
    set(&switch, &ports[0], CompiledPolicies { most_addresses: Some(100), ..CompiledPolicies::default() });
    send(&mut ports[0], &mut work, &frames);
    assert_eq!((ports[1].take().len(), ports[0].sent.drops(DropReason::AddressLimit)), (100, 100));
}

/// A tagged UDP packet, preceded by a virtio-net header that leaves a checksum pending at `start` and `offset`.
fn summed(start: u16, offset: u16) -> Vec<u8> {
    let mut bytes = vec![0; 120];
    bytes[0] = 1;
    bytes[6..8].copy_from_slice(&start.to_le_bytes());
    bytes[8..10].copy_from_slice(&offset.to_le_bytes());
    let mut packet = frame(2, 1, 0, 108);
    packet[12..38]
        .copy_from_slice(&[0x81, 0, 0, 10, 8, 0, 0x45, 0, 0, 90, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[12..].copy_from_slice(&packet);
    bytes
}

/// Objective: a pending checksum other than the transport header's is refused, so that no checksum can overwrite bytes
/// on which a policy decided.
#[test]
fn sums_where_they_belong() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let make = Make { slots: 64, hdr_len: 12, ..Make::default() };
    let mut sender = attach(&switch, "a", make);
    let mut receiver = attach(&switch, "b", Make { slots: 64, ..Make::default() });
    let trunk = || CompiledPolicies {
        vlans: Some(Vlans::trunk("10,99".parse().unwrap(), None).unwrap()),
        ..CompiledPolicies::default()
    };
    [&sender, &receiver].iter().for_each(|port| set(&switch, port, trunk()));
    let wrong = [(14, 0), (14, 2), (18, 12), (34, 0), (38, 0), (38, 2), (40, 4)];
    for (start, offset) in wrong {
        send(&mut sender, &mut work, &[summed(start, offset)]);
    }
    assert_eq!(sender.sent.drops(DropReason::BadVnetHeader), wrong.len() as u64);
    assert!(receiver.take().is_empty());
    send(&mut sender, &mut work, &[summed(38, 6)]);
    let got = receiver.take();
    assert_eq!((got.len(), &got[0][..38]), (1, &summed(38, 6)[12..50]));
}

/// Objective: when a worker pauses, it sends each frame that waits because of a rate exactly once. Every frame that
/// finds no room at the receiver waits or is counted.
#[test]
fn rates_let_go_of_what_waits() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 2] = ports(&switch);
    set(&switch, &ports[0], CompiledPolicies { rates: vec![RateLimit::frames(1, 10)], ..CompiledPolicies::default() });
    let frames: Vec<_> = (0..100).map(|i| frame(255, 1, i, 60)).collect();
    send(&mut ports[0], &mut work, &frames);
    assert!(ports[0].forwarder.is_held());
    ports[0].forwarder.hurry(&mut work);
    ports[0].forwarder.settle();
    assert!(!ports[0].forwarder.is_held());
    assert_eq!(ports[1].take(), frames);
    ports[0].tx.sync();
    assert_eq!(ports[0].tx.space(), 127, "all slots are returned");
    assert_eq!(ports[0].forwarder.pass(&mut work), PassResult::Idle);

    // If the lossless receiver is full, each frame is delivered, or waits, or is counted as dropped.
    let full = attach(&switch, "full", Make { lossless: true, ..Make::default() });
    set(&switch, &ports[0], CompiledPolicies { rates: vec![RateLimit::frames(1, 10)], ..CompiledPolicies::default() });
    switch.learn(0, word(mac(9)), full.id);
    let frames: Vec<_> = (0..100).map(|i| frame(9, 1, i, 60)).collect();
    send(&mut ports[0], &mut work, &frames);
    ports[0].forwarder.hurry(&mut work);
    ports[0].forwarder.settle();
    let waiting: usize = ports[0].forwarder.waiting().iter().map(|w| w.frames.len()).sum();
    let dropped = ports[0].sent.drops(DropReason::Rate);
    let done = full.received.counters().frames() + full.received.counters().drops(DropReason::NoRoom);
    assert_eq!(done + waiting as u64 + dropped, 100);
    // If no successor takes over, the worker resumes, and forwards long frames as well as short ones.
    set(&switch, &ports[0], CompiledPolicies { learning: false, ..CompiledPolicies::default() });
    let mut full = full;
    while ports[0].forwarder.is_held() {
        full.take();
        ports[0].forwarder.pass(&mut work);
    }
    full.take();
    send(&mut ports[0], &mut work, &[frame(9, 1, 0, 250), frame(9, 1, 1, 250)]);
    assert_eq!(full.take(), [frame(9, 1, 0, 250), frame(9, 1, 1, 250)]);
}

/// Objective: long frames arrive even if a filter reads all their bytes and they get a tag.
#[test]
fn deep_filters_and_tags() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let make = Make { slots: 512, buf_size: 2048, ..Make::default() };
    let mut ports: [TestPort; 2] = std::array::from_fn(|n| attach(&switch, &format!("p{n}"), make));
    let insn = |code, k| Insn { code, jt: 0, jf: 0, k };
    let deep = FilterProgram::verify(&[insn(0x30, 1000), insn(0x16, 0)]).unwrap();
    let filters = [Filters::new(vec![FilterRule::new(true, deep)]), Filters::default()];
    set(&switch, &ports[0], CompiledPolicies { filters, ..with_vlans(Vlans::access(10).unwrap()) });
    set(&switch, &ports[1], with_vlans(Vlans::trunk("10".parse().unwrap(), None).unwrap()));
    let frames: Vec<_> = (0..250).map(|i| frame(255, 1, i, 1400 + usize::from(i))).collect();
    send(&mut ports[0], &mut work, &frames);
    let expected: Vec<_> = frames.iter().map(|frame| tagged(frame, &[tag(TagProtocol::Dot1q, 10)])).collect();
    assert!(ports[1].take() == expected);
}

/// Objective: isolated ports reach other ports, but not one another; a port gets only the classes of flooded frames
/// that it takes.
#[test]
fn isolated_ports_reach_others_but_not_each_other() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 4] = ports(&switch);
    let isolated = || CompiledPolicies { isolated: true, ..CompiledPolicies::default() };
    ports[..2].iter().for_each(|port| set(&switch, port, isolated()));
    set(&switch, &ports[3], CompiledPolicies { flood: Classes([false, true, false]), ..CompiledPolicies::default() });
    send(&mut ports[1], &mut work, &[frame(255, 2, 0, 60)]);
    assert_eq!([0, 2, 3].map(|i: usize| ports[i].take().len()), [0, 1, 0]);
    let mut multicast = frame(9, 1, 0, 60);
    multicast[0] = 1;
    send(&mut ports[0], &mut work, &[frame(2, 1, 0, 60), frame(77, 1, 0, 60), multicast]);
    assert_eq!([1, 2, 3].map(|i: usize| ports[i].take().len()), [0, 2, 1]);
    assert_eq!(ports[0].sent.drops(DropReason::Isolated), 1);
}

/// Objective: flooded frames of a class are dropped above the class's storm limit; other classes pass.
#[test]
fn a_storm_is_cut_off_at_its_limit() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 2] = ports(&switch);
    let limit = Some(RateLimit::frames(1, 5));
    set(&switch, &ports[0], CompiledPolicies { storm: Classes([None, None, limit]), ..CompiledPolicies::default() });
    let frames: Vec<_> = (0..40).map(|i| frame(if i % 2 == 0 { 255 } else { 9 }, 1, i, 60)).collect();
    send(&mut ports[0], &mut work, &frames);
    let passed = ports[1].take().len();
    let dropped = ports[0].sent.drops(DropReason::Storm);
    // One frame more than the burst passes: a bucket may be in debt by a frame.
    assert!((25..=26).contains(&passed) && passed as u64 + dropped == 40, "{passed} {dropped}");
}

/// Objective: addresses that move to and fro block a port with a loop guard in both directions, with the drop reason
/// `Loop`; no other port is blocked.
#[test]
fn addresses_to_and_fro_block_only_a_guarded_port() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 3] = ports(&switch);
    set(&switch, &ports[1], CompiledPolicies { loop_guard: true, ..CompiledPolicies::default() });
    for i in 0..60 {
        send(&mut ports[i % 2], &mut work, &[frame(255, 9, 0, 60)]);
        ports[2].take();
    }
    assert!(ports[1].sent.drops(DropReason::Loop) > 0);
    assert_eq!(ports[0].sent.drops(DropReason::Loop), 0);
    ports[1].take();
    send(&mut ports[2], &mut work, &[frame(255, 5, 0, 60)]);
    assert_eq!([0, 1].map(|i: usize| ports[i].take().is_empty()), [false, true]);
    assert_eq!(switch.policy_state(ports[1].id).unwrap().loops(), 1);
    set(&switch, &ports[1], CompiledPolicies::default());
    send(&mut ports[2], &mut work, &[frame(255, 5, 0, 60)]);
    assert_eq!(ports[1].take().len(), 1, "without the guard, the port is no longer blocked");
}

/// Objective: frames above a port's rate limit wait, in order and without loss, for as long as the rate requires; the
/// worker may sleep until then.
#[test]
fn a_port_at_its_rate_limit_waits_without_loss() {
    let switch = Switch::new("vale-test");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 2] = ports(&switch);
    let rates = vec![RateLimit::bits(80_000_000, 1000), RateLimit::frames(1_000_000, 1000)];
    set(&switch, &ports[0], CompiledPolicies { rates, ..CompiledPolicies::default() });
    let frames: Vec<_> = (0..100).map(|i| frame(255, 1, i, 250)).collect();
    let begun = std::time::Instant::now();
    send(&mut ports[0], &mut work, &frames);
    let mut got = ports[1].take();
    assert!((4..50).contains(&got.len()), "expected the burst and what the rate allows meanwhile: {}", got.len());
    while got.len() < 100 {
        let nap = ports[0].forwarder.nap().unwrap();
        assert!(nap <= std::time::Duration::from_micros(26));
        std::thread::sleep(nap);
        let passed = ports[0].forwarder.pass(&mut work);
        assert!(matches!(passed, PassResult::Held | PassResult::Frames(_)), "{passed:?}");
        got.extend(ports[1].take());
    }
    // The 100 frames take 25 µs each. Four frames are the burst, and the bucket may be in debt by one more frame.
    assert!(begun.elapsed() >= std::time::Duration::from_micros(95 * 25), "{:?}", begun.elapsed());
    assert_eq!(got, frames);
    assert_eq!(ports[0].forwarder.nap(), None);
    assert_eq!(ports[0].forwarder.pass(&mut work), PassResult::Idle);
}
