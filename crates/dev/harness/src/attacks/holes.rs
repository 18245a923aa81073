//! Holes in files, made very slowly. An access to a page in a range under MADV_REMOVE waits until the whole hole is
//! made, in a state that no signal interrupts, and the thread that makes the hole may get hardly any CPU time.
#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to the last CPU on which it may run.
fn stay() -> rustix::io::Result<()> {
    let all = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    if let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|&cpu| all.is_set(cpu)) {
        one.set(last);
        sched_setaffinity(None, &one)?;
    }
    Ok(())
}

/// A thread that spins on the CPU where holes are made.
#[derive(Debug)]
pub struct Idler {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Idler {
    /// Starts the thread.
    #[must_use]
    pub fn start() -> Idler {
        let over = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            // A thread that cannot be pinned still takes CPU time.
            let _ = stay();
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Idler { over, thread: Some(thread) }
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // The thread returns no error.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A memory region of the daemon's ports, mapped by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HollowRegion {
    begin: usize,
    len: usize,
}

impl HollowRegion {
    /// Returns the longest region that this process has mapped.
    ///
    /// # Errors
    /// No region is mapped.
    pub fn longest() -> io::Result<HollowRegion> {
        let all = HollowRegion::all()?;
        all.into_iter().max_by_key(|region| region.len).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns all regions that this process has mapped.
    ///
    /// # Errors
    /// The list of mappings is unreadable.
    pub fn all() -> io::Result<Vec<HollowRegion>> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let regions = maps.lines().filter(|line| line.contains("/memfd:netvale-")).filter_map(|line| {
            let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
            let begin = usize::from_str_radix(begin, 16).ok()?;
            Some(HollowRegion { begin, len: usize::from_str_radix(end, 16).ok()? - begin })
        });
        Ok(regions.collect())
    }

    /// Returns the length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no region has zero bytes")]
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns the number of resident bytes.
    ///
    /// # Errors
    /// The region is no longer mapped.
    pub fn resident(self) -> io::Result<usize> {
        let maps = std::fs::read_to_string("/proc/self/smaps")?;
        let this = maps.split_once(&format!("{:x}-", self.begin)).map(|(_, rest)| rest);
        let line = this.and_then(|rest| rest.lines().find_map(|line| line.strip_prefix("Rss:")?.strip_suffix("kB")));
        let kilobytes: Option<usize> = line.and_then(|text| text.trim().parse().ok());
        kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Makes all pages of the region resident, so that the hole has pages to remove.
    pub fn fill(self) {
        for at in (0..self.len).step_by(4096) {
            let byte = (self.begin + at) as *mut u8;
            // SAFETY: a byte of a mapping that is readable and writable while the caller has the port; it is shared
            // with the daemon, so no reference to it exists, and its value does not change.
            unsafe { byte.write_volatile(byte.read_volatile()) };
        }
    }

    /// Begins to remove all pages, in a thread of the lowest scheduling class. The removal is slow only if an [`Idler`]
    /// or other busy threads occupy the CPU.
    #[must_use]
    pub fn begin(self) -> Hole {
        let has_begun = Arc::<AtomicBool>::default();
        let begun = Arc::clone(&has_begun);
        let thread = std::thread::spawn(move || {
            stay()?;
            let idle = libc::sched_param { sched_priority: 0 };
            // SAFETY: affects only the calling thread; the structure is only read.
            done(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const idle) })?;
            begun.store(true, Ordering::Relaxed);
            let start = Instant::now();
            // SAFETY: the memory is shared with the daemon, and all its users expect any bytes in it at any time; the
            // mapping itself stays.
            done(unsafe { libc::madvise(self.begin as *mut libc::c_void, self.len, libc::MADV_REMOVE) })?;
            Ok(start.elapsed())
        });
        Hole { has_begun, thread: Some(thread) }
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A hole in progress. Dropping the hole waits for the end, which nothing can hasten.
#[derive(Debug)]
pub struct Hole {
    has_begun: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Duration>>>,
}

impl Hole {
    /// Returns whether the thread has at least reached the system call that makes the hole.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Returns whether the hole is complete.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the hole is complete. Returns how long it took.
    ///
    /// # Errors
    /// The kernel refuses to make the hole.
    pub fn finish(mut self) -> io::Result<Duration> {
        let made = self.thread.take().map(JoinHandle::join);
        made.and_then(Result::ok).unwrap_or_else(|| Err(io::Error::other("the thread that made the hole panicked")))
    }
}

impl Drop for Hole {
    fn drop(&mut self) {
        // Callers that need the result call `finish`.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
