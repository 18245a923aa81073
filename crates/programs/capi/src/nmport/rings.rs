//! `nmport_mmap` and `nmport_inject`: a port's region and rings.
#![allow(unsafe_code)]

use libc::{c_int, c_void, size_t};
use netvale_abi::slot::NS_MOREFRAG;
use netvale_abi::{NetmapIf, NetmapRing, NetmapSlot};
use rustix::io::Errno;

use super::context::fail;
use super::regions;
use super::structs::PortDesc;

/// Maps the port's region and finds the port's rings. Returns 0, or -1 on an error.
///
/// # Safety
/// The conditions in libnetmap.h.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_mmap(d: *mut PortDesc) -> c_int {
    // SAFETY: the caller's contract; the netmap_if is in the region, at the offset that the registration returned.
    unsafe {
        let ctx = (*d).ctx;
        if (*d).mmap_done != 0 || (*d).register_done == 0 {
            return fail(ctx, Errno::INVAL, "expected a registered port that is not mapped yet");
        }
        match regions::acquire(d) {
            Ok(mem) => (*d).mem = mem,
            Err(e) => return fail(ctx, e, "cannot map the port's region"),
        }
        (*d).nifp = (*(*d).mem).mem.cast::<u8>().add((*d).reg.nr_offset as usize).cast();
        let nifp = (*d).nifp;
        let tx = (*nifp).ni_tx_rings + (*nifp).ni_host_tx_rings;
        let rx = (*nifp).ni_rx_rings + (*nifp).ni_host_rx_rings;
        ((*d).first_tx_ring, (*d).last_tx_ring) = bound(nifp, 0, tx);
        ((*d).first_rx_ring, (*d).last_rx_ring) = bound(nifp, tx, rx);
        ((*d).cur_tx_ring, (*d).cur_rx_ring) = ((*d).first_tx_ring, (*d).first_rx_ring);
        (*d).mmap_done = 1;
        0
    }
}

/// Returns the offset of ring `i` in a `netmap_if`; 0 if the ring is not bound.
///
/// # Safety
/// The `netmap_if` has more than `i` rings.
unsafe fn ring_ofs(nifp: *const NetmapIf, i: u32) -> isize {
    // SAFETY: the caller's contract: the offsets follow the structure.
    unsafe { nifp.add(1).cast::<isize>().add(i as usize).read_volatile() }
}

/// Returns the indices, relative to `from`, of the first and the last bound ring among the `count` rings from `from`
/// on; (1, 0) if no ring is bound.
///
/// # Safety
/// The `netmap_if` has these rings.
unsafe fn bound(nifp: *const NetmapIf, from: u32, count: u32) -> (u16, u16) {
    // SAFETY: the caller's contract.
    let is_bound = |i: &u32| unsafe { ring_ofs(nifp, from + i) } != 0;
    match (0..count).find(is_bound) {
        Some(first) => (first as u16, (first..count).take_while(is_bound).last().unwrap_or(first) as u16),
        None => (1, 0),
    }
}

/// Undoes [`nmport_mmap`].
///
/// # Safety
/// `d` is a port.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_mmap(d: *mut PortDesc) {
    // SAFETY: the caller's contract.
    unsafe {
        if (*d).mmap_done != 0 {
            regions::release(d);
        }
        ((*d).mmap_done, (*d).nifp) = (0, std::ptr::null_mut());
        ((*d).first_tx_ring, (*d).last_tx_ring, (*d).first_rx_ring, (*d).last_rx_ring) = (0, 0, 0, 0);
    }
}

/// Copies a frame into the current tx ring or, if that ring is full, into the next tx ring that has room. Returns 0, or
/// -1 if no ring has room for the frame.
///
/// # Safety
/// `d` is an open port, `buf` has `size` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_inject(d: *mut PortDesc, buf: *const c_void, size: size_t) -> c_int {
    // SAFETY: the caller's contract; rings and buffers are where netmap's rules place them, in a region that the
    // program has mapped.
    unsafe {
        let first = (*d).first_tx_ring;
        let last = (*d).last_tx_ring;
        let count = u32::from(last) + 1 - u32::from(first).min(u32::from(last) + 1);
        for k in 0..count {
            let index = first + ((u32::from((*d).cur_tx_ring - first) + k) % count) as u16;
            let ring = (*d).nifp.cast::<u8>().offset(ring_ofs((*d).nifp, index.into())).cast::<NetmapRing>();
            if put(ring, buf.cast(), size) {
                (*d).cur_tx_ring = index;
                return 0;
            }
        }
        -1
    }
}

/// Copies a frame into free slots of a ring. Returns `false` if the ring does not have enough free slots.
///
/// # Safety
/// The conditions of [`nmport_inject`].
unsafe fn put(ring: *mut NetmapRing, buf: *const u8, size: usize) -> bool {
    // SAFETY: the caller's contract.
    unsafe {
        let slots = (*ring).num_slots;
        let buf_size = (*ring).nr_buf_size as usize;
        let tail = (&raw const (*ring).tail).read_volatile();
        let mut i = (*ring).head;
        let mut done = 0;
        loop {
            if i == tail {
                return false;
            }
            let slot = ring.add(1).cast::<NetmapSlot>().add(i as usize);
            let offset = usize::try_from((*slot).ptr & (*ring).offset_mask).unwrap_or(usize::MAX).min(buf_size);
            // The length field of a slot has 16 bits, which may be less than the buffer's size.
            let part = (size - done).min(buf_size - offset).min(usize::from(u16::MAX));
            let to = ring.cast::<u8>().offset((*ring).buf_ofs as isize).add((*slot).buf_idx as usize * buf_size);
            std::ptr::copy_nonoverlapping(buf.add(done), to.add(offset), part);
            done += part;
            (*slot).len = part as u16;
            (*slot).flags = if done < size { NS_MOREFRAG } else { 0 };
            i = netvale_abi::ring_next(i, slots);
            if done == size {
                ((*ring).head, (*ring).cur) = (i, i);
                return true;
            }
        }
    }
}
