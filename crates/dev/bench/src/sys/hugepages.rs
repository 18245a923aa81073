//! Hugepages for one peer: additional pages in the kernel's pool, and a mount of hugetlbfs, both removed on drop.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::error::{BenchError, Result, Skip};

/// The pool of 2 MiB pages.
const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Guards read-modify-write of the pool's size between sessions of this process.
static POOL_LOCK: Mutex<()> = Mutex::new(());

/// Reserved pages, and a hugetlbfs from which to map them.
#[derive(Debug)]
pub struct Hugepages {
    mounted: Option<PathBuf>,
    pages: u64,
}

impl Hugepages {
    /// Adds `pages` pages of 2 MiB to the pool, and mounts a hugetlbfs at `folder`, which is created.
    pub fn reserve(pages: u64, folder: &Path) -> Result<Self> {
        let mut this = Self { mounted: None, pages: 0 };
        this.pages = grow_pool(pages)?;
        if this.pages < pages {
            return Err(Skip::NoHugepages { needed: pages, given: this.pages }.into());
        }
        fs::create_dir_all(folder).map_err(BenchError::io(format!("creating {}", folder.display())))?;
        mount("none", folder, "hugetlbfs", MountFlags::empty(), Some(c"pagesize=2M"))
            .map_err(BenchError::io(format!("mounting hugetlbfs at {}", folder.display())))?;
        this.mounted = Some(folder.to_owned());
        Ok(this)
    }
}

impl Drop for Hugepages {
    fn drop(&mut self) {
        if let Some(folder) = &self.mounted {
            // Files keep their pages as long as the mount exists. Detaching frees mount and pages once the last user
            // has ended.
            let _ = unmount(folder, UnmountFlags::DETACH);
        }
        let _guard = POOL_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(now) = pool_size() {
            let _ = fs::write(POOL, now.saturating_sub(self.pages).to_string());
        }
    }
}

/// Adds up to `pages` pages. Returns the number of pages added.
fn grow_pool(pages: u64) -> Result<u64> {
    let _guard = POOL_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let before = pool_size()?;
    fs::write(POOL, (before + pages).to_string()).map_err(BenchError::io(format!("writing {POOL}")))?;
    Ok(pool_size()?.saturating_sub(before))
}

fn pool_size() -> Result<u64> {
    let text = fs::read_to_string(POOL).map_err(BenchError::io(format!("reading {POOL}")))?;
    text.trim().parse().map_err(|_| BenchError::unreadable("the kernel", "the number of hugepages", &text))
}
