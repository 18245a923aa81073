//! The memory that netmap's rings share between processes: regions, rings, and all code that accesses words that
//! another process can write. (The crates of the devices access guest memory.)
//!
//! A [`Region`] is one sealed memfd. It holds, in this order, netmap's three pools and the CSB arrays:
//!
//! ```text
//!   0 ┌──────────────────────────┐
//!     │ netmap_if pool           │  one per opener, with the offsets of the port's rings
//!     ├──────────────────────────┤
//!     │ netmap_ring pool         │  256-byte header, then the slots
//!     ├──────────────────────────┤
//!     │ buffer pool              │  0 and 1 reserved; stride 2,112 bytes by default
//!     ├──────────────────────────┤
//!     │ CSB: atok[0..n]          │  written by the application, 64 bytes per entry
//!     │ CSB: ktoa[0..n]          │  written by the host, 64 bytes per entry
//!     └──────────────────────────┘
//! ```
//!
//! A region that a virtual machine maps as a device's memory begins with a header page and the CSB arrays
//! ([`Layout::device`]). In other regions the pools come first, so that the pools alone can be placed in memory that a
//! program provides (netmap's `extmem`) or in a separate file, with the CSB arrays in a memfd mapped behind that file
//! ([`Region::in_file`]).
//!
//! Two sides use a region. The **application** ([`appl`]) fills and empties slots and publishes `head` and `cur`. The
//! **host** ([`host`]: the switch's worker; a pipe has no host) reads each descriptor once, checks it, and publishes
//! `hwcur` and `hwtail`. Neither side forms a `&` or `&mut` to this memory: words shared between the sides are accessed
//! as atomics, and everything else is copied through raw pointers, whose bounds are fixed when the view is created.
//!
//! | module | content |
//! |---|---|
//! | [`mapping`] | memfd, seals, mmap |
//! | [`layout`] | sizes and offsets of the pools (pure) |
//! | [`pool`] | free objects of a pool (pure, private to the host) |
//! | [`region`] | a region and the ports allocated in it |
//! | [`ring`] | one ring: slots and buffers, with fixed bounds |
//! | [`side`] | a ring with its CSB entry and its offsets |
//! | [`view`] | looks up rings of a region by number |
//! | [`csb`] | the status block of one ring |
//! | [`notify`] | doorbells: arm, re-check, sleep, kick |
//! | [`appl`] | the application's side: `head`, `cur`, `tail` |
//! | [`host`] | the host's side: intake of a tx ring, leases on an rx ring |
//! | [`lease`] | several producers on one rx ring |
//! | [`lent`] | a queue that a control thread lends to workers |
//! | [`calls`] | system calls that a peer could block |
//! | [`fault`] | faults: the reasons why peers lose their ports |
//! | [`drops`] | counters of frames, bytes and drops |
//! | [`steps`] | the steps of a traced frame |
//! | [`pipe`] | pipes: slots move from one end's tx ring to the other end's rx ring without a copy |
//! | [`mirror`] | copies, for monitors, of frames that bypass the daemon |
//! | [`relay`] | a pipe with a host in between, for an end without pipe support |
//! | [`copy`] | copies of frames |
//! | [`spin`] | how long to poll before sleeping |
//! | [`slice`](mod@slice) | short scheduler time slices for threads that forward frames |
//! | [`watch`] | mappings of files that other processes may truncate |
//! | [`words`] | shared words outside rings: a device's header |
//! | [`noted`] | records of progress that outlive the process |
//! | [`holes`] | waits while another process punches holes in a memory file |
//! | [`latency`] | a histogram of frame latencies for each ring |
//! | [`offsets`] | offsets of frames in the buffers of a ring |
//! | [`reason`] | drop reasons, by name |
//! | [`toucher`] | a thread that touches memory in place of threads that must not wait |
//!
//! Under `cfg(fuzzing)` there is also `probe`: a fuzzer uses it to count the reads of shared memory and to change the
//! memory between two reads.
//!
//! Under `cfg(loom)` only [`notify`], [`lease`], [`lent`], and the modules that they use, are built. These three
//! contain the code in which threads could conflict, and use loom's atomics.

#[cfg(not(loom))]
pub mod appl;
pub mod calls;
#[cfg(not(loom))]
pub mod copy;
#[cfg(not(loom))]
pub mod csb;
#[cfg(not(loom))]
pub mod drops;
pub mod fault;
#[cfg(not(loom))]
pub mod holes;
#[cfg(not(loom))]
pub mod host;
#[cfg(not(loom))]
pub mod latency;
#[cfg(not(loom))]
pub mod layout;
pub mod lease;
pub mod lent;
#[cfg(not(loom))]
pub mod mapping;
#[cfg(not(loom))]
pub mod mirror;
#[cfg(not(loom))]
pub mod noted;
pub mod notify;
#[cfg(not(loom))]
pub mod offsets;
#[cfg(not(loom))]
pub mod pipe;
#[cfg(not(loom))]
pub mod pool;
#[cfg(all(fuzzing, not(loom)))]
pub mod probe;
#[cfg(not(loom))]
pub mod reason;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
pub mod relay;
#[cfg(not(loom))]
pub mod ring;
#[cfg(not(loom))]
pub mod side;
#[cfg(not(loom))]
pub mod slice;
#[cfg(not(loom))]
pub mod spin;
#[cfg(not(loom))]
pub mod steps;
#[cfg(not(loom))]
pub mod toucher;
#[cfg(not(loom))]
pub mod view;
#[cfg(not(loom))]
pub mod watch;
#[cfg(not(loom))]
pub mod words;

#[cfg(not(loom))]
pub use layout::{Layout, PoolSize, RegionSizes};
#[cfg(not(loom))]
pub use mapping::Mapping;
#[cfg(not(loom))]
pub use region::{PortMem, PortShape, Region, RegionError};
#[cfg(not(loom))]
pub use ring::RingMem;

/// Returns the indices of the buffers in a port's slots, sorted.
#[cfg(all(test, not(loom)))]
pub(crate) fn named_bufs(port: &PortMem) -> Vec<u32> {
    let sides = port.tx.iter().chain(&port.rx);
    let mut all: Vec<u32> = sides.flat_map(|s| (0..s.ring.num_slots()).map(|i| s.ring.slot(i).buf_idx)).collect();
    all.sort_unstable();
    all
}

/// The configuration of property tests: fewer cases under Miri, which is slow, and no file of failed cases, which Miri
/// cannot write.
#[cfg(all(test, not(loom)))]
pub(crate) fn test_config() -> proptest::test_runner::Config {
    let cases = if cfg!(miri) { 8 } else { 256 };
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
