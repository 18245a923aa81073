//! Copying frames: exact lengths, never a byte past the frame.
//!
//! Rounding a copy up to whole cache lines, as the kernel's netmap does, would carry an earlier frame's bytes behind
//! the end of a buffer into another user's region. Short frames are therefore copied with two overlapping moves of the
//! largest size that fits, long ones by the C library's memmove, which on today's machines is its memcpy.
#![allow(unsafe_code)]

/// Copies `len` bytes from `src` to `dst`.
///
/// Another process may write either side during the copy, and the sides may overlap: a peer may name one place twice.
/// No decision depends on the bytes here: the worst result is a frame with mixed contents.
///
/// # Safety
/// `src..src+len` must be readable, `dst..dst+len` writable, both for the whole call.
#[inline]
pub unsafe fn copy_bytes(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(fuzzing)]
    crate::probe::read();
    // SAFETY: both ranges are valid for `len` bytes, as promised, and no access below goes past them: `ends` is called
    // only with its size <= len <= twice that.
    unsafe {
        match len {
            0 => {}
            1..=3 => {
                // First, middle and last byte cover 1, 2 and 3 bytes.
                for i in [0, len / 2, len - 1] {
                    *dst.add(i) = *src.add(i);
                }
            }
            4..=7 => ends::<u32, 1>(src, dst, len),
            8..=15 => ends::<u64, 1>(src, dst, len),
            16..=31 => ends::<Register, 1>(src, dst, len),
            32..=64 => ends::<Register, 2>(src, dst, len),
            65..=128 => ends::<Register, 4>(src, dst, len),
            129..=256 => ends::<Register, 8>(src, dst, len),
            _ => std::ptr::copy(src, dst, len),
        }
    }
}

/// The contents of one register. A byte array would go through the stack.
#[cfg(target_arch = "x86_64")]
type Register = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Register = u128;

/// Copies the first and the last N values of type T, which together cover all bytes.
///
/// # Safety
/// As [`copy_bytes`], and the size of `[T; N]` <= len <= twice that; T has no invalid values.
#[inline(always)]
unsafe fn ends<T: Copy, const N: usize>(src: *const u8, dst: *mut u8, len: usize) {
    let size = size_of::<[T; N]>();
    // SAFETY: size <= len, so [0, size) and [len - size, len) both lie inside [0, len); no access needs an alignment.
    unsafe {
        let first = src.cast::<T>();
        let last = src.add(len - size).cast::<T>();
        let first: [T; N] = std::array::from_fn(|i| first.add(i).read_unaligned());
        let last: [T; N] = std::array::from_fn(|i| last.add(i).read_unaligned());
        let to = dst.cast::<T>();
        let to_last = dst.add(len - size).cast::<T>();
        for i in 0..N {
            to.add(i).write_unaligned(first[i]);
            to_last.add(i).write_unaligned(last[i]);
        }
    }
}

/// An integer at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Anywhere<T>(T);

/// Reads an integer exactly once, while another process may write it: later decisions depend on a single value.
///
/// # Safety
/// `at` must be readable for the bytes of `T`, an integer.
#[inline(always)]
pub unsafe fn peek<T: Copy>(at: *const u8) -> T {
    #[cfg(fuzzing)]
    crate::probe::read();
    // SAFETY: readable, as promised; an `Anywhere` has no alignment, and every value of an integer's bytes is one.
    unsafe { at.cast::<Anywhere<T>>().read_volatile() }.0
}

/// Prefetches the cache line of `p` for a read: another core wrote it, and the transfer overlaps with other work.
#[inline(always)]
pub fn prefetch_read(p: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint: it faults for no address and changes only caches.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = p;
}

/// Prefetches the cache line of `p` for a write.
#[inline(always)]
pub fn prefetch_write(p: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as for reading; processors without the instruction execute a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = p;
}

#[cfg(test)]
mod tests {
    use super::copy_bytes;

    /// Objective: for every length around the size classes all bytes arrive and no byte beyond is touched.
    #[test]
    fn exact() {
        let src: Vec<u8> = (0..700u32).map(|i| (i % 251) as u8 + 1).collect();
        for len in 0..600usize {
            let mut dst = vec![0u8; len + 64];
            // SAFETY: both vectors hold at least len bytes and are distinct.
            unsafe { copy_bytes(src.as_ptr(), dst.as_mut_ptr(), len) };
            assert_eq!(&dst[..len], &src[..len]);
            assert!(dst[len..].iter().all(|&b| b == 0), "wrote past {len}");
        }
    }
}
