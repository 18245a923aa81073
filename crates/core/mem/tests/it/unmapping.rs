//! A separate thread unmaps large mappings. The test observes that they are unmapped in the end.
#![cfg(not(loom))]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netvale_mem::mapping::{Mapping, PageKind, sealed_memfd, unmap_apart};

fn is_mapped(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(name)
}

/// Objective: every dropped mapping is unmapped in the end, a small one immediately.
#[test]
#[cfg_attr(miri, ignore = "system calls")]
fn all_is_unmapped() {
    unmap_apart().unwrap();
    unmap_apart().unwrap();
    let name = format!("netvale-unmapping-{}", std::process::id());
    for len in [4096, 64 << 20] {
        let (fd, map, _) = sealed_memfd(&name, len, PageKind::Ordinary).unwrap();
        let again = Mapping::map(fd.as_fd(), len as usize).unwrap();
        drop(map);
        assert!(is_mapped(&name));
        drop(again);
        assert!(len > 1 << 20 || !is_mapped(&name));
        let limit = Instant::now() + Duration::from_secs(60);
        while is_mapped(&name) {
            assert!(Instant::now() < limit, "{len} bytes stay mapped");
            std::thread::yield_now();
        }
    }
}
