use super::*;
use crate::tables::{Fact, Neighbor, Place, Remote};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn ip() -> IpAddr {
    IpAddr::from([192, 168, 0, 1])
}

fn list(macs: &[Mac]) -> Vec<LocalAddress> {
    macs.iter().map(|mac| LocalAddress { mac: *mac, ips: vec![ip()], ..LocalAddress::default() }).collect()
}

fn listed(macs: &[Mac]) -> Listed {
    let mut listed = Listed::default();
    listed.take(list(macs));
    listed
}

/// Tables that hold the address as a local one.
fn local() -> Tables {
    let mut tables = Tables::default();
    tables.put(Fact::Place(MAC, Place::Local { sticky: false }));
    tables.put(Fact::Neighbor(ip(), Some(Neighbor { mac: MAC, remote: false, router: false })));
    tables
}

fn make_remote(tables: &mut Tables, mac: Mac) {
    tables.put(Fact::Remote(mac, Remote { vtep: IpAddr::from([10, 0, 0, 2]), sticky: false }));
    tables.put(Fact::Place(mac, Place::Tunnel));
    tables.put(Fact::Neighbor(ip(), Some(Neighbor { mac, remote: true, router: false })));
}

/// Objective: an address and its IP address are added, in that order, and removed in reverse; no change is repeated.
#[test]
fn comes_and_goes() {
    let add = vec![Act::AddAddress { mac: MAC, sticky: false, moves: false }, Act::AddNeighbor(ip(), MAC, false)];
    assert_eq!(listed(&[MAC]).plan(&Tables::default(), false), add);
    assert_eq!(listed(&[MAC]).plan(&local(), false), vec![]);
    let mut sticky = Listed::default();
    sticky.take(vec![LocalAddress { mac: MAC, ips: vec![ip()], sticky: true, ..LocalAddress::default() }]);
    let again = vec![Act::AddAddress { mac: MAC, sticky: true, moves: true }];
    assert_eq!(sticky.plan(&local(), false), again);
    assert_eq!(listed(&[]).plan(&local(), false), vec![Act::RemoveNeighbor(ip()), Act::RemoveAddress(MAC)]);
    assert_eq!(listed(&[]).plan(&local(), true), vec![]);
    assert_eq!(Listed::default().plan(&local(), false), vec![]);
}

/// Objective: an address that claims to be a router is announced as one, and no longer once it withdraws the claim.
#[test]
fn routers() {
    let router = |routers| LocalAddress { mac: MAC, ips: vec![ip()], routers, sticky: false };
    let mut listed = Listed::default();
    listed.take(vec![router(vec![ip()])]);
    assert_eq!(listed.plan(&local(), false), vec![Act::AddNeighbor(ip(), MAC, true)]);
    let mut tables = local();
    tables.put(Fact::Neighbor(ip(), Some(Neighbor { mac: MAC, remote: false, router: true })));
    assert_eq!(listed.plan(&tables, false), vec![]);
    listed.take(vec![router(vec![])]);
    assert_eq!(listed.plan(&tables, false), vec![Act::AddNeighbor(ip(), MAC, false)]);
}

/// Objective: addresses that a fresh daemon has not listed are kept; those that it has listed and dropped are not.
#[test]
fn kept_and_dropped() {
    let mut listed = listed(&[MAC]);
    let mut tables = local();
    tables.put(Fact::Place(OTHER, Place::Local { sticky: false }));
    listed.take(list(&[]));
    assert_eq!(listed.plan(&tables, true), vec![Act::RemoveNeighbor(ip()), Act::RemoveAddress(MAC)]);
    listed.take(list(&[MAC]));
    assert_eq!(listed.plan(&tables, true), vec![]);
    assert_eq!(listed.plan(&tables, false), vec![Act::RemoveAddress(OTHER)]);
}

/// Objective: an address that zebra has made remote is not taken back by the previous list, but by a new one that
/// contains it.
#[test]
fn moves_away_and_back() {
    let mut tables = local();
    let mut listed = listed(&[MAC]);
    make_remote(&mut tables, MAC);
    listed.note(Key::Address(MAC), &tables);
    listed.note(Key::Neighbor(ip()), &tables);
    assert_eq!(listed.plan(&tables, false), vec![]);
    listed.take(list(&[]));
    assert_eq!(listed.plan(&tables, false), vec![]);
    listed.take(list(&[MAC]));
    let back = vec![Act::AddAddress { mac: MAC, sticky: false, moves: true }, Act::AddNeighbor(ip(), MAC, false)];
    assert_eq!(listed.plan(&tables, false), back);
}

/// Objective: an IP address that zebra has given to a remote address is not claimed for its former local address,
/// however often it is listed.
#[test]
fn ip_moves_away() {
    let mut tables = local();
    let mut listed = listed(&[MAC]);
    make_remote(&mut tables, OTHER);
    listed.note(Key::Neighbor(ip()), &tables);
    for _ in 0..3 {
        assert_eq!(listed.plan(&tables, false), vec![]);
        listed.take(list(&[MAC]));
    }
    // Another local address has it.
    let third = Mac([2, 0, 0, 0, 0, 3]);
    listed.take(vec![LocalAddress { mac: third, ips: vec![ip()], sticky: true, ..LocalAddress::default() }]);
    assert!(listed.plan(&tables, false).contains(&Act::AddNeighbor(ip(), third, false)));
    assert!(listed.plan(&tables, false).contains(&Act::AddAddress { mac: third, sticky: true, moves: false }));
}

/// Objective: an IP address lost to a remote address, and later found at a local address no longer listed with it, is
/// removed there and given back to the address listed with it; then nothing is left to do.
#[test]
fn left_with_another() {
    let mut tables = local();
    let mut listed = listed(&[MAC]);
    make_remote(&mut tables, OTHER);
    listed.note(Key::Neighbor(ip()), &tables);
    let mut tables = local();
    tables.put(Fact::Neighbor(ip(), Some(Neighbor { mac: OTHER, remote: false, router: false })));
    listed.note(Key::Neighbor(ip()), &tables);
    assert_eq!(listed.plan(&tables, false), vec![Act::RemoveNeighbor(ip())]);
    tables.take(Fact::Neighbor(ip(), None));
    listed.note(Key::Neighbor(ip()), &tables);
    assert_eq!(listed.plan(&tables, false), vec![Act::AddNeighbor(ip(), MAC, false)]);
    assert_eq!(listed.plan(&local(), false), vec![]);
}

/// Objective: impossible station addresses are not accepted from the daemon either; an IP address belongs to one
/// address.
#[test]
fn checked() {
    let bad_ips = ["0.0.0.0", "224.0.0.1", "255.255.255.255", "ff02::1", "::"].map(|ip| ip.parse().unwrap());
    let mut listed = Listed::default();
    listed.take(vec![
        LocalAddress { mac: Mac([1, 0, 0, 0, 0, 1]), ..LocalAddress::default() },
        LocalAddress { mac: Mac([0; 6]), ..LocalAddress::default() },
        LocalAddress { mac: MAC, ips: bad_ips.to_vec(), ..LocalAddress::default() },
        LocalAddress { mac: OTHER, ips: vec![ip()], ..LocalAddress::default() },
        LocalAddress { mac: MAC, ips: vec![ip()], ..LocalAddress::default() },
    ]);
    assert_eq!(listed.len(), 2);
    let claims = listed.plan(&Tables::default(), false).into_iter().filter(|act| matches!(act, Act::AddNeighbor(..)));
    assert_eq!(claims.collect::<Vec<_>>(), vec![Act::AddNeighbor(ip(), OTHER, false)]);
}
