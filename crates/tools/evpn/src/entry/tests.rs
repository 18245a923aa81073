use netlink_packet_core::NetlinkPayload;
use netvale_netlink::Messages;
use proptest::prelude::*;

use super::*;

/// A netlink attribute: type and value.
type Attribute<'a> = (u16, &'a [u8]);

/// Builds a neighbour message as the kernel sends it: header, `ndmsg`, attributes.
fn message(kind: u16, family: u8, device: u32, state: u16, flags: u8, attributes: &[Attribute<'_>]) -> Vec<u8> {
    let mut body = vec![family, 0, 0, 0];
    body.extend(device.to_ne_bytes());
    body.extend(state.to_ne_bytes());
    body.extend([flags, 0]);
    for (kind, value) in attributes {
        body.extend((u16::try_from(value.len()).unwrap() + 4).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut bytes = (u32::try_from(body.len()).unwrap() + 16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0; 10]);
    bytes.extend(body);
    bytes
}

fn all(bytes: &[u8]) -> Vec<Option<KernelRecord>> {
    let mut messages = Messages(bytes);
    let mut found = Vec::new();
    while let Ok(Some(message)) = messages.next() {
        if let NetlinkPayload::InnerMessage(inner) = message.payload {
            found.push(seen(&inner));
        }
    }
    found
}

const NEW: u16 = 28;
const GONE: u16 = 29;
const BRIDGE: u8 = 7;
const DST: u16 = 1;
const LLADDR: u16 = 2;
const MASTER: u16 = 9;
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// Objective: entries that zebra adds to a VXLAN device (with the flags and states of FRR 8.4.4 on Linux 6.18) are
/// parsed correctly.
#[test]
fn entries_of_zebra_are_read_correctly() {
    let vtep = [10, 0, 0, 2];
    let master = 7u32.to_ne_bytes();
    let address: Attribute<'_> = (LLADDR, &MAC.0);
    let zero: Attribute<'_> = (LLADDR, &[0; 6]);
    let mut bytes = message(NEW, BRIDGE, 5, 2, 0x10, &[address, (MASTER, &master)]);
    bytes.extend(message(NEW, BRIDGE, 5, 2, 0x12, &[address, (DST, &vtep)]));
    bytes.extend(message(NEW, BRIDGE, 5, 0x40, 0x42, &[address, (DST, &vtep)]));
    bytes.extend(message(NEW, BRIDGE, 5, 0xc0, 0x02, &[zero, (DST, &vtep)]));
    bytes.extend(message(NEW, 2, 7, 0x40, 0x10, &[(DST, &[192, 168, 0, 1]), address]));
    bytes.extend(message(NEW, 2, 7, 0x40, 0x90, &[(DST, &[192, 168, 0, 1]), address]));
    bytes.extend(message(NEW, 2, 7, 0x20, 0, &[(DST, &[192, 168, 0, 1])]));
    bytes.extend(message(GONE, BRIDGE, 5, 2, 0x12, &[address, (DST, &vtep)]));
    let vtep = IpAddr::from(vtep);
    let ip = IpAddr::from([192, 168, 0, 1]);
    let remote = |sticky| KernelEntry::Remote { device: 5, mac: MAC, vtep, sticky };
    let expected = [
        KernelRecord::Is(KernelEntry::Bridge { device: 5, mac: MAC, sticky: false }),
        KernelRecord::Is(remote(false)),
        KernelRecord::Is(remote(true)),
        KernelRecord::Is(KernelEntry::Flood { device: 5, vtep }),
        KernelRecord::Is(KernelEntry::Neighbor { device: 7, ip, mac: Some(MAC), remote: true, router: false }),
        KernelRecord::Is(KernelEntry::Neighbor { device: 7, ip, mac: Some(MAC), remote: true, router: true }),
        KernelRecord::Is(KernelEntry::Neighbor { device: 7, ip, mac: None, remote: false, router: false }),
        KernelRecord::Gone(remote(false)),
    ];
    assert_eq!(all(&bytes), expected.map(Some));
}

/// Objective: the bridge ports' own MAC addresses, multicast addresses and invalid VTEPs yield no entry; a local
/// neighbour yields one.
#[test]
fn own_and_impossible_addresses_are_no_entries() {
    let master: Attribute<'_> = (MASTER, &[7, 0, 0, 0]);
    let out = [
        message(NEW, BRIDGE, 5, 0x80, 0, &[(LLADDR, &MAC.0), master]),
        message(NEW, BRIDGE, 5, 0x80, 2, &[(LLADDR, &[0x33, 0x33, 0, 0, 0, 1])]),
        message(NEW, BRIDGE, 5, 2, 2, &[(LLADDR, &MAC.0), (DST, &[224, 0, 0, 1])]),
        message(NEW, BRIDGE, 5, 2, 2, &[(LLADDR, &MAC.0), (DST, &[10, 0, 0])]),
        message(NEW, BRIDGE, 5, 2, 2, &[(LLADDR, &MAC.0)]),
        message(NEW, BRIDGE, 5, 2, 2, &[(LLADDR, &[2, 0]), (DST, &[10, 0, 0, 2])]),
        message(NEW, 2, 7, 0x40, 0x10, &[(DST, &[224, 0, 0, 1]), (LLADDR, &MAC.0)]),
    ];
    for bytes in out {
        assert_eq!(all(&bytes), vec![None], "{bytes:?}");
    }
    let local = message(NEW, 2, 7, 0x80, 0, &[(DST, &[10, 0, 0, 1]), (LLADDR, &MAC.0)]);
    let ip = IpAddr::from([10, 0, 0, 1]);
    assert_eq!(
        all(&local),
        vec![Some(KernelRecord::Is(KernelEntry::Neighbor {
            device: 7,
            ip,
            mac: Some(MAC),
            remote: false,
            router: false
        }))]
    );
}

proptest! {
    /// Objective: no sequence of bytes makes the parser panic, and any entry that it returns has valid addresses.
    #[test]
    fn no_bytes_make_the_parser_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        kind in 16u16..32,
        family in prop_oneof![Just(2u8), Just(7), Just(10)],
    ) {
        if bytes.len() >= 17 {
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[16] = family;
        }
        for found in all(&bytes).into_iter().flatten() {
            check(found)?;
        }
    }

    /// Objective: no well-formed message makes the parser panic, for attributes of any kind and length.
    #[test]
    fn no_attributes_make_the_parser_panic(family in prop_oneof![Just(2u8), Just(7), Just(10)], state: u16, flags: u8,
        attributes in proptest::collection::vec((0u16..17, proptest::collection::vec(any::<u8>(), 0..20)), 0..6)) {
        let attributes: Vec<Attribute<'_>> = attributes.iter().map(|(kind, value)| (*kind, value.as_slice())).collect();
        for found in all(&message(NEW, family, 5, state, flags, &attributes)).into_iter().flatten() {
            check(found)?;
        }
    }
}

fn check(found: KernelRecord) -> Result<(), TestCaseError> {
    let (KernelRecord::Is(entry) | KernelRecord::Gone(entry)) = found else { return Ok(()) };
    match entry {
        KernelEntry::Bridge { mac, .. } => prop_assert!(is_station(mac)),
        KernelEntry::Remote { mac, vtep, .. } => prop_assert!(is_station(mac) && is_host(vtep)),
        KernelEntry::Flood { vtep, .. } => prop_assert!(is_host(vtep)),
        KernelEntry::Neighbor { ip, mac, .. } => prop_assert!(is_host(ip) && mac.is_none_or(is_station)),
    }
    Ok(())
}
