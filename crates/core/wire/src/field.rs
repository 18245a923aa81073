//! Reads and writes big-endian fields of a header in an array.
//!
//! Offsets are constants below the array's length, so that the compiler removes the bounds checks.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::mac::MacAddr;

/// A type that a header field can have.
pub(crate) trait WireInt {
    /// Reads the value at `at`.
    fn load<const N: usize>(bytes: &[u8; N], at: usize) -> Self;

    /// Stores the value at `at`.
    fn store<const N: usize>(self, bytes: &mut [u8; N], at: usize);
}

/// Implements [`WireInt`] for types, given their conversions from and to big-endian bytes.
macro_rules! values {
    ($($value:ty: $of_bytes:expr, $bytes_of:expr;)*) => { $(
        impl WireInt for $value {
            #[inline(always)]
            fn load<const N: usize>(bytes: &[u8; N], at: usize) -> Self {
                $of_bytes(get(bytes, at))
            }

            #[inline(always)]
            fn store<const N: usize>(self, bytes: &mut [u8; N], at: usize) {
                set(bytes, at, $bytes_of(self));
            }
        }
    )* };
}

values! {
    u8: u8::from_be_bytes, u8::to_be_bytes;
    u16: u16::from_be_bytes, u16::to_be_bytes;
    u32: u32::from_be_bytes, u32::to_be_bytes;
    MacAddr: MacAddr, |addr: MacAddr| addr.0;
    Ipv4Addr: <Ipv4Addr as From<[u8; 4]>>::from, |addr: Ipv4Addr| addr.octets();
    Ipv6Addr: <Ipv6Addr as From<[u8; 16]>>::from, |addr: Ipv6Addr| addr.octets();
}

/// Defines methods of a view, each of which reads a field: `name: type = offset;`.
macro_rules! reads {
    ($($(#[$doc:meta])* $name:ident: $value:ty = $at:expr;)*) => { $(
        $(#[$doc])*
        #[inline]
        pub fn $name(&self) -> $value {
            $crate::field::WireInt::load(self.0.borrow(), $at)
        }
    )* };
}

/// Defines methods of a view, each of which stores a field: `name: type = offset;`.
macro_rules! stores {
    ($($(#[$doc:meta])* $name:ident: $value:ty = $at:expr;)*) => { $(
        $(#[$doc])*
        #[inline]
        pub fn $name(&mut self, value: $value) {
            $crate::field::WireInt::store(value, self.0.borrow_mut(), $at);
        }
    )* };
}

pub(crate) use {reads, stores};

/// Returns the 16-bit field at `at`.
#[inline(always)]
pub(crate) fn get16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the `M` bytes at `at`.
#[inline(always)]
pub(crate) fn get<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    core::array::from_fn(|i| bytes[at + i])
}

/// Stores `value` at `at`.
#[inline(always)]
pub(crate) fn set<const N: usize, const M: usize>(bytes: &mut [u8; N], at: usize, value: [u8; M]) {
    bytes[at..at + M].copy_from_slice(&value);
}
