use super::*;
use crate::tables::{AddressPlace, Fact, NeighborEntry, RemoteAddress};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn ip() -> IpAddr {
    IpAddr::from([192, 168, 0, 1])
}

fn list(macs: &[Mac]) -> Vec<LocalAddress> {
    macs.iter().map(|mac| LocalAddress { mac: *mac, ips: vec![ip()], ..LocalAddress::default() }).collect()
}

fn listed(macs: &[Mac]) -> ListedState {
    let mut listed = ListedState::default();
    listed.take(list(macs));
    listed
}

/// Returns tables in which the address is local.
fn local() -> Tables {
    let mut tables = Tables::default();
    tables.put(Fact::Place(MAC, AddressPlace::Local { sticky: false }));
    tables.put(Fact::Neighbor(ip(), Some(NeighborEntry { mac: MAC, remote: false, router: false })));
    tables
}

fn make_remote(tables: &mut Tables, mac: Mac) {
    tables.put(Fact::Remote(mac, RemoteAddress { vtep: IpAddr::from([10, 0, 0, 2]), sticky: false }));
    tables.put(Fact::Place(mac, AddressPlace::Tunnel));
    tables.put(Fact::Neighbor(ip(), Some(NeighborEntry { mac, remote: true, router: false })));
}

/// Objective: a MAC address is added before its IP address, and removed after it; no change is repeated.
#[test]
fn an_address_is_added_and_removed_in_reverse() {
    let add = vec![
        TableChange::AddAddress { mac: MAC, sticky: false, moves: false },
        TableChange::AddNeighbor(ip(), MAC, false),
    ];
    assert_eq!(listed(&[MAC]).plan(&Tables::default(), false), add);
    assert_eq!(listed(&[MAC]).plan(&local(), false), vec![]);
    let mut sticky = ListedState::default();
    sticky.take(vec![LocalAddress { mac: MAC, ips: vec![ip()], sticky: true, ..LocalAddress::default() }]);
    let again = vec![TableChange::AddAddress { mac: MAC, sticky: true, moves: true }];
    assert_eq!(sticky.plan(&local(), false), again);
    assert_eq!(
        listed(&[]).plan(&local(), false),
        vec![TableChange::RemoveNeighbor(ip()), TableChange::RemoveAddress(MAC)]
    );
    assert_eq!(listed(&[]).plan(&local(), true), vec![]);
    assert_eq!(ListedState::default().plan(&local(), false), vec![]);
}

/// Objective: an address that claims to be a router is announced as a router until it withdraws the claim.
#[test]
fn a_router_is_announced_only_while_it_claims() {
    let router = |routers| LocalAddress { mac: MAC, ips: vec![ip()], routers, sticky: false };
    let mut listed = ListedState::default();
    listed.take(vec![router(vec![ip()])]);
    assert_eq!(listed.plan(&local(), false), vec![TableChange::AddNeighbor(ip(), MAC, true)]);
    let mut tables = local();
    tables.put(Fact::Neighbor(ip(), Some(NeighborEntry { mac: MAC, remote: false, router: true })));
    assert_eq!(listed.plan(&tables, false), vec![]);
    listed.take(vec![router(vec![])]);
    assert_eq!(listed.plan(&tables, false), vec![TableChange::AddNeighbor(ip(), MAC, false)]);
}

/// Objective: addresses that a newly started daemon has not listed yet are kept; addresses that the daemon has listed
/// earlier but no longer lists are removed.
#[test]
fn only_listed_and_dropped_addresses_are_removed() {
    let mut listed = listed(&[MAC]);
    let mut tables = local();
    tables.put(Fact::Place(OTHER, AddressPlace::Local { sticky: false }));
    listed.take(list(&[]));
    assert_eq!(listed.plan(&tables, true), vec![TableChange::RemoveNeighbor(ip()), TableChange::RemoveAddress(MAC)]);
    listed.take(list(&[MAC]));
    assert_eq!(listed.plan(&tables, true), vec![]);
    assert_eq!(listed.plan(&tables, false), vec![TableChange::RemoveAddress(OTHER)]);
}

/// Objective: an address that zebra has made remote becomes local again only because of a new list, not because of the
/// previous list.
#[test]
fn moves_away_and_back() {
    let mut tables = local();
    let mut listed = listed(&[MAC]);
    make_remote(&mut tables, MAC);
    listed.note(EntryKey::Address(MAC), &tables);
    listed.note(EntryKey::Neighbor(ip()), &tables);
    assert_eq!(listed.plan(&tables, false), vec![]);
    listed.take(list(&[]));
    assert_eq!(listed.plan(&tables, false), vec![]);
    listed.take(list(&[MAC]));
    let back = vec![
        TableChange::AddAddress { mac: MAC, sticky: false, moves: true },
        TableChange::AddNeighbor(ip(), MAC, false),
    ];
    assert_eq!(listed.plan(&tables, false), back);
}

/// Objective: an IP address that zebra has given to a remote MAC address is not claimed for its previous local MAC
/// address, even if the daemon lists that address again and again.
#[test]
fn ip_moves_away() {
    let mut tables = local();
    let mut listed = listed(&[MAC]);
    make_remote(&mut tables, OTHER);
    listed.note(EntryKey::Neighbor(ip()), &tables);
    for _ in 0..3 {
        assert_eq!(listed.plan(&tables, false), vec![]);
        listed.take(list(&[MAC]));
    }
    // From here on, another local MAC address has the IP address.
    let third = Mac([2, 0, 0, 0, 0, 3]);
    listed.take(vec![LocalAddress { mac: third, ips: vec![ip()], sticky: true, ..LocalAddress::default() }]);
    assert!(listed.plan(&tables, false).contains(&TableChange::AddNeighbor(ip(), third, false)));
    assert!(listed.plan(&tables, false).contains(&TableChange::AddAddress { mac: third, sticky: true, moves: false }));
}

/// Objective: an IP address that was remote is moved between two local MAC addresses: the kernel has it with a local
/// MAC address with which the daemon does not list it, so it is removed there, and added to the MAC address with which
/// the daemon lists it. After that, there are no more changes.
#[test]
fn an_ip_address_left_with_another_is_given_back() {
    let mut tables = local();
    let mut listed = listed(&[MAC]);
    make_remote(&mut tables, OTHER);
    listed.note(EntryKey::Neighbor(ip()), &tables);
    let mut tables = local();
    tables.put(Fact::Neighbor(ip(), Some(NeighborEntry { mac: OTHER, remote: false, router: false })));
    listed.note(EntryKey::Neighbor(ip()), &tables);
    assert_eq!(listed.plan(&tables, false), vec![TableChange::RemoveNeighbor(ip())]);
    tables.take(Fact::Neighbor(ip(), None));
    listed.note(EntryKey::Neighbor(ip()), &tables);
    assert_eq!(listed.plan(&tables, false), vec![TableChange::AddNeighbor(ip(), MAC, false)]);
    assert_eq!(listed.plan(&local(), false), vec![]);
}

/// Objective: invalid addresses in the daemon's list are ignored; an IP address belongs to one MAC address.
#[test]
fn impossible_station_addresses_are_not_accepted() {
    let bad_ips = ["0.0.0.0", "224.0.0.1", "255.255.255.255", "ff02::1", "::"].map(|ip| ip.parse().unwrap());
    let mut listed = ListedState::default();
    listed.take(vec![
        LocalAddress { mac: Mac([1, 0, 0, 0, 0, 1]), ..LocalAddress::default() },
        LocalAddress { mac: Mac([0; 6]), ..LocalAddress::default() },
        LocalAddress { mac: MAC, ips: bad_ips.to_vec(), ..LocalAddress::default() },
        LocalAddress { mac: OTHER, ips: vec![ip()], ..LocalAddress::default() },
        LocalAddress { mac: MAC, ips: vec![ip()], ..LocalAddress::default() },
    ]);
    assert_eq!(listed.addresses.len(), 2);
    let claims =
        listed.plan(&Tables::default(), false).into_iter().filter(|act| matches!(act, TableChange::AddNeighbor(..)));
    assert_eq!(claims.collect::<Vec<_>>(), vec![TableChange::AddNeighbor(ip(), OTHER, false)]);
}
