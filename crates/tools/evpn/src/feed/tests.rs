use super::*;
use crate::tables::{Fact, Neighbor, Place};

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
    /// A VTEP with an address that has an IP address, all sent to the daemon.
    fn told() -> World {
        let mut world = World { tables: Tables::default(), feed: Feed::default(), now: Instant::now() };
        world.come(2);
        let told =
            vec![Change::Flood(vtep(2)), Change::Address(MAC, vtep(2), false), Change::Neighbor(ip(), MAC, false)];
        assert_eq!(world.after(0), told);
        world
    }

    fn come(&mut self, last: u8) {
        self.put(Fact::Flood(vtep(last)));
        self.put(Fact::Remote(MAC, Remote { vtep: vtep(last), sticky: false }));
        self.put(Fact::Place(MAC, Place::Tunnel));
        self.put(Fact::Neighbor(ip(), Some(Neighbor { mac: MAC, remote: true, router: false })));
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
        self.take(Fact::Place(MAC, Place::Tunnel));
        self.take(Fact::Remote(MAC, Remote { vtep: vtep(2), sticky: false }));
        self.take(Fact::Neighbor(ip(), None));
    }

    fn after(&mut self, milliseconds: u64) -> Vec<Change> {
        self.now += Duration::from_millis(milliseconds);
        self.feed.changes(&self.tables, self.now, HOLD)
    }
}

/// Objective: an address withdrawn by itself is removed after the pause, and once.
#[test]
fn withdrawn_by_itself() {
    let mut world = World::told();
    world.withdraw_address();
    assert_eq!(world.after(0), vec![]);
    assert_eq!(world.after(499), vec![]);
    let mut gone = world.after(1);
    gone.sort_unstable();
    assert_eq!(gone, vec![Change::NoAddress(MAC), Change::NoNeighbor(ip())]);
    assert_eq!(world.after(60_000), vec![]);
    assert!(world.feed.is_idle());
}

/// Objective: entries withdrawn with their VTEP are held; those that return in time count as never withdrawn.
#[test]
fn restart() {
    let mut world = World::told();
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    assert_eq!(world.after(0), vec![]);
    assert_eq!(world.after(29_000), vec![]);
    assert_eq!(world.feed.told().held, 3);
    world.come(2);
    assert_eq!(world.after(10), vec![]);
    assert_eq!(world.after(60_000), vec![]);
    assert_eq!(world.feed.told(), Told { vteps: 1, addresses: 1, neighbors: 1, held: 0 });
}

/// Objective: entries that do not return are removed when the time is up; a daemon that connects meanwhile is sent the
/// held ones.
#[test]
fn lost() {
    let mut world = World::told();
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    world.after(0);
    assert_eq!(world.after(29_950), vec![]);
    assert_eq!(world.feed.everything().len(), 3);
    let mut gone = world.after(50);
    gone.sort_unstable();
    assert_eq!(gone, vec![Change::Unflood(vtep(2)), Change::NoAddress(MAC), Change::NoNeighbor(ip())]);
    assert!(world.feed.everything().is_empty());
}

/// Objective: held entries can be dropped, once, and are then not sent any more.
#[test]
fn given_up() {
    let mut world = World::told();
    assert!(!world.feed.forget_held());
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    world.come(3);
    assert_eq!(world.after(0), vec![Change::Flood(vtep(3)), Change::Address(MAC, vtep(3), false)]);
    assert!(world.feed.forget_held());
    assert_eq!(world.feed.told(), Told { vteps: 1, addresses: 1, neighbors: 1, held: 0 });
    assert!(!world.feed.everything().contains(&Change::Flood(vtep(2))));
    assert!(!world.feed.forget_held());
    assert_eq!(world.after(HOLD.as_millis() as u64), vec![]);
}

/// Objective: an address that moves to another VTEP, even from a held one, is sent immediately.
#[test]
fn moves() {
    let mut world = World::told();
    world.take(Fact::Flood(vtep(2)));
    world.withdraw_address();
    world.after(0);
    world.come(3);
    assert_eq!(world.after(1), vec![Change::Flood(vtep(3)), Change::Address(MAC, vtep(3), false)]);
    assert_eq!(world.after(HOLD.as_millis() as u64), vec![Change::Unflood(vtep(2))]);
}

/// Objective: an address that becomes local is removed immediately, and one that becomes remote again is sent
/// immediately.
#[test]
fn local() {
    let mut world = World::told();
    world.put(Fact::Place(MAC, Place::Local { sticky: false }));
    assert_eq!(world.after(0), vec![Change::NoAddress(MAC)]);
    world.put(Fact::Place(MAC, Place::Tunnel));
    assert_eq!(world.after(0), vec![Change::Address(MAC, vtep(2), false)]);
}

/// Objective: a neighbour that becomes a router is sent as one.
#[test]
fn router() {
    let mut world = World::told();
    world.put(Fact::Neighbor(ip(), Some(Neighbor { mac: MAC, remote: true, router: true })));
    assert_eq!(world.after(0), vec![Change::Neighbor(ip(), MAC, true)]);
    assert_eq!(world.feed.everything().last(), Some(&Change::Neighbor(ip(), MAC, true)));
}

/// Objective: withdrawals without a pause are judged at a certain age.
#[test]
fn no_pause() {
    let mut world = World::told();
    world.withdraw_address();
    let mut told = Vec::new();
    for n in 0..110u8 {
        let mac = Mac([2, 0, 0, 0, 1, n]);
        let remote = Remote { vtep: vtep(2), sticky: false };
        world.put(Fact::Remote(mac, remote));
        world.put(Fact::Place(mac, Place::Tunnel));
        world.after(0);
        world.take(Fact::Place(mac, Place::Tunnel));
        told.extend(world.after(100).into_iter().filter(|c| *c == Change::NoAddress(MAC)).map(|c| (c, n)));
    }
    assert_eq!(told.len(), 1);
    assert!((98..103).contains(&told[0].1), "{told:?}");
}

/// Objective: entries held with their VTEP are removed immediately when the VTEP returns without them.
#[test]
fn back_without() {
    let mut world = World::told();
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    assert_eq!(world.after(0), vec![]);
    assert_eq!(world.after(600), vec![]);
    world.put(Fact::Flood(vtep(2)));
    let mut gone = world.after(1);
    gone.sort_unstable();
    assert_eq!(gone, vec![Change::NoAddress(MAC), Change::NoNeighbor(ip())]);
    assert!(world.feed.is_idle());
}

/// Objective: each withdrawal among a hundred thousand successive ones costs no more work than a single one.
#[test]
fn many() {
    const MANY: u32 = 100_000;
    let mut world = World::told();
    let mac = |n: u32| Mac([2, 1, (n >> 24) as u8, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
    let remote = Remote { vtep: vtep(2), sticky: false };
    for n in 0..MANY {
        world.put(Fact::Remote(mac(n), remote));
        world.put(Fact::Place(mac(n), Place::Tunnel));
    }
    assert_eq!(world.after(0).len(), MANY as usize);
    let begun = Instant::now();
    for n in 0..MANY {
        world.take(Fact::Remote(mac(n), remote));
        assert_eq!(world.after(0), vec![]);
    }
    assert_eq!(world.after(500).len(), MANY as usize);
    // Checking all of them each time would take minutes.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Objective: without a hold time, withdrawals are passed on as they arrive.
#[test]
fn without_hold() {
    let mut world = World::told();
    world.withdraw_address();
    world.take(Fact::Flood(vtep(2)));
    assert_eq!(world.feed.changes(&world.tables, world.now, Duration::ZERO).len(), 3);
}
