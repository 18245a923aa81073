//! The reasons for which frames are dropped, with their names in `netvale show`.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The reason why a frame was dropped. Drops are counted; they are never error values.
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
    /// The switch has no other port for the frame.
    NoPort = "no-port",
    /// The frame's destination is its source port.
    SamePort = "same-port",
    /// The frame is shorter than an Ethernet header.
    Runt = "runt",
    /// The frame is longer than the destination accepts.
    TooLong = "too-long",
    /// A slot of the sender names a buffer outside the pool.
    BadBuffer = "bad-buffer",
    /// A slot's length exceeds its buffer.
    BadLength = "bad-length",
    /// The frame has more than 64 slots, or fills the ring without a last slot.
    EndlessFrame = "endless-frame",
    /// The frame begins in an indirect slot (`NS_INDIRECT`) whose bytes the application's library could not read.
    Indirect = "indirect",
    /// The virtio-net header does not match its frame.
    BadVnetHeader = "bad-vnet-header",
    /// The ring's `head` was outside the ring or outside the application's slots.
    BadHead = "bad-head",
    /// A slot of the receiver names a buffer outside the pool.
    BadRxBuffer = "bad-rx-buffer",
    /// The device behind the port refused the frame (link down, queue full, error).
    Device = "device",
    /// The capture has reached its limit and has ended.
    CaptureFull = "capture-full",
    /// A lossless receiver stopped reading for so long that it no longer holds its senders back.
    Stalled = "stalled",
    /// The port has no receiver: no program has the port open, the guest has not set up its queue, or the interface is
    /// down. Such a frame is not lost, and does not count as dropped.
    Idle = "idle",
    /// The frame's VLAN is not one of the port's VLANs, or a required tag is missing.
    Vlan = "vlan",
    /// The frame's VLAN tag is truncated, or its VLAN is reserved.
    BadTag = "bad-tag",
    /// A filter of the port drops the frame.
    Filter = "filter",
    /// The port's rate limit is exceeded.
    Rate = "rate",
    /// The port's rate limit for broadcast, multicast or unknown destinations is exceeded.
    Storm = "storm",
    /// The source address belongs permanently to another port.
    AddressTaken = "address-taken",
    /// The source address is new, and the port has reached its limit of addresses.
    AddressLimit = "address-limit",
    /// The port is locked, and the source address is not one of the port's addresses.
    Locked = "locked",
    /// Source and destination port are both isolated.
    Isolated = "isolated",
    /// The port is blocked because addresses moved to it repeatedly.
    Loop = "loop",
    /// The source port may not use the source MAC address.
    SpoofedMac = "spoofed-mac",
    /// The source port may not use the source IP address, or the IP header cannot be read.
    SpoofedIp = "spoofed-ip",
    /// An ARP message claims an address that the source port may not use, or cannot be read.
    SpoofedArp = "spoofed-arp",
    /// A neighbour discovery message claims an address that the source port may not use, is a redirect, or cannot be
    /// read.
    SpoofedNd = "spoofed-nd",
    /// A DHCP server's message, or an unreadable one that may be one, comes from a port that may have no DHCP server.
    RogueDhcp = "rogue-dhcp",
    /// A router advertisement or redirect comes from a port that may have no router.
    RogueRa = "rogue-ra",
    /// A multicast group query or a multicast router's hello comes from a port that may have no router.
    RogueQuery = "rogue-query",
    /// An emulated link lost the frame, as configured.
    LinkLoss = "link-loss",
    /// An emulated link has reached its limit of frames or bytes in flight.
    LinkFull = "link-full",
    /// The tunnel received a datagram without a VXLAN header.
    BadVxlan = "bad-vxlan",
    /// The tunnel received a datagram with a VNI that no port has.
    UnknownVni = "unknown-vni",
    /// The tunnel received a datagram from a VTEP unknown to the port.
    UnknownVtep = "unknown-vtep",
    /// A congestion mark was set on the way between the VTEPs, but the inner packet does not support ECN (RFC 6040
    /// §4.2).
    Congestion = "congestion",
    /// The tunnel has no VTEP for the frame.
    NoVtep = "no-vtep",
    /// The network between the tunnel endpoints refuses the datagram: no route, or no permission.
    Unreachable = "unreachable",
}
