//! Traces record the actual steps of frames, and do not change forwarding.

use crate::common;

use std::collections::HashMap;
use std::sync::Arc;

use common::{Make, TestPort, attach, frame};
use netvale_mem::steps::Step;
use netvale_policy::bpf::{FilterProgram, Insn};
use netvale_policy::vlan::Vlans;
use netvale_port::DropReason;
use netvale_switch::filters::{FilterRule, Filters};
use netvale_switch::trace::{Trace, TraceOptions, TraceRecord};
use netvale_switch::{CompiledPolicies, ForwardMemory, Switch};
use proptest::prelude::*;

const OPTIONS: TraceOptions = TraceOptions { filter: None, only_drops: false, one_of: 1, room: 256 };

fn ports<const N: usize>(switch: &Arc<Switch>, slots: u32) -> [TestPort; N] {
    std::array::from_fn(|n| attach(switch, &format!("p{n}"), Make { slots, ..Make::default() }))
}

fn traced(switch: &Switch, port: &str, options: TraceOptions) -> Arc<Trace> {
    let trace = Arc::new(Trace::new(options));
    switch.trace(port, &trace).unwrap();
    trace
}

fn send(port: &mut TestPort, frames: &[Vec<u8>]) {
    frames.iter().for_each(|one| assert!(port.send(one)));
    port.forward(&mut ForwardMemory::default());
}

fn all(trace: &Trace) -> Vec<TraceRecord> {
    std::iter::from_fn(|| trace.next()).collect()
}

/// Returns the recorded steps of each traced frame.
fn steps(trace: &Trace) -> Vec<Vec<Step>> {
    all(trace).iter().map(|record| record.steps.list().to_vec()).collect()
}

/// A filter that matches all frames to host 2.
fn to_host_2() -> FilterProgram {
    let insn = |code, jt, jf, k| Insn { code, jt, jf, k };
    // The program is: ldb [5]; jeq 2, 0, 1; ret 1; ret 0.
    let insns = [insn(0x30, 0, 0, 5), insn(0x15, 0, 1, 2), insn(6, 0, 0, 1), insn(6, 0, 0, 0)];
    FilterProgram::verify(&insns).unwrap()
}

/// Objective: learning, destinations and drops are recorded in order, and only for frames of the traced port.
#[test]
fn a_trace_tells_only_of_its_ports_frames() {
    let switch = Switch::new("vale0");
    let [mut a, mut b, mut c] = ports(&switch, 16);
    let trace = traced(&switch, "p0", OPTIONS);
    send(&mut a, &[frame(255, 1, 0, 60)]);
    let flood = [Step::Learned, Step::Floods, Step::To(b.id, 0), Step::To(c.id, 0)];
    assert_eq!(steps(&trace), [flood.to_vec()]);
    send(&mut b, &[frame(1, 2, 0, 60)]);
    assert!(all(&trace).is_empty(), "the frame is another port's");
    send(&mut a, &[frame(2, 1, 7, 100), frame(1, 1, 0, 60), frame(2, 1, 8, 61)]);
    let records = all(&trace);
    let list = |n: usize| records[n].steps.list();
    assert_eq!((list(0), list(2)), (&[Step::To(b.id, 0)][..], &[Step::To(b.id, 0)][..]));
    assert_eq!(list(1), [Step::Dropped(DropReason::SamePort, 1)]);
    let first = &records[0];
    assert_eq!((first.from, first.ring, first.len, first.pieces), (a.id, 0, 100, 1));
    assert_eq!(first.head[..16], frame(2, 1, 7, 60)[..16]);
    assert_eq!((b.take().len(), c.take().len()), (3, 1));
    send(&mut c, &[frame(1, 1, 0, 60)]);
    send(&mut a, &[frame(2, 1, 0, 60)]);
    assert_eq!(steps(&trace), [[Step::Moved(c.id), Step::To(b.id, 0)]]);
    switch.end_trace(&trace);
    send(&mut a, &[frame(2, 1, 0, 60)]);
    assert!(all(&trace).is_empty());
}

/// Objective: drops are recorded with their reasons; `only_drops` omits other frames; slots that are refused before
/// they become a frame are recorded as well.
#[test]
fn drops_are_recorded_with_their_names() {
    let switch = Switch::new("vale0");
    let [mut a, mut b] = ports(&switch, 4);
    send(&mut b, &[frame(255, 2, 0, 60)]);
    let trace = traced(&switch, "p0", OPTIONS);
    let drops = traced(&switch, "p0", TraceOptions { only_drops: true, ..OPTIONS });
    // A ring of four slots has room for three frames, so the fourth frame is dropped.
    for _ in 0..2 {
        send(&mut a, &[frame(2, 1, 0, 60), frame(2, 1, 0, 60)]);
    }
    let no_room = [Step::To(b.id, 0), Step::Dropped(DropReason::NoRoom, 1)];
    let told = steps(&trace);
    assert_eq!((told.len(), &told[3][..]), (4, &no_room[..]));
    assert_eq!(steps(&drops), [no_room]);
    let i = a.tx.at(0);
    a.tx.mem().set_len_flags(i, 9999, 0);
    a.tx.advance(1);
    a.forward(&mut ForwardMemory::default());
    let records = all(&drops);
    assert_eq!((records.len(), records[0].len), (1, 0));
    assert_eq!(records[0].steps.list(), [Step::Dropped(DropReason::BadLength, 1)]);
}

/// Objective: the decisions that VLANs and filter rules make are recorded.
#[test]
fn decisions_of_policies_are_recorded() {
    let switch = Switch::new("vale0");
    let [mut a, b] = ports(&switch, 16);
    let rule = FilterRule::new(true, to_host_2());
    let policies = CompiledPolicies {
        vlans: Some(Vlans::access(7).unwrap()),
        filters: [Filters::new(vec![rule]), Filters::default()],
        ..CompiledPolicies::default()
    };
    switch.set_policies(a.id, Some(Arc::new(policies)), None);
    switch.set_policies(
        b.id,
        Some(Arc::new(CompiledPolicies { vlans: Some(Vlans::access(7).unwrap()), ..CompiledPolicies::default() })),
        None,
    );
    let trace = traced(&switch, "p0", OPTIONS);
    send(&mut a, &[frame(2, 1, 0, 60), frame(3, 1, 0, 60)]);
    let told = steps(&trace);
    assert_eq!(told[0], [Step::Rule(0, true), Step::Dropped(DropReason::Filter, 1)]);
    assert_eq!(told[1], [Step::Vlan(7), Step::Learned, Step::Unknown, Step::Floods, Step::To(b.id, 0)]);
}

/// Objective: a filter and a sampling rate select frames; records that find no room in the queue are counted.
#[test]
fn a_filter_and_a_sampling_rate_select_frames() {
    let switch = Switch::new("vale0");
    let [mut a, _b] = ports(&switch, 64);
    let filtered = traced(&switch, "p0", TraceOptions { filter: Some(to_host_2()), ..OPTIONS });
    let sampled = traced(&switch, "p0", TraceOptions { one_of: 4, ..OPTIONS });
    let short = traced(&switch, "p0", TraceOptions { room: 3, ..OPTIONS });
    let frames: Vec<_> = (0..12).map(|n| frame(2 + n % 2, 1, 0, 60)).collect();
    send(&mut a, &frames);
    assert_eq!((all(&filtered).len(), all(&sampled).len(), all(&short).len()), (6, 3, 3));
    assert_eq!((short.lost(), short.lost(), filtered.lost()), (9, 0, 0));
}

/// Objective: a frame that waits for room is recorded when it is delivered or dropped, with all its steps.
#[test]
fn a_waiting_frame_is_recorded_at_its_end() {
    let switch = Switch::new("vale0");
    let mut work = ForwardMemory::default();
    let make = Make { slots: 4, ..Make::default() };
    let mut a = attach(&switch, "p0", Make { slots: 16, ..make });
    let mut b = attach(&switch, "p1", Make { lossless: true, ..make });
    send(&mut b, &[frame(255, 2, 0, 60)]);
    let trace = traced(&switch, "p0", OPTIONS);
    (0..5).for_each(|n| assert!(a.send(&frame(2, 1, n, 60))));
    a.forward(&mut work);
    assert!(a.forwarder.is_held());
    assert_eq!(all(&trace).len(), 3, "the fourth frame waits and is not recorded yet");
    assert_eq!(b.take().len(), 3);
    a.forward(&mut work);
    let taken = [Step::To(b.id, 0), Step::Waits, Step::Taken];
    assert_eq!(steps(&trace), [&taken[..], &[Step::To(b.id, 0)]]);
    // The receiver does not read until its port counts as stalled.
    (5..10).for_each(|n| assert!(a.send(&frame(2, 1, n, 60))));
    let begun = std::time::Instant::now();
    while steps_with(&trace, Step::Dropped(DropReason::Stalled, 1)) == 0 {
        a.forward(&mut work);
        assert!(begun.elapsed().as_secs() < 20);
    }
}

/// Number of recorded frames with this step.
fn steps_with(trace: &Trace, step: Step) -> usize {
    steps(trace).iter().filter(|list| list.contains(&step)).count()
}

/// Returns one of a few sets of policies; `None`: no policies.
fn policies_of(number: u8) -> Option<CompiledPolicies> {
    Some(match number {
        1 => CompiledPolicies { vlans: Some(Vlans::access(2).unwrap()), ..CompiledPolicies::default() },
        2 => CompiledPolicies { isolated: true, ..CompiledPolicies::default() },
        3 => {
            let filters = [Filters::default(), Filters::new(vec![FilterRule::new(true, to_host_2())])];
            CompiledPolicies { filters, ..CompiledPolicies::default() }
        }
        _ => return None,
    })
}

/// The frames that each port got, the counters of each port, and the number of recorded frames.
type Outcome = (HashMap<usize, Vec<Vec<u8>>>, Vec<(Vec<(&'static str, u64)>, u64)>, usize);

/// A port, and the destination, the source and the length of each frame that it sends.
type Sent = (usize, Vec<(u8, u8, usize)>);

fn outcome(policies: [u8; 3], sent: &[Sent], slots: u32, by: usize, one_of: Option<u32>) -> Outcome {
    let switch = Switch::new("vale0");
    let mut work = ForwardMemory::default();
    let mut ports: [TestPort; 3] = ports(&switch, slots);
    for (port, number) in ports.iter().zip(policies) {
        switch.set_policies(port.id, policies_of(number).map(Arc::new), None);
    }
    let trace = |one_of, n| traced(&switch, &format!("p{n}"), TraceOptions { one_of, ..OPTIONS });
    let traces: Vec<_> = one_of.into_iter().flat_map(|one_of| (0..3).map(move |n| trace(one_of, n))).collect();
    let mut got = HashMap::new();
    for (from, frames) in sent {
        for batch in frames.chunks(by) {
            batch.iter().for_each(|(to, src, len)| assert!(ports[*from].send(&frame(*to, *src, 0, *len))));
            ports[*from].forward(&mut work);
        }
        for (n, port) in ports.iter_mut().enumerate() {
            got.entry(n).or_insert_with(Vec::new).extend(port.take());
        }
    }
    let counted = |port: &TestPort| {
        let drops: Vec<_> = port.sent.all_drops().map(|(why, n)| (why.name(), n)).collect();
        (drops, port.sent.frames())
    };
    let told = traces.iter().map(|trace| all(trace).len()).sum::<usize>();
    (got, ports.iter().map(counted).collect(), told)
}

proptest! {
    /// Objective: with and without a trace, ports get the same frames in the same order and have the same counters,
    /// even if there is no room for all frames, or if only some frames of a batch are traced.
    #[test]
    fn a_trace_changes_nothing_for_the_ports(
        policies in prop_oneof![Just([0u8; 3]), [0u8..4, 0u8..4, 0u8..4]],
        sent in proptest::collection::vec(
            (0usize..3, proptest::collection::vec((1u8..5, 1u8..5, 14usize..250), 1..12)),
            1..12,
        ),
        one_of in 1u32..7,
    ) {
        // Policies may apply the decision on one frame to later frames of the same batch, so in runs with policies each
        // batch has one frame.
        let has_policies = policies.iter().any(|&number| policies_of(number).is_some());
        let (slots, by) = if one_of == 1 { (16, 1) } else { (256, if has_policies { 1 } else { usize::MAX }) };
        let plain = outcome(policies, &sent, slots, by, None);
        let traced = outcome(policies, &sent, slots, by, Some(one_of));
        prop_assert_eq!(&plain.0, &traced.0);
        prop_assert_eq!(&plain.1, &traced.1);
        prop_assert_eq!(plain.2, 0);
        let looked_at = |port: usize| {
            let frames: usize = sent.iter().filter(|(from, _)| *from == port).map(|(_, frames)| frames.len()).sum();
            (frames / one_of as usize, frames.div_ceil(one_of as usize))
        };
        let (least, most) = (0..3).map(looked_at).fold((0, 0), |sum, port| (sum.0 + port.0, sum.1 + port.1));
        prop_assert!((least..=most).contains(&traced.2), "{} of {}..={}", traced.2, least, most);
    }
}
