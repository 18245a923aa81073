//! Why frames are dropped, by name.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a frame was dropped. A drop is a counter, never an error value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $variant,)* }

        impl DropReason {
            /// All reasons, in the order of their counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];

            /// The name that `netvale show` prints.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }
        }
    };
}

drop_reasons! {
    /// The destination's ring or queue was full.
    NoRoom = "no-room",
    /// The switch has no other port to send it to.
    NoPort = "no-port",
    /// The destination is the port it came from.
    SamePort = "same-port",
    /// Shorter than an Ethernet header.
    Runt = "runt",
    /// Longer than the destination takes.
    TooLong = "too-long",
    /// A slot named a buffer outside the pool.
    BadBuffer = "bad-buffer",
    /// A slot's length exceeds the buffer.
    BadLength = "bad-length",
    /// A frame of more than 64 slots, or one that fills the ring without an end.
    EndlessFrame = "endless-frame",
    /// A frame that begins in an indirect slot (`NS_INDIRECT`) whose bytes the application's library could not read.
    Indirect = "indirect",
    /// A virtio-net header that does not fit its frame.
    BadVnetHeader = "bad-vnet-header",
    /// The ring's `head` lay outside the ring or outside the slots the application was given.
    BadHead = "bad-head",
    /// A receive slot named a buffer outside the pool, so the frame had no destination.
    BadRxBuffer = "bad-rx-buffer",
    /// The device behind the port refused it (link down, queue full, error).
    Device = "device",
    /// The capture has reached its limit, and ended.
    CaptureFull = "capture-full",
    /// A lossless receiver stopped reading for so long that it no longer holds its senders back.
    Stalled = "stalled",
    /// Nobody receives there: no program has the port open, the guest has not set its queue up, the interface is down.
    /// No loss, and not counted among drops.
    Idle = "idle",
    /// Its VLAN is none of the port's, or it has no tag where it needs one.
    Vlan = "vlan",
    /// A VLAN tag that is cut short, or whose number is reserved.
    BadTag = "bad-tag",
    /// A filter of the port's drops it.
    Filter = "filter",
    /// More than the port may send.
    Rate = "rate",
    /// More frames to all, to groups or to unknown addresses than the port may send.
    Storm = "storm",
    /// Its source address is another port's for good.
    AddressTaken = "address-taken",
    /// Its source address is one more than the port may have.
    AddressLimit = "address-limit",
    /// The port is locked, and its source address is not known to be there.
    Locked = "locked",
    /// Both ports are isolated.
    Isolated = "isolated",
    /// The port is blocked, as addresses moved to it again and again.
    Loop = "loop",
    /// Its source address is none of those that the port may use.
    SpoofedMac = "spoofed-mac",
    /// Its IP source address is none of those that the port may use.
    SpoofedIp = "spoofed-ip",
    /// ARP that speaks for addresses that the port may not use.
    SpoofedArp = "spoofed-arp",
    /// Neighbour discovery that speaks for addresses that the port may not use.
    SpoofedNd = "spoofed-nd",
    /// A DHCP server's message.
    RogueDhcp = "rogue-dhcp",
    /// A router's advertisement or redirect.
    RogueRa = "rogue-ra",
    /// A query for multicast groups, or a multicast router's hello, of a port that may have no router behind it.
    RogueQuery = "rogue-query",
    /// Lost on an impaired link, as asked for.
    LinkLoss = "link-loss",
    /// An impaired link has as much under way as it may.
    LinkFull = "link-full",
    /// A datagram that begins with no VXLAN header.
    BadVxlan = "bad-vxlan",
    /// A datagram of a VNI that no port has.
    UnknownVni = "unknown-vni",
    /// A datagram from a VTEP that the port does not know.
    UnknownVtep = "unknown-vtep",
    /// A frame whose packet was marked on its way between VTEPs, while the transport in it takes no marks (RFC 6040
    /// §4.2).
    Congestion = "congestion",
    /// A tunnel has no VTEP to send the frame to.
    NoVtep = "no-vtep",
    /// The network between tunnel endpoints does not take it: no route, no permission.
    Unreachable = "unreachable",
}
