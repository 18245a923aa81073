//! `netvale_watch_output` (netvale_output.h): a program defines when one of its descriptors counts as having room to
//! send.
#![allow(unsafe_code)]

use std::sync::Arc;

use libc::{c_int, c_void};
use rustix::io::Errno;

use crate::output::{self, SendQueue};
use crate::{epoll, errno, table};

/// `struct netvale_output` of netvale_output.h: the functions of a program's send queue, which are called with the
/// argument `of`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NetvaleOutput {
    of: *mut c_void,
    room: unsafe extern "C" fn(*mut c_void) -> c_int,
    news: unsafe extern "C" fn(*mut c_void) -> u64,
    sleep: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    awake: unsafe extern "C" fn(*mut c_void),
    release: unsafe extern "C" fn(*mut c_void),
}

/// A registered output, which is released when dropped.
struct RegisteredOutput(NetvaleOutput);

// SAFETY: the header states that any thread may call the functions.
unsafe impl Send for RegisteredOutput {}
// SAFETY: the header states that several threads may call the functions at a time.
unsafe impl Sync for RegisteredOutput {}

impl SendQueue for RegisteredOutput {
    fn has_room(&self) -> bool {
        // SAFETY: the object is released only when self is dropped, and its functions may be called from any thread.
        unsafe { (self.0.room)(self.0.of) != 0 }
    }

    fn news(&self) -> u64 {
        // SAFETY: the object is released only when self is dropped, and its functions may be called from any thread.
        unsafe { (self.0.news)(self.0.of) }
    }

    fn go_to_sleep(&self) -> Vec<c_int> {
        let mut fds = [-1; 2];
        // SAFETY: the object is released only when self is dropped, and its functions may be called from any thread;
        // `fds` has room for the two descriptors that the function writes.
        let count = unsafe { (self.0.sleep)(self.0.of, fds.as_mut_ptr()) };
        fds.into_iter().take(usize::try_from(count).unwrap_or(0)).collect()
    }

    fn wake_up(&self) {
        // SAFETY: the object is released only when self is dropped, and its functions may be called from any thread.
        unsafe { (self.0.awake)(self.0.of) }
    }
}

impl Drop for RegisteredOutput {
    fn drop(&mut self) {
        // SAFETY: `drop` is called once, when no other call is in progress.
        unsafe { (self.0.release)(self.0.of) }
    }
}

/// Makes this library report `POLLOUT` on `fd` while `output` has room; with a null `output`, stops it from doing so.
/// Returns 0, or -1 with `EBADF` for a negative `fd`.
///
/// # Safety
/// `output` is null, or a structure whose functions may be called with its `of` until `release` has been called.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn netvale_watch_output(fd: c_int, output: *const NetvaleOutput) -> c_int {
    if fd < 0 {
        return errno::fail(Errno::BADF);
    }
    // SAFETY: the caller's contract.
    let output = unsafe { output.as_ref() };
    if output.is_some() {
        table::claim();
    }
    output::watch(fd, output.map(|o| Arc::new(RegisteredOutput(*o)) as Arc<dyn SendQueue>));
    epoll::forget_output(fd);
    0
}
