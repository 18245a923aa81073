//! Accesses to memory that was taken away, in watched and unwatched mappings.
#![cfg(all(not(loom), not(miri)))]
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use netvale_mem::Mapping;
use netvale_mem::fault::{Fault, LOST};
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_mem::watch::losses;
use rustix::fs::FallocateFlags;

const PAGE: usize = 4096;
/// Number of mappings: more than fit into the first blocks of the signal handler's list.
const MANY: usize = 3000;
/// Indices of the mappings whose files are truncated: at the ends of blocks, and in the middle.
const CUT: [usize; 6] = [0, 255, 256, 1023, 1024, MANY - 1];

fn file(pages: usize) -> OwnedFd {
    let fd = rustix::fs::memfd_create("netvale-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, (pages * PAGE) as u64).unwrap();
    fd
}

fn peek(map: &Mapping) -> u64 {
    // SAFETY: the address is inside the mapping. Its memory may be gone, which is the object of the test.
    unsafe { map.start().cast::<u64>().as_ptr().read_volatile() }
}

fn readable(fault: &Fault) -> bool {
    let mut one = [rustix::event::PollFd::new(fault, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut one, Some(&rustix::event::Timespec::default())) == Ok(1)
}

static BEFORE: AtomicUsize = AtomicUsize::new(0);

/// A handler that is installed before the handler of watched mappings, and maps a new page.
///
/// # Safety
/// Called only by the kernel, for a fault of this test.
unsafe extern "C" fn before(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: `info` points to the kernel's structure, and the page is the one that the test reads.
    unsafe {
        let page = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        assert_ne!(libc::mmap(page, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0), libc::MAP_FAILED);
    }
    BEFORE.fetch_add(1, Ordering::Relaxed);
}

/// Installs [`before`] before any mapping is watched, whichever test runs first.
fn be_first() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: zeros are a valid sigaction, and the handler calls only functions that are allowed in a signal
        // handler.
        unsafe {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            action.sa_sigaction = before as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()), 0);
        }
    });
}

/// Objective: thousands of mappings are watched independently: a truncated mapping reads as zeros and counts as
/// damaged, and its peer is blamed; the other mappings are unaffected. A fault in an unwatched mapping goes to the
/// previous handler.
#[test]
fn many_mappings_and_the_handler_before() {
    be_first();
    let common = file(2);
    let cut = CUT.map(|i| (i, file(2)));
    let files: Vec<_> = (0..MANY).map(|i| cut.iter().find(|(k, _)| *k == i).map_or(&common, |(_, fd)| fd)).collect();
    let fault = Fault::new().unwrap();
    let map = |fd: &OwnedFd| Mapping::of_peer(fd.as_fd(), 0, 2 * PAGE).unwrap();
    let maps: Vec<_> = files.iter().map(|fd| map(fd).watched()).inspect(|map| map.blame(&fault)).collect();
    for (fd, map) in files.iter().zip(&maps) {
        rustix::io::pwrite(fd, &7u64.to_ne_bytes(), 0).unwrap();
        assert_eq!((peek(map), map.is_damaged()), (7, false));
    }
    assert!(!readable(&fault) && fault.reason().is_none());
    for i in CUT {
        let seen = losses();
        rustix::fs::ftruncate(files[i], 0).unwrap();
        assert_eq!((peek(&maps[i]), losses()), (0, seen + 1));
        assert!(maps[i].is_damaged() && readable(&fault));
        assert_eq!(fault.reason().as_deref(), Some(LOST));
    }
    assert_eq!(maps.iter().filter(|map| map.is_damaged()).count(), CUT.len());
    // Entries of the handler's list are reused, without traces of their earlier use.
    drop(maps);
    let again: Vec<_> = files[1..200].iter().map(|fd| map(fd).watched()).collect();
    assert!(again.iter().all(|map| !map.is_damaged() && peek(map) == 7));
    assert_eq!(BEFORE.load(Ordering::Relaxed), 0);
    let fd = file(2);
    let unwatched = map(&fd);
    rustix::fs::ftruncate(&fd, 0).unwrap();
    assert_eq!((peek(&unwatched), BEFORE.load(Ordering::Relaxed)), (0, 1));
}

/// Objective: a part of a file that begins and ends within pages is mapped with the whole pages, and has the bytes of
/// the file.
#[test]
fn a_part_within_pages_has_the_files_bytes() {
    be_first();
    let fd = file(3);
    rustix::io::pwrite(&fd, &[1, 2, 3, 4, 5, 6, 7, 8, 9], PAGE as u64 + 100).unwrap();
    let map = Mapping::of_peer(fd.as_fd(), PAGE as u64 + 104, 5).unwrap().watched();
    let bytes = map.at(0, 5, 8).unwrap().cast::<[u8; 5]>();
    // SAFETY: five bytes of the mapping.
    assert_eq!((unsafe { bytes.as_ptr().read_volatile() }, map.len()), ([5, 6, 7, 8, 9], 5));
    assert!(map.at(0, 5, 16).is_none() && map.at(1, 5, 1).is_none());
    assert!(Mapping::of_peer(fd.as_fd(), 3 * PAGE as u64 - 4, 5).is_err());
    assert!(Mapping::of_peer(fd.as_fd(), u64::MAX, 5).is_err());
}

/// Size of a huge page, bytes.
const HUGE: u64 = 2 << 20;
fn free_huge_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// Objective: if a peer punches a hole in sealed memory of huge pages, and no huge page is free, the peer is blamed for
/// the loss, and this process survives.
#[test]
fn huge_pages_given_back() {
    be_first();
    let (fd, map, huge) = sealed_memfd("netvale-test", HUGE, PageKind::PreferHuge).unwrap();
    if !huge {
        eprintln!("needs a free huge page (vm.nr_hugepages)");
        return;
    }
    let map = map.watched();
    let fault = Fault::new().unwrap();
    map.blame(&fault);
    // The huge page is reserved for this file until the hole is punched.
    assert_eq!((peek(&map), map.is_damaged()), (0, false));
    rustix::fs::fallocate(&fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, HUGE).unwrap();
    let _others = sealed_memfd("netvale-test", free_huge_pages() * HUGE, PageKind::PreferHuge).unwrap();
    assert_eq!((peek(&map), map.is_damaged()), (0, true));
    assert_eq!(fault.reason().as_deref(), Some(LOST));
}
