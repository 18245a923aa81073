//! What was *heard* of neighbours behind this host's ports: who has said to have which IP address, for a control plane.
//!
//! Everybody who sends says what they like. So each owner of ports has their own *claims*, one of an address at most;
//! of several owners' claims of an address, the oldest counts whose station is there ([`Heard::all`]). And places are
//! shared out: a line of the table, of which a secret hash says which addresses are in it, has room for some. In a full
//! one, a new claim takes the place of the owner's who has most of it, and there of that port's that has most: who
//! floods has their own share, and further ones of theirs are not heard.

use std::collections::HashSet;

use netvale_mem::lent::Lent;
use netvale_port::changes::Changes;
use netvale_port::origin::Origin;

use crate::ip::{self, Words};
use crate::neighbors::{Neighbor, Said};

/// Lines, and claims in one.
const LINES: usize = 512;
const LINE: usize = 16;
/// Seconds after which one that is silent is forgotten.
const AGEING: u32 = 1200;

/// What somebody has said.
#[derive(Clone, Copy, Debug, Default)]
struct HeardClaim {
    ip: Words,
    /// The Ethernet address; 0: there is no claim.
    mac: u64,
    from: Origin,
    seen: u32,
    /// How many there were before its owner first claimed the address.
    order: u64,
    router: bool,
}

impl HeardClaim {
    fn is_alive(&self, now: u32) -> bool {
        self.mac != 0 && now.saturating_sub(self.seen) < AGEING
    }
}

struct Claims {
    all: Vec<HeardClaim>,
    /// How many claims there were.
    count: u64,
}

/// All claims. A worker that finds another one here hears the next time.
pub struct Heard {
    table: Lent<Claims>,
    key: u64,
    /// New things that were heard.
    changes: Changes,
}

impl Heard {
    /// Nothing; the hash is keyed with `key`.
    #[must_use]
    pub fn new(key: u64) -> Heard {
        let table = Claims { all: vec![HeardClaim::default(); LINES * LINE], count: 0 };
        Heard { table: Lent::with(table), key: key | 1, changes: Changes::default() }
    }

    /// Somebody may say to have an address. One of IPv6 is theirs as soon as they have said whether they are a router,
    /// since who answers in their name has to say so, too: hosts give up a router that says to be none (RFC 4861
    /// §7.2.5).
    pub fn hear(&self, said: &Said, from: Origin, now: u32) {
        let Some((address, mac)) = said.has else { return };
        let Ok(mut table) = self.table.enter_now() else { return };
        let Claims { all, count } = &mut *table;
        let ip = ip::words(address);
        let hash = (ip[0] ^ ip[1].rotate_left(17) ^ self.key).wrapping_mul(self.key) >> 40;
        let first = hash as usize % LINES * LINE;
        let Some(line) = all.get_mut(first..first + LINE) else { return };
        let own = line.iter().position(|claim| claim.is_alive(now) && (claim.ip, claim.from.owner) == (ip, from.owner));
        let before = own.map(|at| line[at]);
        let known = before.filter(|claim| claim.mac == mac).map(|claim| claim.router);
        let router = said.router.or(known).or_else(|| address.is_ipv4().then_some(false));
        let order = before.map_or(*count, |claim| claim.order);
        let at = own.or_else(|| place_in(line, from, now));
        let Some((router, claim)) = router.zip(at.and_then(|at| line.get_mut(at))) else {
            if let Some(claim) = own.and_then(|at| line.get_mut(at)) {
                // Taken over by a station of the same owner that has not said yet whether it is a router.
                *claim = HeardClaim::default();
                self.changes.note();
            }
            return;
        };
        *claim = HeardClaim { ip, mac, from, seen: now, order, router };
        *count += u64::from(before.is_none());
        if before.is_none_or(|before| (before.mac, before.router) != (mac, router)) {
            self.changes.note();
        }
    }

    /// Who has which address: of several claims of one, the oldest, and no claim of a station that is not among its
    /// owner's, as `is_there` says of an Ethernet address and an owner.
    pub fn all(&self, now: u32, is_there: impl Fn(u64, u32) -> bool) -> Vec<Neighbor> {
        let Ok(Some(mut claims)) = self.table.control().map(|mut table| table.as_mut().map(|table| table.all.clone()))
        else {
            return Vec::new();
        };
        claims.retain(|claim| claim.is_alive(now) && is_there(claim.mac, claim.from.owner));
        claims.sort_unstable_by_key(|claim| claim.order);
        let mut taken = HashSet::new();
        claims.retain(|claim| taken.insert(claim.ip));
        let neighbor = |claim: HeardClaim| Neighbor { ip: ip::of(claim.ip), mac: claim.mac, router: claim.router };
        claims.into_iter().map(neighbor).collect()
    }

    /// How often something new was heard.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.changes
    }
}

/// How much of a line a claim's owner has, and of that its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimCount {
    owner: usize,
    port: usize,
}

/// The place of a new claim: a free one, or the one that was silent for longest of those who have most, if they have
/// more than `from` would.
fn place_in(line: &[HeardClaim], from: Origin, now: u32) -> Option<usize> {
    if let Some(free) = line.iter().position(|claim| !claim.is_alive(now)) {
        return Some(free);
    }
    let share = |of: Origin| ClaimCount {
        owner: line.iter().filter(|claim| claim.from.owner == of.owner).count(),
        port: line.iter().filter(|claim| claim.from == of).count(),
    };
    let own = share(from);
    let own = ClaimCount { owner: own.owner + 1, port: own.port + 1 };
    // Among one owner's, ports are compared; among several, the owners are.
    let has_more = |of: Origin| {
        let other = share(of);
        if of.owner == from.owner { other.port > own.port } else { other.owner > own.owner }
    };
    let rank = |claim: &HeardClaim| (share(claim.from), now.saturating_sub(claim.seen));
    let taken = line.iter().enumerate().filter(|(_, claim)| has_more(claim.from));
    taken.max_by_key(|(_, claim)| rank(claim)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use super::*;

    /// As random as a real one: what differs little is to be in different lines.
    const KEY: u64 = 0x9e37_79b9_7f4a_7c15;
    const A: u64 = 0x0100_0000_0002;
    const B: u64 = 0x0200_0000_0002;
    const OWN: Origin = Origin { port: 1, owner: 1000 };
    const OTHER: Origin = Origin { port: 2, owner: 1001 };

    fn all(heard: &Heard, now: u32) -> Vec<Neighbor> {
        heard.all(now, |_, _| true)
    }

    fn v4(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn says(ip: IpAddr, mac: u64) -> Said {
        Said { has: Some((ip, mac)), router: None, wants: None }
    }

    /// Objective: what was heard is found, once; it moves within an owner's ports; who is silent is forgotten.
    #[test]
    fn found_and_forgotten() {
        let heard = Heard::new(7);
        let ip = v4(0x0a00_0001);
        let only = |mac| vec![Neighbor { ip, mac, router: false }];
        heard.hear(&says(ip, A), OWN, 10);
        heard.hear(&says(ip, A), OWN, 11);
        assert_eq!((all(&heard, 11), heard.changes().count()), (only(A), 1));
        heard.hear(&says(ip, B), Origin { port: 9, ..OWN }, 12);
        assert_eq!((all(&heard, 12), heard.changes().count()), (only(B), 2));
        assert_eq!(all(&heard, 12 + AGEING), []);
    }

    /// Objective: an address stays with its station against claims of other owners, also by that station's Ethernet
    /// address, until the station is gone; then it is the next one's.
    #[test]
    fn addresses_stay_with_their_owner() {
        let heard = Heard::new(7);
        let ip = v4(0x0a00_0001);
        heard.hear(&says(ip, A), OWN, 10);
        heard.hear(&says(ip, B), OTHER, 11);
        heard.hear(&says(v4(0x0a00_0002), A), OTHER, 11);
        let stations = [(A, OWN.owner), (B, OTHER.owner)];
        let of = |there: &[(u64, u32)]| heard.all(12, |mac, owner| there.contains(&(mac, owner)));
        assert_eq!(of(&stations), [Neighbor { ip, mac: A, router: false }]);
        assert_eq!(of(&stations[1..]), [Neighbor { ip, mac: B, router: false }], "its station is gone");
        heard.hear(&says(ip, A), OWN, 13);
        assert_eq!(of(&stations), [Neighbor { ip, mac: A, router: false }], "it was first");
        heard.hear(&says(ip, B), OTHER, 12 + AGEING);
        assert_eq!(all(&heard, 13 + AGEING), [Neighbor { ip, mac: B, router: false }], "it was silent");
    }

    /// Objective: a flood from one port, or from many of one owner, leaves room for the hosts of others, and one from a
    /// port for hosts at the owner's other ports, also if the flood was first; those stay when the flood goes on.
    #[test]
    fn floods_leave_room() {
        for (ports, honest) in [(1, OTHER), (1, Origin { port: 99, ..OWN }), (90, OTHER)] {
            let heard = Heard::new(KEY);
            let flood = |from: u32| {
                for n in from..from + 100_000 {
                    let port = (n % ports) as u8;
                    heard.hear(&says(v4(n), A), Origin { port, ..OWN }, 10);
                }
            };
            let hosts = 0x0a00_0000..0x0a00_0040;
            flood(1 << 28);
            hosts.clone().for_each(|n| heard.hear(&says(v4(n), B), honest, 10));
            let seen = || all(&heard, 10).into_iter().filter(|one| one.mac == B).count();
            assert_eq!(seen(), hosts.len(), "{ports} ports, {honest:?}");
            flood(1 << 29);
            assert_eq!(seen(), hosts.len(), "{ports} ports, {honest:?}, afterwards");
            assert!(all(&heard, 10).len() <= LINES * LINE);
        }
    }

    /// Objective: a flood says that something is new as often as there are places, and no more: who watches is not kept
    /// busy.
    #[test]
    fn floods_tell_little() {
        let heard = Heard::new(7);
        (0..200_000).for_each(|n| heard.hear(&says(v4(n), A), OWN, 10));
        assert!(heard.changes().count() <= (LINES * LINE) as u64, "{}", heard.changes().count());
    }

    /// Objective: of IPv6 it is known who is a router; who has not said so is not known, nor is who takes another's
    /// address without saying so.
    #[test]
    fn routers() {
        let (heard, ip) = (Heard::new(7), IpAddr::from(Ipv6Addr::LOCALHOST));
        let hear = |mac, router| {
            heard.hear(&Said { has: Some((ip, mac)), router, wants: None }, OWN, 10);
            (all(&heard, 10).first().map(|one| (one.mac, one.router)), heard.changes().count())
        };
        assert_eq!(hear(A, None), (None, 0));
        assert_eq!(hear(A, Some(true)), (Some((A, true)), 1));
        assert_eq!(hear(A, None), (Some((A, true)), 1));
        assert_eq!(hear(A, Some(false)), (Some((A, false)), 2));
        assert_eq!(hear(B, None), (None, 3));
        assert_eq!(hear(B, Some(true)), (Some((B, true)), 4));
    }
}
