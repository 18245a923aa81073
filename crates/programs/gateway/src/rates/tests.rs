use netvale_wire::MacAddr;

use super::*;
use crate::slots::NumberedValues;

const A: GuestId = NetworkId::UNTAGGED.station(MacAddr([2, 0, 0, 0, 0, 1]));
const B: GuestId = NetworkId::UNTAGGED.station(MacAddr([2, 0, 0, 0, 0, 2]));
const MS: Duration = Duration::from_millis(1);

fn rules(texts: &[&str]) -> LimitRules {
    let mut rules = LimitRules::default();
    texts.iter().for_each(|text| rules.add(text.parse().unwrap()));
    rules
}

fn flows<const N: usize>() -> [SlotId; N] {
    let mut values = NumberedValues::default();
    [(); N].map(|()| values.insert(()))
}

struct Played {
    rates: GuestRates,
    ports: PortNames,
    timers: TimerHeap,
    now: Instant,
}

impl Played {
    fn new(texts: &[&str]) -> Self {
        let rates = GuestRates::new(rules(texts));
        Played { rates, ports: PortNames::default(), timers: TimerHeap::default(), now: Instant::now() }
    }

    /// Passes as many bytes as a connection may pass now. Returns the number of bytes; `usize::MAX` if there is no
    /// limit.
    fn pass(&mut self, who: GuestId, granted: bool) -> usize {
        let Some(state) = self.rates.state(who, &self.ports, self.now) else { return usize::MAX };
        let most = self.rates.allowance(state, RateWay::Sent, granted, self.now);
        if most != usize::MAX {
            self.rates.spend(state, RateWay::Sent, most);
        }
        most
    }

    fn wait(&mut self, who: GuestId, flow: SlotId) -> RateTurn {
        let waiting = GrantedFlow { flow, way: RateWay::Sent };
        let state = self.rates.state(who, &self.ports, self.now).unwrap();
        self.rates.wait(state, waiting, self.now, &mut self.timers).unwrap()
    }

    fn begins(&mut self, who: GuestId, direction: FlowDirection) -> bool {
        self.rates.may_begin(who, direction, &self.ports, self.now)
    }

    /// Advances the time to the next timer. Returns the connections whose turn it is then.
    fn next(&mut self) -> Vec<SlotId> {
        self.now += self.timers.until_first(self.now, Duration::from_secs(60));
        let Some(TimedThing::Rate(id)) = self.timers.next_due(self.now) else { return Vec::new() };
        let granted = self.rates.timer(id, self.now, &mut self.timers);
        granted.into_iter().map(|granted| granted.flow).collect()
    }
}

#[test]
fn without_a_rule_nothing_is_limited_or_kept() {
    let mut played = Played::new(&[]);
    assert_eq!(played.pass(A, false), usize::MAX);
    assert!(played.rates.passes(A, RateWay::Received, 1 << 30, &played.ports, played.now));
    assert!((0..10_000).all(|_| played.begins(A, FlowDirection::Out)));
    assert!(played.rates.by_key.is_empty());
}

#[test]
fn a_limit_of_one_guest_is_nothing_to_another() {
    let mut played = Played::new(&["02:00:00:00:00:01 sent 1mbit new 1/s open 3"]);
    assert!(played.pass(A, false) < 100_000 && played.pass(A, false) == 0);
    assert_eq!(played.pass(B, false), usize::MAX);
    assert!(played.begins(A, FlowDirection::Out) && !played.begins(A, FlowDirection::Out));
    assert!(played.begins(A, FlowDirection::In), "others' flows take nothing from the guest's");
    assert!(!played.begins(A, FlowDirection::In));
    assert!((0..100).all(|_| played.begins(B, FlowDirection::Out)));
    assert_eq!(played.rates.by_key.len(), 1, "who has no limit has no entry");
    let [a, b] = [A, B].map(|who| played.rates.most_open(who, &played.ports, played.now));
    assert_eq!((a, b), (Some(3), None));
}

/// Objective: connections of one guest pass pieces in turn, at the guest's rate, and a connection that asks again waits
/// behind the other connections.
#[test]
fn connections_of_a_guest_take_turns() {
    let mut played = Played::new(&["sent 8mbit"]);
    let [one, two, three] = flows();
    let burst = played.pass(A, false);
    assert_eq!(burst, 50_000);
    for flow in [one, two, three] {
        assert_eq!(played.pass(A, false), 0);
        played.wait(A, flow);
    }
    let begin = played.now;
    let mut order = Vec::new();
    let mut passed = 0;
    while played.now < begin + 1000 * MS {
        for flow in played.next() {
            passed += played.pass(A, true);
            assert_eq!(played.pass(A, false), 0, "others wait");
            played.wait(A, flow);
            order.push(flow);
        }
    }
    assert!((900_000..1_010_000).contains(&passed), "{passed}");
    assert!(order.chunks(3).filter(|turn| turn.len() == 3).all(|turn| turn == [one, two, three]));
    assert_eq!(played.rates.counts().waits as usize, 3 + order.len());
}

#[test]
fn who_ends_leaves_the_queue() {
    let mut played = Played::new(&["sent 8mbit"]);
    let [one, two] = flows();
    played.pass(A, false);
    let turn = played.wait(A, one);
    played.wait(A, two);
    played.rates.leave(RateWay::Sent, turn);
    let granted = std::iter::from_fn(|| Some(played.next())).find(|granted| !granted.is_empty());
    assert_eq!(granted, Some(vec![two]));
}

/// Objective: if the rate changes or is no longer limited, waiting connections are released and must ask again; if a
/// rule does not change the rate, waiting connections stay in the queue.
#[test]
fn a_change_of_the_rate_releases_who_waits() {
    let mut played = Played::new(&["sent 8mbit new 5/s"]);
    let [one] = flows();
    played.pass(A, false);
    played.wait(A, one);
    let set = |played: &mut Played, rule: &str| played.rates.set_rules(rules(&[rule]), &played.ports, played.now);
    assert!(set(&mut played, "sent 8mbit open 7").is_empty());
    let released = [GrantedFlow { flow: one, way: RateWay::Sent }];
    assert_eq!(set(&mut played, "sent 9mbit"), released);
    assert_eq!(played.pass(A, true), 0, "a change gives no burst");
    played.wait(A, one);
    assert_eq!(set(&mut played, "received 9mbit"), released);
    assert_eq!(played.pass(A, false), usize::MAX);
}

/// Objective: guests are forgotten only once their buckets are full, so that a guest gains nothing by being forgotten.
/// Guests beyond the maximum number, such as guests with invented addresses, share one set of buckets.
#[test]
fn guests_are_bounded_and_forgotten_when_idle() {
    let mut played = Played::new(&["sent 8mbit"]);
    for n in 0..2 * MAX_GUESTS as u32 {
        let [_, b, c, d] = n.to_be_bytes();
        played.pass(NetworkId::UNTAGGED.station(MacAddr([2, 1, 0, b, c, d])), false);
    }
    assert_eq!(played.rates.by_key.len(), MAX_GUESTS + 1);
    played.rates.clean(played.now + MS);
    assert_eq!(played.rates.by_key.len(), MAX_GUESTS + 1);
    played.rates.clean(played.now + 1000 * MS);
    assert!(played.rates.by_key.is_empty() && played.rates.guests.is_empty());
    let network = NetworkId::of_vlan(7).unwrap();
    played.pass(network.station(A.mac), false);
    played.rates.forget(network);
    assert!(played.rates.by_key.is_empty());
}

/// Objective: a flood of datagrams leaves waiting connections at least half of the rate.
#[test]
fn datagrams_take_at_most_half_while_connections_wait() {
    let mut played = Played::new(&["sent 8mbit"]);
    let [one] = flows();
    played.pass(A, false);
    played.wait(A, one);
    let begin = played.now;
    let [mut streamed, mut datagrams] = [0; 2];
    for ms in 0..2000 {
        played.now = begin + ms * MS;
        let all = (0..20).filter(|_| played.rates.passes(A, RateWay::Sent, 1000, &played.ports, played.now));
        datagrams += 1000 * all.count();
        while let Some(TimedThing::Rate(id)) = played.timers.next_due(played.now) {
            for GrantedFlow { flow, .. } in played.rates.timer(id, played.now, &mut played.timers) {
                streamed += played.pass(A, true);
                played.wait(A, flow);
            }
        }
    }
    assert!((850_000..1_050_000).contains(&streamed), "{streamed}");
    assert!((950_000..1_100_000).contains(&datagrams), "{datagrams}");
}

/// Objective: beyond the maximum number of guests with state, a guest that a rule names has its own limit, and a
/// waiting connection that ends is removed from the queue that it joined, even if its guest has got new state since
/// then.
#[test]
fn a_named_guest_never_shares_and_a_turn_stays_in_its_queue() {
    let mut played = Played::new(&["sent 8mbit", "02:00:00:00:00:02 sent 80mbit"]);
    for n in 0..MAX_GUESTS as u32 {
        let [_, b, c, d] = n.to_be_bytes();
        played.pass(NetworkId::UNTAGGED.station(MacAddr([2, 1, 0, b, c, d])), false);
    }
    assert_eq!((played.pass(A, false), played.pass(B, false)), (50_000, 500_000));
    let [one, two] = flows();
    let turn = played.wait(A, one);
    let later = GrantedFlow { flow: two, way: RateWay::Sent };
    let shared = played.rates.by_key[&None];
    played.rates.wait(shared, later, played.now, &mut played.timers).unwrap();
    let all = rules(&["sent 8mbit", "02:00:00:00:00:01 sent 8mbit"]);
    assert!(played.rates.set_rules(all, &played.ports, played.now).is_empty());
    assert_eq!(played.pass(A, false), 50_000, "an entry of its own from now on");
    played.rates.leave(RateWay::Sent, turn);
    let granted = std::iter::from_fn(|| Some(played.next())).find(|granted| !granted.is_empty());
    assert_eq!(granted, Some(vec![two]));
}

#[test]
fn datagrams_cost_their_headers_too() {
    let costs = [(0, true), (0, false), (100, true)].map(|(payload, is_ipv4)| datagram_cost(payload, is_ipv4));
    assert_eq!(costs, [28, 48, 128]);
}
