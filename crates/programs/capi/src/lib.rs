//! netmap's C interface on netvale.
//!
//! Programs written for netmap open `/dev/netmap`, register a port with an ioctl, mmap its region and sync with ioctl
//! or poll. There is no such device here: this library, linked to the program or preloaded, answers for it. It also is
//! libnetmap.
//!
//! ```text
//!   program ──open, ioctl, mmap, poll, …──► interpose ──► table: is it netmap's? ──no──► C library
//!                                                              │ yes
//!                                      request, register, legacy, kloop   (control, through the daemon)
//!                                      descriptor, wait, epoll            (syncs, in this process)
//! ```
//!
//! A descriptor of the program's is the connection to the daemon: a kernel object that dup, fork, exec and passing it
//! over a socket keep alive. A process that gets one asks the daemon what it holds (`lifecycle::adopt`).
//!
//! | module | what it is |
//! |---|---|
//! | `interpose` | the functions that stand before the C library's |
//! | `real` | those behind them |
//! | `table` | which descriptors are netmap's |
//! | `lifecycle` | what becomes of them when their numbers are closed, duplicated, inherited |
//! | `descriptor` | an open `/dev/netmap`: rings, syncs, readiness |
//! | `open`, `request`, `options`, `register`, `extmem`, `csb`, `kloop`, `loop_state`, `legacy` | the control API |
//! | `indirect` | frames that lie elsewhere in the program's memory |
//! | `wait`, `epoll` | poll, select, epoll |
//! | `output` | POLLOUT on descriptors that frames are sent on |
//! | `ready` | event loops that are not interposed |
//! | `told` | the text of the last error |
//! | `packet` | packet sockets on ports |
//! | `nmport` | libnetmap's functions |
//! | `user`, `errno` | the program's memory and errno |
//! | `maps` | the mappings of this program, and the files behind them |
//! | `marks` | a bit a descriptor, which signal handlers may ask |
//! | `starving` | warns a program at a real-time priority that keeps the daemon's worker from its CPU |
// Under test nothing is exported, so nothing is used either.
#![cfg_attr(test, allow(dead_code))]

mod csb;
mod descriptor;
mod epoll;
mod errno;
mod extmem;
mod indirect;
mod interpose;
mod kloop;
mod legacy;
mod lifecycle;
mod loop_state;
mod maps;
mod marks;
mod nmport;
mod open;
mod options;
mod output;
mod packet;
mod ready;
mod real;
mod register;
mod request;
mod starving;
mod table;
mod told;
mod user;
mod wait;

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use libc::c_int;

/// A descriptor of the program's for the length of a call.
#[allow(unsafe_code)]
fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: -1 is excluded; a program that closes the number meanwhile gets the errors it asked for, as with any
    // system call.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Closes a number that was never the program's.
#[allow(unsafe_code)]
fn close(fd: c_int) {
    // SAFETY: the number is ours, and not used after.
    unsafe { real::close(fd) };
}

/// Keeps why the daemon refused, and says it on standard error if `$NETVALE_VERBOSE` asks for it: an errno says little.
fn say(e: &netvale::Error) {
    told::note(&e.to_string());
    static VERBOSE: OnceLock<bool> = OnceLock::new();
    if *VERBOSE.get_or_init(|| std::env::var_os("NETVALE_VERBOSE").is_some_and(|v| !v.is_empty())) {
        netvale_control::note!("netvale: {e}");
    }
}
