//! The netmap ABI, API 14, byte for byte.
//!
//! Programs compiled against `net/netmap.h` share memory with netvale and send it requests. This crate defines the
//! layout of the memory and of the requests, as plain old data. Names are netmap's: `struct netmap_ring` is
//! [`NetmapRing`], and fields and constants keep their names. Sizes and offsets are asserted at compile time and
//! padding is explicit, so that a struct may be copied bytewise in both directions.
//!
//! # The memory
//!
//! One mapped region holds everything. All links in it are offsets, so that the region may be mapped at any address.
//! The application starts from the port's `netmap_if`, whose offset the registration returns:
//!
//! ```text
//!  region ┌────────────────────────────────────────────────────────────────────┐
//!         │ ...                                                                │
//!         ├─ netmap_if (at nr_offset) ─────────────────────────────────────────┤
//!         │ ni_name  ni_tx_rings  ni_rx_rings  ni_bufs_head ─▶ extra buffer ─▶ 0 │
//!         │ ring_ofs[]: │ tx 0.. │ host tx 0.. │ rx 0.. │ host rx 0.. │          │
//!         ├──────────┼──────────────────────────────┼──────────────────────────┤
//!         │ ring_ofs[i], relative to the netmap_if  │                          │
//!         │          ▼                              ▼                          │
//!         │   netmap_ring 256 bytes          netmap_ring                       │
//!         │   buf_ofs num_slots              ...                               │
//!         │   head cur tail                                                    │
//!         │   slot[0]  buf_idx len flags ptr                                   │
//!         │   slot[1]  buf_idx ─────────────────────┐                          │
//!         │   ...                                   │ (char*)ring + buf_ofs     │
//!         │   slot[num_slots-1]                     │   + buf_idx * nr_buf_size │
//!         ├─────────────────────────────────────────▼──────────────────────────┤
//!         │ buffer 0 │ buffer 1 │ buffer 2 │ ...     (0 and 1 are reserved)     │
//!         └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! # Who owns what
//!
//! A ring is a circle of `num_slots` slots cut in two by `head` and `tail`:
//!
//! ```text
//!            head      cur          tail
//!              ▼        ▼            ▼
//!   ──┬────┬────┬────┬────┬────┬────┬────┬────┬──
//!     │host│host│appl│appl│appl│appl│host│host│      (circular)
//!   ──┴────┴────┴────┴────┴────┴────┴────┴────┴──
//! ```
//!
//! - Slots `head ..= tail-1` are the **application's**: on a tx ring they are free to fill, on an rx ring they hold
//!   received frames. The application may read and write these slots and their buffers, and may replace a slot's
//!   buffer with another buffer of the region.
//! - All other slots are the **host's** (in netmap the kernel, here the switch or the other end of a pipe), and the
//!   application must not touch them.
//! - The application gives slots back by moving `head` forward, never past `tail`. It alone writes `head` and `cur`.
//! - `cur` is the wake-up point: `poll` returns once `tail` has moved past it. `head <= cur <= tail`, circularly. An
//!   application that needs more slots than it has leaves `head` in place and moves `cur` up to `tail`.
//! - The host gives slots to the application by moving `tail` forward. It alone writes `tail`. It writes `tail` and
//!   reads `head` and `cur` only inside a sync (`NIOCTXSYNC`, `NIOCRXSYNC`, `poll`).
//! - At least one slot always stays with the host: `head == tail` means *no slots for the application*.
//!
//! A host checks `head` and `cur` against its own copies of the other words, never against the words in the shared
//! ring.
//!
//! | module | content |
//! |---|---|
//! | [`slot`] | [`NetmapSlot`] and the `NS_*` flags |
//! | [`ring`] | [`NetmapRing`], ring arithmetic |
//! | [`netif`] | [`NetmapIf`] |
//! | [`csb`] | [`NmCsbAtok`], [`NmCsbKtoa`]: ring pointers exchanged outside the ring |
//! | [`nmreq`] | the requests of `NIOCCTRL`, and their options |
//! | [`legacy`] | [`Nmreq`], the requests of `NIOCREGIF` and `NIOCGINFO` |
//! | [`ioctl`] | the ioctl numbers |
//! | [`name`] | NUL-terminated names in fixed arrays |
//! | `layout` | checks of a structure's layout at compile time |
//! | [`ptnet`] | the header page of a ptnet device |
//!
//! Source: `net/netmap.h` and `net/netmap_legacy.h` of API 14, as laid out on x86-64 and aarch64 Linux.
#![no_std]

mod layout;

pub mod csb;
pub mod ioctl;
pub mod legacy;
pub mod name;
pub mod netif;
pub mod nmreq;
pub mod ptnet;
pub mod ring;
pub mod slot;

pub use csb::{NmCsbAtok, NmCsbKtoa};
pub use legacy::Nmreq;
pub use netif::NetmapIf;
pub use nmreq::{NmreqHeader, NmreqOption, NmreqRegister};
pub use ring::{NetmapRing, ring_next, ring_space};
pub use slot::NetmapSlot;

/// The API version that this crate describes; a host writes it to `ni_version` and, on output, to `nr_version`.
pub const NETMAP_API: u32 = 14;
/// Oldest API version that a host accepts in `nr_version`.
pub const NETMAP_MIN_API: u32 = 14;
/// Newest API version that a host accepts in the `nr_version` of an `NIOCCTRL` request.
pub const NETMAP_MAX_API: u32 = 15;
/// Alignment of a ring's header and of its `sem` area, in bytes (netmap.h: `NM_CACHE_ALIGN`).
pub const NM_CACHE_ALIGN: usize = 128;
