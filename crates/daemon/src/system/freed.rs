//! Returns the memory of removed ports to the kernel. The allocator keeps free memory at addresses below a block in
//! use: tens of megabytes after a capture, which has many small buffers. The heap is therefore trimmed some time after
//! a removal, and at regular intervals while ports come and go.
//!
//! A successor does the reverse: it obtains memory for the ports before it restores them ([`HeapReserve`]).
//!
//! Trimming does not cover the allocator's per-thread heaps. The allocator keeps free memory at the end of each of
//! these heaps. After a large block is freed, the allocator raises the limit of that memory, so that half a megabyte of
//! each thread would never be returned. The daemon therefore fixes the limit.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// Time from the removal of a port until the heap is trimmed. The removed port's threads may need that time to end, and
/// one trim serves many removals.
const AFTER: Duration = Duration::from_secs(2);

/// Removals of ports whose memory the heap may still contain.
#[derive(Debug, Default)]
pub(crate) struct FreedMemory(Option<Removals>);

#[derive(Clone, Copy, Debug)]
struct Removals {
    /// Time of the first removal since the last trim. If threads of a removed port may not have ended at the last trim,
    /// time of that trim.
    first: Instant,
    last: Instant,
}

impl FreedMemory {
    /// Records the removal of a port.
    pub(crate) fn note(&mut self, now: Instant) {
        let first = self.0.map_or(now, |removals| removals.first);
        self.0 = Some(Removals { first, last: now });
    }

    /// Returns free memory to the kernel when it is time to. Returns the time until the next call.
    pub(crate) fn tick(&mut self, now: Instant) -> Duration {
        let Some(Removals { first, last }) = self.0 else { return Duration::MAX };
        let rest = AFTER.saturating_sub(now.duration_since(first));
        if !rest.is_zero() {
            return rest;
        }
        give_back();
        let is_recent = now.duration_since(last) < AFTER;
        self.0 = is_recent.then_some(Removals { first: now, last });
        if is_recent { AFTER } else { Duration::MAX }
    }
}

/// Size from which a block is allocated by mmap(2), and above which free memory at the end of a heap is returned. This
/// value is the allocator's default, which the allocator would raise if the value were not set explicitly.
#[cfg(target_env = "gnu")]
const LIMIT: libc::c_int = 128 << 10;

/// Fixes the allocator's limits at their initial values.
#[cfg(target_env = "gnu")]
pub(crate) fn keep_limits() {
    // SAFETY: the call takes no pointer, and uses the allocator's own locks.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LIMIT);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LIMIT);
    }
}

/// musl's allocator has no such limits.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn keep_limits() {}

/// Memory that the heap gets from the kernel in advance. The kernel clears each page at the first access, which takes
/// longer than most of the work for a restored port.
#[derive(Debug, Default)]
pub(crate) struct HeapReserve(Vec<Vec<u8>>);

impl HeapReserve {
    /// Size of a block: about the size of a port's own memory, and small enough to be part of the heap.
    const BLOCK: usize = 64 << 10;

    /// Adds memory for one more port.
    pub(crate) fn add(&mut self) {
        self.0.push(vec![1; Self::BLOCK]);
    }

    /// Makes the memory available to allocations. Until [`keep_limits`] is called again, free memory stays in the heap.
    pub(crate) fn release(&mut self) {
        if !self.0.is_empty() {
            keep_free_memory();
            self.0 = Vec::new();
        }
    }
}

/// Lets free memory stay in the heap.
#[cfg(target_env = "gnu")]
fn keep_free_memory() {
    // SAFETY: the call takes no pointer, and uses the allocator's own locks.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX) };
}

/// musl's allocator returns such blocks to the kernel immediately.
#[cfg(not(target_env = "gnu"))]
fn keep_free_memory() {}

#[cfg(target_env = "gnu")]
fn give_back() {
    // SAFETY: the call takes no pointer, and uses the allocator's own locks.
    unsafe { libc::malloc_trim(0) };
}

/// musl's allocator manages blocks in small groups, and returns free groups itself.
#[cfg(not(target_env = "gnu"))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the private memory of this process in bytes.
    fn own() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
        kilobytes.unwrap().parse::<usize>().unwrap() << 10
    }

    /// Objective: after its release, the reserve's memory is used for allocations, so that the kernel need not provide
    /// new pages for them.
    #[test]
    #[cfg(target_env = "gnu")]
    fn allocations_use_the_reserve() {
        const PORTS: usize = 500;
        let mut reserve = HeapReserve::default();
        (0..PORTS).for_each(|_| reserve.add());
        let before = own();
        reserve.release();
        let blocks: Vec<_> = (0..PORTS).map(|_| vec![1u8; HeapReserve::BLOCK / 2]).collect();
        assert!(own() < before + (4 << 20), "{} instead of {before} bytes", own());
        assert!(own() + (4 << 20) > before, "the reserve was returned: {} of {before} bytes", own());
        drop(blocks);
        keep_limits();
        give_back();
    }

    /// Objective: some time after a removal, free memory below a block in use is returned. Further removals do not
    /// delay this, and lead to one more trim.
    #[test]
    fn memory_goes_back() {
        const BLOCKS: (usize, usize) = (32 << 10, 1000);
        let mut blocks: Vec<_> = (0..BLOCKS.1).map(|_| vec![1u8; BLOCKS.0]).collect();
        let last = blocks.pop();
        drop(blocks);
        let kept = own();
        let start = Instant::now();
        let mut freed = FreedMemory::default();
        assert_eq!(freed.tick(start), Duration::MAX);
        freed.note(start);
        freed.note(start + AFTER / 2);
        assert_eq!(freed.tick(start + AFTER / 2), AFTER / 2);
        assert_eq!(freed.tick(start + AFTER), AFTER);
        assert!(own() + BLOCKS.0 * BLOCKS.1 / 2 < kept, "{} of {kept} bytes are left", own());
        assert_eq!(freed.tick(start + 2 * AFTER), Duration::MAX);
        assert!(freed.0.is_none());
        drop(last);
    }

    /// Objective: most memory freed by threads is returned during their lifetime, even after a large block has been
    /// freed.
    #[test]
    #[cfg(target_env = "gnu")]
    fn threads_keep_nothing() {
        const THREADS: usize = 8;
        keep_limits();
        drop(vec![1u8; 30 << 20]);
        let before = own();
        let freed = std::sync::Barrier::new(THREADS + 1);
        let end = std::sync::Barrier::new(THREADS + 1);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    drop((0..64).map(|_| vec![1u8; 32 << 10]).collect::<Vec<_>>());
                    freed.wait();
                    end.wait();
                });
            }
            freed.wait();
            give_back();
            let kept = own().saturating_sub(before);
            end.wait();
            assert!(kept < 4 << 20, "{kept} of {} bytes are left", THREADS * 64 * (32 << 10));
        });
    }
}
