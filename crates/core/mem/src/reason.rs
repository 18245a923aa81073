//! Drop reasons, by name.

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
    /// The switch has no other port for it.
    NoPort = "no-port",
    /// The destination is its source port.
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
    /// The ring's `head` lay outside the ring or outside the application's slots.
    BadHead = "bad-head",
    /// A receive slot named a buffer outside the pool: the frame had no destination.
    BadRxBuffer = "bad-rx-buffer",
    /// The device behind the port refused it (link down, queue full, error).
    Device = "device",
    /// The capture has reached its limit, and ended.
    CaptureFull = "capture-full",
    /// A lossless receiver stopped reading for so long that it no longer holds its senders back.
    Stalled = "stalled",
    /// No receiver: no program has the port open, the guest has not set its queue up, the interface is down. Not a
    /// loss, and not counted among drops.
    Idle = "idle",
    /// Its VLAN is not one of the port's, or it lacks a required tag.
    Vlan = "vlan",
    /// A VLAN tag that is truncated, or whose number is reserved.
    BadTag = "bad-tag",
    /// Dropped by a filter of the port.
    Filter = "filter",
    /// Above the port's rate limit.
    Rate = "rate",
    /// Above the port's limit for broadcast, multicast and unknown destinations.
    Storm = "storm",
    /// Its source address belongs permanently to another port.
    AddressTaken = "address-taken",
    /// Its source address exceeds the port's limit of addresses.
    AddressLimit = "address-limit",
    /// The port is locked, and its source address is not known there.
    Locked = "locked",
    /// Both ports are isolated.
    Isolated = "isolated",
    /// The port is blocked, as addresses moved to it again and again.
    Loop = "loop",
    /// Its source address is not one that the port may use.
    SpoofedMac = "spoofed-mac",
    /// Its IP source address is not one that the port may use.
    SpoofedIp = "spoofed-ip",
    /// ARP for addresses that the port may not use.
    SpoofedArp = "spoofed-arp",
    /// Neighbour discovery for addresses that the port may not use.
    SpoofedNd = "spoofed-nd",
    /// A message of a DHCP server.
    RogueDhcp = "rogue-dhcp",
    /// A router advertisement or redirect.
    RogueRa = "rogue-ra",
    /// A multicast group query or a multicast router's hello, from a port that may have no router.
    RogueQuery = "rogue-query",
    /// Lost on an impaired link, as configured.
    LinkLoss = "link-loss",
    /// An impaired link is at its limit of frames or bytes in flight.
    LinkFull = "link-full",
    /// A datagram without a VXLAN header.
    BadVxlan = "bad-vxlan",
    /// A datagram with a VNI of no port.
    UnknownVni = "unknown-vni",
    /// A datagram from a VTEP unknown to the port.
    UnknownVtep = "unknown-vtep",
    /// A frame whose packet was marked between VTEPs, while its transport does not support marks (RFC 6040 §4.2).
    Congestion = "congestion",
    /// A tunnel without a VTEP for the frame.
    NoVtep = "no-vtep",
    /// Refused by the network between tunnel endpoints: no route, no permission.
    Unreachable = "unreachable",
}
