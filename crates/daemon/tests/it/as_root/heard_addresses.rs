//! Users on a shared switch with a tunnel who announce one another's addresses, or too many addresses. The control
//! plane (`netvale evpn`) receives the recorded addresses.

use crate::common;

use std::net::Ipv4Addr;

use common::ports::attach;
use common::users::{as_user, folder_of};
use common::{Daemon, is_root, until};
use netvale::Port;
use netvale_wire::{MacAddr, arp};
use serde_json::{Value, json};

const ALICE: u32 = 70_051;
const BOB: u32 = 70_052;
/// Number of addresses that one user announces, which is above the daemon's limit for all users together.
const MANY: u32 = 100_000;

/// Starts a daemon whose switch has a tunnel. If this process is not root, reports *skipped*.
fn daemon(host: u8, mut options: Value) -> Option<Daemon> {
    if !is_root("being several users needs root") {
        return None;
    }
    let d = Daemon::start_as(0, folder_of(0, 0o755), "[switch]\nshared = ['vale0']\n[sockets]\nmode = '0666'");
    let [a, b, ..] = std::process::id().to_le_bytes();
    options["name"] = json!("vx");
    options["evpn"] = json!(true);
    attach(&d, &format!("vxlan:7,local=127.{}.{b}.{host}", 1 | a), options);
    Some(d)
}

fn opened(d: &Daemon, uid: u32, name: &str) -> Port {
    as_user(uid, || Port::open_with(name, &d.options())).unwrap()
}

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

/// Returns an ARP request that announces its sender.
fn request(from: MacAddr, ip: Ipv4Addr) -> Vec<u8> {
    let mut bytes = [0; arp::LEN];
    let mut packet = arp::Packet::init(&mut bytes).unwrap();
    packet.set_operation(arp::REQUEST);
    packet.set_sender(from, ip);
    packet.set_target(MacAddr::ZERO, Ipv4Addr::new(10, 255, 255, 254));
    [&[0xff; 6][..], &from.0, &[8, 6], &bytes, &[0; 18]].concat()
}

/// Sends an ARP announcement for each IP address, and waits until all announcements have been forwarded.
fn say(port: &mut Port, from: MacAddr, ips: impl Iterator<Item = Ipv4Addr>) {
    let ring = &mut port.tx()[0];
    ring.sync();
    let empty = ring.space();
    for frame in ips.map(|ip| request(from, ip)) {
        until("there is room", || {
            let is_sent = ring.send(&frame);
            if !is_sent {
                ring.sync();
            }
            is_sent
        });
    }
    until("all has left", || {
        ring.sync();
        ring.space() == empty
    });
}

/// Returns the IP addresses of one host, as reported to the control plane.
fn told(d: &Daemon, of: MacAddr) -> Vec<String> {
    let local = d.call("vxlan.local", json!({"port": "vale0:vx"}))["result"]["addresses"].clone();
    let host = local.as_array().unwrap().iter().find(|one| one["mac"] == json!(of.to_string()));
    let ips = host.and_then(|host| host["ips"].as_array().cloned()).unwrap_or_default();
    ips.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Objective: a user who announces very many addresses does not displace the addresses of other users' hosts: these are
/// recorded, and stay.
#[test]
fn a_flood_leaves_others_heard() {
    let Some(d) = daemon(120, json!({})) else { return };
    let [mut alice, mut bob] = [opened(&d, ALICE, "vale0:a"), opened(&d, BOB, "vale0:b")];
    say(&mut bob, mac(2), (0..MANY).map(|n| Ipv4Addr::from(0x0b00_0000 + n)));
    let hosts = || (1..=20).map(|n| Ipv4Addr::new(10, 0, 0, n));
    say(&mut alice, mac(1), hosts());
    until("Alice's are heard", || told(&d, mac(1)).len() == 20);
    say(&mut bob, mac(2), (0..MANY).map(|n| Ipv4Addr::from(0x0c00_0000 + n)));
    assert_eq!(told(&d, mac(1)).len(), 20);
}

/// Objective: an IP address of a user's host stays with that host, even if another user announces it, and the other
/// user cannot add addresses to the host; after the host's port is removed, the other user gets the address.
#[test]
fn an_address_stays_with_its_host() {
    let Some(d) = daemon(121, json!({})) else { return };
    let [mut alice, mut bob] = [opened(&d, ALICE, "vale0:a"), opened(&d, BOB, "vale0:b")];
    let ip = |n| Ipv4Addr::new(10, 0, 0, n);
    let texts = |ns: &[u8]| ns.iter().map(|&n| ip(n).to_string()).collect::<Vec<_>>();
    say(&mut alice, mac(1), [ip(1)].into_iter());
    until("Alice's is heard", || told(&d, mac(1)) == texts(&[1]));
    say(&mut bob, mac(2), [ip(1), ip(2)].into_iter());
    say(&mut bob, mac(1), [ip(3)].into_iter());
    until("Bob's is heard", || told(&d, mac(2)) == texts(&[2]));
    assert_eq!(told(&d, mac(1)), texts(&[1]), "Bob has spoken in Alice's name");
    drop(alice);
    until("it is Bob's", || told(&d, mac(2)).len() == 2);
}

/// Objective: the hosts of all users are recorded even if frames pass a link (a queue that delays frames), after which
/// their senders are unknown.
#[test]
fn hosts_of_all_users_are_heard_behind_a_link() {
    let Some(d) = daemon(122, json!({"link_out": "delay 1ms"})) else { return };
    let ip = |n: u8| Ipv4Addr::new(10, 0, 0, n);
    let mut ports = [(0, 1), (ALICE, 2), (BOB, 3)].map(|(uid, n)| opened(&d, uid, &format!("vale0:p{n}")));
    for (port, n) in ports.iter_mut().zip(1..) {
        // A frame that leaves the link while the control plane reads the addresses may not be recorded; the next frame
        // is recorded.
        until(&format!("host {n} is heard"), || {
            say(port, mac(n), [ip(n)].into_iter());
            told(&d, mac(n)) == [ip(n).to_string()]
        });
    }
}
