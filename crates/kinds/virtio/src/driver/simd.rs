//! Reads several used entries of an in-order ring at a time with AVX-512, AVX2 or NEON, as the processor permits, or
//! with plain code.
//!
//! The device writes the entries' memory at any time. Each entry is therefore read once, into a register or a copy, and
//! only that value is used. If the compiler added a second read, it would do no harm: IDs are only compared, and
//! lengths are checked in the copy.

use super::{RUN, UsedBuffer};

/// Number of entries of a split used ring read at a time: 64 bytes, which span two cache lines.
pub const WIDE: usize = 8;
/// Number of descriptors of a packed ring read at a time: a cache line.
pub const WIDE_PACKED: usize = 4;

/// A set of instructions for reading several entries at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Simd {
    /// Eight entries in one register.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Four entries in one register.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Four entries in two registers.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// One entry at a time, with plain code.
    #[default]
    Portable,
}

impl Simd {
    /// Returns the set with the widest registers that this processor supports.
    pub fn best() -> Simd {
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512bw") {
                return Simd::Avx512;
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                return Simd::Avx2;
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Simd::Neon;
        }
        Simd::Portable
    }

    /// Returns the name of the instructions.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => "AVX2",
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => "NEON",
            Simd::Portable => "portable",
        }
    }

    /// Returns all sets that this processor supports.
    pub fn all() -> Vec<Simd> {
        #[cfg(target_arch = "x86_64")]
        {
            let has = [
                (std::arch::is_x86_feature_detected!("avx512bw"), Simd::Avx512),
                (std::arch::is_x86_feature_detected!("avx2"), Simd::Avx2),
                (true, Simd::Portable),
            ];
            has.into_iter().filter_map(|(has, simd)| has.then_some(simd)).collect()
        }
        #[cfg(target_arch = "aarch64")]
        {
            vec![Simd::best(), Simd::Portable]
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            vec![Simd::Portable]
        }
    }

    /// Returns whether the IDs of the [`WIDE`] entries of a split used ring at `at` are `first`, `first + 1`, and so
    /// on. If so, `into` receives the entries' lengths.
    ///
    /// # Safety
    /// `at` is readable for 64 bytes and aligned to 4; the processor supports `self`.
    #[inline]
    pub unsafe fn split(self, at: *const u8, first: u16, into: &mut [u32; WIDE]) -> bool {
        // SAFETY: each function needs only the caller's promises: that `at` is readable and aligned, and that the
        // processor has the instructions of `self`.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Simd::Avx512 => x86::split_512(at, first, into),
                #[cfg(target_arch = "x86_64")]
                Simd::Avx2 => x86::split_256(at, first, into),
                #[cfg(target_arch = "aarch64")]
                Simd::Neon => arm::split(at, first, into),
                Simd::Portable => portable::split(at, first, into),
            }
        }
    }

    /// Returns whether the IDs of the [`WIDE_PACKED`] descriptors of a packed ring at `at` are `first`, `first + 1`,
    /// and so on, and whether their flags are exactly `flags`. If both hold, `into` receives the descriptors' lengths.
    /// ID, length and flags of a descriptor are read as one word.
    ///
    /// # Safety
    /// `at` is readable for 64 bytes and aligned to 16; the processor supports `self`.
    #[inline]
    pub unsafe fn packed(self, at: *const u8, first: u16, flags: u16, into: &mut [u32; WIDE_PACKED]) -> bool {
        // SAFETY: each function needs only the caller's promises: that `at` is readable and aligned, and that the
        // processor has the instructions of `self`.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Simd::Avx512 => x86::packed_512(at, first, flags, into),
                #[cfg(target_arch = "x86_64")]
                Simd::Avx2 => x86::packed_256(at, first, flags, into),
                #[cfg(target_arch = "aarch64")]
                Simd::Neon => arm::packed(at, first, flags, into),
                Simd::Portable => portable::packed(at, first, flags, into),
            }
        }
    }
}

/// Fills `into` with used entries that have the lengths `lens` and consecutive IDs from `first` on.
#[inline]
pub fn name_run(first: u16, lens: &[u32], into: &mut [UsedBuffer]) {
    debug_assert!(into.len() <= RUN);
    for (k, (used, len)) in into.iter_mut().zip(lens).enumerate() {
        *used = UsedBuffer { id: first + k as u16, len: *len };
    }
}

mod portable {
    use super::{WIDE, WIDE_PACKED};
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// See [`super::Simd::split`].
    ///
    /// # Safety
    /// The conditions of [`super::Simd::split`].
    #[inline]
    pub unsafe fn split(at: *const u8, first: u16, into: &mut [u32; WIDE]) -> bool {
        let mut same = true;
        for (k, len) in into.iter_mut().enumerate() {
            // SAFETY: the address is one of the entries that the caller's contract covers.
            let word = unsafe { entry(at.add(8 * k)) };
            same &= word as u32 == u32::from(first) + k as u32;
            *len = (word >> 32) as u32;
        }
        same
    }

    /// See [`super::Simd::packed`].
    ///
    /// # Safety
    /// The conditions of [`super::Simd::packed`].
    #[inline]
    pub unsafe fn packed(at: *const u8, first: u16, flags: u16, into: &mut [u32; WIDE_PACKED]) -> bool {
        let mut same = true;
        for (k, len) in into.iter_mut().enumerate() {
            // SAFETY: the second half of a descriptor, aligned to 8.
            let word = unsafe { (*at.add(16 * k + 8).cast::<AtomicU64>()).load(Ordering::Acquire) };
            same &= (word >> 32) as u32 == (u32::from(first) + k as u32) | u32::from(flags) << 16;
            *len = word as u32;
        }
        same
    }

    /// Reads an entry: ID in the low half, length in the high half.
    ///
    /// # Safety
    /// `at` is readable for 8 bytes and aligned to 4.
    unsafe fn entry(at: *const u8) -> u64 {
        let half = at.cast::<AtomicU32>();
        // SAFETY: two words of 4 bytes, readable and aligned, as promised.
        let (id, len) = unsafe { ((*half).load(Ordering::Relaxed), (*half.add(1)).load(Ordering::Relaxed)) };
        u64::from(id) | u64::from(len) << 32
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{WIDE, WIDE_PACKED};

    /// See [`super::Simd::split`].
    ///
    /// # Safety
    /// The conditions of [`super::Simd::split`].
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn split_512(at: *const u8, first: u16, into: &mut [u32; WIDE]) -> bool {
        // SAFETY: the caller promises 64 readable bytes, which are read once.
        let entries = unsafe { at.cast::<__m512i>().read_unaligned() };
        let step = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
        let expected = _mm512_add_epi64(step, _mm512_set1_epi64(i64::from(first)));
        let ids = _mm512_and_si512(entries, _mm512_set1_epi64(0xffff_ffff));
        let lens = _mm512_cvtepi64_epi32(_mm512_srli_epi64::<32>(entries));
        // SAFETY: the write covers the 32 bytes of `into`.
        unsafe { into.as_mut_ptr().cast::<__m256i>().write_unaligned(lens) };
        _mm512_cmpeq_epi64_mask(ids, expected) == 0xff
    }

    /// See [`super::Simd::split`].
    ///
    /// # Safety
    /// The conditions of [`super::Simd::split`].
    #[target_feature(enable = "avx2")]
    pub unsafe fn split_256(at: *const u8, first: u16, into: &mut [u32; WIDE]) -> bool {
        let mut same = true;
        for half in 0..2usize {
            // SAFETY: the load reads 32 of the 64 readable bytes, once.
            let entries = unsafe { at.add(32 * half).cast::<__m256i>().read_unaligned() };
            let start = i64::from(first) + 4 * half as i64;
            let expected = _mm256_add_epi64(_mm256_set_epi64x(3, 2, 1, 0), _mm256_set1_epi64x(start));
            let ids = _mm256_and_si256(entries, _mm256_set1_epi64x(0xffff_ffff));
            same &= _mm256_movemask_epi8(_mm256_cmpeq_epi64(ids, expected)) == -1;
            let order = _mm256_set_epi32(6, 4, 2, 0, 7, 5, 3, 1);
            let lens = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(entries, order));
            // SAFETY: the write covers 16 of the 32 bytes of `into`.
            unsafe { into.as_mut_ptr().add(4 * half).cast::<__m128i>().write_unaligned(lens) };
        }
        same
    }

    /// See [`super::Simd::packed`].
    ///
    /// # Safety
    /// The conditions of [`super::Simd::packed`].
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn packed_512(at: *const u8, first: u16, flags: u16, into: &mut [u32; WIDE_PACKED]) -> bool {
        // SAFETY: the caller promises 64 readable bytes, which are read once, each word in one access.
        let descriptors = unsafe { at.cast::<__m512i>().read_unaligned() };
        let step = _mm512_set_epi64(3, 0, 2, 0, 1, 0, 0, 0);
        let start = _mm512_set1_epi64(i64::from(first) | i64::from(flags) << 16);
        let names = _mm512_srli_epi64::<32>(descriptors);
        let same = _mm512_mask_cmpeq_epi64_mask(0b1010_1010, names, _mm512_add_epi64(step, start)) == 0b1010_1010;
        let words = _mm512_maskz_compress_epi64(0b1010_1010, descriptors);
        let lens = _mm256_castsi256_si128(_mm512_cvtepi64_epi32(words));
        // SAFETY: the write covers the 16 bytes of `into`.
        unsafe { into.as_mut_ptr().cast::<__m128i>().write_unaligned(lens) };
        same
    }

    /// See [`super::Simd::packed`].
    ///
    /// # Safety
    /// The conditions of [`super::Simd::packed`].
    #[target_feature(enable = "avx2")]
    pub unsafe fn packed_256(at: *const u8, first: u16, flags: u16, into: &mut [u32; WIDE_PACKED]) -> bool {
        let mut same = true;
        for half in 0..2usize {
            // SAFETY: the load reads two of the four descriptors once, each word in one access.
            let descriptors = unsafe { at.add(32 * half).cast::<__m256i>().read_unaligned() };
            let start = (i64::from(first) + 2 * half as i64) | i64::from(flags) << 16;
            let expected = _mm256_set_epi64x(start + 1, 0, start, 0);
            let equal = _mm256_cmpeq_epi64(_mm256_srli_epi64::<32>(descriptors), expected);
            same &= _mm256_movemask_pd(_mm256_castsi256_pd(equal)) & 0b1010 == 0b1010;
            let lens = _mm256_permutevar8x32_epi32(descriptors, _mm256_set_epi32(0, 0, 0, 0, 0, 0, 6, 2));
            // SAFETY: the write covers 8 of the 16 bytes of `into`.
            unsafe { into.as_mut_ptr().add(2 * half).cast::<i64>().write_unaligned(_mm256_extract_epi64::<0>(lens)) };
        }
        same
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::{WIDE, WIDE_PACKED};

    /// See [`super::Simd::split`].
    ///
    /// # Safety
    /// The conditions of [`super::Simd::split`].
    #[target_feature(enable = "neon")]
    pub unsafe fn split(at: *const u8, first: u16, into: &mut [u32; WIDE]) -> bool {
        let mut same = true;
        let steps = [0u32, 1, 2, 3];
        for half in 0..2usize {
            // SAFETY: the first load reads 32 of the 64 readable bytes once, and separates IDs and lengths; the second
            // reads the 16 bytes of `steps`.
            let (both, step) = unsafe { (vld2q_u32(at.add(32 * half).cast::<u32>()), vld1q_u32(steps.as_ptr())) };
            let expected = vaddq_u32(step, vdupq_n_u32(u32::from(first) + 4 * half as u32));
            same &= vminvq_u32(vceqq_u32(both.0, expected)) == u32::MAX;
            // SAFETY: the write covers 16 of the 32 bytes of `into`.
            unsafe { vst1q_u32(into.as_mut_ptr().add(4 * half), both.1) };
        }
        same
    }

    /// See [`super::Simd::packed`].
    ///
    /// # Safety
    /// The conditions of [`super::Simd::packed`].
    #[target_feature(enable = "neon")]
    pub unsafe fn packed(at: *const u8, first: u16, flags: u16, into: &mut [u32; WIDE_PACKED]) -> bool {
        let mut same = true;
        for half in 0..2usize {
            // SAFETY: the load reads two of the four descriptors once, and separates addresses and second words.
            let words = unsafe { vld2q_u64(at.add(32 * half).cast::<u64>()) }.1;
            let start = (u64::from(first) + 2 * half as u64) | u64::from(flags) << 16;
            let names = vshrq_n_u64::<32>(words);
            same &= vgetq_lane_u64::<0>(names) == start && vgetq_lane_u64::<1>(names) == start + 1;
            into[2 * half] = vgetq_lane_u64::<0>(words) as u32;
            into[2 * half + 1] = vgetq_lane_u64::<1>(words) as u32;
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: for split rings, all instruction sets that this processor supports give the same results as plain
    /// code.
    #[test]
    fn all_instructions_give_the_same_results() {
        for seed in 0..200u32 {
            let first = (seed * 37 % 1000) as u16;
            let mut entries = [0u32; 17];
            for k in 0..WIDE {
                entries[1 + 2 * k] = u32::from(first) + k as u32;
                entries[2 + 2 * k] = seed.wrapping_mul(0x9e37_79b9).rotate_left(k as u32);
            }
            if seed % 3 == 0 {
                entries[1 + 2 * (seed as usize / 3 % WIDE)] ^= 1 << (seed % 32);
            }
            for simd in Simd::all() {
                let mut lens = [0; WIDE];
                // SAFETY: the address has 64 readable bytes and is aligned to 4; this processor supports the
                // instructions.
                let same = unsafe { simd.split(entries.as_ptr().cast::<u8>().add(4), first, &mut lens) };
                assert_eq!(same, seed % 3 != 0, "{simd:?} {seed}");
                assert_eq!(lens.to_vec(), entries[2..].iter().step_by(2).copied().collect::<Vec<_>>(), "{simd:?}");
            }
        }
    }

    /// Objective: for packed rings, all instruction sets that this processor supports give the same results as plain
    /// code.
    #[test]
    fn all_instructions_agree_for_packed_rings() {
        #[repr(align(64))]
        struct Line([u64; 8]);
        for seed in 0..400u64 {
            let first = (seed * 37 % 1000) as u16;
            let flags = 0x8082u16;
            let mut line = Line([seed; 8]);
            for k in 0..4u64 {
                let name = (u64::from(first) + k) | u64::from(flags) << 16;
                line.0[2 * k as usize + 1] = name << 32 | (seed.wrapping_mul(0x9e37_79b9) >> k) & 0xffff_ffff;
            }
            let wrong = seed % 3 == 0;
            if wrong {
                line.0[2 * (seed as usize / 3 % 4) + 1] ^= 1 << (32 + seed % 32);
            }
            for simd in Simd::all() {
                let mut lens = [0; WIDE_PACKED];
                // SAFETY: the address has 64 readable bytes and is aligned; this processor supports the instructions.
                let same = unsafe { simd.packed(line.0.as_ptr().cast(), first, flags, &mut lens) };
                assert_eq!(same, !wrong, "{simd:?} {seed}");
                assert_eq!(lens, [1, 3, 5, 7].map(|i| line.0[i] as u32), "{simd:?}");
            }
        }
    }
}
