//! Short time slices for threads that forward frames.
//!
//! A woken thread may preempt another on its CPU only if the scheduler expects it to finish sooner. Since Linux 6.12 a
//! thread can announce the length of its slice (sched_setattr(2), `sched_runtime` of a normal thread). It gets no more
//! of the CPU, but gets it earlier. Older kernels ignore it.
#![allow(unsafe_code)]

use std::time::Duration;

/// The shortest slice that the kernel grants.
const SHORT: Duration = Duration::from_micros(100);

/// `struct sched_attr` in its first version (linux/sched/types.h).
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for short slices for the calling thread, and the threads and programs that it starts. Changes only threads of
/// the usual policy (`SCHED_OTHER`). Returns whether the kernel accepted it.
pub fn shorten() -> bool {
    let Some(mut now) = attributes() else { return false };
    if now.policy != libc::SCHED_OTHER as u32 {
        return false;
    }
    now.runtime = SHORT.as_nanos() as u64;
    set(&now) && slice().is_some_and(|slice| slice == SHORT)
}

/// The slice of the calling thread; `None` if the kernel does not report it, or the thread's policy has none.
pub fn slice() -> Option<Duration> {
    let now = attributes()?;
    let is_normal = now.policy == libc::SCHED_OTHER as u32 || now.policy == libc::SCHED_BATCH as u32;
    (is_normal && now.runtime > 0).then(|| Duration::from_nanos(now.runtime))
}

fn attributes() -> Option<Attributes> {
    let mut now = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    // SAFETY: queries the calling thread (0); the kernel writes at most `size` bytes into this function's own
    // structure.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) };
    now.size = size;
    (done == 0).then_some(now)
}

fn set(wanted: &Attributes) -> bool {
    // SAFETY: changes the calling thread (0); the kernel reads `size` bytes, the structure's own size.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(wanted), 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the slice is short afterwards if the kernel supports it, also of threads started later; other
    /// policies stay unchanged.
    #[test]
    #[cfg_attr(miri, ignore = "scheduling is the kernel's")]
    fn short_slices() {
        let of_child = || std::thread::spawn(slice).join().unwrap();
        std::thread::spawn(move || {
            if shorten() {
                assert_eq!((slice(), of_child()), (Some(SHORT), Some(SHORT)));
            } else {
                assert_ne!(slice(), Some(SHORT));
            }
        })
        .join()
        .unwrap();
        std::thread::spawn(|| {
            let mut batch = attributes().unwrap();
            let before = slice();
            batch.policy = libc::SCHED_BATCH as u32;
            assert!(set(&batch) && !shorten() && slice() == before);
        })
        .join()
        .unwrap();
    }
}
