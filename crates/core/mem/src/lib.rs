//! Shared memory of netmap's rings: regions, rings, and the only code that touches words that another process writes
//! there. (Guest memory is touched in the crates of the devices.)
//!
//! A [`Region`] is one sealed memfd. It holds, in this order, netmap's three pools and the CSB arrays:
//!
//! ```text
//!   0 ┌──────────────────────────┐
//!     │ netmap_if pool           │  one an opener: names the port's rings by offset
//!     ├──────────────────────────┤
//!     │ netmap_ring pool         │  256-byte header, then the slots
//!     ├──────────────────────────┤
//!     │ buffer pool              │  0 and 1 reserved; stride 2,112 bytes unless asked otherwise
//!     ├──────────────────────────┤
//!     │ CSB: atok[0..n]          │  written by the application, 64 bytes an entry
//!     │ CSB: ktoa[0..n]          │  written by the host, 64 bytes an entry
//!     └──────────────────────────┘
//! ```
//!
//! A region that is a device's memory, mapped by a virtual machine, has a header page and the CSB arrays in front
//! ([`Layout::device`]). Elsewhere the pools come first: so they alone can replace memory that a program brought itself
//! (netmap's `extmem`), or lie in a file of their own, with the CSB arrays in a memfd mapped behind it
//! ([`Region::in_file`]).
//!
//! Two sides use it. The **application** ([`appl`]) fills and empties slots and publishes `head`/`cur`; the **host**
//! ([`host`]: the switch's worker; a pipe has no host) reads each descriptor once, checks it, and publishes
//! `hwcur`/`hwtail`. Neither ever forms a `&` or `&mut` to this memory: words shared between the sides are accessed as
//! atomics, everything else is copied in or out through raw pointers whose bounds were fixed when the view was made.
//!
//! | module | what it is |
//! |---|---|
//! | [`mapping`] | memfd, seals, mmap |
//! | [`layout`] | sizes and offsets of the pools (pure) |
//! | [`pool`] | free objects of a pool (pure, private to the host) |
//! | [`region`] | a region and the ports carved out of it |
//! | [`ring`] | one ring: slots and buffers, bounds fixed |
//! | [`side`] | a ring with its CSB entry and its offsets |
//! | [`view`] | looks up rings of a region by number |
//! | [`csb`] | the status block of one ring |
//! | [`notify`] | arm, re-check, sleep, kick |
//! | [`appl`] | the application's side: `head`, `cur`, `tail` |
//! | [`host`] | the host's side: intake of a tx ring, leases on an rx ring |
//! | [`lease`] | several producers on one rx ring |
//! | [`lent`] | a queue that a control thread lends to workers |
//! | [`calls`] | system calls that a peer could block |
//! | [`fault`] | the reason why a peer loses its port |
//! | [`drops`] | counters of frames, bytes and drops |
//! | [`steps`] | the steps of a traced frame |
//! | [`pipe`] | zero-copy move from one end's tx ring to the other end's rx ring |
//! | [`mirror`] | copies, for monitors, of frames that bypass the daemon |
//! | [`relay`] | a pipe through a host, for an end that does not know pipes |
//! | [`copy`] | copying frames |
//! | [`spin`] | how long to poll before sleeping |
//! | [`slice`](mod@slice) | short time slices |
//! | [`watch`] | mappings of files that others may truncate |
//! | [`words`] | other shared words: a device's header |
//! | [`noted`] | numbers that outlive the process |
//! | [`holes`] | waits for holes in a memory file |
//! | [`latency`] | a histogram of frame latencies for each ring |
//! | [`offsets`] | offsets of frames in the buffers of a ring |
//! | [`reason`] | drop reasons, by name |
//! | [`toucher`] | a thread that touches memory in place of threads that must not wait |
//!
//! Under `cfg(fuzzing)` there is also `probe`, with which a fuzzer counts the reads of shared memory and changes it
//! between them.
//!
//! Under `cfg(loom)` only [`notify`], [`lease`] and [`lent`] are built, on loom's atomics: the code in which two
//! threads could conflict.

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

/// The buffers that a port's rings name, in order.
#[cfg(all(test, not(loom)))]
pub(crate) fn named_bufs(port: &PortMem) -> Vec<u32> {
    let sides = port.tx.iter().chain(&port.rx);
    let mut all: Vec<u32> = sides.flat_map(|s| (0..s.ring.num_slots()).map(|i| s.ring.slot(i).buf_idx)).collect();
    all.sort_unstable();
    all
}

/// Runs fewer cases under Miri, which is slow, and without files, which it lacks.
#[cfg(all(test, not(loom)))]
pub(crate) fn test_config() -> proptest::test_runner::Config {
    let cases = if cfg!(miri) { 8 } else { 256 };
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
