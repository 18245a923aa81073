//! Reading and writing big-endian fields of a header held as an array.
//!
//! Offsets are constants smaller than the array's length, so that the bounds checks vanish.

/// The 16-bit field at `at`.
#[inline(always)]
pub(crate) fn get16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The 32-bit field at `at`.
#[inline(always)]
pub(crate) fn get32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes(get(bytes, at))
}

/// The `M` bytes at `at`.
#[inline(always)]
pub(crate) fn get<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    core::array::from_fn(|i| bytes[at + i])
}

/// Stores `value` at `at`.
#[inline(always)]
pub(crate) fn set<const N: usize, const M: usize>(bytes: &mut [u8; N], at: usize, value: [u8; M]) {
    bytes[at..at + M].copy_from_slice(&value);
}
