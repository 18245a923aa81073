//! The hook that keeps the stack's frames from the wire while programs send on all queues of an interface, as netmap
//! does.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::{
    EXIT, LOAD_IMM64, LinkCreate, MAP_CREATE, MAP_LOOKUP_ELEM, MAP_TYPE_ARRAY, MOVE_IMM, MapCreate, MapElem, NAME,
    PROG_TYPE_SCHED_CLS, TCX_EGRESS, bpf, bpf_fd, insn, link, load, number,
};

/// The hook, attached. Dropping it lets the stack's frames through again.
#[derive(Debug)]
pub struct Barrier {
    /// A map of one number: the frames that were kept from the wire.
    pub(super) count: OwnedFd,
    pub(super) link: OwnedFd,
}

impl Barrier {
    /// Attaches it to the interface `ifindex`, behind all other hooks.
    ///
    /// # Errors
    /// The step that failed, and the kernel's error: `EINVAL` before Linux 6.6.
    pub fn attach(ifindex: u32) -> Result<Barrier, (&'static str, Errno)> {
        let mut create = MapCreate {
            map_type: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
            name: *NAME,
            ..MapCreate::default()
        };
        // SAFETY: the structure of this command, without addresses.
        let count = unsafe { bpf_fd(MAP_CREATE, &mut create) }.map_err(|e| ("make a counter", e))?;
        let program = load(&count_and_drop(count.as_fd()), PROG_TYPE_SCHED_CLS, TCX_EGRESS);
        let program = program.map_err(|e| ("load a program that keeps frames", e))?;
        let create = LinkCreate {
            prog_fd: number(program.as_fd()),
            target_ifindex: ifindex,
            attach_type: TCX_EGRESS,
            ..LinkCreate::default()
        };
        let link = link(create).map_err(|e| ("attach a program that keeps the stack's frames from the wire", e))?;
        Ok(Barrier { count, link })
    }

    /// Frames that it has dropped.
    pub fn dropped(&self) -> u64 {
        let (key, mut value) = (0u32, 0u64);
        let mut elem = MapElem {
            map_fd: number(self.count.as_fd()),
            key: std::ptr::from_ref(&key) as u64,
            value: std::ptr::from_mut(&mut value) as u64,
            ..MapElem::default()
        };
        // SAFETY: the structure of this command; the key has four bytes and the value eight, as the map was made.
        match unsafe { bpf(MAP_LOOKUP_ELEM, &mut elem) } {
            Ok(_) => value,
            Err(_) => 0,
        }
    }

    /// The counter and the link.
    pub fn descriptors(&self) -> [&OwnedFd; 2] {
        [&self.count, &self.link]
    }
}

/// `count += 1; return TCX_DROP`.
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
