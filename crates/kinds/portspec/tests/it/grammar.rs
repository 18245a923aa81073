//! The grammar by example: the meaning of each form, its canonical form, and the position of each error.

use netvale_abi::nmreq::*;
use netvale_portspec::*;

/// A parsed port: canonical text, name in the request, mode, ring, flags, memory id.
type Row = (&'static str, &'static str, &'static str, u32, u16, u64, u16);

#[rustfmt::skip]
const PORTS: &[Row] = &[
    ("netmap:eth0",      "netmap:eth0",      "eth0",     NR_REG_ALL_NIC, 0, 0, 0),
    ("eth0",             "netmap:eth0",      "eth0",     NR_REG_ALL_NIC, 0, 0, 0),
    ("netmap:eth0.100",  "netmap:eth0.100",  "eth0.100", NR_REG_ALL_NIC, 0, 0, 0),
    ("netmap:eth0-2",    "netmap:eth0-2",    "eth0",     NR_REG_ONE_NIC, 2, 0, 0),
    ("netmap:eth0-0",    "netmap:eth0-0",    "eth0",     NR_REG_ONE_NIC, 0, 0, 0),
    ("netmap:eth0-4094", "netmap:eth0-4094", "eth0",     NR_REG_ONE_NIC, 4094, 0, 0),
    ("netmap:eth0^",     "netmap:eth0^",     "eth0",     NR_REG_SW, 0, 0, 0),
    ("netmap:eth0^1",    "netmap:eth0^1",    "eth0",     NR_REG_ONE_SW, 1, 0, 0),
    ("netmap:eth0*",     "netmap:eth0*",     "eth0",     NR_REG_NIC_SW, 0, 0, 0),
    ("vale0:a",          "vale0:a",          "vale0:a",  NR_REG_ALL_NIC, 0, 0, 0),
    ("vale:a",           "vale:a",           "vale:a",   NR_REG_ALL_NIC, 0, 0, 0),
    ("valeX:y",          "valeX:y",          "valeX:y",  NR_REG_ALL_NIC, 0, 0, 0),
    ("vale_lan2:vm_1-3", "vale_lan2:vm_1-3", "vale_lan2:vm_1", NR_REG_ONE_NIC, 3, 0, 0),
    ("vale0:a{1",        "vale0:a{1",        "vale0:a{1", NR_REG_ALL_NIC, 0, 0, 0),
    ("vale0:a}1",        "vale0:a}1",        "vale0:a}1", NR_REG_ALL_NIC, 0, 0, 0),
    ("netmap:bro{0",     "netmap:bro{0",     "bro{0",    NR_REG_ALL_NIC, 0, 0, 0),
    ("netmap:eth0}lb_7", "netmap:eth0}lb_7", "eth0}lb_7", NR_REG_ALL_NIC, 0, 0, 0),
    ("netmap:eth0@3",    "netmap:eth0@3",    "eth0",     NR_REG_ALL_NIC, 0, 0, 3),
    ("netmap:eth0@0",    "netmap:eth0",      "eth0",     NR_REG_ALL_NIC, 0, 0, 0),
    ("netmap:eth0/x",    "netmap:eth0/x",    "eth0",     NR_REG_ALL_NIC, 0, NR_EXCLUSIVE, 0),
    ("netmap:eth0/r",    "netmap:eth0/r",    "eth0",     NR_REG_ALL_NIC, 0, NR_MONITOR_RX, 0),
    ("netmap:eth0/t",    "netmap:eth0/t",    "eth0",     NR_REG_ALL_NIC, 0, NR_MONITOR_TX, 0),
    ("netmap:eth0/rt",   "netmap:eth0/tr",   "eth0",     NR_REG_ALL_NIC, 0, NR_MONITOR_RX | NR_MONITOR_TX, 0),
    ("netmap:eth0/z",    "netmap:eth0/z",    "eth0",     NR_REG_ALL_NIC, 0,
        NR_ZCOPY_MON | NR_MONITOR_RX | NR_MONITOR_TX, 0),
    ("netmap:eth0/ztr",  "netmap:eth0/z",    "eth0",     NR_REG_ALL_NIC, 0,
        NR_ZCOPY_MON | NR_MONITOR_RX | NR_MONITOR_TX, 0),
    ("netmap:eth0/rz",   "netmap:eth0/zr",   "eth0",     NR_REG_ALL_NIC, 0, NR_ZCOPY_MON | NR_MONITOR_RX, 0),
    ("netmap:eth0/zt",   "netmap:eth0/zt",   "eth0",     NR_REG_ALL_NIC, 0, NR_ZCOPY_MON | NR_MONITOR_TX, 0),
    ("netmap:eth0/R",    "netmap:eth0/R",    "eth0",     NR_REG_ALL_NIC, 0, NR_RX_RINGS_ONLY, 0),
    ("netmap:eth0/TxT",  "netmap:eth0/xT",   "eth0",     NR_REG_ALL_NIC, 0, NR_TX_RINGS_ONLY | NR_EXCLUSIVE, 0),
    ("netmap:eth0-1/xR@7", "netmap:eth0-1@7/xR", "eth0", NR_REG_ONE_NIC, 1, NR_RX_RINGS_ONLY | NR_EXCLUSIVE, 7),
    ("netmap:eth0/x@3/r", "netmap:eth0@3/xr", "eth0",    NR_REG_ALL_NIC, 0, NR_EXCLUSIVE | NR_MONITOR_RX, 3),
    ("netmap:eth0@3/zr@conf:rings=4,slots=512", "netmap:eth0@3/zr@conf:rings=4,slots=512", "eth0",
        NR_REG_ALL_NIC, 0, NR_ZCOPY_MON | NR_MONITOR_RX, 3),
];

/// Every form of the grammar gives the request that netmap's library would make.
#[test]
fn ports_mean_what_netmap_says() {
    for &(text, canonical, nr_name, mode, ring, flags, mem_id) in PORTS {
        let spec = PortSpec::parse(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(spec.to_string(), canonical);
        assert_eq!(spec.name.nr_name(), nr_name, "{text}");
        let reg = spec.to_register();
        assert_eq!((reg.nr_mode, reg.nr_ringid, reg.nr_flags, reg.nr_mem_id), (mode, ring, flags, mem_id), "{text}");
        assert_eq!((reg.nr_offset, reg.nr_memsize, reg.nr_extra_bufs), (0, 0, 0));
    }
}

/// A specification, its canonical form, its name and ring if the whole name does not exist, and otherwise the whole
/// name.
type NameRow = (&'static str, &'static str, &'static str, Option<u16>, Option<&'static str>);

const RINGS_OR_NAMES: &[NameRow] = &[
    ("eth0-2", "netmap:eth0-2", "netmap:eth0", Some(2), Some("netmap:eth0-2")),
    ("netmap:vnet-03/R", "netmap:vnet-03/R", "netmap:vnet", Some(3), Some("netmap:vnet-03")),
    ("netmap:'vnet-3'", "netmap:'vnet-3'", "netmap:vnet-3", None, None),
    ("netmap:'vnet-3'-0", "netmap:'vnet-3'-0", "netmap:vnet-3", Some(0), None),
    ("netmap:'vnet'-3", "netmap:'vnet'-3", "netmap:vnet", Some(3), None),
    ("netmap:vnet-3-0", "netmap:vnet-3-0", "netmap:vnet-3", Some(0), Some("netmap:vnet-3-0")),
    ("netmap:veth-a", "netmap:veth-a", "netmap:veth-a", None, None),
    ("netmap:br-123456789012", "netmap:br-123456789012", "netmap:br-123456789012", None, None),
    ("netmap:eth0-2.5^1", "netmap:eth0-2.5^1", "netmap:eth0-2.5", None, None),
    ("netmap:'eth0'", "netmap:eth0", "netmap:eth0", None, None),
    ("netmap:'eth+0'", "netmap:'eth+0'", "netmap:'eth+0'", None, None),
    ("netmap:'a-'", "netmap:'a-'", "netmap:a-", None, None),
    ("netmap:'vnet-3'^", "netmap:'vnet-3'^", "netmap:vnet-3", None, None),
    ("vale0:web-1/r", "vale0:web-1/r", "vale0:web", Some(1), Some("vale0:web-1")),
    ("br-1:web-1@conf:2", "br-1:web-1@conf:rings=2", "br-1:web", Some(1), Some("br-1:web-1")),
    ("lan:'web-1'/r", "lan:'web-1'/r", "lan:web-1", None, None),
    ("vale0:web-1{x-2", "vale0:web-1{x-2", "vale0:web-1{x", Some(2), Some("vale0:web-1{x-2")),
    ("vale0:web-1{'x-2'", "vale0:web-1{'x-2'", "vale0:web-1{x-2", None, None),
    ("a@share:lan:web-1@conf:2", "netmap:a@share:lan:web-1@conf:rings=2", "netmap:a", None, None),
];

/// A trailing number is a ring, unless it is in quotes or the whole name exists.
#[test]
fn names_with_numbers_are_told_from_rings() {
    for &(text, canonical, name, ring, whole) in RINGS_OR_NAMES {
        let spec = PortSpec::parse(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(spec.to_string(), canonical);
        assert_eq!(PortSpec::parse(canonical).as_ref(), Ok(&spec));
        let meant = spec.clone().settled(|_| false);
        let rings = ring.map_or(spec.rings, |ring| Rings::OneNic(RingIndex::new(ring).unwrap()));
        assert_eq!((meant.name.to_string().as_str(), meant.rings), (name, rings), "{text}");
        assert_eq!(PortSpec::parse(&meant.to_string()).as_ref(), Ok(&meant), "{text}");
        let meant = spec.settled(|exists| Some(exists.to_string().as_str()) == whole);
        assert_eq!(meant.name.to_string(), whole.unwrap_or(name), "{text}");
        assert_eq!(whole.is_some(), whole.is_some() && meant.rings == Rings::AllNic, "{text}");
        assert_eq!(PortSpec::parse(&meant.to_string()).as_ref(), Ok(&meant), "{text}");
    }
}

/// A name alone has no ring: requests have another field for the ring.
#[test]
fn names_alone_have_no_rings() {
    for text in ["netmap:vnet-3", "vale0:web-1", "lan:web-1", "br-lab:my.port{1-2", "netmap:'eth+0'", "netmap:a-"] {
        assert_eq!(PortName::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(PortName::parse("lan:'web-1'").unwrap().nr_name(), "lan:web-1");
    assert_eq!(Ident::parse("'web-1'").unwrap_err().expected(), "a name without quotes");
    for (full, switch) in [("br-lab:a", Some("br-lab")), ("vale0:a/monitor-1", Some("vale0")), ("netmap:a", None)] {
        assert_eq!(SwitchName::of_port(full), switch);
    }
    for other in ["tap:x", "vhost:/run/a:b", "a b:c", "'lan':a", "lan"] {
        assert_eq!(SwitchName::of_port(other), None, "{other}");
    }
    let (name, rest) = PortName::split_off("vale0:'web-1'-0/x@conf:2").unwrap();
    assert_eq!((name.to_string().as_str(), rest), ("vale0:web-1", "-0/x@conf:2"));
    let (name, rest) = PortName::split_off("netmap:veth-a-2/x").unwrap();
    assert_eq!((name.to_string().as_str(), rest), ("netmap:veth-a", "-2/x"));
}

/// A name splits into its parts.
#[test]
fn names_come_apart() {
    let name = PortName::parse("vale0:a}7").unwrap();
    assert_eq!(name.switch().map(SwitchName::as_str), Some("vale0"));
    let pipe = name.pipe().unwrap();
    assert_eq!((pipe.end, pipe.id.as_str()), (PipeEnd::Slave, "7"));
    let Base::Vale { port, .. } = name.base() else { panic!("{name:?}") };
    assert_eq!(port.as_str(), "a");

    let name = PortName::parse("netmap:eth0").unwrap();
    assert_eq!((name.switch(), name.pipe()), (None, None));
}

/// tx-rings, rx-rings, tx-slots, rx-slots, host-tx-rings, host-rx-rings of `@conf`, and its canonical form.
type ConfRow = (&'static str, [u32; 6], &'static str);

#[rustfmt::skip]
const CONF: &[ConfRow] = &[
    ("@conf:rings=4,slots=512", [4, 4, 512, 512, 0, 0], "@conf:rings=4,slots=512"),
    ("@conf:4", [4, 4, 0, 0, 0, 0], "@conf:rings=4"),
    ("@conf=4", [4, 4, 0, 0, 0, 0], "@conf:rings=4"),
    ("@conf:tx-rings=3,rings=2", [3, 2, 0, 0, 0, 0], "@conf:tx-rings=3,rx-rings=2"),
    ("@conf:rings=2,tx-rings=0", [0, 2, 0, 0, 0, 0], "@conf:rx-rings=2"),
    ("@conf:host-rings=2", [0, 0, 0, 0, 2, 2], "@conf:host-rings=2"),
    ("@conf:host-rings=2,host-rx-rings=1", [0, 0, 0, 0, 2, 1], "@conf:host-tx-rings=2,host-rx-rings=1"),
    ("@conf:tx-slots=64,rx-slots=4294967295", [0, 0, 64, u32::MAX, 0, 0], "@conf:tx-slots=64,rx-slots=4294967295"),
    ("@conf:rings=0", [0, 0, 0, 0, 0, 0], ""),
];

/// Narrower keys of `@conf` override wider keys in any order, and all reach the request.
#[test]
fn conf_sets_rings_and_slots() {
    for &(option, want, canonical) in CONF {
        let spec = PortSpec::parse(&format!("vale0:a{option}")).unwrap_or_else(|e| panic!("{e}"));
        let reg = spec.to_register();
        let rings = [reg.nr_tx_rings, reg.nr_rx_rings].map(u32::from);
        let host = [reg.nr_host_tx_rings, reg.nr_host_rx_rings].map(u32::from);
        let got = [rings[0], rings[1], reg.nr_tx_slots, reg.nr_rx_slots, host[0], host[1]];
        assert_eq!(got, want, "{option}");
        assert_eq!(spec.to_string(), format!("vale0:a{canonical}"));
    }
}

/// The options for memory and offsets parse.
#[test]
fn other_options_are_parsed() {
    let spec = PortSpec::parse("vale0:a/x@share:netmap:eth0{1@conf:2").unwrap();
    assert_eq!(spec.memory, Memory::SharedWith(PortName::parse("eth0{1").unwrap()));
    assert_eq!(spec.to_string(), "vale0:a/x@share:netmap:eth0{1@conf:rings=2");
    assert_eq!(PortSpec::parse("vale0:a/x@share:port=eth0{1@conf:2").unwrap(), spec);
    assert_eq!(PortSpec::parse("vale0:a/x@share=eth0{1@conf:2").unwrap(), spec);

    let spec = PortSpec::parse("vale0:a@extmem:/dev/hugepages/x y,buf-num=99,buf-size=2112,if-num=2").unwrap();
    let Memory::External(extmem) = &spec.memory else { panic!("{spec:?}") };
    assert_eq!((extmem.file.as_str(), extmem.buf_num, extmem.ring_num), ("/dev/hugepages/x y", 99, 0));
    let canonical = "vale0:a@extmem:file=/dev/hugepages/x y,if-num=2,buf-num=99,buf-size=2112";
    assert_eq!(spec.to_string(), canonical);

    let spec = PortSpec::parse("eth0@offset:initial=128,bits=16").unwrap();
    assert_eq!(spec.offset, Some(Offset { initial: 128, bits: OffsetBits::new(16) }));
    let spec = PortSpec::parse("eth0@offset:18446744073709551615").unwrap();
    assert_eq!(spec.to_string(), "netmap:eth0@offset:initial=18446744073709551615");
}

#[rustfmt::skip]
const WRONG_PORTS: &[&str] = &[
    "\n^ expected a port: 'netmap:' and an interface, or a switch, ':' and a name",
    "vale0:a{x}\n         \
     ^ expected the end of the pipe's name: it has one brace, '{' for the master's end or '}' for the slave's",
    "vale0:a{\n        ^ expected a pipe id after '{'",
    "eth0}/x\n     ^ expected a pipe id after '}'",
    "vale0\n     ^ expected ':' and a port name after the switch's name",
    "vale0:\n      ^ expected a port name after ':'",
    "netmap:\n       ^ expected an interface name after 'netmap:' (not one that begins with 'vale')",
    "netmap:vale0:a\n       ^ expected an interface name after 'netmap:' (not one that begins with 'vale')",
    "tap:a\n^ expected a switch's name before ':', or 'netmap:' and an interface",
    "ptnet-pci:a\n^ expected a switch's name before ':', or 'netmap:' and an interface",
    "nv:lan:a\n^ expected a switch's name before ':', or 'netmap:' and an interface",
    "-lan:a\n^ expected a switch's name before ':', or 'netmap:' and an interface",
    "..:a\n^ expected a switch's name before ':', or 'netmap:' and an interface",
    "lan:-a\n    ^ expected a port name after ':'",
    "lan:-1\n    ^ expected a port name after ':'",
    "lan:.\n    ^ expected a port name after ':'",
    "lan:'web-1\n    ^ expected a second quote (')",
    "lan:'web 1'\n        ^ expected a name of letters, digits, '_', '.' or '-', which does not begin with '-'",
    "lan:''\n     ^ expected a port name after ':'",
    "lan:'-a'\n     ^ expected a port name after ':'",
    "--\n^ expected a port: 'netmap:' and an interface, or a switch, ':' and a name",
    "br-lan-\n       ^ expected a ring number",
    "netmap:'eth0'-\n              ^ expected a ring number",
    "netmap:'eth0'-4095\n              ^ expected a ring number from 0 to 4094",
    "netmap:'eth0'-x\n              ^ expected a ring number",
    "netmap:'e:0'\n         ^ expected an interface's name, not 'vale...', in quotes if it is unusual",
    "netmap:lan:a\n          ^ expected rings ('-', '^', '*'), flags ('/'), a region or an option ('@'), or the end",
    "eth0^1x\n      ^ expected flags ('/'), a region or an option ('@'), or the end",
    "eth0+\n    ^ expected rings ('-', '^', '*'), flags ('/'), a region or an option ('@'), or the end",
    "eth0*^\n     ^ expected flags ('/'), a region or an option ('@'), or the end",
    "eth0/\n     ^ expected a flag: x, z, t, r, R or T",
    "eth0/@3\n     ^ expected a flag: x, z, t, r, R or T",
    "eth0/xq\n      ^ expected a flag: x, z, t, r, R or T",
    "eth0/xRT\n       ^ expected only one of R and T",
    "eth0@3x\n      ^ expected '/' and flags, '@' and a region number or an option, or the end",
    "eth0@65536\n     ^ expected a memory region number from 0 to 65535",
    "eth0@3@4\n       ^ expected no second region number",
    "eth0@3@share:eth1\n       ^ expected no second choice of the memory region",
    "eth0@\n     ^ expected an option: share, conf, extmem or offset",
    "eth0@colour:1\n     ^ expected an option: share, conf, extmem or offset",
    "eth0@conf\n         ^ expected ':' and the option's value",
    "eth0@conf:\n          ^ expected a number for 'rings'",
    "eth0@conf:colour=1\n          \
     ^ expected one of the keys rings, tx-rings, rx-rings, host-rings, host-tx-rings, host-rx-rings, slots, tx-slots, \
     rx-slots",
    "eth0@conf:rings=1,rings=2\n                  ^ expected another key: 'rings' is already set",
    "eth0@conf:rings=65536\n                ^ expected a number for 'rings' from 0 to 65535",
    "eth0@conf:1@conf:2\n            ^ expected another option: 'conf' is already given",
    "eth0@conf:1@3\n            ^ expected an option: share, conf, extmem or offset",
    "eth0@conf=rings=1\n          ^ expected a number for 'rings'",
    "eth0@conf:1;\n           ^ expected '@' and an option, or the end",
    "eth0@share:\n           ^ expected a port: 'netmap:' and an interface, or a switch, ':' and a name",
    "eth0@extmem:buf-num=1\n           ^ expected 'file=' and a path among the values of 'extmem'",
    "eth0@extmem:a,file=b\n              ^ expected another key: 'file' is already set",
    "eth0@offset:bits=1\n           ^ expected 'initial=' and a number among the values of 'offset'",
    "eth0@offset:1,bits=65\n                   ^ expected a number for 'bits' from 0 to 64",
    "é\n^ expected a port: 'netmap:' and an interface, or a switch, ':' and a name",
    "vale0:é\n      ^ expected a port name after ':'",
];

/// An error shows a caret under the first character that does not fit.
#[test]
fn errors_point_at_the_character() {
    for want in WRONG_PORTS {
        let text = want.split('\n').next().unwrap();
        let error = PortSpec::parse(text).expect_err(text);
        assert_eq!(&error.to_string(), want);
        assert_eq!(error.text(), text);
    }
}

/// Names have netmap's limit: 63 bytes of `nr_name` without `netmap:`.
#[test]
fn names_are_limited_as_netmaps_are() {
    let longest = "a".repeat(63);
    let name = PortName::parse(&format!("netmap:{longest}")).unwrap();
    assert_eq!(name.nr_name_field()[..], *format!("{longest}\0").as_bytes());
    assert_eq!(PortName::parse(&format!("netmap:{longest}a")).unwrap_err().offset(), 70);

    let switch = "vale".repeat(10);
    let port = "b".repeat(20);
    assert!(PortName::parse(&format!("{switch}:{port}{{1")).is_ok());
    let error = PortName::parse(&format!("{switch}:{port}{{12")).unwrap_err();
    assert_eq!((error.offset(), error.found()), (63, Some('2')));

    let base = Base::Vale { switch: SwitchName::parse(&switch).unwrap(), port: Ident::parse(&longest).unwrap() };
    assert_eq!(PortName::new(base, None).unwrap_err().offset(), 63);
    assert!(SwitchName::parse(&format!("vale{}", "x".repeat(57))).is_ok());
    assert!(SwitchName::parse(&format!("vale{}", "x".repeat(58))).is_err());

    // Quotes do not count towards the length.
    let quoted = format!("vale0:'{}-1'", "b".repeat(55));
    assert_eq!(PortSpec::parse(&quoted).unwrap().to_string(), quoted);
    // With its number, the name would be too long, so the number is a ring.
    let spec = PortSpec::parse(&format!("vale0:{}-1", "b".repeat(56))).unwrap();
    assert_eq!(spec.settled(|_| true).name.nr_name().len(), 62);
}

/// An overlong text is refused without parsing it, and its error keeps only the first [`MAX_TEXT`] bytes.
#[test]
fn overlong_texts_are_refused_at_once() {
    let error = PortSpec::parse(&"é".repeat(1 << 20)).unwrap_err();
    assert_eq!((error.offset(), error.text().len()), (MAX_TEXT, MAX_TEXT));
    assert_eq!(error.expected(), "at most 16384 bytes");
}

/// The longest values are still written in a form that parses.
#[test]
fn longest_values_round_trip() {
    let path = "p".repeat(4095);
    for text in [format!("pcap:in={path},out={path}"), format!("netmap:eth0@extmem:{path},if-num=1@conf:2@offset:1")] {
        let spec = AttachSpec::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(AttachSpec::parse(&spec.to_string()), Ok(spec));
    }
    assert_eq!(AttachSpec::parse(&format!("pcap:{path}p")).unwrap_err().offset(), 5 + 4095);
}

/// The one-line form contains the position, the expected text, and the character found.
#[test]
fn errors_have_a_form_of_one_line() {
    let error = PortSpec::parse("eth0/q").unwrap_err();
    assert_eq!(format!("{error:#}"), "'eth0/q', character 6: expected a flag: x, z, t, r, R or T, found 'q'");
}

/// An attached port as written, its canonical form, and its default name on the switch.
const ATTACH: &[(&str, &str, &str)] = &[
    ("a", "a", "a"),
    ("vale0:a", "vale0:a", "a"),
    ("vale:a", "vale:a", "a"),
    ("tap:tap0", "tap:tap0", "tap0"),
    ("tap:my-tap", "tap:my-tap", "my-tap"),
    ("tap:-t", "tap:-t", "_t"),
    ("web-1", "web-1", "web-1"),
    ("'web-1'", "web-1", "web-1"),
    ("my.port", "my.port", "my.port"),
    ("br-lab:web-1", "br-lab:web-1", "web-1"),
    ("netmap:veth-a", "netmap:veth-a", "veth-a"),
    ("netmap:vnet-3", "netmap:vnet-3", "vnet-3"),
    ("netmap:'vnet'-3", "netmap:'vnet'-3", "vnet-3"),
    ("netmap:'vnet-3'-0", "netmap:'vnet-3'-0", "vnet-3-0"),
    ("netmap:'eth+0'", "netmap:'eth+0'", "eth_0"),
    ("netmap:eth0.100", "netmap:eth0.100", "eth0.100"),
    ("netmap:eth0_100", "netmap:eth0_100", "eth0_100"),
    ("null:a-1", "null:a-1", "a-1"),
    ("pcap:/tmp/in.pcap", "pcap:in=/tmp/in.pcap", "in"),
    ("pcap:x:y@z.pcapng", "pcap:in=x:y@z.pcapng", "x_y_z"),
    ("pcap:in=a.pcap", "pcap:in=a.pcap", "a"),
    ("pcap:out=b.pcap", "pcap:out=b.pcap", "b"),
    ("pcap:in=a.pcap,out=b.pcap", "pcap:in=a.pcap,out=b.pcap", "a"),
    ("pcap:out=b.pcap,in=a.pcap", "pcap:in=a.pcap,out=b.pcap", "a"),
    ("netmap:eth0", "netmap:eth0", "eth0"),
    ("netmap:eth0.7^@conf:2", "netmap:eth0.7^@conf:rings=2", "eth0.7"),
    ("vhost:/run/vm1.sock", "vhost:/run/vm1.sock", "vm1"),
    ("virtio:/run/.hidden", "virtio:/run/.hidden", ".hidden"),
    ("virtio-pci:0000:3b:1f.7", "virtio-pci:0000:3b:1f.7", "pci_0000_3b_1f_7"),
    ("virtio-pci:3:0.0", "virtio-pci:0000:03:00.0", "pci_0000_03_00_0"),
    ("e1000-pci:3:0.0", "e1000-pci:0000:03:00.0", "pci_0000_03_00_0"),
    ("virtio-pci:10000:e1:00.0", "virtio-pci:10000:e1:00.0", "pci_10000_e1_00_0"),
    ("ptnet:/p.sock", "ptnet:/p.sock", "p"),
    ("e1000:/e/", "e1000:/e/", "port"),
    ("null:", "null:", "null"),
    ("null:sink", "null:sink", "sink"),
    ("echo:", "echo:", "echo"),
    ("echo:e1", "echo:e1", "e1"),
    ("vxlan:100,local=10.0.0.1", "vxlan:100,local=10.0.0.1", "vxlan100"),
    (
        "vxlan:5,port=8472,remote=10.0.0.3,local=10.0.0.1,remote=10.0.0.2",
        "vxlan:5,local=10.0.0.1,remote=10.0.0.2,remote=10.0.0.3,port=8472",
        "vxlan5",
    ),
    ("vxlan:0,local=fd00::1,port=4789", "vxlan:0,local=fd00::1", "vxlan0"),
    ("stream:/run/lab.sock", "stream:/run/lab.sock", "lab"),
    ("stream:192.0.2.1:5000", "stream:192.0.2.1:5000", "stream5000"),
    ("stream:[0:0:0:0:0:0:0:1]:05000", "stream:[::1]:5000", "stream5000"),
    ("dgram:/a.sock,remote=/b.sock", "dgram:/a.sock,remote=/b.sock", "a"),
    ("dgram:127.0.0.1:1,remote=127.0.0.1:2", "dgram:127.0.0.1:1,remote=127.0.0.1:2", "dgram1"),
    ("dgram:230.0.0.1:1234", "dgram:230.0.0.1:1234", "dgram1234"),
    ("dgram:230.0.0.1:1234,interface=127.0.0.1", "dgram:230.0.0.1:1234,interface=127.0.0.1", "dgram1234"),
    ("seqpacket:/u.sock", "seqpacket:/u.sock", "u"),
    ("unixgram:/u.sock", "unixgram:/u.sock", "u"),
    ("vde:/run/vde.ctl/", "vde:/run/vde.ctl", "vde"),
];

/// Every kind parses, is written back, and gives a valid port name.
#[test]
fn attach_kinds_are_told_apart() {
    for &(text, canonical, port_name) in ATTACH {
        let spec = AttachSpec::parse(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(spec.to_string(), canonical);
        assert_eq!(spec.port_name().as_str(), port_name, "{text}");
        assert_eq!(AttachSpec::parse(canonical).unwrap(), spec);
    }
    let both = AttachSpec::parse("pcap:out=b,in=a").unwrap();
    let AttachSpec::Pcap(files) = both else { panic!("{both:?}") };
    assert_eq!(files.replay().map(FilePath::as_str), Some("a"));
    assert_eq!(files.capture().map(FilePath::as_str), Some("b"));
}

const ADDRESS: &str = "a path that begins with '/', or an IP address and a port, such as 192.0.2.1:5000 or [::1]:5000";
const KINDS: &str = "a port name, or a kind: tap:, vhost:, virtio:, virtio-pci:, ptnet:, e1000:, e1000-pci:, netmap:, \
                     pcap:, vxlan:, stream:, dgram:, seqpacket:, unixgram:, vde:, null: or echo:";

/// Invalid ports to attach, with the position and the expected text of each error.
const WRONG_ATTACH: &[(&str, usize, &str)] = &[
    ("", 0, KINDS),
    ("-", 0, KINDS),
    ("ptnet-pci:0", 0, KINDS),
    ("-a", 0, KINDS),
    ("a+1", 1, "the end of the port"),
    ("lan:", 4, "a port name after ':'"),
    (":a", 0, KINDS),
    ("vale0:", 6, "a port name after ':'"),
    ("vale0:a{1", 7, "the end of the port"),
    ("tap:", 4, "a device name after 'tap:'"),
    ("tap:..", 4, "a device name after 'tap:'"),
    ("tap:a b", 5, "the end of the port"),
    ("tap:tap%d", 7, "the end of the port"),
    ("tap:abcdefghijklmnop", 19, "at most 15 bytes in a device name: no '/', ':', '%' or space, not '.' or '..'"),
    ("pcap:", 5, "a file's path, or 'in=' and 'out=' with a path each"),
    ("pcap:in=", 8, "a file's path"),
    ("pcap:in=a,b", 10, "'out=' and a path after ','"),
    ("pcap:a,b", 6, "the end of the port"),
    ("pcap:a\nb", 6, "the end of the port"),
    ("netmap:", 7, "an interface name after 'netmap:' (not one that begins with 'vale')"),
    ("vhost:", 6, "a socket's path that begins with '/'"),
    ("vhost:vm.sock", 6, "a socket's path that begins with '/'"),
    ("virtio-pci:", 11, "a PCI address such as 0000:00:03.0"),
    ("e1000-pci:", 10, "a PCI address such as 0000:00:03.0"),
    ("virtio-pci:0:20.0", 13, "a PCI device from 0 to 1f"),
    ("virtio-pci:0:1.8", 15, "a PCI function from 0 to 7"),
    ("null:a b", 6, "the end of the port"),
    ("echo:-", 5, "a port name"),
    ("vxlan:16777216,local=10.0.0.1", 6, "a VNI from 0 to 16777215"),
    ("vxlan:1", 7, "',local=' and the address of this host's tunnel endpoint"),
    ("vxlan:1,local=10.0.0", 14, "an IP address"),
    ("vxlan:1,local=224.0.0.1", 14, "the address of a single host"),
    ("vxlan:1,local=10.0.0.1,remote=fd00::2", 30, "an IPv4 address, like the local one"),
    ("vxlan:1,local=10.0.0.1,remote=10.0.0.1", 30, "another host's address"),
    ("vxlan:1,local=10.0.0.1,local=10.0.0.1", 23, "'remote=' or 'port='"),
    ("vxlan:1,local=10.0.0.1,port=0", 28, "a UDP port from 1 to 65535"),
    ("vxlan:1,local=10.0.0.1,ttl=3", 23, "'remote=' or 'port='"),
    ("stream:", 7, ADDRESS),
    ("stream:localhost:5000", 7, ADDRESS),
    ("stream:192.0.2.1", 16, "':' and a port after an IP address"),
    ("stream:192.0.2.1:0", 17, "a port from 1 to 65535"),
    ("stream:[::1:5000", 16, "']' after an IPv6 address"),
    ("stream:/a,b", 9, "the end of the port"),
    ("dgram:/a", 8, "',remote=' and the address of the other socket"),
    ("dgram:/a,remote=/a", 16, "another address of the same family"),
    ("dgram:/a,remote=1.2.3.4:5", 16, "another address of the same family"),
    ("dgram:1.2.3.4:5,remote=[::1]:5", 23, "another address of the same family"),
    ("dgram:[ff02::1]:5", 6, "an IPv4 group"),
    ("dgram:230.0.0.1:5,remote=1.2.3.4:5", 18, "'interface=' and the IPv4 address of an interface"),
    ("dgram:230.0.0.1:5,interface=x", 28, "the IPv4 address of an interface"),
    ("seqpacket:u", 10, "a socket's path that begins with '/'"),
    ("unixgram:", 9, "a socket's path that begins with '/'"),
    ("vde:", 4, "a folder's path that begins with '/'"),
    ("vde:/", 4, "a folder's path, not '/'"),
    ("virtio-pci:0:1", 14, "'.' and the function after the device"),
];

/// Errors in ports to attach point at the first wrong character, too.
#[test]
fn attach_errors_point_at_the_character() {
    for &(text, offset, expected) in WRONG_ATTACH {
        let error = AttachSpec::parse(text).expect_err(text);
        assert_eq!((error.offset(), error.expected()), (offset, expected), "{text:?}");
    }
    let long = format!("vhost:/{}", "a".repeat(107));
    assert_eq!(AttachSpec::parse(&long).unwrap_err().offset(), 6 + 107);
    // A folder's path leaves room for the names of sockets in the folder.
    for (longest, begins) in [(107, "stream:/"), (107, "seqpacket:/"), (107, "unixgram:/"), (99, "vde:/")] {
        for len in 90..121 {
            let text = format!("{begins}{}", "a".repeat(len - 1));
            assert_eq!(AttachSpec::parse(&text).is_ok(), len <= longest, "{begins}: {len} bytes");
        }
    }
}
