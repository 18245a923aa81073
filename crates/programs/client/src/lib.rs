//! Client library of netvale: opens a port, and moves a whole batch of frames per sync.
//!
//! ```no_run
//! use netvale::{Interest, Port};
//!
//! # fn main() -> Result<(), netvale::Error> {
//! let mut port = Port::open("vale0:a")?;
//! port.tx()[0].send(&[0xff; 60]);
//! let mut frame = [0u8; 2048];
//! while port.wait(Interest::Rx, None)? {
//!     for ring in port.rx() {
//!         while let Some(len) = ring.recv(&mut frame) {
//!             println!("{len} bytes");
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A pipe needs no daemon when both ends are in one program:
//!
//! ```
//! # fn main() -> Result<(), netvale::Error> {
//! let (mut a, mut b) = netvale::Port::pipe_pair(0, 0)?;
//! a.tx()[0].send(b"hello");
//! a.tx()[0].sync();
//! b.rx()[0].sync();
//! let mut frame = [0u8; 64];
//! assert_eq!(b.rx()[0].recv(&mut frame), Some(5));
//! assert_eq!(&frame[..5], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! [`TxRing::send`] and [`RxRing::recv`] copy; fast programs work on the slots themselves ([`TxRing::at`],
//! [`RxRing::at`], [`swap_buffers`]), as netmap programs do.

/// Functions that attach to ports without the conveniences of [`Port`], for other programming interfaces that are built
/// on them, such as netmap's.
pub mod raw {
    pub use crate::connect::{AttachedRings, attach, attach_in, connect_to, release, request, resume};
}

mod connect;
mod direct;
mod error;
mod guest;
pub mod interface;
mod late;
mod nic_tx;
mod nics;
mod open;
mod outgoing;
mod parts;
mod port;
mod ring;

pub use netvale_abi::{NetmapSlot, slot};

pub use netvale_mem::slice::shorten as shorten_slices;

pub use error::Error;
pub use interface::interface;
pub use late::LatePort;
pub use netvale_guest::BareGuest;
pub use outgoing::{OutgoingRing, SendError, Wakes};
pub use port::{Interest, Options, Port};
pub use ring::{RxRing, TxRing, swap_buffers};
