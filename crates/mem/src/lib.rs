//! Shared memory: the only place in netvale where memory that another process can write is touched.
//!
//! A [`Region`] is one sealed memfd. It holds, in this order, the CSB arrays and netmap's three pools:
//!
//! ```text
//!   0 ┌──────────────────────────┐
//!     │ CSB: atok[0..n]          │  written by the application, 64 bytes an entry
//!     │ CSB: ktoa[0..n]          │  written by the host, 64 bytes an entry
//!     ├──────────────────────────┤
//!     │ netmap_if pool           │  one a port: names the port's rings by offset
//!     ├──────────────────────────┤
//!     │ netmap_ring pool         │  256-byte header, then the slots
//!     ├──────────────────────────┤
//!     │ buffer pool              │  0 and 1 reserved; stride 2,112 bytes unless asked otherwise
//!     └──────────────────────────┘
//! ```
//!
//! Two sides look at it. The **application** ([`appl`]) fills and empties slots and publishes `head`/`cur`; the
//! **host** ([`host`]: the switch's worker, or nobody at all for a pipe) reads each descriptor once, checks it,
//! and publishes `hwcur`/`hwtail`. Neither ever forms a `&` or `&mut` to this memory: words shared between the sides are
//! reached as atomics, everything else is copied in or out through raw pointers whose bounds were fixed when
//! the view was made.
//!
//! | module | what it is |
//! |---|---|
//! | [`mapping`] | memfd, seals, mmap |
//! | [`layout`] | sizes and offsets of the pools (pure) |
//! | [`pool`] | which objects of a pool are free (pure, private to the host) |
//! | [`region`] | a region and the ports carved out of it |
//! | [`ring`] | one ring: slots and buffers, bounds fixed |
//! | [`csb`] | the status block of one ring |
//! | [`notify`] | arm, re-check, sleep, kick |
//! | [`appl`] | the application's side: `head`, `cur`, `tail` |
//! | [`host`] | the host's side: intake of a tx ring, leases on an rx ring |
//! | [`lease`] | several producers on one rx ring |
//! | [`pipe`] | zero-copy move from one end's tx ring to the other end's rx ring |
//! | [`copy`] | copying frames |

pub mod appl;
pub mod copy;
pub mod csb;
pub mod host;
pub mod layout;
pub mod lease;
pub mod mapping;
pub mod notify;
pub mod pipe;
pub mod pool;
pub mod region;
pub mod ring;

pub use layout::{Layout, PoolSize, RegionSizes};
pub use mapping::Mapping;
pub use region::{PortMem, PortShape, Region, RegionError};
pub use ring::RingMem;
