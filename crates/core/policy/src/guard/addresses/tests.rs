use super::*;
use proptest::prelude::*;

fn error(text: &str) -> BadAddresses {
    text.parse::<AllowedAddresses>().unwrap_err()
}

/// Objective: a mixed list is read, and printed with MAC addresses first.
#[test]
fn a_mixed_list_reads_back_as_it_prints() {
    let text = "10.0.0.5, 02:00:00:00:00:01 10.1.0.0/24,2001:db8::5, fe80::/10,0.0.0.0/0,10.0.0.5/32";
    let addresses: AllowedAddresses = text.parse().unwrap();
    let printed = "02:00:00:00:00:01, 10.0.0.5, 10.1.0.0/24, 2001:db8::5, fe80::/10, 0.0.0.0/0";
    assert_eq!(addresses.to_string(), printed);
    assert_eq!(printed.parse(), Ok(addresses));
    assert_eq!("".parse(), Ok(AllowedAddresses::new()));
}

/// Objective: a text that is not an address is refused and named.
#[test]
fn what_is_no_address_is_refused() {
    for word in ["x", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/8/8", "1:2:3:4:5", "/8"]
    {
        assert_eq!(error(word), BadAddresses::NotAnAddress(word.into()));
    }
}

/// Objective: addresses that no station can have are refused.
#[test]
fn groups_and_zero_are_refused() {
    for (word, mac) in
        [("01:00:5e:00:00:01", [1, 0, 0x5e, 0, 0, 1]), ("ff:ff:ff:ff:ff:ff", [255; 6]), ("0:0:0:0:0:0", [0; 6])]
    {
        assert_eq!(error(word), BadAddresses::NotAStation(MacAddr(mac)));
    }
    assert_eq!(error("224.0.0.1"), BadAddresses::NotAHost([224, 0, 0, 1].into()));
    assert_eq!(error("ff02::/16"), BadAddresses::NotAHost("ff02::".parse().unwrap()));
}

/// Objective: an interface's address with its network's length does not silently allow the network.
#[test]
fn an_address_with_a_length_is_refused_with_what_may_be_meant() {
    assert_eq!(
        error("10.1.0.5/24").to_string(),
        "invalid prefix 10.1.0.5/24: write 10.1.0.5 for the address or 10.1.0.0/24 for the prefix"
    );
    assert!(matches!(error("fe80::1/10"), BadAddresses::HostBits { len: 10, .. }));
    assert!(matches!(error("0.0.0.1/0"), BadAddresses::HostBits { len: 0, .. }));
}

/// Objective: the lengths of the lists are limited; duplicates do not count.
#[test]
fn lists_are_bounded() {
    let mut addresses = AllowedAddresses::new();
    for n in 0..AllowedAddresses::MAX_MACS as u8 {
        addresses.add_mac(MacAddr([2, 0, 0, 0, 0, n])).unwrap();
        addresses.add_prefix(IpAddr::from([10, 0, 0, n]).into()).unwrap();
    }
    assert_eq!(addresses.add_mac(MacAddr([2, 0, 0, 0, 0, 7])), Ok(()));
    assert_eq!(addresses.add_mac(MacAddr([2, 0, 0, 0, 1, 0])), Err(BadAddresses::TooManyMacs));
    assert_eq!(addresses.add_prefix("::/0".parse().unwrap()), Err(BadAddresses::TooManyPrefixes));
    assert_eq!((addresses.macs().len(), addresses.prefixes().len()), (64, 64));
}

proptest! {
    /// Objective: any list reads back as it prints.
    #[test]
    fn lists_read_back(
        macs in proptest::collection::vec(any::<[u8; 6]>(), 0..8),
        v4 in proptest::collection::vec((any::<u32>(), 0..=32u8), 0..8),
        v6 in proptest::collection::vec((any::<u128>(), 0..=128u8), 0..8),
    ) {
        let mut addresses = AllowedAddresses::new();
        for mac in macs {
            let _ = addresses.add_mac(MacAddr(mac));
        }
        let v4 = v4.into_iter().map(|(addr, len)| (IpAddr::V4((addr & mask32(len)).into()), len));
        let v6 = v6.into_iter().map(|(addr, len)| (IpAddr::V6((addr & mask128(len)).into()), len));
        for (addr, len) in v4.chain(v6) {
            if let Ok(prefix) = IpPrefix::new(addr, len) {
                addresses.add_prefix(prefix).unwrap();
            }
        }
        prop_assert_eq!(addresses.to_string().parse(), Ok(addresses));
    }

    /// Objective: any text is read or refused, without panic.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = text.parse::<AllowedAddresses>();
    }
}
