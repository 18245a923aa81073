//! Short time slices for threads that forward frames.
//!
//! A thread that wakes up preempts the running thread only if the scheduler gives the woken thread an earlier deadline,
//! and a short time slice makes the deadline earlier. Since Linux 6.12 a thread can set the length of its slice
//! (sched_setattr(2), `sched_runtime` of a normal thread). A short slice does not change the thread's share of the CPU,
//! but gives it the CPU earlier. Older kernels ignore the setting.
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

/// Requests short slices for the calling thread, and for the threads and programs that it starts. Does nothing for a
/// thread with a policy other than `SCHED_OTHER`. Returns whether the slice is short now.
pub fn shorten() -> bool {
    let Some(mut now) = attributes() else { return false };
    if now.policy != libc::SCHED_OTHER as u32 {
        return false;
    }
    now.runtime = SHORT.as_nanos() as u64;
    set(&now) && slice().is_some_and(|slice| slice == SHORT)
}

/// The time slice of the calling thread; `None` if the kernel does not report it, or the thread's policy has no slices.
pub fn slice() -> Option<Duration> {
    let now = attributes()?;
    let is_normal = now.policy == libc::SCHED_OTHER as u32 || now.policy == libc::SCHED_BATCH as u32;
    (is_normal && now.runtime > 0).then(|| Duration::from_nanos(now.runtime))
}

fn attributes() -> Option<Attributes> {
    let mut now = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    // SAFETY: queries the calling thread (0); the kernel writes at most `size` bytes, to a structure that belongs to
    // this function.
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

    /// Objective: if the kernel supports it, the slices of the thread and of threads that this thread starts later are
    /// short; threads of other policies stay unchanged.
    #[test]
    #[cfg_attr(miri, ignore = "scheduling is the kernel's")]
    fn the_slice_is_short_where_the_kernel_supports_it() {
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
