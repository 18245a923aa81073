//! Describes a frame's headers in a few words.

use std::fmt::Write as _;
use std::net::IpAddr;

use netvale_wire::layers::{SCTP, TCP, UDP};
use netvale_wire::{Layers, ethernet};

/// Describes a frame's addresses, VLAN tags, protocol and ports, as far as its headers can be parsed.
pub fn of(head: &[u8]) -> String {
    let Ok(ether) = ethernet::Header::parse(head) else { return "no Ethernet header".to_owned() };
    let macs = format!("{} > {}", ether.src(), ether.dst());
    let tag = tags(head);
    match Layers::parse(head) {
        Ok(Layers { ip: Some(ip), .. }) => {
            let ports = matches!(ip.protocol, TCP | UDP | SCTP).then(|| head.get(ip.l4..ip.l4 + 4)).flatten();
            let port = |at: usize| ports.filter(|_| !ip.fragment).map(|p| u16::from_be_bytes([p[at], p[at + 1]]));
            let ends = format!("{} > {}", end(ip.src, port(0)), end(ip.dst, port(2)));
            format!("{macs}{tag}, {} {ends}", protocol(ip.protocol, ip.src))
        }
        Ok(Layers { ethertype: ethernet::ARP, .. }) => format!("{macs}{tag}, ARP"),
        Ok(Layers { ethertype, .. }) => format!("{macs}{tag}, type 0x{ethertype:04x}"),
        Err(_) => format!("{macs}{tag}"),
    }
}

/// Formats the VLAN tags, outermost first.
fn tags(head: &[u8]) -> String {
    let mut text = String::new();
    let mut at = 12;
    while let Some(&[a, b, c, d]) = head.get(at..).and_then(<[u8]>::first_chunk::<4>)
        && matches!([a, b], [0x81, 0x00] | [0x88, 0xa8])
        && at < 24
    {
        let _ = write!(text, ", tag {}", u16::from_be_bytes([c & 0x0f, d]));
        at += 4;
    }
    text
}

fn protocol(number: u8, ip: IpAddr) -> String {
    let version = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    match number {
        TCP => "TCP".to_owned(),
        UDP => "UDP".to_owned(),
        SCTP => "SCTP".to_owned(),
        1 if ip.is_ipv4() => "ICMP".to_owned(),
        58 if ip.is_ipv6() => "ICMPv6".to_owned(),
        other => format!("{version} protocol {other}"),
    }
}

fn end(ip: IpAddr, port: Option<u16>) -> String {
    match (ip, port) {
        (ip, None) => ip.to_string(),
        (IpAddr::V4(ip), Some(port)) => format!("{ip}:{port}"),
        (IpAddr::V6(ip), Some(port)) => format!("[{ip}]:{port}"),
    }
}
