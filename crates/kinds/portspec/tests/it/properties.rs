//! Property tests: any text is parsed or refused, and any value is written in a form that parses to it.

use std::num::NonZeroU16;

use netvale_portspec::*;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// Under Miri, which is a hundred times slower, the tests run fewer cases and save no failures to a file.
fn config() -> ProptestConfig {
    if cfg!(miri) {
        ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() }
    } else {
        let persistence = FileFailurePersistence::WithSource("regressions");
        ProptestConfig { cases: 2000, failure_persistence: Some(Box::new(persistence)), ..Default::default() }
    }
}

/// Words of the grammar, and some words that it lacks.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "netmap:", "vale0:", "vale", "eth0", "a", "{", "}", "-", "^", "*", "@", "/", "x", "zr", "T", "3", "99999",
    "conf:", "rings=", "tx-slots=", ",", "share:", "extmem:", "file=", "offset:",
    "bits=", "=", "pcap:", "in=", "out=", "tap:", "vhost:/",
    "stream:", "dgram:", "192.0.2.1:5", "[::1]:5", ",remote=", "230.0.0.1:5", "interface=", "vde:/",
    "virtio-pci:", "0000:00:1f.7", ".", "é", "\0", " ", "'", "'a-1'", "-1", "lan:", "b-2",
];

/// Texts made of words of the grammar, so that parsing gets far before it fails.
fn near_miss() -> impl Strategy<Value = String> {
    let word = prop::sample::select(WORDS);
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

const ID: &str = "abvxAZ059_.-";
const QUOTED: &str = "abvxAZ059_.-+{^*@/é\"";
const PATH: &str = "ab/.:=-{} é\u{1F980}";

/// Texts of the characters in `alphabet`. (Strategies from regular expressions take minutes under Miri.)
fn text(alphabet: &str, len: std::ops::Range<usize>) -> impl Strategy<Value = String> + use<> {
    let chars: Vec<char> = alphabet.chars().collect();
    let chars = prop::collection::vec(prop::sample::select(chars), len);
    chars.prop_map(|chars| chars.into_iter().collect())
}

fn ident() -> impl Strategy<Value = Ident> {
    text(ID, 1..12).prop_filter_map("a name", |text| Ident::parse(&text).ok())
}

fn switch() -> impl Strategy<Value = SwitchName> {
    let vale = text(ID, 0..6).prop_map(|id| SwitchName::parse(&format!("vale{id}")).unwrap());
    prop_oneof![vale, text(ID, 1..6).prop_filter_map("a name", |text| SwitchName::parse(&text).ok())]
}

fn port_name() -> impl Strategy<Value = PortName> {
    let vale = (switch(), ident()).prop_map(|(switch, port)| Base::Vale { switch, port });
    let ifname = prop_oneof![
        text(ID, 1..15).prop_filter_map("an interface", |text| IfName::parse(&text).ok()),
        text(QUOTED, 1..15).prop_filter_map("an interface", |text| IfName::parse(&format!("'{text}'")).ok()),
    ];
    let netmap = ifname.prop_map(|ifname| Base::Netmap { ifname });
    let end = prop_oneof![Just(PipeEnd::Master), Just(PipeEnd::Slave)];
    let pipe = prop::option::of((end, ident()).prop_map(|(end, id)| PipeName { end, id }));
    (prop_oneof![vale, netmap], pipe).prop_map(|(base, pipe)| PortName::new(base, pipe).unwrap())
}

fn rings() -> impl Strategy<Value = Rings> {
    let ring = || (0u16..4095).prop_map(|n| RingIndex::new(n).unwrap());
    prop_oneof![
        Just(Rings::AllNic),
        ring().prop_map(Rings::OneNic),
        Just(Rings::AllHost),
        ring().prop_map(Rings::OneHost),
        Just(Rings::NicAndHost),
    ]
}

fn directions() -> impl Strategy<Value = Directions> {
    prop_oneof![Just(Directions::Both), Just(Directions::Tx), Just(Directions::Rx)]
}

fn flags() -> impl Strategy<Value = Flags> {
    let monitor =
        (directions(), any::<bool>()).prop_map(|(directions, zero_copy)| MonitorSpec { directions, zero_copy });
    (any::<bool>(), prop::option::of(monitor), directions()).prop_map(|(exclusive, monitor, directions)| Flags {
        exclusive,
        monitor,
        directions,
    })
}

/// Numbers that are often 0 or equal, because the canonical form depends on that.
fn count() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 0u32..3, any::<u32>()]
}

fn conf() -> impl Strategy<Value = Conf> {
    let ring = || prop_oneof![Just(0), 0u16..3, any::<u16>()];
    (ring(), ring(), ring(), ring(), count(), count()).prop_map(|(tx, rx, host_tx, host_rx, tx_slots, rx_slots)| Conf {
        tx_rings: tx,
        rx_rings: rx,
        host_tx_rings: host_tx,
        host_rx_rings: host_rx,
        tx_slots,
        rx_slots,
    })
}

fn memory() -> impl Strategy<Value = Memory> {
    let file = text(PATH, 1..20).prop_map(|text| ExtmemFile::parse(&text).unwrap());
    let counts = (count(), count(), count(), count(), count(), count());
    let extmem = (file, counts).prop_map(|(file, (if_num, if_size, ring_num, ring_size, buf_num, buf_size))| Extmem {
        file,
        if_num,
        if_size,
        ring_num,
        ring_size,
        buf_num,
        buf_size,
    });
    prop_oneof![
        Just(Memory::Auto),
        (1..=u16::MAX).prop_map(|id| Memory::Id(NonZeroU16::new(id).unwrap())),
        port_name().prop_map(Memory::SharedWith),
        extmem.prop_map(Memory::External),
    ]
}

fn port_spec() -> impl Strategy<Value = PortSpec> {
    let offset = (any::<u64>(), prop::option::of((1u16..=64).prop_map(|n| OffsetBits::new(n).unwrap())))
        .prop_map(|(initial, bits)| Offset { initial, bits });
    (port_name(), rings(), memory(), flags(), conf(), prop::option::of(offset)).prop_map(
        |(name, rings, memory, flags, conf, offset)| {
            let mut spec = PortSpec::from(name);
            spec.rings = rings;
            spec.memory = memory;
            spec.flags = flags;
            spec.conf = conf;
            spec.offset = offset;
            spec
        },
    )
}

fn attach_spec() -> impl Strategy<Value = AttachSpec> {
    let path = || text(&format!("{PATH}@"), 1..20).prop_map(|text| FilePath::parse(&text).unwrap());
    let socket = || text(&format!("{PATH}@,"), 0..20).prop_map(|text| SocketPath::parse(&format!("/{text}")).unwrap());
    let switch = prop::option::of(switch());
    let pci = (any::<u32>(), any::<u8>(), 0u8..32, 0u8..8).prop_map(|(domain, bus, device, function)| {
        AttachSpec::parse(&format!("virtio-pci:{domain:x}:{bus:x}:{device:x}.{function:x}")).unwrap()
    });
    prop_oneof![
        (switch, ident()).prop_map(|(switch, port)| AttachSpec::Local(LocalSpec { switch, port })),
        text("abZ09_-", 1..16).prop_map(|text| AttachSpec::Tap(TapName::parse(&text).unwrap())),
        path().prop_map(|file| AttachSpec::Pcap(PcapFiles::Replay(file))),
        path().prop_map(|file| AttachSpec::Pcap(PcapFiles::Capture(file))),
        (path(), path()).prop_map(|(replay, capture)| AttachSpec::Pcap(PcapFiles::Both { replay, capture })),
        port_spec().prop_filter_map("an interface", |spec| NicSpec::new(spec).map(AttachSpec::Netmap)),
        socket().prop_map(AttachSpec::Vhost),
        socket().prop_map(AttachSpec::Virtio),
        pci,
        socket().prop_map(AttachSpec::Ptnet),
        socket().prop_map(AttachSpec::E1000),
    ]
}

/// Checks both outcomes: a parsed text is written back, an error points into the text.
fn check<T>(text: &str, parse: impl Fn(&str) -> Result<T, ParseError>) -> Result<(), TestCaseError>
where
    T: PartialEq + std::fmt::Debug + std::fmt::Display,
{
    match parse(text) {
        Ok(value) => {
            let canonical = value.to_string();
            let again = parse(&canonical);
            prop_assert_eq!(again.as_ref(), Ok(&value));
            prop_assert_eq!(value.to_string(), canonical);
        }
        Err(error) => {
            prop_assert!(text.is_char_boundary(error.offset()));
            prop_assert_eq!(error.found(), text[error.offset()..].chars().next());
            let lines = error.to_string();
            prop_assert_eq!(lines.lines().count(), 2, "{}", lines);
        }
    }
    Ok(())
}

fn check_all(text: &str) -> Result<(), TestCaseError> {
    check(text, PortSpec::parse)?;
    check(text, AttachSpec::parse)?;
    check(text, PortName::parse)?;
    check(text, IfName::parse)?;
    check(text, SwitchName::parse)
}

proptest! {
    #![proptest_config(config())]

    /// No text makes the parsers panic; errors stay inside the text.
    #[test]
    fn any_text_is_parsed_or_pointed_at(chars in prop::collection::vec(any::<char>(), 0..40)) {
        check_all(&chars.into_iter().collect::<String>())?;
    }

    /// Texts that resemble the grammar neither panic nor give errors outside the text.
    #[test]
    fn near_misses_are_parsed_or_pointed_at(text in near_miss()) {
        check_all(&text)?;
    }

    /// Every value is written in a form that parses to it.
    #[test]
    fn every_port_reads_back_from_its_text(spec in port_spec()) {
        let text = spec.to_string();
        prop_assert_eq!(PortSpec::parse(&text), Ok(spec), "{}", text);
    }

    /// Whatever names exist, the canonical form of a settled port refers to that port alone.
    #[test]
    fn settled_ports_round_trip(text in near_miss(), exists in any::<bool>()) {
        if let Ok(spec) = PortSpec::parse(&text) {
            let settled = spec.settled(|_| exists);
            prop_assert_eq!(PortSpec::parse(&settled.to_string()).map(|again| again.settled(|_| !exists)), Ok(settled));
        }
    }

    /// A request's `nr_name` parses to the original name.
    #[test]
    fn names_round_trip_through_a_request(name in port_name()) {
        let field = name.nr_name_field();
        let text = std::str::from_utf8(netvale_abi::name::get(&field)).unwrap();
        prop_assert_eq!(PortName::parse(text), Ok(name));
    }

    /// Every attachment is written in a form that parses to it.
    #[test]
    fn every_attachment_reads_back_from_its_text(spec in attach_spec()) {
        let text = spec.to_string();
        prop_assert_eq!(AttachSpec::parse(&text), Ok(spec), "{}", text);
    }
}
