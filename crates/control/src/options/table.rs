//! Every option of an attached port, defined once.

use netvale_policy::guard::{Addresses, Checks};
use netvale_policy::impair::Spec;
use netvale_policy::units::{Rate, Size};
use netvale_policy::vlan::{Protocol, VlanSet};

use super::field::Field;
use super::rule::GivenRules;
use super::written::{InfoText, Written};
use super::{AttachOption, Heading, KindType, OptionAccess, OptionHolder, OptionsOf, RateGroup, Shape, syntax};
use crate::mac::Mac;

/// Makes [`PortOptions`], [`Policies`], [`OPTIONS`] and the typed views of one kind's options from the same rows. A
/// row's documentation is that of the field, the help, the manual page and the reference.
macro_rules! options {
    (
        $(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty = $key:literal { $($row:tt)+ }
        )+
        policies:
        $(
            $(#[doc = $policy_doc:literal])+
            $policy:ident: $policy_type:ty = $policy_key:literal { $($policy_row:tt)+ }
        )+
    ) => {
        /// The options of an attached port, of all kinds together. A number of 0, a switch that is false, and `None`
        /// count as omitted.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct PortOptions {
            $( $(#[doc = $doc])+ pub $field: $type, )+
            /// Its policies.
            pub policies: Policies,
        }

        /// The policies of a port, as given. Their text is read once, and they stay unchanged on the way from a request
        /// or a file to the switch. `None` is the default.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Policies {
            $( $(#[doc = $policy_doc])+ pub $policy: $policy_type, )+
        }

        /// All options, in the order of the help.
        pub static OPTIONS: &[AttachOption] = &[
            $( options!(@option PortOptions $field $key concat!($($doc),+), $($row)+), )+
            $( options!(@option Policies $policy $policy_key concat!($($policy_doc),+), for: every, $($policy_row)+), )+
        ];

        $(
            impl<K: KindType> OptionsOf<'_, K> {
                $(#[doc = $doc])+
                #[must_use]
                pub fn $field(&self) -> $type {
                    const {
                        assert!(options!(@is_for_all $($row)+) || K::KIND.takes($key), "the kind takes the option");
                    }
                    Clone::clone(&self.0.$field)
                }
            }
        )+
    };
    (@option $holder:ident $field:ident $key:literal $doc:expr,
        $(for: $every:ident,)?
        value: $value:literal $shape:expr,
        under: $heading:ident,
        default: $default:literal,
        $(excludes: $excludes:expr, because $why:literal,)?
    ) => {
        AttachOption {
            key: $key,
            doc: $doc,
            value_name: $value,
            shape: $shape,
            is_for_all: options!(@is_for_all $(for: $every,)?),
            heading: Heading::$heading,
            default: $default,
            excludes: options!(@or [$($excludes)?] &[]),
            why: options!(@or [$($why)?] ""),
            holder: OptionHolder::$holder(OptionAccess {
                given: |holder| holder.$field.given(),
                put: |holder, value| holder.$field.put(value),
                copy: |from, to| to.$field.clone_from(&from.$field),
            }),
        }
    };
    (@is_for_all for: every, $($rest:tt)*) => { true };
    (@is_for_all $($rest:tt)*) => { false };
    (@or [] $default:expr) => { $default };
    (@or [$value:expr] $default:expr) => { $value };
}

const ANY: Shape = Shape::Number(0, u32::MAX);
const LEAST_ONE: Shape = Shape::Number(1, u32::MAX);
const VLAN: Shape = Shape::Number(1, 4094);

options! {
    /// The port's name on the switch.
    name: Option<String> = "name" {
        for: every,
        value: "NAME" Shape::Text,
        under: General,
        default: "made from PORT",
    }
    /// Hold senders back when this port is full, instead of dropping.
    lossless: bool = "lossless" {
        for: every,
        value: "" Shape::Flag,
        under: General,
        default: "",
    }
    /// Rings in each direction; queues of a TAP device; queue pairs of a vhost device or virtio driver.
    rings: u32 = "rings" {
        value: "N" ANY,
        under: Rings,
        default: "1",
    }
    /// Slots of each ring; entries of a virtio driver's queues.
    slots: u32 = "slots" {
        value: "N" ANY,
        under: Rings,
        default: "512; virtio drivers 256, e1000-pci 1024",
    }
    /// Bytes of a buffer.
    buf_size: u32 = "buf_size" {
        value: "BYTES" ANY,
        under: Memory,
        default: "2112",
    }
    /// Buffers beyond those in the rings, for programs that keep frames.
    extra_bufs: u32 = "extra_bufs" {
        value: "N" ANY,
        under: Memory,
        default: "0",
    }
    /// Prefer huge pages for the port's memory.
    huge: bool = "huge" {
        value: "" Shape::Flag,
        under: Memory,
        default: "",
    }
    /// Bytes of virtio-net header before each frame. A TAP port always has one. A ptnet device offers it to the driver:
    /// 0 or 12.
    vnet_hdr: u32 = "vnet_hdr" {
        value: "0|10|12" Shape::OneOf(&[0, 10, 12]),
        under: Memory,
        default: "0",
    }
    /// Large segments are cut for the program, although its frames have a header: for QEMU's e1000e and igb, whose
    /// header is for checksums only.
    no_segments: bool = "no_segments" {
        value: "" Shape::Flag,
        under: Memory,
        default: "",
    }
    /// MTU of the device.
    mtu: Option<u32> = "mtu" {
        value: "BYTES" Shape::Number(68, 65_535),
        under: Devices,
        default: "1500; that of the interface with a backend; of a tunnel, what the path to its remotes takes",
    }
    /// Make the TAP in this network namespace: a path such as /run/netns/web, or the number of a process in it. The
    /// command makes it, with its user's rights, and hands it to the daemon; the port goes away with its interface.
    netns: Option<String> = "netns" {
        value: "PATH|PID" Shape::Text,
        under: Devices,
        default: "the daemon's own",
    }
    /// Begin again at the end of the file.
    repeat: bool = "loop" {
        value: "" Shape::Flag,
        under: Replay,
        default: "",
    }
    /// Times the recorded speed; 0: as fast as the switch takes it.
    speed: Option<f64> = "speed" {
        value: "FACTOR" Shape::Factor,
        under: Replay,
        default: "1",
    }
    /// End the capture when its file would become larger than this many MiB. The port stays; what comes later is
    /// dropped.
    capture_limit: Option<u32> = "capture_limit" {
        value: "MIB" Shape::Number(1, 1 << 24),
        under: Replay,
        default: "none; of users who are neither root nor the daemon's own, their quota",
    }
    /// The packed ring layout.
    packed: bool = "packed" {
        value: "" Shape::Flag,
        under: BackEnds,
        default: "",
    }
    /// A frame takes one buffer, however long it is (non-mergeable).
    no_mergeable: bool = "no_mergeable" {
        value: "" Shape::Flag,
        under: BackEnds,
        default: "",
    }
    /// Buffers may come back in any order, even if the back end offers to keep it.
    no_in_order: bool = "no_in_order" {
        value: "" Shape::Flag,
        under: BackEnds,
        default: "",
        excludes: &["vector"], because "the vector path needs buffers that come back in order",
    }
    /// Look at several ring entries together (AVX-512, AVX2, NEON): fastest for short frames. Buffers come back in
    /// order, a frame takes one, checksums and segments are the switch's work.
    vector: bool = "vector" {
        value: "" Shape::Flag,
        under: BackEnds,
        default: "",
    }
    /// Merge TCP segments that follow one another into large ones, for a stack behind the port that gets them without
    /// segmentation offload at their source (GRO): from NICs, capture files, netmap programs.
    gro: bool = "gro" {
        value: "" Shape::Flag,
        under: Stacks,
        default: "",
    }
    /// Attach the host's stack behind the interface too, as the port NAME^ ('vale-ctl -h').
    host: bool = "host" {
        value: "" Shape::Flag,
        under: Interfaces,
        default: "",
    }
    /// By vfio-user (QEMU from 10.1 on), as the PCI devices that netmap published, instead of ivshmem. The memory
    /// device listens beside the socket, at SOCKET.mem.
    vfio_user: bool = "vfio_user" {
        value: "" Shape::Flag,
        under: Machines,
        default: "",
    }
    /// The rings of a pipe or of a network interface are passed through, without a switch: netmap:p{1, netmap:eth0. The
    /// port has that name then, and is detached as port p{1 of switch netmap.
    backend: Option<String> = "backend" {
        value: "NETMAP PORT" Shape::Text,
        under: Machines,
        default: "",
        excludes: &["name", "lossless", "gro", "vnet_hdr"],
        because "without a switch nobody holds senders back, merges segments or does the work of a virtio-net header, and the name is given",
    }
    /// The interrupt throttling register (256 ns a count; 0: none), whatever the driver writes.
    itr: Option<u16> = "itr" {
        value: "COUNTS" Shape::Number(0, 65_535),
        under: Machines,
        default: "what the driver writes",
    }
    /// Connect to a front end that listens, instead of listening.
    client: bool = "client" {
        value: "" Shape::Flag,
        under: Machines,
        default: "",
    }
    /// Permission bits of the socket that hypervisors connect to; w lets them. The user who attaches the port may
    /// always connect.
    socket_mode: Option<String> = "socket_mode" {
        value: "MODE" Shape::Mode,
        under: Machines,
        default: "0600",
        excludes: &["client"], because "it makes no socket",
    }
    /// A user who may connect, too, by name or number: the one that the hypervisor runs as.
    socket_user: Option<String> = "socket_user" {
        value: "USER" Shape::Text,
        under: Machines,
        default: "",
        excludes: &["client"], because "it makes no socket",
    }
    /// A group whose members may connect, too, by name or number.
    socket_group: Option<String> = "socket_group" {
        value: "GROUP" Shape::Text,
        under: Machines,
        default: "",
        excludes: &["client"], because "it makes no socket",
    }
    /// Ethernet address offered to the driver; of a TAP, its interface's.
    mac: Option<Mac> = "mac" {
        value: "MAC" Shape::Address,
        under: Devices,
        default: "made from the port's name; of a TAP, the kernel's choice",
    }
    /// Learn no addresses from the tunnel's frames: a control plane says where they are ('netvale evpn', 'vxlan.set').
    evpn: bool = "evpn" {
        value: "" Shape::Flag,
        under: Tunnels,
        default: "",
        excludes: &["ageing"], because "addresses that were given do not expire",
    }
    /// Take frames from all tunnel endpoints, not only from those that are named or given.
    any_remote: bool = "any_remote" {
        value: "" Shape::Flag,
        under: Tunnels,
        default: "",
    }
    /// Seconds after which an address that is not seen any more behind a remote is forgotten.
    ageing: Option<u32> = "ageing" {
        value: "SECONDS" Shape::Number(1, 1_000_000),
        under: Tunnels,
        default: "300",
    }
    /// Time to live of the tunnel's packets; for IPv6, their hop limit.
    ttl: Option<u32> = "ttl" {
        value: "HOPS" Shape::Number(1, 255),
        under: Tunnels,
        default: "the system's, usually 64",
    }
    /// Differentiated services code point of the tunnel's packets.
    dscp: Option<u32> = "dscp" {
        value: "N" Shape::Number(0, 63),
        under: Tunnels,
        default: "0",
    }
    /// Send frames that are too long for the path in fragments ('df unset'), instead of telling their senders (ICMP).
    fragment: bool = "fragment" {
        value: "" Shape::Flag,
        under: Tunnels,
        default: "",
    }
    /// Send without UDP checksums ('noudpcsum'); IPv6 has them always.
    no_udp_checksum: bool = "no_udp_checksum" {
        value: "" Shape::Flag,
        under: Tunnels,
        default: "",
    }

    policies:

    /// What the port is, for people: shown beside its name. 'netvale-cni' says the container's name.
    info: Option<Written<InfoText>> = "info" {
        value: "TEXT" Shape::Written(&syntax::INFO),
        under: About,
        default: "",
    }
    /// The VLAN of the port, which takes and gets its frames without tags.
    access: Option<u16> = "access" {
        value: "VLAN" VLAN,
        under: Vlans,
        default: "VLAN 1, once a port of the switch has VLANs",
        excludes: &["trunk", "native"], because "a port has one VLAN, or is a trunk of several",
    }
    /// The VLANs of which the port takes and gets tagged frames.
    trunk: Option<Written<VlanSet>> = "trunk" {
        value: "VLANS" Shape::Written(&syntax::VLANS),
        under: Vlans,
        default: "",
        excludes: &["access"], because "a port has one VLAN, or is a trunk of several",
    }
    /// The VLAN of a trunk's frames without a tag ('pvid untagged').
    native: Option<u16> = "native" {
        value: "VLAN" VLAN,
        under: Vlans,
        default: "a trunk takes tagged frames only",
        excludes: &["access"], because "the frames of an access port have no tags anyway",
    }
    /// The protocol of its tags. With 802.1ad, tags that its peer's frames have are payload (QinQ).
    vlan_protocol: Option<Written<Protocol>> = "vlan_protocol" {
        value: "802.1q|802.1ad" Shape::Written(&syntax::VLAN_PROTOCOL),
        under: Vlans,
        default: "802.1q",
    }
    /// Addresses that are the port's. Ethernet addresses are behind it and behind no other port of the switch; both
    /// these and IP addresses are what 'guard' compares with.
    addresses: Option<Written<Addresses>> = "addresses" {
        value: "ADDRESSES" Shape::Written(&syntax::ADDRESSES),
        under: Security,
        default: "",
    }
    /// What is checked of frames that the port sends: their Ethernet source (mac), their IP source (ip), what they say
    /// of addresses in ARP and neighbour discovery (arp, nd), by 'addresses'; that they are no DHCP server's (dhcp) and
    /// no router's (ra).
    guard: Option<Written<Checks>> = "guard" {
        value: "CHECKS" Shape::Written(&syntax::CHECKS),
        under: Security,
        default: "nothing",
    }
    /// Number of addresses that may be learned behind the port; frames from further ones are dropped.
    max_addresses: Option<u32> = "max_addresses" {
        value: "N" ANY,
        under: Security,
        default: "as many as its user may have",
    }
    /// Whether addresses are learned.
    learning: Option<bool> = "learning" {
        value: "on|off" Shape::Switch,
        under: Security,
        default: "on",
    }
    /// Whether addresses that were learned here stay: they neither expire nor move to another port.
    sticky: Option<bool> = "sticky" {
        value: "on|off" Shape::Switch,
        under: Security,
        default: "off",
    }
    /// Whether frames are taken only from addresses that are known to be behind the port.
    locked: Option<bool> = "locked" {
        value: "on|off" Shape::Switch,
        under: Security,
        default: "off",
    }
    /// Whether the port reaches only ports that are not isolated.
    isolated: Option<bool> = "isolated" {
        value: "on|off" Shape::Switch,
        under: Security,
        default: "off",
    }
    /// Whether the port gets frames for addresses that nobody knows.
    flood: Option<bool> = "flood" {
        value: "on|off" Shape::Switch,
        under: Security,
        default: "on",
    }
    /// Whether it gets frames for groups.
    mcast_flood: Option<bool> = "mcast_flood" {
        value: "on|off" Shape::Switch,
        under: Security,
        default: "on",
    }
    /// Whether it gets frames for all.
    bcast_flood: Option<bool> = "bcast_flood" {
        value: "on|off" Shape::Switch,
        under: Security,
        default: "on",
    }
    /// Frames for addresses that nobody knows that the port may send in a second.
    storm_unknown: Option<u32> = "storm_unknown" {
        value: "FRAMES" LEAST_ONE,
        under: Security,
        default: "as many as it likes",
    }
    /// Frames for groups that it may send in a second.
    storm_mcast: Option<u32> = "storm_mcast" {
        value: "FRAMES" LEAST_ONE,
        under: Security,
        default: "as many as it likes",
    }
    /// Frames for all that it may send in a second.
    storm_bcast: Option<u32> = "storm_bcast" {
        value: "FRAMES" LEAST_ONE,
        under: Security,
        default: "as many as it likes",
    }
    /// Whether the port is blocked for 10 s when addresses move to it again and again: there is a loop.
    loop_guard: Option<bool> = "loop_guard" {
        value: "on|off" Shape::Switch,
        under: Security,
        default: "off",
    }
    /// Whether the port gets only the multicast groups that somebody behind it wants, once a querier is known.
    mcast_snooping: Option<bool> = "mcast_snooping" {
        value: "on|off" Shape::Switch,
        under: Multicast,
        default: "off",
    }
    /// Whether the switch asks who wants which groups while nobody else does. It is enough that one of its ports says
    /// so.
    mcast_querier: Option<bool> = "mcast_querier" {
        value: "on|off" Shape::Switch,
        under: Multicast,
        default: "off",
    }
    /// Whether a multicast router is behind the port: 0: never, queries from there are dropped; 1: if one is heard
    /// there; 2: always.
    mcast_router: Option<u32> = "mcast_router" {
        value: "0|1|2" Shape::Number(0, 2),
        under: Multicast,
        default: "1",
    }
    /// Whether a leave is believed without asking who else is behind the port.
    mcast_fast_leave: Option<bool> = "mcast_fast_leave" {
        value: "on|off" Shape::Switch,
        under: Multicast,
        default: "off",
    }
    /// Bits a second that the port may send. Its peer waits where it can; what a network interface brings is dropped.
    rate_in: Option<Written<Rate>> = "rate_in" {
        value: "RATE" Shape::Written(&syntax::RATE),
        under: Rates,
        default: "as many as it likes",
    }
    /// Bytes that it may send together.
    burst_in: Option<Written<Size>> = "burst_in" {
        value: "SIZE" Shape::Written(&syntax::SIZE),
        under: Rates,
        default: "what the rate allows in 10 ms, at least 128kb",
    }
    /// Frames a second that it may send.
    pps_in: Option<u32> = "pps_in" {
        value: "FRAMES" LEAST_ONE,
        under: Rates,
        default: "as many as it likes",
    }
    /// A group of ports that share a rate: what they may send together, each an equal part if all want more. Setting
    /// another rate changes it for all.
    rate_group: Option<Written<RateGroup>> = "rate_group" {
        value: "NAME RATE" Shape::Written(&syntax::GROUP),
        under: Rates,
        default: "none",
    }
    /// Bits a second that the port may get. Further frames wait, and are dropped when 'queue_out' is full; those for a
    /// lossless port hold their senders back then.
    rate_out: Option<Written<Rate>> = "rate_out" {
        value: "RATE" Shape::Written(&syntax::RATE),
        under: Rates,
        default: "as many as it takes",
    }
    /// Bytes that it may get together.
    burst_out: Option<Written<Size>> = "burst_out" {
        value: "SIZE" Shape::Written(&syntax::SIZE),
        under: Rates,
        default: "what the rate allows in 10 ms, at least 128kb",
    }
    /// Frames a second that it may get.
    pps_out: Option<u32> = "pps_out" {
        value: "FRAMES" LEAST_ONE,
        under: Rates,
        default: "as many as it takes",
    }
    /// Bytes of frames that wait for these rates, with 48 beside each.
    queue_out: Option<Written<Size>> = "queue_out" {
        value: "SIZE" Shape::Written(&syntax::SIZE),
        under: Rates,
        default: "what the rate allows in 50 ms, 256kb to 64mb",
    }
    /// Rules for what the port sends, in order; the first that a frame fits decides: 'drop' or 'pass', and what fits in
    /// the language of pcap-filter(7).
    filter_in: GivenRules = "filter_in" {
        value: "RULE" Shape::List(&syntax::RULE),
        under: Filters,
        default: "everything passes",
    }
    /// Rules for what the port gets.
    filter_out: GivenRules = "filter_out" {
        value: "RULE" Shape::List(&syntax::RULE),
        under: Filters,
        default: "everything passes",
    }
    /// The link on which the port's peer sends, in the words of netem: 'delay 70ms 5ms loss 1%'.
    link_in: Option<Written<Spec>> = "link_in" {
        value: "WORDS" Shape::Written(&syntax::LINK),
        under: Links,
        default: "frames come as they are sent",
    }
    /// The link on which it gets frames.
    link_out: Option<Written<Spec>> = "link_out" {
        value: "WORDS" Shape::Written(&syntax::LINK),
        under: Links,
        default: "frames come as they are sent",
    }
}
