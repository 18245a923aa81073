//! Frames that a guarded port may or may not send, for each check, including truncated and encapsulated frames.

mod frames;

use frames::*;
use netvale_policy::guard::{AllowedAddresses, BadGuard, Checks, Guard, Violation};
use proptest::prelude::*;

/// Returns a guard of the port's addresses with the given checks.
fn guard(checks: &str) -> Guard {
    Guard::new(checks.parse().unwrap(), GUARDED.parse().unwrap()).unwrap()
}

/// Returns the result of `guard` for a frame, given only the first bytes that the guard requires a switch to copy.
fn verdict(guard: &Guard, frame: &[u8]) -> Result<(), Violation> {
    guard.check(&frame[..frame.len().min(guard.head_len())], frame.len())
}

/// Asserts for each row (name, whether the frame passes, frame) that the frame passes, or is refused with `violation`.
fn table(checks: &str, violation: Violation, rows: &[(&str, bool, Vec<u8>)]) {
    let guard = guard(checks);
    for (name, passes, frame) in rows {
        let expected = if *passes { Ok(()) } else { Err(violation) };
        assert_eq!(verdict(&guard, frame), expected, "{checks}: {name}");
    }
}

/// Objective: a guard whose checks lack addresses is refused with the reason; other checks need no addresses.
#[test]
fn checks_need_their_addresses() {
    let made = |checks: &str, addresses: &str| {
        Guard::new(checks.parse().unwrap(), addresses.parse().unwrap()).map(|guard| guard.checks())
    };
    assert_eq!(made("mac", "10.0.0.5"), Err(BadGuard::NoMac));
    assert_eq!(made("all", "10.0.0.5"), Err(BadGuard::NoMac));
    assert_eq!(made("ip", "02:00:00:00:00:01"), Err(BadGuard::NoIp));
    assert_eq!(made("arp", ""), Err(BadGuard::NoAddress("arp")));
    assert_eq!(made("dhcp,nd", ""), Err(BadGuard::NoAddress("nd")));
    for (checks, addresses) in [("arp,nd", "02:00:00:00:00:01"), ("arp,nd", "::/0"), ("dhcp,ra", ""), ("all", GUARDED)]
    {
        assert_eq!(made(checks, addresses), Ok(checks.parse().unwrap()));
    }
    let sentence = BadGuard::NoAddress("arp").to_string();
    assert!(sentence.starts_with("the check `arp` lacks the port's addresses"), "{sentence}");
}

/// Objective: each violation has the name of its counter.
#[test]
fn violations_have_names() {
    let names = Violation::ALL.map(Violation::name);
    assert_eq!(names, ["spoofed-mac", "spoofed-ip", "spoofed-arp", "spoofed-nd", "rogue-dhcp", "rogue-ra"]);
    assert_eq!(Violation::RogueRa.to_string(), "rogue-ra");
}

/// Objective: `mac` checks only the Ethernet source, and needs only the Ethernet header.
#[test]
fn mac_is_the_source() {
    let guard = guard("mac");
    assert_eq!(guard.head_len(), 14);
    assert_eq!(verdict(&guard, &udp4("1.2.3.4", 67, 68)), Ok(()));
    assert_eq!(verdict(&guard, &ethernet(ALIEN, 0x1234, &[])), Err(Violation::SpoofedMac));
    assert_eq!(verdict(&guard, &ethernet([0xff; 6], 0x1234, &[])), Err(Violation::SpoofedMac));
    assert_eq!(guard.check(&[2; 13], 13), Err(Violation::SpoofedMac));
    assert_eq!(guard.check(&[], 0), Err(Violation::SpoofedMac));
    let many: AllowedAddresses =
        (1..=64).map(|n| format!("02:00:00:00:00:{n:x} ")).collect::<String>().parse().unwrap();
    let guard = Guard::new("mac".parse().unwrap(), many).unwrap();
    assert!((0..=255).all(|n| guard.check(&ethernet([2, 0, 0, 0, 0, n], 0, &[]), 60).is_ok() == (1..=64).contains(&n)));
}

/// Objective: ARP and RARP may claim only the port's addresses.
#[test]
fn arp_is_the_ports() {
    let own = |packet: Vec<u8>| ethernet(OWN, ARP, &packet);
    table(
        "arp",
        Violation::SpoofedArp,
        &[
            ("request", true, own(arp(1, OWN, "10.0.0.5"))),
            ("reply", true, own(arp(2, OWN, "10.1.0.77"))),
            ("probe", true, own(arp(1, OWN, "0.0.0.0"))),
            ("another's IP", false, own(arp(1, OWN, "10.0.0.1"))),
            ("reply for another's IP", false, own(arp(2, OWN, "10.1.1.1"))),
            ("another's MAC", false, own(arp(2, ALIEN, "10.0.0.5"))),
            ("another's frame", false, ethernet(ALIEN, ARP, &arp(2, ALIEN, "10.0.0.5"))),
            ("MACs that differ", false, ethernet(ALIEN, ARP, &arp(2, OWN, "10.0.0.5"))),
            ("other hardware", false, own([&[0, 6], &arp(1, OWN, "10.0.0.5")[2..]].concat())),
            ("cut", false, own(arp(1, OWN, "10.0.0.5")[..27].to_vec())),
            ("QEMU's announcement", true, ethernet(OWN, RARP, &arp(3, OWN, "0.0.0.0"))),
            ("RARP of another", false, ethernet(OWN, RARP, &arp(3, ALIEN, "0.0.0.0"))),
            ("IP, which is not looked at", true, udp4("1.2.3.4", 1, 2)),
        ],
    );
}

/// Objective: if only MAC or only IP addresses are listed, ARP is compared with these addresses, and with the frame's
/// source.
#[test]
fn arp_compares_what_is_listed() {
    let by = |addresses: &str, frame: Vec<u8>| {
        verdict(&Guard::new("arp".parse().unwrap(), addresses.parse().unwrap()).unwrap(), &frame).is_ok()
    };
    let alien = |ip| ethernet(ALIEN, ARP, &arp(1, ALIEN, ip));
    assert!(by("10.0.0.5", alien("10.0.0.5")) && !by("10.0.0.5", alien("10.0.0.6")));
    assert!(!by("10.0.0.5", ethernet(OWN, ARP, &arp(1, ALIEN, "10.0.0.5"))));
    assert!(by("02:00:00:00:00:09", alien("1.2.3.4")) && !by("02:00:00:00:00:01", alien("1.2.3.4")));
    assert!(!by("2001:db8::5", alien("10.0.0.5")), "a port with IPv6 addresses only");
}

/// Objective: IP sources must be addresses of the port, except for hosts without an address.
#[test]
fn ip_sources_are_the_ports() {
    let solicitation = neighbor(135, "2001:db8::5", &[]);
    let mld = [&[58, 0, 5, 2, 0, 0, 1, 0], &icmp6(143, &[0; 4])[..]].concat();
    let atomic = [&[58, 0, 0, 0, 0, 0, 0, 1], &solicitation[..]].concat();
    table(
        "ip",
        Violation::SpoofedIp,
        &[
            ("address", true, udp4("10.0.0.5", 1, 2)),
            ("in a prefix", true, udp4("10.1.0.255", 1, 2)),
            ("beside it", false, udp4("10.1.1.0", 1, 2)),
            ("another's", false, udp4("10.0.0.6", 1, 2)),
            ("a DHCP client", true, udp4("0.0.0.0", 68, 67)),
            ("a DHCP server", false, udp4("0.0.0.0", 67, 68)),
            ("no address", false, udp4("0.0.0.0", 1, 2)),
            ("no address, first fragment", true, ipv4("0.0.0.0", &[], 0x2000, 17, &udp(68, 67))),
            ("no address, other fragment", false, ipv4("0.0.0.0", &[], 0x2001, 17, &udp(68, 67))),
            ("no address, cut", false, ipv4("0.0.0.0", &[], 0, 17, &udp(68, 67)[..3])),
            ("wrong version", false, ethernet(OWN, V4, &ipv6("2001:db8::5", 59, &[])[14..])),
            ("address 6", true, udp6("2001:db8::5", 1, 2)),
            ("link-local 6", true, udp6("febf::1", 1, 2)),
            ("another's 6", false, udp6("2001:db8::6", 1, 2)),
            ("DAD", true, ipv6("::", 58, &solicitation)),
            ("DAD, fragmented", false, ipv6("::", 44, &atomic)),
            ("MLD", true, ipv6("::", 0, &mld)),
            ("router solicitation", true, ipv6("::", 58, &icmp6(133, &[0; 4]))),
            ("no address 6", false, udp6("::", 1, 2)),
            ("no address, echo", false, ipv6("::", 58, &icmp6(128, &[0; 4]))),
            ("no address, nothing", false, ipv6("::", 58, &[])),
            ("ARP, which is not looked at", true, ethernet(OWN, ARP, &[])),
            ("something else", true, ethernet(OWN, 0x88cc, &[])),
        ],
    );
    let v4_only = Guard::new("ip".parse().unwrap(), "10.0.0.5".parse().unwrap()).unwrap();
    assert_eq!(
        verdict(&v4_only, &udp6("fe80::1", 1, 2)),
        Err(Violation::SpoofedIp),
        "the link-local address is not listed"
    );
}

/// Objective: messages of a DHCP server are refused, whatever headers are in front of the ports.
#[test]
fn no_dhcp_server_is_there() {
    let server = udp(67, 68);
    let mut padded = ipv4("10.0.0.5", &[], 0x2000, 17, &[]);
    padded.extend(udp(1, 2));
    let fragment = |offset: u16, rest: &[u8]| [&[17, 0], &offset.to_be_bytes()[..], &[0, 0, 0, 1], rest].concat();
    table(
        "dhcp",
        Violation::RogueDhcp,
        &[
            ("offer", false, udp4("10.0.0.5", 67, 68)),
            ("relay", false, udp4("10.0.0.5", 67, 67)),
            ("to the client's port from elsewhere", false, udp4("10.0.0.5", 1067, 68)),
            ("client", true, udp4("0.0.0.0", 68, 67)),
            ("other from 67", true, udp4("10.0.0.5", 67, 5000)),
            ("with IP options", false, ipv4("10.0.0.5", &[1; 40], 0, 17, &server)),
            ("client with IP options", true, ipv4("10.0.0.5", &[1; 40], 0, 17, &udp(68, 67))),
            ("first fragment", false, ipv4("10.0.0.5", &[], 0x2000, 17, &server)),
            ("first fragment, ports cut", false, ipv4("10.0.0.5", &[], 0x2000, 17, &server[..3])),
            ("first fragment, ports in padding", false, padded),
            ("other fragment", true, ipv4("10.0.0.5", &[], 0x2001, 17, &server)),
            ("TCP", true, ipv4("10.0.0.5", &[], 0, 6, &server)),
            ("wrong header", false, ethernet(OWN, V4, &[0x44; 40])),
            ("advertise 6", false, udp6("2001:db8::5", 547, 546)),
            ("server to relay 6", false, udp6("2001:db8::5", 547, 547)),
            ("to the client's port from elsewhere 6", false, udp6("2001:db8::5", 1547, 546)),
            ("client 6", true, udp6("2001:db8::5", 546, 547)),
            (
                "behind options 6",
                false,
                ipv6("fe80::1", 60, &[&[17, 0, 1, 4, 0, 0, 0, 0], &udp(547, 546)[..]].concat()),
            ),
            ("first fragment 6", false, ipv6("fe80::1", 44, &fragment(1, &udp(547, 546)))),
            ("first fragment cut 6", false, ipv6("fe80::1", 44, &fragment(1, &[2]))),
            ("other fragment 6", true, ipv6("fe80::1", 44, &fragment(0x0101, &udp(547, 546)))),
            ("options beyond the head", false, ipv6("fe80::1", 60, &[&[17, 20, 1, 158], &[0; 172][..]].concat())),
            (
                "two fragment headers",
                false,
                ipv6("fe80::1", 44, &[&[44, 0, 0, 1, 0, 0, 0, 1][..], &fragment(9, &[0; 8])].concat()),
            ),
            ("ARP", true, ethernet(OWN, ARP, &[])),
        ],
    );
}

/// Objective: messages of a router are refused, whatever headers are in front of them (RFC 6105, RFC 7113).
#[test]
fn no_router_is_there() {
    let advertisement = icmp6(134, &[0; 12]);
    let behind = |first: &[u8]| [first, &advertisement].concat();
    let long = [&[60, 19, 1, 154][..], &[0; 156]].concat();
    let chain: Vec<u8> = (0..9).flat_map(|n| [if n < 8 { 60 } else { 58 }, 0, 1, 4, 0, 0, 0, 0]).collect();
    let auth = [58, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    table(
        "ra",
        Violation::RogueRa,
        &[
            ("advertisement", false, ipv6("fe80::1", 58, &advertisement)),
            ("redirect", false, ipv6("fe80::1", 58, &icmp6(137, &[0; 36]))),
            ("solicitation", true, ipv6("fe80::1", 58, &icmp6(133, &[0; 4]))),
            ("neighbour", true, ipv6("fe80::1", 58, &neighbor(135, "fe80::2", &[]))),
            ("behind hop-by-hop", false, ipv6("fe80::1", 0, &behind(&[58, 0, 1, 4, 0, 0, 0, 0]))),
            ("behind authentication", false, ipv6("fe80::1", 51, &behind(&auth))),
            ("behind an atomic fragment header", false, ipv6("fe80::1", 44, &behind(&[58, 0, 0, 0, 0, 0, 0, 1]))),
            ("first fragment", false, ipv6("fe80::1", 44, &behind(&[58, 0, 0, 1, 0, 0, 0, 1]))),
            (
                "first fragment, type not in it",
                false,
                ipv6("fe80::1", 44, &[60, 0, 0, 1, 0, 0, 0, 1, 58, 1, 1, 4, 0, 0, 0, 0]),
            ),
            ("other fragment", true, ipv6("fe80::1", 44, &behind(&[58, 0, 1, 0, 0, 0, 0, 1]))),
            ("type missing", false, ipv6("fe80::1", 58, &[])),
            ("too long a chain", false, ipv6("fe80::1", 60, &behind(&chain))),
            ("beyond the head", false, ipv6("fe80::1", 60, &behind(&long))),
            ("UDP", true, udp6("fe80::1", 1, 2)),
            ("IPv4", true, udp4("10.0.0.5", 1, 2)),
            ("IPv6 that is none", false, ethernet(OWN, V6, &[0x45; 60])),
        ],
    );
}

/// Objective: neighbour discovery may claim only the port's addresses (RFC 4861), in one piece (RFC 6980).
#[test]
fn neighbours_are_the_ports() {
    let from = |src: &str, message: Vec<u8>| ipv6(src, 58, &message);
    let source = link_layer(1, OWN);
    let target = link_layer(2, OWN);
    let alien = link_layer(1, ALIEN);
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    let long = [&[24, 20][..], &[0; 158], &source].concat();
    table(
        "nd",
        Violation::SpoofedNd,
        &[
            ("solicitation", true, from("fe80::1", neighbor(135, "2001:db8::99", &source))),
            ("with a nonce", true, from("fe80::1", neighbor(135, "2001:db8::99", &[&nonce[..], &source].concat()))),
            ("of another's address", false, from("2001:db8::6", neighbor(135, "2001:db8::99", &source))),
            ("of another's MAC", false, from("fe80::1", neighbor(135, "2001:db8::99", &alien))),
            (
                "of another's MAC, second",
                false,
                from("fe80::1", neighbor(135, "fe80::2", &[source.clone(), alien.clone()].concat())),
            ),
            ("DAD", true, from("::", neighbor(135, "2001:db8::5", &nonce))),
            ("DAD that says where", false, from("::", neighbor(135, "2001:db8::5", &source))),
            ("advertisement", true, from("2001:db8::5", neighbor(136, "2001:db8::5", &target))),
            ("advertisement for another", false, from("2001:db8::5", neighbor(136, "2001:db8::6", &target))),
            (
                "advertisement of another's MAC",
                false,
                from("2001:db8::5", neighbor(136, "2001:db8::5", &link_layer(2, ALIEN))),
            ),
            ("advertisement from nowhere", false, from("::", neighbor(136, "2001:db8::5", &target))),
            ("router solicitation", true, from("fe80::1", icmp6(133, &[&[0; 4], &source[..]].concat()))),
            ("router solicitation of another", false, from("fe80::1", icmp6(133, &[&[0; 4], &alien[..]].concat()))),
            ("router solicitation from nowhere", true, from("::", icmp6(133, &[0; 4]))),
            ("router advertisement", true, from("fe80::1", icmp6(134, &[&[0; 12], &source[..]].concat()))),
            ("router advertisement of another", false, from("fe80::1", icmp6(134, &[&[0; 12], &alien[..]].concat()))),
            ("redirect", false, from("fe80::1", icmp6(137, &[0; 36]))),
            ("option of no length", false, from("fe80::1", neighbor(135, "fe80::2", &[14, 0, 0, 0, 0, 0, 0, 0]))),
            ("option past the end", false, from("fe80::1", neighbor(135, "fe80::2", &[14, 2, 0, 0, 0, 0, 0, 0]))),
            ("half an option", false, from("fe80::1", neighbor(135, "fe80::2", &[14]))),
            ("long MAC address", false, from("fe80::1", neighbor(135, "fe80::2", &[&[1, 2][..], &[2; 14]].concat()))),
            ("short message", false, from("fe80::1", neighbor(135, "fe80::2", &[])[..23].to_vec())),
            ("option beyond the head", false, from("fe80::1", neighbor(135, "fe80::2", &long))),
            ("no type", false, from("fe80::1", vec![])),
            ("echo", true, from("2001:db8::6", icmp6(128, &[0; 100]))),
            ("long echo", true, from("2001:db8::6", icmp6(128, &[0; 1400]))),
            (
                "behind options",
                true,
                ipv6("fe80::1", 60, &[&[58, 0, 1, 4, 0, 0, 0, 0], &neighbor(136, "fe80::1", &target)[..]].concat()),
            ),
            (
                "behind options, another",
                false,
                ipv6("fe80::1", 60, &[&[58, 0, 1, 4, 0, 0, 0, 0], &neighbor(136, "::5", &target)[..]].concat()),
            ),
            (
                "fragment",
                false,
                ipv6("fe80::1", 44, &[&[58, 0, 0, 1, 0, 0, 0, 1], &neighbor(136, "fe80::1", &target)[..]].concat()),
            ),
            (
                "padding after the message",
                true,
                [from("fe80::1", neighbor(136, "fe80::1", &target)), alien.clone()].concat(),
            ),
            ("UDP", true, udp6("2001:db8::6", 1, 2)),
        ],
    );
    let by_ip = Guard::new("nd".parse().unwrap(), "fe80::/10".parse().unwrap()).unwrap();
    assert_eq!(verdict(&by_ip, &from("fe80::1", neighbor(135, "fe80::2", &source))), Ok(()));
    assert_eq!(verdict(&by_ip, &from("fe80::1", neighbor(135, "fe80::2", &alien))), Err(Violation::SpoofedNd));
    let by_mac = Guard::new("nd".parse().unwrap(), "02:00:00:00:00:01".parse().unwrap()).unwrap();
    assert_eq!(verdict(&by_mac, &from("::1", neighbor(136, "::2", &target))), Ok(()));
}

/// Returns a frame for each violation, with the check that refuses it.
fn violations() -> Vec<(&'static str, Violation, Vec<u8>)> {
    vec![
        ("mac", Violation::SpoofedMac, ethernet(ALIEN, V4, &udp4("10.0.0.5", 1, 2)[14..])),
        ("arp", Violation::SpoofedArp, ethernet(OWN, ARP, &arp(2, OWN, "10.0.0.1"))),
        ("arp", Violation::SpoofedArp, ethernet(OWN, RARP, &arp(3, ALIEN, "0.0.0.0"))),
        ("ip", Violation::SpoofedIp, udp4("10.0.0.1", 1, 2)),
        ("ip", Violation::SpoofedIp, udp6("2001:db8::6", 1, 2)),
        ("nd", Violation::SpoofedNd, ipv6("fe80::1", 58, &neighbor(136, "::1", &link_layer(2, OWN)))),
        ("nd", Violation::SpoofedNd, ipv6("fe80::1", 58, &neighbor(135, "::1", &link_layer(1, ALIEN)))),
        ("dhcp", Violation::RogueDhcp, udp4("10.0.0.5", 67, 68)),
        ("dhcp", Violation::RogueDhcp, ipv4("10.0.0.5", &[1; 40], 0x2000, 17, &udp(67, 68))),
        ("dhcp", Violation::RogueDhcp, udp6("fe80::1", 547, 546)),
        (
            "ra",
            Violation::RogueRa,
            ipv6("fe80::1", 0, &[&[58, 0, 1, 4, 0, 0, 0, 0], &icmp6(134, &[0; 12])[..]].concat()),
        ),
        ("ra", Violation::RogueRa, ipv6("fe80::1", 58, &icmp6(137, &[0; 36]))),
    ]
}

/// Returns a frame in the encapsulations that checks skip: one and two tags, and LLC/SNAP.
fn wrapped(frame: &[u8]) -> [Vec<u8>; 7] {
    [
        frame.to_vec(),
        tagged(frame, &[TAG]),
        tagged(frame, &[SERVICE_TAG]),
        tagged(frame, &[SERVICE_TAG, TAG]),
        snapped(frame, [0; 3]),
        snapped(frame, [0, 0, 0xf8]),
        tagged(&snapped(frame, [0; 3]), &[TAG]),
    ]
}

/// Objective: tags and LLC/SNAP neither hide nor cause a violation.
#[test]
fn what_is_wrapped_is_found() {
    for (checks, violation, frame) in violations() {
        for frame in wrapped(&frame) {
            assert_eq!(verdict(&guard(checks), &frame), Err(violation), "{frame:02x?}");
        }
    }
    for frame in [udp4("10.0.0.5", 68, 67), udp6("fe80::1", 1, 2), ethernet(OWN, ARP, &arp(1, OWN, "10.0.0.5"))] {
        for frame in wrapped(&frame) {
            assert_eq!(verdict(&guard("all"), &frame), Ok(()), "{frame:02x?}");
        }
    }
}

/// Objective: every check but `mac` refuses a frame with a third tag, whose content is unknown.
#[test]
fn a_third_tag_is_refused() {
    let good = udp4("10.0.0.5", 68, 67);
    for frame in
        [tagged(&good, &[TAG; 3]), tagged(&good, &[TAG, SERVICE_TAG, TAG]), snapped(&tagged(&good, &[TAG]), [0; 3])]
    {
        assert_eq!(verdict(&guard("mac"), &frame), Ok(()));
        for (check, violation) in ["ip", "arp", "nd", "dhcp", "ra"].iter().zip(&Violation::ALL[1..]) {
            assert_eq!(verdict(&guard(&format!("mac,{check}")), &frame), Err(*violation));
        }
    }
}

/// Objective: 802.3 frames with headers other than SNAP pass.
#[test]
fn other_802_3_frames_pass() {
    let bpdu = ethernet(OWN, 38, &[&[0x42, 0x42, 3], &[0; 43][..]].concat());
    assert_eq!(verdict(&guard("all"), &bpdu), Ok(()));
    assert_eq!(verdict(&guard("all"), &bpdu[..16]), Ok(()));
    let appletalk = snapped(&ethernet(OWN, 0x809b, &[0; 40]), [8, 0, 7]);
    assert_eq!(verdict(&guard("all"), &appletalk), Ok(()));
    assert!(verdict(&guard("all"), &appletalk[..19]).is_err(), "truncated within a possible SNAP header");
}

/// Objective: a violation is detected wherever the frame, or the copy of its start, is truncated.
#[test]
fn cutting_hides_nothing() {
    for (checks, violation, frame) in violations() {
        for frame in wrapped(&frame) {
            for cut in 0..frame.len() {
                for len in [cut, frame.len(), 9000] {
                    let got = guard(checks).check(&frame[..cut], len);
                    assert_eq!(got, Err(violation), "{checks}: {cut} of {frame:02x?}");
                }
            }
        }
    }
}

/// Objective: the copied start of a long frame is enough: a guard that reads only the start lets the frame pass.
#[test]
fn starts_of_long_frames_are_enough() {
    let guard = guard("all");
    let segment = [&[0; 12], &[0x50, 0, 0, 0, 0, 0, 0, 0][..], &[7; 1400]].concat();
    for frame in [ipv4("10.0.0.5", &[], 0x4000, 6, &segment), ipv6("2001:db8::5", 6, &segment)] {
        assert_eq!(guard.check(&frame[..Guard::HEAD], frame.len()), Ok(()));
        assert_eq!(guard.check(&frame, frame.len()), Ok(()));
    }
    let mut jumbo = ipv6("2001:db8::5", 0, &[&[6, 0, 0xc2, 4, 0, 1, 0, 0], &segment[..]].concat());
    jumbo[18..20].fill(0);
    assert_eq!(guard.check(&jumbo[..Guard::HEAD], 70_000), Ok(()));
}

fn any_checks() -> impl Strategy<Value = Checks> {
    "(mac|ip|arp|nd|dhcp|ra|all)(,(mac|ip|arp|nd|dhcp|ra)){0,5}".prop_map(|text| text.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Objective: any bytes are passed or refused, without a panic.
    #[test]
    fn any_bytes_get_an_answer(checks in any_checks(), head in prop::collection::vec(any::<u8>(), 0..256), len: u16) {
        let guard = Guard::new(checks, GUARDED.parse().unwrap()).unwrap();
        let _ = guard.check(&head, len.into());
    }

    /// Objective: damaged frames are passed or refused, and additional checks never let a refused frame pass.
    #[test]
    fn damaged_frames_get_an_answer(
        which in 0usize..12, wrap in 0usize..7, damage in prop::collection::vec((0usize..120, any::<u8>()), 0..4),
        checks in any_checks(),
    ) {
        let (_, _, frame) = violations().swap_remove(which);
        let mut frame = wrapped(&frame)[wrap].clone();
        for (at, byte) in damage {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        let with = |checks| verdict(&Guard::new(checks, GUARDED.parse().unwrap()).unwrap(), &frame);
        if with(checks).is_err() {
            prop_assert!(with(Checks::ALL).is_err(), "more checks refuse at least the same frames");
        }
    }

    /// Objective: whether an IPv4 source matches a prefix agrees with a comparison bit by bit.
    #[test]
    fn sources_are_compared(first: u32, len in 0u8..=32, src: u32) {
        let prefix = format!("{}/{len}", std::net::Ipv4Addr::from(first));
        let Ok(addresses) = prefix.parse::<AllowedAddresses>() else { return Ok(()) };
        let near = if len == 0 { src } else { first ^ (src >> 1 >> (len - 1).min(30)) };
        for src in [src, near] {
            let guard = Guard::new("ip".parse().unwrap(), addresses.clone()).unwrap();
            let same = (0..len).all(|bit| (first ^ src) << bit >> 31 == 0);
            let frame = udp4(&std::net::Ipv4Addr::from(src).to_string(), 1, 2);
            prop_assert_eq!(verdict(&guard, &frame).is_ok(), same);
        }
    }
}
