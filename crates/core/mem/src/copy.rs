//! Copies of frames, with exact lengths.
//!
//! A copy rounded up to whole cache lines, as in the kernel's netmap, would carry bytes of an earlier frame, beyond the
//! frame's end, into another user's region. Short frames are therefore copied with two overlapping moves of the largest
//! size that fits, and long frames with the C library's memmove, which on current machines is the same code as memcpy.
#![allow(unsafe_code)]

/// Copies `len` bytes from `src` to `dst`.
///
/// Another process may write to both ranges during the copy, and the ranges may overlap, as a peer may name the same
/// buffer twice. No decision depends on the bytes: the worst result is a frame with mixed contents.
///
/// # Safety
/// `src..src+len` must be readable and `dst..dst+len` writable during the whole call.
#[inline]
pub unsafe fn copy_bytes(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(fuzzing)]
    crate::probe::read();
    // SAFETY: the caller guarantees that both ranges are valid for `len` bytes, and no access below goes past them:
    // `ends` is called only with its size <= len <= twice its size.
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
            16..=31 => ends::<CopyRegister, 1>(src, dst, len),
            32..=64 => ends::<CopyRegister, 2>(src, dst, len),
            65..=128 => ends::<CopyRegister, 4>(src, dst, len),
            129..=256 => ends::<CopyRegister, 8>(src, dst, len),
            _ => std::ptr::copy(src, dst, len),
        }
    }
}

/// A value of 16 bytes that the compiler keeps in registers; a byte array would pass through the stack.
#[cfg(target_arch = "x86_64")]
type CopyRegister = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type CopyRegister = u128;

/// Copies the first and the last N values of type T, which together cover all bytes.
///
/// # Safety
/// As [`copy_bytes`]; in addition, the size of `[T; N]` <= len <= twice that size, and T has no invalid values.
#[inline(always)]
unsafe fn ends<T: Copy, const N: usize>(src: *const u8, dst: *mut u8, len: usize) {
    let size = size_of::<[T; N]>();
    // SAFETY: size <= len, so [0, size) and [len - size, len) are both inside [0, len); no access needs an alignment.
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

/// An integer that may be at an unaligned address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct UnalignedInt<T>(T);

/// Reads an integer that another process may write, exactly once, so that all decisions use the same value.
///
/// # Safety
/// `T` must be an integer type, and its bytes at `at` must be readable.
#[inline(always)]
pub unsafe fn peek<T: Copy>(at: *const u8) -> T {
    #[cfg(fuzzing)]
    crate::probe::read();
    // SAFETY: the caller guarantees that the bytes are readable; an `UnalignedInt` needs no alignment, and an integer
    // has no invalid values.
    unsafe { at.cast::<UnalignedInt<T>>().read_volatile() }.0
}

/// Prefetches the cache line of `p` for a read, so that its transfer from another core overlaps with other work.
#[inline(always)]
pub fn prefetch_read(p: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch faults for no address and changes only caches.
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
    // SAFETY: as in `prefetch_read`; a processor without the instruction executes a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = p;
}

#[cfg(test)]
mod tests {
    use super::copy_bytes;

    /// Objective: for every length up to beyond the largest size class, all bytes arrive and no byte beyond them is
    /// written.
    #[test]
    fn all_bytes_arrive_and_none_beyond_is_touched() {
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
