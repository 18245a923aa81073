//! Access to memory at addresses that the program passes. An unmapped address leads to `EFAULT`, as in the kernel, and
//! not to a crash.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use libc::{c_int, c_void};
use netvale_abi::legacy::Nmreq;
use netvale_abi::nmreq::{
    NmEventfds, NmreqHeader, NmreqOptCsb, NmreqOptExtmem, NmreqOptOffsets, NmreqOptSyncKloopMode, NmreqOption,
    NmreqPoolsInfo, NmreqPortHdr, NmreqPortInfoGet, NmreqRegister, NmreqSyncKloopStart, NmreqValeAttach,
    NmreqValeDetach, NmreqValeList, NmreqValeNewif, NmreqValePolling,
};
use rustix::io::Errno;

/// A plain structure of the ABI.
///
/// # Safety
/// Any bytes are a valid value, and all padding is in named fields.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: repr(C) of integers and byte arrays, with all padding in fields (netvale-abi asserts the layout).
        unsafe impl Plain for $t {}
    )* };
}
plain!(NmreqHeader, NmreqOption, NmreqRegister, NmreqOptCsb, NmreqOptExtmem, NmreqOptOffsets, NmreqOptSyncKloopMode);
plain!(NmreqPoolsInfo, NmreqSyncKloopStart, NmEventfds, Nmreq, NmreqPortInfoGet, NmreqPortHdr);
plain!(NmreqValeAttach, NmreqValeDetach, NmreqValeList, NmreqValeNewif, NmreqValePolling);

/// Returns the bytes of a structure.
pub fn bytes_of<T: Plain, const N: usize>(value: &T) -> [u8; N] {
    const { assert!(N >= size_of::<T>()) };
    let mut bytes = [0u8; N];
    // SAFETY: N is at least T's size, and all of T's bytes are initialised (Plain).
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast(), bytes.as_mut_ptr(), size_of::<T>()) };
    bytes
}

/// Returns the structure at the start of `bytes`, which must contain a whole one.
pub fn from_bytes<T: Plain, const N: usize>(bytes: &[u8; N]) -> T {
    const { assert!(N >= size_of::<T>()) };
    // SAFETY: N is at least T's size, and any bytes are a valid T (Plain).
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

/// Reads a structure from the program's memory.
///
/// # Errors
/// `EFAULT` for unmapped memory.
pub fn read<T: Plain>(addr: u64) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: `value` has room for a T, and the copy writes exactly that many bytes.
    unsafe { move_bytes(addr as *const u8, value.as_mut_ptr().cast(), size_of::<T>())? };
    // SAFETY: all bytes were written, and any bytes are a valid T (Plain).
    Ok(unsafe { value.assume_init() })
}

/// Reads bytes from the program's memory.
///
/// # Errors
/// `EFAULT` for unmapped memory.
pub fn read_bytes(addr: u64, into: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: `into` is writable for its length.
    unsafe { move_bytes(addr as *const u8, into.as_mut_ptr(), into.len()) }
}

/// Writes a structure to the program's memory.
///
/// # Errors
/// `EFAULT` for unmapped memory.
pub fn write<T: Plain>(addr: u64, value: &T) -> Result<(), Errno> {
    // SAFETY: `value` is readable for its size.
    unsafe { move_bytes(std::ptr::from_ref(value).cast(), addr as *mut u8, size_of::<T>()) }
}

/// Writes bytes to the program's memory.
///
/// # Errors
/// `EFAULT` for unmapped memory.
pub fn write_bytes(addr: u64, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: `bytes` is readable for its length.
    unsafe { move_bytes(bytes.as_ptr(), addr as *mut u8, bytes.len()) }
}

/// Checks that memory can be read and written, without changing it.
///
/// # Errors
/// `EFAULT` if any of the memory cannot be read or written.
pub fn probe(addr: u64, len: usize) -> Result<(), Errno> {
    const PAGE: u64 = 4096;
    let end = addr.checked_add(len as u64).ok_or(Errno::FAULT)?;
    let mut at = addr;
    while at < end {
        let mut byte = [0u8];
        read_bytes(at, &mut byte)?;
        write_bytes(at, &byte)?;
        at = (at / PAGE + 1) * PAGE;
    }
    Ok(())
}

/// Copies bytes through a pipe, so that the kernel checks both addresses.
///
/// # Safety
/// Each address that does not come from the program must be valid for `len` bytes.
pub unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) -> Result<(), Errno> {
    const PIPE: usize = 4096;
    let (out, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)?;
    let fd = |f: &std::os::fd::OwnedFd| std::os::fd::AsRawFd::as_raw_fd(f);
    let mut done = 0;
    while done < len {
        let n = (len - done).min(PIPE);
        // SAFETY: write(2) and read(2) report unmapped addresses.
        unsafe {
            call(libc::SYS_write, fd(&into), from.add(done).cast(), n)?;
            call(libc::SYS_read, fd(&out), to.add(done).cast(), n)?;
        }
        done += n;
    }
    Ok(())
}

/// Calls read(2) or write(2) for all `n` bytes, which a pipe transfers in one call.
///
/// # Safety
/// The conditions of the system call.
unsafe fn call(number: i64, fd: c_int, addr: *const c_void, n: usize) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    let got = unsafe { libc::syscall(number, fd, addr, n) };
    if got == n as i64 { Ok(()) } else { Err(Errno::FAULT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: mapped memory is read and written; if any byte of a range is unmapped, even in its middle, the result
    /// is `EFAULT` and not a crash.
    #[test]
    fn a_wild_pointer_is_an_error_and_no_crash() {
        let mut bytes = vec![7u8; 10_000];
        let at = bytes.as_mut_ptr() as u64;
        let mut copy = vec![0u8; 10_000];
        assert_eq!(read_bytes(at, &mut copy), Ok(()));
        assert!(copy.iter().all(|&b| b == 7));
        assert_eq!(write_bytes(at + 1, &[1, 2]), Ok(()));
        assert_eq!(bytes[..4], [7, 1, 2, 7]);
        for wild in [0, 0x10, u64::MAX - 100, 0xdead_beef_0000_0000] {
            assert_eq!(read::<NmreqHeader>(wild).unwrap_err(), Errno::FAULT);
            assert_eq!(write(wild, &NmreqRegister::default()), Err(Errno::FAULT));
            assert_eq!(probe(wild, 200), Err(Errno::FAULT));
        }
        assert_eq!(probe(at, 10_000), Ok(()));
        let text = b"read-only";
        static CONST: [u8; 16] = [3; 16];
        assert_eq!(probe(CONST.as_ptr() as u64, 16), Err(Errno::FAULT));
        assert_eq!(read_bytes(text.as_ptr() as u64, &mut copy[..9]), Ok(()));
    }
}
