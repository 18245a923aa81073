//! The barrier: a hook that drops frames of the host's stack while programs send on all queues of an interface.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::{
    EXIT, LOAD_IMM64, LinkCreate, MOVE_IMM, PROG_TYPE_SCHED_CLS, TCX_EGRESS, counted, counter, insn, link, load,
};

/// The attached hook. Dropping it lets frames of the stack pass again.
#[derive(Debug)]
pub struct Barrier {
    /// A map with one counter: the number of dropped frames.
    pub(super) count: OwnedFd,
    pub(super) link: OwnedFd,
}

impl Barrier {
    /// Attaches the hook to the interface `ifindex`, after all other hooks.
    ///
    /// # Errors
    /// The step that failed, and the kernel's error: `EINVAL` before Linux 6.6.
    pub fn attach(ifindex: u32) -> Result<Barrier, (&'static str, Errno)> {
        let count = counter().map_err(|e| ("create a counter", e))?;
        let program = load(&count_and_drop(count.as_fd()), PROG_TYPE_SCHED_CLS, TCX_EGRESS);
        let program = program.map_err(|e| ("load the program that drops the stack's frames", e))?;
        let link = link(LinkCreate::new(&program, ifindex, TCX_EGRESS))
            .map_err(|e| ("attach the program that drops the stack's frames", e))?;
        Ok(Barrier { count, link })
    }

    /// Returns the number of frames dropped.
    pub fn dropped(&self) -> u64 {
        counted(self.count.as_fd())
    }

    /// Returns the descriptors of the counter and the link.
    pub fn descriptors(&self) -> [&OwnedFd; 2] {
        [&self.count, &self.link]
    }
}

/// Returns the program `count += 1; return TCX_DROP`.
fn count_and_drop(count: BorrowedFd<'_>) -> [u64; 6] {
    const PSEUDO_MAP_VALUE: u8 = 2;
    const ATOMIC_ADD_64: u8 = 0xdb;
    const TCX_DROP: i32 = 2;
    [
        insn(LOAD_IMM64, 1, PSEUDO_MAP_VALUE, 0, count.as_raw_fd()),
        insn(0, 0, 0, 0, 0),
        insn(MOVE_IMM, 2, 0, 0, 1),
        insn(ATOMIC_ADD_64, 1, 2, 0, 0),
        insn(MOVE_IMM, 0, 0, 0, TCX_DROP),
        insn(EXIT, 0, 0, 0, 0),
    ]
}
