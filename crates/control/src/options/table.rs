//! Every option of an attached port, defined once.

use netvale_policy::guard::{AllowedAddresses, Checks};
use netvale_policy::impair::Spec;
use netvale_policy::units::{Rate, Size};
use netvale_policy::vlan::{TagProtocol, VlanSet};

use super::field::Field;
use super::rule::ConfiguredRules;
use super::written::{InfoText, WrittenValue};
use super::{AttachOption, Heading, KindType, OptionAccess, OptionHolder, OptionShape, OptionsOf, RateGroup, syntax};
use crate::mac::Mac;

/// Defines [`PortOptions`], [`Policies`], [`OPTIONS`] and the typed views of one kind's options from the same rows. A
/// row's documentation appears at the field, in the help, the manual page and the reference.
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
        /// The options of an attached port of any kind. A number of 0, a false switch, and `None` count as omitted.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct PortOptions {
            $( $(#[doc = $doc])+ pub $field: $type, )+
            /// The port's policies.
            pub policies: Policies,
        }

        /// The policies of a port, as a request or a file gives them: values parsed once, with their original texts.
        /// `None` selects a policy's default.
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
    (@option $holder:ident $field:ident $key:literal $doc:expr, $(for: $every:ident,)? flag $($rest:tt)*) => {
        options!(@option $holder $field $key $doc, $(for: $every,)? value: "" OptionShape::Flag, $($rest)*)
    };
    (@option $holder:ident $field:ident $key:literal $doc:expr, for: $every:ident, switch $($rest:tt)*) => {
        options!(@option $holder $field $key $doc, for: $every, value: "on|off" OptionShape::Switch, $($rest)*)
    };
    (@option $holder:ident $field:ident $key:literal $doc:expr,
        $(for: $every:ident,)?
        value: $value:literal $shape:expr,
        under: $heading:ident,
        $(default: $default:literal,)?
        $(excludes: $excludes:expr, because $why:literal,)?
    ) => {
        AttachOption {
            key: $key,
            doc: $doc,
            value_name: $value,
            shape: $shape,
            is_for_all: options!(@is_for_all $(for: $every,)?),
            heading: Heading::$heading,
            default: options!(@or [$($default)?] ""),
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

const ANY: OptionShape = OptionShape::Number(0, u32::MAX);
const LEAST_ONE: OptionShape = OptionShape::Number(1, u32::MAX);
const VLAN: OptionShape = OptionShape::Number(1, 4094);

options! {
    /// The port's name on the switch.
    name: Option<String> = "name" {
        for: every,
        value: "NAME" OptionShape::Text,
        under: General,
        default: "derived from PORT",
    }
    /// Hold senders back while this port is full, instead of dropping frames.
    lossless: bool = "lossless" {
        for: every,
        flag under: General,
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
    /// Buffer size in bytes.
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
        flag under: Memory,
    }
    /// Bytes of virtio-net header before each frame. TAP ports always have the header. A ptnet device offers it to the
    /// driver (0 or 12). On a socket, the peer must expect it.
    vnet_hdr: u32 = "vnet_hdr" {
        value: "0|10|12" OptionShape::OneOf(&[0, 10, 12]),
        under: Memory,
        default: "0",
    }
    /// Cut large segments for the program although its frames have a header: for QEMU's e1000e and igb, whose header is
    /// for checksums only.
    no_segments: bool = "no_segments" {
        flag under: Memory,
    }
    /// MTU of the device.
    mtu: Option<u32> = "mtu" {
        value: "BYTES" OptionShape::Number(68, 65_535),
        under: Devices,
        default: "1500; with a backend, the interface's; for a tunnel, what the path to its remotes allows",
    }
    /// Create the TAP in this network namespace: a path such as /run/netns/web, or the ID of a process in it. The
    /// command creates the TAP with its user's rights and passes it to the daemon. The port is removed with its
    /// interface.
    netns: Option<String> = "netns" {
        value: "PATH|PID" OptionShape::Text,
        under: Devices,
        default: "the daemon's own",
    }
    /// Start again at the end of the file.
    repeat: bool = "loop" {
        flag under: Replay,
    }
    /// Replay speed as a multiple of the recorded speed; 0: as fast as the switch takes the frames.
    speed: Option<f64> = "speed" {
        value: "FACTOR" OptionShape::Factor,
        under: Replay,
        default: "1",
    }
    /// End the capture before its file exceeds this many MiB. The port remains and drops later frames.
    capture_limit: Option<u32> = "capture_limit" {
        value: "MIB" OptionShape::Number(1, 1 << 24),
        under: Replay,
        default: "none for root and the daemon's own user; otherwise the user's quota",
    }
    /// Use the packed ring layout.
    packed: bool = "packed" {
        flag under: BackEnds,
    }
    /// Use one buffer per frame, however long (no mergeable buffers).
    no_mergeable: bool = "no_mergeable" {
        flag under: BackEnds,
    }
    /// Accept returned buffers in any order, even if the back end offers to keep it.
    no_in_order: bool = "no_in_order" {
        flag under: BackEnds,
        excludes: &["vector"], because "the vector path needs buffers that are returned in order",
    }
    /// Process several ring entries per instruction (AVX-512, AVX2, NEON): fastest for short frames. The back end must
    /// return buffers in order and put each frame into one buffer; the switch computes checksums and cuts segments.
    vector: bool = "vector" {
        flag under: BackEnds,
    }
    /// Merge consecutive TCP segments, and UDP datagrams, into large frames (GRO), for a stack behind the port and
    /// sources without segmentation offload: NICs, capture files, netmap programs.
    gro: bool = "gro" {
        flag under: Stacks,
    }
    /// Also attach the interface's host stack, as the port NAME^ ('vale-ctl -h').
    host: bool = "host" {
        flag under: Interfaces,
    }
    /// Serve the PCI devices that netmap published over vfio-user (QEMU 10.1 or newer), instead of ivshmem. The memory
    /// device has its own socket, SOCKET.mem.
    vfio_user: bool = "vfio_user" {
        flag under: Machines,
    }
    /// Pass through the rings of a pipe or of a network interface, without a switch: netmap:p{1, netmap:eth0. The port
    /// then has this name; detach it as port p{1 of switch netmap.
    backend: Option<String> = "backend" {
        value: "NETMAP PORT" OptionShape::Text,
        under: Machines,
        excludes: &["name", "lossless", "gro", "vnet_hdr"],
        because "these options need a switch, and the backend provides the name",
    }
    /// Value of the interrupt throttling register, in units of 256 ns (0: no throttling). It overrides the driver's
    /// value.
    itr: Option<u16> = "itr" {
        value: "COUNTS" OptionShape::Number(0, 65_535),
        under: Machines,
        default: "the driver's value",
    }
    /// Connect to a listening front end or peer, instead of listening.
    client: bool = "client" {
        flag under: Machines,
    }
    /// Permission bits of the socket to which hypervisors and other peers connect; a connection needs w. The user who
    /// attaches the port may always connect.
    socket_mode: Option<String> = "socket_mode" {
        value: "MODE" OptionShape::Mode,
        under: Machines,
        default: "0600",
        excludes: &["client"], because "a client creates no socket",
    }
    /// Another user who may connect, by name or ID: the user of the hypervisor.
    socket_user: Option<String> = "socket_user" {
        value: "USER" OptionShape::Text,
        under: Machines,
        excludes: &["client"], because "a client creates no socket",
    }
    /// A group whose members may also connect, by name or ID.
    socket_group: Option<String> = "socket_group" {
        value: "GROUP" OptionShape::Text,
        under: Machines,
        excludes: &["client"], because "a client creates no socket",
    }
    /// Seconds between attempts to reach an absent peer.
    reconnect: Option<u32> = "reconnect" {
        value: "SECONDS" OptionShape::Number(1, 3600),
        under: Sockets,
        default: "1",
    }
    /// Maximum number of ports for peers of a listening socket, one per peer, including the ports that peers have left.
    peers: Option<u32> = "peers" {
        value: "N" OptionShape::Number(1, 4000),
        under: Sockets,
        default: "64",
        excludes: &["client"], because "a client has one peer",
    }
    /// Ethernet address offered to the driver; for a TAP, the address of its interface.
    mac: Option<Mac> = "mac" {
        value: "MAC" OptionShape::Address,
        under: Devices,
        default: "derived from the port's name; for a TAP, the kernel's choice",
    }
    /// Learn no addresses from the tunnel's frames: a control plane provides them ('netvale evpn', 'vxlan.set').
    evpn: bool = "evpn" {
        flag under: Tunnels,
        excludes: &["ageing"], because "provided addresses do not expire",
    }
    /// Accept frames from all tunnel endpoints, not only from those that are named or provided.
    any_remote: bool = "any_remote" {
        flag under: Tunnels,
    }
    /// Seconds without a frame after which an address behind a remote is forgotten.
    ageing: Option<u32> = "ageing" {
        value: "SECONDS" OptionShape::Number(1, 1_000_000),
        under: Tunnels,
        default: "300",
    }
    /// Time to live of the tunnel's packets; for IPv6, their hop limit.
    ttl: Option<u32> = "ttl" {
        value: "HOPS" OptionShape::Number(1, 255),
        under: Tunnels,
        default: "the system's, usually 64",
    }
    /// Differentiated services code point of the tunnel's packets.
    dscp: Option<u32> = "dscp" {
        value: "N" OptionShape::Number(0, 63),
        under: Tunnels,
        default: "0",
    }
    /// Send frames that are too long for the path in fragments ('df unset'), instead of reporting the path MTU to their
    /// senders (ICMP).
    fragment: bool = "fragment" {
        flag under: Tunnels,
    }
    /// Send packets without UDP checksums ('noudpcsum'); IPv6 packets always have them.
    no_udp_checksum: bool = "no_udp_checksum" {
        flag under: Tunnels,
    }

    policies:

    /// A description for people, shown beside the port's name. 'netvale-cni' sets the container's name.
    info: Option<WrittenValue<InfoText>> = "info" {
        value: "TEXT" OptionShape::Written(&syntax::INFO),
        under: About,
    }
    /// The VLAN of an access port, which sends and receives untagged frames.
    access: Option<u16> = "access" {
        value: "VLAN" VLAN,
        under: Vlans,
        default: "VLAN 1, once a port of the switch has VLANs",
        excludes: &["trunk", "native"], because "a port has one VLAN or is a trunk",
    }
    /// The VLANs whose tagged frames the port sends and receives.
    trunk: Option<WrittenValue<VlanSet>> = "trunk" {
        value: "VLANS" OptionShape::Written(&syntax::VLANS),
        under: Vlans,
        excludes: &["access"], because "a port has one VLAN or is a trunk",
    }
    /// The VLAN of a trunk's untagged frames ('pvid untagged').
    native: Option<u16> = "native" {
        value: "VLAN" VLAN,
        under: Vlans,
        default: "a trunk takes tagged frames only",
        excludes: &["access"], because "an access port has untagged frames only",
    }
    /// Whether the port has a VLAN of its own: one that no other port of the switch has, unless 'access' gives it. Only
    /// trunks of that VLAN exchange frames with the port.
    private: Option<bool> = "private" {
        switch under: Vlans,
        default: "off",
        excludes: &["trunk", "native"], because "a private port has one VLAN",
    }
    /// The protocol of the port's VLAN tags. With 802.1ad, tags already in its peer's frames are payload (QinQ).
    vlan_protocol: Option<WrittenValue<TagProtocol>> = "vlan_protocol" {
        value: "802.1q|802.1ad" OptionShape::Written(&syntax::VLAN_PROTOCOL),
        under: Vlans,
        default: "802.1q",
    }
    /// The port's own addresses. The switch never moves these Ethernet addresses to another port. 'guard' compares
    /// frames with the Ethernet and IP addresses.
    addresses: Option<WrittenValue<AllowedAddresses>> = "addresses" {
        value: "ADDRESSES" OptionShape::Written(&syntax::ADDRESSES),
        under: Security,
    }
    /// Checks on the frames that the port sends. Compared with 'addresses': Ethernet source (mac), IP source (ip),
    /// address claims in ARP and neighbour discovery (arp, nd). Refused: messages of DHCP servers (dhcp) and of routers
    /// (ra).
    guard: Option<WrittenValue<Checks>> = "guard" {
        value: "CHECKS" OptionShape::Written(&syntax::CHECKS),
        under: Security,
        default: "nothing",
    }
    /// Maximum number of addresses learned on the port; frames from further addresses are dropped.
    max_addresses: Option<u32> = "max_addresses" {
        value: "N" ANY,
        under: Security,
        default: "the limit of the port's user",
    }
    /// Whether the switch learns addresses on the port.
    learning: Option<bool> = "learning" {
        switch under: Security,
        default: "on",
    }
    /// Whether learned addresses stay on the port: they neither expire nor move to another port.
    sticky: Option<bool> = "sticky" {
        switch under: Security,
        default: "off",
    }
    /// Whether frames are accepted only from addresses known to be behind the port.
    locked: Option<bool> = "locked" {
        switch under: Security,
        default: "off",
    }
    /// Whether the port reaches only ports that are not isolated.
    isolated: Option<bool> = "isolated" {
        switch under: Security,
        default: "off",
    }
    /// Whether the port receives frames for unknown addresses.
    flood: Option<bool> = "flood" {
        switch under: Security,
        default: "on",
    }
    /// Whether the port receives multicast frames.
    mcast_flood: Option<bool> = "mcast_flood" {
        switch under: Security,
        default: "on",
    }
    /// Whether the port receives broadcast frames.
    bcast_flood: Option<bool> = "bcast_flood" {
        switch under: Security,
        default: "on",
    }
    /// Maximum number of frames for unknown addresses that the port may send per second.
    storm_unknown: Option<u32> = "storm_unknown" {
        value: "FRAMES" LEAST_ONE,
        under: Security,
        default: "unlimited",
    }
    /// Maximum number of multicast frames that the port may send per second.
    storm_mcast: Option<u32> = "storm_mcast" {
        value: "FRAMES" LEAST_ONE,
        under: Security,
        default: "unlimited",
    }
    /// Maximum number of broadcast frames that the port may send per second.
    storm_bcast: Option<u32> = "storm_bcast" {
        value: "FRAMES" LEAST_ONE,
        under: Security,
        default: "unlimited",
    }
    /// Whether the port is blocked for 10 s when addresses keep moving to it, the sign of a loop.
    loop_guard: Option<bool> = "loop_guard" {
        switch under: Security,
        default: "off",
    }
    /// Whether the port receives only those multicast groups that have members behind it, once there is a querier.
    mcast_snooping: Option<bool> = "mcast_snooping" {
        switch under: Multicast,
        default: "off",
    }
    /// Whether the switch sends membership queries while no other querier does. One port of the switch with this policy
    /// is enough.
    mcast_querier: Option<bool> = "mcast_querier" {
        switch under: Multicast,
        default: "off",
    }
    /// Whether a multicast router is behind the port. 0: never, and queries from there are dropped; 1: once one is
    /// detected; 2: always.
    mcast_router: Option<u32> = "mcast_router" {
        value: "0|1|2" OptionShape::Number(0, 2),
        under: Multicast,
        default: "1",
    }
    /// Whether a leave takes effect without a query for other members behind the port.
    mcast_fast_leave: Option<bool> = "mcast_fast_leave" {
        switch under: Multicast,
        default: "off",
    }
    /// Bits per second that the port may send. Its peer waits if it can; excess frames from a network interface are
    /// dropped.
    rate_in: Option<WrittenValue<Rate>> = "rate_in" {
        value: "RATE" OptionShape::Written(&syntax::RATE),
        under: Rates,
        default: "unlimited",
    }
    /// Bytes that the port may send in one burst.
    burst_in: Option<WrittenValue<Size>> = "burst_in" {
        value: "SIZE" OptionShape::Written(&syntax::SIZE),
        under: Rates,
        default: "what the rate allows in 10 ms, at least 128kb",
    }
    /// Frames per second that the port may send.
    pps_in: Option<u32> = "pps_in" {
        value: "FRAMES" LEAST_ONE,
        under: Rates,
        default: "unlimited",
    }
    /// A group of ports that share a send rate, in equal parts if all of them need more. A new rate applies to the
    /// whole group.
    rate_group: Option<WrittenValue<RateGroup>> = "rate_group" {
        value: "NAME RATE" OptionShape::Written(&syntax::GROUP),
        under: Rates,
        default: "none",
    }
    /// Bits per second that the port may receive. Excess frames wait in 'queue_out' and are dropped when it is full;
    /// frames for a lossless port then hold their senders back.
    rate_out: Option<WrittenValue<Rate>> = "rate_out" {
        value: "RATE" OptionShape::Written(&syntax::RATE),
        under: Rates,
        default: "unlimited",
    }
    /// Bytes that the port may receive in one burst.
    burst_out: Option<WrittenValue<Size>> = "burst_out" {
        value: "SIZE" OptionShape::Written(&syntax::SIZE),
        under: Rates,
        default: "what the rate allows in 10 ms, at least 128kb",
    }
    /// Frames per second that the port may receive.
    pps_out: Option<u32> = "pps_out" {
        value: "FRAMES" LEAST_ONE,
        under: Rates,
        default: "unlimited",
    }
    /// Bytes of frames that may wait for these rates, plus 48 for each frame.
    queue_out: Option<WrittenValue<Size>> = "queue_out" {
        value: "SIZE" OptionShape::Written(&syntax::SIZE),
        under: Rates,
        default: "what the rate allows in 50 ms, at least 256kb and at most 64mb",
    }
    /// Rules for frames that the port sends; the first matching rule decides. A rule is 'drop' or 'pass' and an
    /// expression of pcap-filter(7).
    filter_in: ConfiguredRules = "filter_in" {
        value: "RULE" OptionShape::List(&syntax::RULE),
        under: Filters,
        default: "everything passes",
    }
    /// Rules for frames that the port receives.
    filter_out: ConfiguredRules = "filter_out" {
        value: "RULE" OptionShape::List(&syntax::RULE),
        under: Filters,
        default: "everything passes",
    }
    /// Emulated link for frames that the port sends, in the syntax of netem: 'delay 70ms 5ms loss 1%'.
    link_in: Option<WrittenValue<Spec>> = "link_in" {
        value: "WORDS" OptionShape::Written(&syntax::LINK),
        under: Links,
        default: "no emulation",
    }
    /// Emulated link for frames that the port receives.
    link_out: Option<WrittenValue<Spec>> = "link_out" {
        value: "WORDS" OptionShape::Written(&syntax::LINK),
        under: Links,
        default: "no emulation",
    }
}
