//! Holes that are made very slowly. A page in a range in which somebody makes a hole is waited for until the whole hole
//! is made, in a state that no signal ends; the thread that makes it may be one that hardly gets a processor.
#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on the last processor that it may have.
fn stay() -> rustix::io::Result<()> {
    let all = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    if let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|&cpu| all.is_set(cpu)) {
        one.set(last);
        sched_setaffinity(None, &one)?;
    }
    Ok(())
}

/// A thread that has nothing to do, and does it all the time, on the processor on which holes are made.
#[derive(Debug)]
pub struct Idler {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Idler {
    /// Begins.
    #[must_use]
    pub fn start() -> Idler {
        let over = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            // Anywhere else it takes a processor, too.
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
        // It does nothing that could fail.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A region of ports that this process has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hollow {
    begin: usize,
    len: usize,
}

impl Hollow {
    /// The longest one.
    ///
    /// # Errors
    /// There is none.
    pub fn longest() -> io::Result<Hollow> {
        let all = Hollow::all()?;
        all.into_iter().max_by_key(|region| region.len).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// All of them.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn all() -> io::Result<Vec<Hollow>> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let regions = maps.lines().filter(|line| line.contains("/memfd:netvale-")).filter_map(|line| {
            let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
            let begin = usize::from_str_radix(begin, 16).ok()?;
            Some(Hollow { begin, len: usize::from_str_radix(end, 16).ok()? - begin })
        });
        Ok(regions.collect())
    }

    /// Bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is none without bytes")]
    pub fn len(self) -> usize {
        self.len
    }

    /// Bytes whose pages are mapped.
    ///
    /// # Errors
    /// It is not mapped any more.
    pub fn resident(self) -> io::Result<usize> {
        let maps = std::fs::read_to_string("/proc/self/smaps")?;
        let this = maps.split_once(&format!("{:x}-", self.begin)).map(|(_, rest)| rest);
        let line = this.and_then(|rest| rest.lines().find_map(|line| line.strip_prefix("Rss:")?.strip_suffix("kB")));
        let kilobytes: Option<usize> = line.and_then(|text| text.trim().parse().ok());
        kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Has all its pages there, so that a hole has something to take away.
    pub fn fill(self) {
        for at in (0..self.len).step_by(4096) {
            let byte = (self.begin + at) as *mut u8;
            // SAFETY: a byte of a mapping that may be read and written, as long as the caller has the port; it is
            // shared with the daemon, so no reference to it exists, and it stays what it was.
            unsafe { byte.write_volatile(byte.read_volatile()) };
        }
    }

    /// Begins to take all pages away, as slowly as a user can: it has to be kept from its processor by an [`Idler`], or
    /// by others that are busy there.
    #[must_use]
    pub fn begin(self) -> Hole {
        let has_begun = Arc::<AtomicBool>::default();
        let begun = Arc::clone(&has_begun);
        let thread = std::thread::spawn(move || {
            stay()?;
            let idle = libc::sched_param { sched_priority: 0 };
            // SAFETY: of the calling thread; the structure is only read.
            done(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const idle) })?;
            begun.store(true, Ordering::Relaxed);
            let start = Instant::now();
            // SAFETY: memory that is shared with the daemon, in which every user of it expects any bytes at any time;
            // the mapping itself stays.
            done(unsafe { libc::madvise(self.begin as *mut libc::c_void, self.len, libc::MADV_REMOVE) })?;
            Ok(start.elapsed())
        });
        Hole { has_begun, thread: Some(thread) }
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A hole that is being made. It is waited for when this is dropped: nothing ends it before.
#[derive(Debug)]
pub struct Hole {
    has_begun: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Duration>>>,
}

impl Hole {
    /// Whether its thread is about to make it, or has.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Whether it is made.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until it is made. Returns how long that took.
    ///
    /// # Errors
    /// The kernel refuses to make it.
    pub fn finish(mut self) -> io::Result<Duration> {
        let made = self.thread.take().map(JoinHandle::join);
        made.and_then(Result::ok).unwrap_or_else(|| Err(io::Error::other("its thread ended")))
    }
}

impl Drop for Hole {
    fn drop(&mut self) {
        // How it went is for who asks.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
