//! Address claims *heard* from stations on this host's ports: the IP addresses that the stations claim, for a control
//! plane.
//!
//! Senders may claim any address. Each owner of ports therefore has separate *claims*, at most one claim per address.
//! If several owners claim an address, the oldest claim whose station is present counts ([`HeardClaims::all`]). Space
//! is shared out: a secret hash assigns each address to a line of the table, which has room for a few claims. In a full
//! line, a new claim replaces a claim of the owner with the most claims in the line, and among these a claim from the
//! port with the most claims. A flood of claims thus fills only its owner's share of a line, and that owner's further
//! claims are ignored.

use std::collections::HashSet;

use netvale_mem::lent::Lent;
use netvale_port::changes::ChangeCount;
use netvale_port::origin::Origin;

use crate::ip::{self, IpWords};
use crate::neighbors::{NeighborMessage, TunnelNeighbor};

/// Number of lines of the table.
const LINES: usize = 512;
/// Number of claims per line.
const LINE: usize = 16;
/// Seconds of silence after which a claim is forgotten.
const AGEING: u32 = 1200;

/// A claim of an address.
#[derive(Clone, Copy, Debug, Default)]
struct HeardClaim {
    ip: IpWords,
    /// Ethernet address of the station; 0 if this entry contains no claim.
    mac: u64,
    from: Origin,
    seen: u32,
    /// Value of the claim counter when the owner first claimed the address.
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
    /// Number of claims so far, from which each new claim gets its order.
    count: u64,
}

/// All claims. A worker that finds the table in use does not record a claim; it can do so at the station's next
/// message.
pub struct HeardClaims {
    table: Lent<Claims>,
    key: u64,
    /// Counter of new and changed claims.
    changes: ChangeCount,
}

impl HeardClaims {
    /// Creates an empty table; its hash is keyed with `key`.
    #[must_use]
    pub fn new(key: u64) -> HeardClaims {
        let table = Claims { all: vec![HeardClaim::default(); LINES * LINE], count: 0 };
        HeardClaims { table: Lent::with(table), key: key | 1, changes: ChangeCount::default() }
    }

    /// Records a claim of an address. An IPv6 claim counts only once the station has announced whether it is a router:
    /// a reply on the station's behalf must announce the same, as hosts stop using a router that denies being one (RFC
    /// 4861 §7.2.5).
    pub fn hear(&self, said: &NeighborMessage, from: Origin, now: u32) {
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
                // Another station of the same owner takes over the address, but has not announced yet whether it is a
                // router, so the claim is removed.
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

    /// Returns the station of each claimed address. If an address has several claims, the oldest claim counts. Claims
    /// for which `is_there`, called with Ethernet address and owner, returns false are omitted.
    pub fn all(&self, now: u32, is_there: impl Fn(u64, u32) -> bool) -> Vec<TunnelNeighbor> {
        let Ok(Some(mut claims)) = self.table.control().map(|mut table| table.as_mut().map(|table| table.all.clone()))
        else {
            return Vec::new();
        };
        claims.retain(|claim| claim.is_alive(now) && is_there(claim.mac, claim.from.owner));
        claims.sort_unstable_by_key(|claim| claim.order);
        let mut taken = HashSet::new();
        claims.retain(|claim| taken.insert(claim.ip));
        let neighbor =
            |claim: HeardClaim| TunnelNeighbor { ip: ip::of(claim.ip), mac: claim.mac, router: claim.router };
        claims.into_iter().map(neighbor).collect()
    }

    /// Returns the counter of new and changed claims, for a control plane that waits for the next change.
    #[must_use]
    pub fn changes(&self) -> &ChangeCount {
        &self.changes
    }
}

/// Number of claims in a line that an owner has, and number of claims that come from one of the owner's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimCount {
    owner: usize,
    port: usize,
}

/// Returns the index in the line at which a new claim from `from` goes: a free place, or, among the claims of the owner
/// or port with the most claims, the place of the claim that has been silent for the longest time. `None` if no owner
/// or port has more claims than `from`.
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
    // Claims of the same owner are compared by the claims per port, claims of different owners by the claims per owner.
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

    /// A constant as random as a real key: similar addresses should be in different lines.
    const KEY: u64 = 0x9e37_79b9_7f4a_7c15;
    const A: u64 = 0x0100_0000_0002;
    const B: u64 = 0x0200_0000_0002;
    const OWN: Origin = Origin { port: 1, owner: 1000 };
    const OTHER: Origin = Origin { port: 2, owner: 1001 };

    fn all(heard: &HeardClaims, now: u32) -> Vec<TunnelNeighbor> {
        heard.all(now, |_, _| true)
    }

    fn v4(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn says(ip: IpAddr, mac: u64) -> NeighborMessage {
        NeighborMessage { has: Some((ip, mac)), router: None, wants: None }
    }

    /// Objective: a claim is found once, even if it moves from one of an owner's ports to another; a claim that is not
    /// repeated is forgotten.
    #[test]
    fn a_claim_is_found_once_and_forgotten_in_silence() {
        let heard = HeardClaims::new(7);
        let ip = v4(0x0a00_0001);
        let only = |mac| vec![TunnelNeighbor { ip, mac, router: false }];
        heard.hear(&says(ip, A), OWN, 10);
        heard.hear(&says(ip, A), OWN, 11);
        assert_eq!((all(&heard, 11), heard.changes().count()), (only(A), 1));
        heard.hear(&says(ip, B), Origin { port: 9, ..OWN }, 12);
        assert_eq!((all(&heard, 12), heard.changes().count()), (only(B), 2));
        assert_eq!(all(&heard, 12 + AGEING), []);
    }

    /// Objective: an address stays with its station although other owners claim it, even with that station's Ethernet
    /// address. Once the station has left, the next claim counts.
    #[test]
    fn addresses_stay_with_their_owner() {
        let heard = HeardClaims::new(7);
        let ip = v4(0x0a00_0001);
        heard.hear(&says(ip, A), OWN, 10);
        heard.hear(&says(ip, B), OTHER, 11);
        heard.hear(&says(v4(0x0a00_0002), A), OTHER, 11);
        let stations = [(A, OWN.owner), (B, OTHER.owner)];
        let of = |there: &[(u64, u32)]| heard.all(12, |mac, owner| there.contains(&(mac, owner)));
        assert_eq!(of(&stations), [TunnelNeighbor { ip, mac: A, router: false }]);
        assert_eq!(of(&stations[1..]), [TunnelNeighbor { ip, mac: B, router: false }], "its station is gone");
        heard.hear(&says(ip, A), OWN, 13);
        assert_eq!(of(&stations), [TunnelNeighbor { ip, mac: A, router: false }], "it was first");
        heard.hear(&says(ip, B), OTHER, 12 + AGEING);
        assert_eq!(all(&heard, 13 + AGEING), [TunnelNeighbor { ip, mac: B, router: false }], "it was silent");
    }

    /// Objective: a flood from one port, or from many ports of one owner, leaves room for other owners' stations; a
    /// flood from one port also leaves room for stations at the owner's other ports, even if it came first. The claims
    /// of these stations stay while the flood continues.
    #[test]
    fn floods_leave_room() {
        for (ports, honest) in [(1, OTHER), (1, Origin { port: 99, ..OWN }), (90, OTHER)] {
            let heard = HeardClaims::new(KEY);
            let flood = |from: u32| {
                for n in from..from + 100_000 {
                    let port = (n % ports) as u16;
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

    /// Objective: a flood of claims causes at most as many reported changes as the table has places, so that it does
    /// not keep a control plane busy.
    #[test]
    fn floods_tell_little() {
        let heard = HeardClaims::new(7);
        (0..200_000).for_each(|n| heard.hear(&says(v4(n), A), OWN, 10));
        assert!(heard.changes().count() <= (LINES * LINE) as u64, "{}", heard.changes().count());
    }

    /// Objective: IPv6 routers are recognised. A station that has not announced that it is a router does not count as
    /// one, even if it takes over the address of a router.
    #[test]
    fn only_stations_that_say_so_are_routers() {
        let heard = HeardClaims::new(7);
        let ip = IpAddr::from(Ipv6Addr::LOCALHOST);
        let hear = |mac, router| {
            heard.hear(&NeighborMessage { has: Some((ip, mac)), router, wants: None }, OWN, 10);
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
