use super::*;
use crate::tables::{AddressPlace, Fact, NeighborEntry};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const HOLD: Duration = Duration::from_secs(30);

fn vtep(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn ip() -> IpAddr {
    IpAddr::from([192, 168, 0, 1])
}

/// Tables and feed of one VNI, with a clock.
struct World {
    tables: Tables,
    feed: Feed,
    now: Instant,
}

impl World {
    /// Creates a VNI with a VTEP, a MAC address behind the VTEP, and an IP address of the MAC address. All of them have
    /// been sent to the daemon.
    fn told() -> World {
        let mut world = World { tables: Tables::default(), feed: Feed::default(), now: Instant::now() };
        world.come(2);
        let told = vec![
            FeedChange::Flood(vtep(2)),
            FeedChange::Address(MAC, vtep(2), false),
            FeedChange::Neighbor(ip(), MAC, false),
        ];
        assert_eq!(world.after(0), told);
        world
    }

    fn come(&mut self, last: u8) {
        self.put(Fact::Flood(vtep(last)));
        self.put(Fact::Remote(MAC, RemoteAddress { vtep: vtep(last), sticky: false }));
        self.put(Fact::Place(MAC, AddressPlace::Tunnel));
        self.put(Fact::Neighbor(ip(), Some(NeighborEntry { mac: MAC, remote: true, router: false })));
    }

    fn put(&mut self, fact: Fact) {
        let key = self.tables.put(fact);
        key.into_iter().for_each(|key| self.feed.touch(key));
    }

    fn take(&mut self, fact: Fact) {
        let key = self.tables.take(fact);
        key.into_iter().for_each(|key| self.feed.touch(key));
    }

    fn withdraw_address(&mut self) {
        self.take(Fact::Place(MAC, AddressPlace::Tunnel));
        self.take(Fact::Remote(MAC, RemoteAddress { vtep: vtep(2), sticky: false }));
        self.take(Fact::Neighbor(ip(), None));
    }

    fn after(&mut self, milliseconds: u64) -> Vec<FeedChange> {
        self.now += Duration::from_millis(milliseconds);
        self.feed.changes(&self.tables, self.now, HOLD)
    }
}

/// Objective: an address that is withdrawn without its VTEP is removed once, after the pause.
#[test]
fn a_withdrawn_address_is_removed_after_the_pause() {
    let mut world = World::told();
    world.withdraw_address();
    assert_eq!(world.after(0), vec![]);
    assert_eq!(world.after(499), vec![]);
    let mut gone = world.after(1);
    gone.sort_unstable();
    assert_eq!(gone, vec![FeedChange::NoAddress(MAC), FeedChange::NoNeighbor(ip())]);
    assert_eq!(world.after(60_000), vec![]);
    assert!(world.feed.is_idle());
}

/// Objective: entries that are withdrawn together with their VTEP are held; if they return within the hold time, the
/// daemon does not notice.
#[test]
fn entries_withdrawn_with_their_vtep_are_held() {
    let mut world = World::told();
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    assert_eq!(world.after(0), vec![]);
    assert_eq!(world.after(29_000), vec![]);
    assert_eq!(world.feed.told().held, 3);
    world.come(2);
    assert_eq!(world.after(10), vec![]);
    assert_eq!(world.after(60_000), vec![]);
    assert_eq!(world.feed.told(), FeedCounts { vteps: 1, addresses: 1, neighbors: 1, held: 0 });
}

/// Objective: entries that do not return are removed at the end of the hold time; a daemon that connects before the end
/// of the hold time still gets these entries.
#[test]
fn entries_that_do_not_return_are_removed() {
    let mut world = World::told();
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    world.after(0);
    assert_eq!(world.after(29_950), vec![]);
    assert_eq!(world.feed.everything().len(), 3);
    let mut gone = world.after(50);
    gone.sort_unstable();
    assert_eq!(gone, vec![FeedChange::Unflood(vtep(2)), FeedChange::NoAddress(MAC), FeedChange::NoNeighbor(ip())]);
    assert!(world.feed.everything().is_empty());
}

/// Objective: held entries can be dropped once, and are not sent again after that.
#[test]
fn held_entries_can_be_given_up_once() {
    let mut world = World::told();
    assert!(!world.feed.forget_held());
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    world.come(3);
    assert_eq!(world.after(0), vec![FeedChange::Flood(vtep(3)), FeedChange::Address(MAC, vtep(3), false)]);
    assert!(world.feed.forget_held());
    assert_eq!(world.feed.told(), FeedCounts { vteps: 1, addresses: 1, neighbors: 1, held: 0 });
    assert!(!world.feed.everything().contains(&FeedChange::Flood(vtep(2))));
    assert!(!world.feed.forget_held());
    assert_eq!(world.after(HOLD.as_millis() as u64), vec![]);
}

/// Objective: an address that moves to another VTEP is sent immediately, even if its previous VTEP is held.
#[test]
fn an_address_that_moves_is_sent_immediately() {
    let mut world = World::told();
    world.take(Fact::Flood(vtep(2)));
    world.withdraw_address();
    world.after(0);
    world.come(3);
    assert_eq!(world.after(1), vec![FeedChange::Flood(vtep(3)), FeedChange::Address(MAC, vtep(3), false)]);
    assert_eq!(world.after(HOLD.as_millis() as u64), vec![FeedChange::Unflood(vtep(2))]);
}

/// Objective: an address that becomes local is removed immediately, and an address that becomes remote again is sent
/// immediately.
#[test]
fn an_address_that_becomes_local_is_removed_immediately() {
    let mut world = World::told();
    world.put(Fact::Place(MAC, AddressPlace::Local { sticky: false }));
    assert_eq!(world.after(0), vec![FeedChange::NoAddress(MAC)]);
    world.put(Fact::Place(MAC, AddressPlace::Tunnel));
    assert_eq!(world.after(0), vec![FeedChange::Address(MAC, vtep(2), false)]);
}

/// Objective: a neighbour that becomes a router is sent again as a router.
#[test]
fn a_neighbour_turned_router_is_sent_as_one() {
    let mut world = World::told();
    world.put(Fact::Neighbor(ip(), Some(NeighborEntry { mac: MAC, remote: true, router: true })));
    assert_eq!(world.after(0), vec![FeedChange::Neighbor(ip(), MAC, true)]);
    assert_eq!(world.feed.everything().last(), Some(&FeedChange::Neighbor(ip(), MAC, true)));
}

/// Objective: while withdrawals follow one another without a pause, each withdrawal is judged at the age of 10 s.
#[test]
fn withdrawals_without_a_pause_are_judged_by_age() {
    let mut world = World::told();
    world.withdraw_address();
    let mut told = Vec::new();
    for n in 0..110u8 {
        let mac = Mac([2, 0, 0, 0, 1, n]);
        let remote = RemoteAddress { vtep: vtep(2), sticky: false };
        world.put(Fact::Remote(mac, remote));
        world.put(Fact::Place(mac, AddressPlace::Tunnel));
        world.after(0);
        world.take(Fact::Place(mac, AddressPlace::Tunnel));
        told.extend(world.after(100).into_iter().filter(|c| *c == FeedChange::NoAddress(MAC)).map(|c| (c, n)));
    }
    assert_eq!(told.len(), 1);
    assert!((98..103).contains(&told[0].1), "{told:?}");
}

/// Objective: if a VTEP returns but some of the entries that were held with it do not, these entries are removed
/// immediately.
#[test]
fn a_vtep_back_without_its_entries_loses_them() {
    let mut world = World::told();
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    assert_eq!(world.after(0), vec![]);
    assert_eq!(world.after(600), vec![]);
    world.put(Fact::Flood(vtep(2)));
    let mut gone = world.after(1);
    gone.sort_unstable();
    assert_eq!(gone, vec![FeedChange::NoAddress(MAC), FeedChange::NoNeighbor(ip())]);
    assert!(world.feed.is_idle());
}

/// Objective: with a hundred thousand successive withdrawals, each withdrawal costs no more work than a single
/// withdrawal.
#[test]
fn many_withdrawals_cost_no_more_work_each() {
    const MANY: u32 = 100_000;
    let mut world = World::told();
    let mac = |n: u32| Mac([2, 1, (n >> 24) as u8, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
    let remote = RemoteAddress { vtep: vtep(2), sticky: false };
    for n in 0..MANY {
        world.put(Fact::Remote(mac(n), remote));
        world.put(Fact::Place(mac(n), AddressPlace::Tunnel));
    }
    assert_eq!(world.after(0).len(), MANY as usize);
    let begun = Instant::now();
    for n in 0..MANY {
        world.take(Fact::Remote(mac(n), remote));
        assert_eq!(world.after(0), vec![]);
    }
    assert_eq!(world.after(500).len(), MANY as usize);
    // If each withdrawal led to a check of all held entries, this would take minutes.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Objective: if the hold time is 0, withdrawals are sent immediately when they arrive.
#[test]
fn withdrawals_without_a_hold_time_pass_immediately() {
    let mut world = World::told();
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    assert_eq!(world.feed.changes(&world.tables, world.now, Duration::ZERO).len(), 3);
}
