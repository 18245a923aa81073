//! Passes arbitrary messages from several stations to the gateway's DHCP and DHCPv6 servers, while time passes.
//!
//! Input, repeated: a station (one byte), the time that passes, in tenths of a minute (one byte), the message's length
//! (two bytes), the message.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use netvale_fuzz::fuzz_target;
use netvale_gateway::dhcp::leases::LeaseTable;
use netvale_gateway::dhcp::message::{DhcpKind, DhcpMessage};
use netvale_gateway::dhcp::{DhcpServer, DhcpSettings};
use netvale_gateway::dhcp6::leases::LeaseTable6;
use netvale_gateway::dhcp6::{Dhcp6Mode, Dhcp6Server, Dhcp6Settings};
use netvale_gateway::net::InterfaceAddress;
use netvale_wire::MacAddr;

const LEASE: Duration = Duration::from_secs(600);

/// Returns the messages of an input, each with the byte of its station and the time since the previous message.
fn messages(data: &[u8]) -> impl Iterator<Item = (u8, Duration, Vec<u8>)> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (&[station, passed, high, low], behind) = rest.split_first_chunk::<4>()?;
        let len = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (message, next) = behind.split_at(len);
        rest = next;
        Some((station, Duration::from_secs(u64::from(passed) * 6), message.to_vec()))
    })
}

fn station_mac(station: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, station % 8])
}

/// For each address, the client that holds it and the end of the lease, according to the server's answers.
type Holders = HashMap<Ipv4Addr, (Vec<u8>, Instant)>;

fuzz_target!(|data: &[u8]| {
    let own = InterfaceAddress { address: [10, 0, 0, 1].into(), prefix: 28 };
    let settings = DhcpSettings { own, lease: LEASE, mtu: 1500, domain: "lan".to_owned(), search: Vec::new() };
    let fixed = vec!["02:00:00:00:00:03=10.0.0.3,web".parse().expect("a lease")];
    let mut server = DhcpServer::new(settings, LeaseTable::new(own, fixed));
    let mut holders = Holders::new();
    let mut now = Instant::now();
    for (station, passed, mut bytes) in messages(data) {
        now += passed;
        let mac = station_mac(station);
        // If this bit is set, the message's `chaddr` is replaced by the station's own address.
        if station & 0x80 != 0 && bytes.len() >= 34 {
            bytes[28..34].copy_from_slice(&mac.0);
        }
        say(&mut server, &mut holders, mac, &bytes, now);
        server.leases.clean(now);
    }
    say_all_v6(data);
});

fn say(server: &mut DhcpServer, holders: &mut Holders, mac: MacAddr, bytes: &[u8], now: Instant) {
    let message = DhcpMessage::parse(bytes);
    let in_use = |address: Ipv4Addr| address.octets()[3] == 9;
    let Some(answer) = server.take(mac, bytes, now, in_use) else {
        if let Some(message) = message {
            given_up(holders, &message);
        }
        return;
    };
    let message = message.expect("an answer is to a message");
    assert!(answer.bytes.len() >= 300 && answer.bytes.len() <= 548);
    let [.., a, b, c, d] = answer.bytes[..20] else { panic!("a fixed part") };
    let address = Ipv4Addr::from([a, b, c, d]);
    if answer.bytes[242] != 5 || address.is_unspecified() {
        return;
    }
    assert!((2..=14).contains(&d) && [a, b, c] == [10, 0, 0], "{address} is no guest's");
    let client = message.client();
    if let Some((holder, until)) = holders.get(&address) {
        assert!(*holder == client || *until <= now, "{address} has two clients");
    }
    holders.insert(address, (client, now + LEASE));
}

/// Removes the holder of an address if its client releases the address, or declines it because it is in use.
fn given_up(holders: &mut Holders, message: &DhcpMessage) {
    let address = match message.kind {
        DhcpKind::Release => Some(message.ciaddr),
        DhcpKind::Decline => message.requested,
        _ => None,
    };
    let client = message.client();
    if let Some(address) = address
        && holders.get(&address).is_some_and(|(holder, _)| *holder == client)
    {
        holders.remove(&address);
    }
}

/// Sends the messages of the same stations to the DHCPv6 server. Some of the messages get the server's DUID.
fn say_all_v6(data: &[u8]) {
    let own = InterfaceAddress { address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), prefix: 64 };
    let mac = MacAddr([2, 0, 0, 0, 0, 0xff]);
    let settings =
        Dhcp6Settings { mode: Dhcp6Mode::Addresses, own, mac, lease: LEASE, domains: vec!["lan".to_owned()] };
    let mut server = Dhcp6Server::new(settings, LeaseTable6::new(own, 8));
    let mut now = Instant::now();
    for (station, passed, mut bytes) in messages(data) {
        now += passed;
        if station & 0x80 != 0 {
            bytes.extend_from_slice(&[0, 2, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 0xff]);
        }
        let mac = station_mac(station);
        let in_use = |address: Ipv6Addr| address.octets()[15] == 9;
        let reply = server.take(mac, &bytes, station & 0x40 == 0, now, in_use);
        assert!(reply.is_none_or(|reply| reply.len() <= 1400 && matches!(reply[0], 2 | 7)));
        let bound: Vec<_> = server.leases.bound(now).collect();
        assert!(bound.len() <= 8 && bound.iter().all(|lease| lease.left <= LEASE && !in_use(lease.address)));
        let addresses: HashSet<_> = bound.iter().map(|lease| lease.address).collect();
        assert_eq!(addresses.len(), bound.len(), "an address has two clients");
        assert!(addresses.iter().all(|address| own.contains(*address) && *address != own.address));
        server.leases.clean(now);
    }
}
