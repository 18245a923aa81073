//! Counters: frames, bytes, and drops by name.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::steps::{self, Step};

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
    /// Dropped on purpose by a fault injector.
    Injected = "injected",
    /// A lossless receiver stopped reading for so long that it no longer holds its senders back.
    Stalled = "stalled",
    /// The guest has not set the queue up, or has taken it down.
    NotReady = "not-ready",
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
    /// A tunnel has no VTEP to send the frame to.
    NoVtep = "no-vtep",
    /// The network between tunnel endpoints does not take it: no route, no permission.
    Unreachable = "unreachable",
}

/// Number of drop reasons.
pub const REASONS: usize = DropReason::ALL.len();

/// Counters of one ring (or queue) in one direction. Cumulative; anybody may read them at any time.
#[derive(Debug)]
pub struct RingCounters {
    frames: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    drops: [AtomicU64; REASONS],
}

impl Default for RingCounters {
    fn default() -> RingCounters {
        let (frames, bytes, batches) = Default::default();
        RingCounters { frames, bytes, batches, drops: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl RingCounters {
    /// Counts a batch of frames that passed. One without frames is none.
    #[inline]
    pub fn passed(&self, frames: u64, bytes: u64) {
        self.passed_in(u64::from(frames > 0), frames, bytes);
    }

    /// Counts several batches of frames that passed.
    #[inline]
    pub fn passed_in(&self, batches: u64, frames: u64, bytes: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.batches.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts `frames` dropped for one reason.
    // Not inline: it would make the paths of frames that are not dropped longer.
    #[inline(never)]
    pub fn dropped(&self, why: DropReason, frames: u64) {
        self.dropped_before(why, frames);
        if frames > 0 {
            steps::step(Step::Dropped(why, frames as u32));
        }
    }

    /// Counts frames whose drop was a step of theirs already.
    #[inline]
    pub fn dropped_before(&self, why: DropReason, frames: u64) {
        if let Some(c) = self.drops.get(why as usize) {
            c.fetch_add(frames, Ordering::Relaxed);
        }
    }

    /// Number of frames that passed.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Number of bytes of the frames that passed, without any virtio-net header.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of batches in which they passed.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Number of frames dropped for one reason.
    pub fn drops(&self, why: DropReason) -> u64 {
        self.drops.get(why as usize).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// The reasons for which frames were dropped, with their counts.
    pub fn all_drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.drops(r))).filter(|&(_, n)| n > 0)
    }
}
