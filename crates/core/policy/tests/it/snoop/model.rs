//! Random joins, leaves and times compared with a model; random and truncated bytes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use netvale_policy::snoop::{MessageClass, PortSet, Snoop, SnoopSettings, is_control};
use netvale_wire::MacAddr;
use proptest::prelude::*;

use super::messages::*;
use super::{SECOND, SWITCH, querying};

/// A step of a random test. Joins and leaves contain a VLAN, a port and a group.
#[derive(Clone, Debug)]
enum Step {
    Join(u8, u16, u8),
    Leave(u8, u16, u8),
    FastLeave(u16, bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3u8, 0..4u16, 0..4u8).prop_map(|(vlan, port, group)| Step::Join(vlan, port, group)),
        (0..3u8, 0..4u16, 0..4u8).prop_map(|(vlan, port, group)| Step::Leave(vlan, port, group)),
        (0..4u16, any::<bool>()).prop_map(|(port, fast)| Step::FastLeave(port, fast)),
        prop_oneof![0..SECOND * 3, 0..SECOND * 100].prop_map(Step::Wait),
    ]
}

/// The model: memberships and their ends, by VLAN, group and port, with the rules of RFC 2236 for a single querier.
#[derive(Default)]
struct Model {
    members: BTreeMap<(u8, u8, u16), u64>,
    fast: [bool; 4],
    now: u64,
}

impl Model {
    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Join(vlan, port, group) => _ = self.members.insert((vlan, group, port), self.now + 260 * SECOND),
            Step::Leave(vlan, port, group) if self.fast[usize::from(port)] => {
                _ = self.members.remove(&(vlan, group, port))
            }
            Step::Leave(vlan, port, group) => {
                let soon = self.now + 2 * SECOND;
                self.members.entry((vlan, group, port)).and_modify(|until| *until = soon.min(*until));
            }
            Step::FastLeave(port, fast) => self.fast[usize::from(port)] = fast,
            Step::Wait(time) => self.now += time,
        }
        let now = self.now;
        self.members.retain(|_, until| *until > now);
    }

    fn ports(&self, vlan: u8, group: u8) -> PortSet {
        self.members.keys().filter(|key| (key.0, key.1) == (vlan, group)).map(|key| key.2).collect()
    }
}

fn apply(snoop: &mut Snoop, now_ns: u64, step: &Step) -> bool {
    let name = |group: u8| Ipv4Addr::new(239, 1, 1, group).to_string();
    let changed = match *step {
        Step::Join(vlan, port, group) => snoop.observe(now_ns, vlan.into(), port, &join(&name(group))).changed,
        Step::Leave(vlan, port, group) => snoop.observe(now_ns, vlan.into(), port, &leave(&name(group))).changed,
        Step::FastLeave(port, fast) => {
            snoop.set_fast_leave(port, fast);
            false
        }
        Step::Wait(_) => false,
    };
    snoop.tick(now_ns).changed | changed
}

/// Returns messages of each kind.
fn samples() -> Vec<Vec<u8>> {
    let mut samples = vec![over_v4("10.0.0.1", "224.0.0.13", 103, vec![0x20, 0, 0, 0])];
    for (group, src, all) in [("239.1.1.1", "10.0.0.1", "0.0.0.0"), ("ff05::1:1", "fe80::1", "::")] {
        samples.extend([join(group), leave(group), query(src, all, 100), query(src, group, 10)]);
        samples.push(report(&[(TO_EXCLUDE, group, 0), (ALLOW, group, 2)]));
    }
    samples
}

/// Objective: a message truncated anywhere is malformed, and changes nothing.
#[test]
fn cut_messages_change_nothing() {
    for whole in samples() {
        assert!(is_control(&whole));
        for cut in 0..whole.len() {
            let mut snoop = querying();
            let observed = snoop.observe(10 * SECOND, 0, 1, &whole[..cut]);
            assert_eq!((observed.message, observed.changed), (MessageClass::Malformed, false), "{cut} of {whole:02x?}");
            is_control(&whole[..cut]);
        }
    }
}

/// Objective: a message with one bit inverted after its IP addresses is not accepted: the checksum is wrong, or the
/// frame is no longer a control message.
#[test]
fn damaged_messages_change_nothing() {
    for whole in samples() {
        let start = if whole[12] == 8 { 14 + 24 } else { 14 + 48 };
        for bit in start * 8..whole.len() * 8 {
            let mut frame = whole.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            let observed = querying().observe(10 * SECOND, 0, 1, &frame);
            assert!(matches!(observed.message, MessageClass::Malformed | MessageClass::Other), "{bit} of {whole:02x?}");
        }
    }
}

/// Objective: control messages are distinguished from other frames by their first bytes, even after a VLAN tag.
#[test]
fn control_messages_are_told_from_others() {
    for frame in samples() {
        let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        assert!(is_control(&frame[..86.min(frame.len())]) && is_control(&tagged));
        let unicast = [&[2], &frame[1..]].concat();
        assert!(!is_control(&unicast), "to one host");
        assert_eq!(
            querying().observe(10 * SECOND, 0, 1, &tagged).message,
            querying().observe(10 * SECOND, 0, 1, &frame).message
        );
    }
    let mut udp = Vec::new();
    let builder =
        etherparse::PacketBuilder::ethernet2(HOST, [1, 0, 0x5e, 1, 1, 1]).ipv4([10, 0, 0, 1], [239, 1, 1, 1], 1);
    builder.udp(1, 2).write(&mut udp, b"video").unwrap();
    assert!(!is_control(&udp) && !is_control(&[]) && !is_control(&[0xff; 60]));
    assert_eq!(querying().observe(0, 0, 1, &udp).message, MessageClass::Other);
}

proptest! {
    /// Objective: memberships equal the model's memberships at any time, and every change of the snapshot is reported.
    #[test]
    fn members_are_the_models(steps in prop::collection::vec(step(), 0..60)) {
        let mut snoop = Snoop::new(SnoopSettings { querier: true, ..SnoopSettings::new(SWITCH) });
        (0..3).for_each(|vlan| snoop.watch(0, vlan));
        let mut model = Model { now: 10 * SECOND, ..Model::default() };
        snoop.tick(model.now);
        let mut before = snoop.snapshot();
        for step in &steps {
            model.apply(step);
            let changed = apply(&mut snoop, model.now, step);
            while snoop.next_query(model.now).is_some() {}
            for vlan in 0..3 {
                for group in 0..4 {
                    let mac = MacAddr([1, 0, 0x5e, 1, 1, group]);
                    prop_assert_eq!(snoop.members(vlan.into(), mac), Some(model.ports(vlan, group)));
                }
            }
            let after = snoop.snapshot();
            prop_assert!(changed || before == after);
            before = after;
        }
    }

    /// Objective: no sequence of damaged messages at any times causes a panic or exceeds the limits.
    #[test]
    fn damaged_messages_get_an_answer(
        steps in prop::collection::vec(
            (0..11usize, 0..90usize, any::<u8>(), any::<u16>(), 0..SECOND * 50, 0..4u16),
            0..80,
        ),
    ) {
        let samples = samples();
        let settings = SnoopSettings { querier: true, max_groups: 3, per_port: 2, ..SnoopSettings::new(SWITCH) };
        let mut snoop = Snoop::new(settings);
        let mut now = 0;
        for (which, at, byte, port, wait, vlan) in steps {
            let mut frame = samples[which].clone();
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
            now += wait;
            snoop.observe(now, vlan, port, &frame);
            prop_assert!(snoop.tick(now).next_ns > now || snoop.next_query(now).is_some());
            while snoop.next_query(now).is_some() {}
            prop_assert!(snoop.tick(now).next_ns > now);
            let groups: std::collections::BTreeSet<_> =
                snoop.memberships().map(|member| (member.vlan, member.group)).collect();
            prop_assert!(groups.len() <= 3);
        }
    }

    /// Objective: no bytes cause a panic, nor does any payload of a valid header.
    #[test]
    fn any_bytes_get_an_answer(
        bytes in prop::collection::vec(any::<u8>(), 4..200),
        kind in prop::sample::select(vec![0x11u8, 0x22, 130, 143, 151, 0x30]),
    ) {
        let mut snoop = querying();
        is_control(&bytes);
        snoop.observe(0, 0, 0, &bytes);
        let message = [&[kind], &bytes[1..]].concat();
        snoop.observe(0, 0, 0, &over_v4("10.0.0.1", "224.0.0.1", 2, message.clone()));
        snoop.observe(0, 0, 0, &over_v6("fe80::1", "ff02::1", 58, message));
        snoop.snapshot();
    }
}
