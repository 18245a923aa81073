//! netmap's C interface on netvale.
//!
//! Programs written for netmap open `/dev/netmap`, register a port with an ioctl, mmap its region, and sync with ioctl
//! or poll. netvale has no such device: this library, linked to the program or preloaded, intercepts these calls. It
//! also implements libnetmap.
//!
//! ```text
//!   program ──open, ioctl, mmap, poll, …──► interpose ──► table: is it netmap's? ──no──► C library
//!                                                              │ yes
//!                                      request, register, legacy, kloop   (control, through the daemon)
//!                                      descriptor, wait, epoll            (syncs, in this process)
//! ```
//!
//! The program's descriptor is a socket that is connected to the daemon: it survives dup, fork and exec, and can be
//! passed over another socket. A process that receives such a descriptor requests the port's description from the
//! daemon (`lifecycle::adopt`).
//!
//! | module | what it is |
//! |---|---|
//! | `interpose` | the functions called instead of the C library's |
//! | `real` | the C library's functions |
//! | `table` | which descriptors are netmap's |
//! | `lifecycle` | closed, duplicated and inherited descriptor numbers |
//! | `descriptor` | an open `/dev/netmap`: rings, syncs, readiness |
//! | `open`, `request`, `options`, `register`, `extmem`, `csb`, `kloop`, `loop_state`, `legacy` | the control API |
//! | `indirect` | frames elsewhere in the program's memory |
//! | `wait`, `epoll` | poll, select, epoll |
//! | `output` | POLLOUT on other descriptors through which programs send frames |
//! | `ready` | readiness for event loops that are not interposed |
//! | `told` | the text of the last error |
//! | `packet` | packet sockets on ports |
//! | `nmport` | libnetmap's functions |
//! | `user`, `errno` | the program's memory and errno |
//! | `maps` | the program's mappings, and the files behind them |
//! | `marks` | one bit per descriptor, readable in signal handlers |
//! | `starving` | warns a program at a real-time priority that keeps the daemon's worker from its CPU |
// Test builds do not export the interposed functions, which therefore count as unused code there.
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

/// Borrows one of the program's descriptors for the length of a call; `None` for a negative number.
#[allow(unsafe_code)]
fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: -1 is excluded; if the program closes the number during the call, system calls on it return an error.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Closes a descriptor that was never returned to the program.
#[allow(unsafe_code)]
fn close(fd: c_int) {
    // SAFETY: this library owns the descriptor, and does not use it afterwards.
    unsafe { real::close(fd) };
}

/// Records an error's text for `netvale_error` ([`told`]), as an errno is not specific; prints the text on standard
/// error if `$NETVALE_VERBOSE` is set.
fn say(e: &netvale::Error) {
    told::note(&e.to_string());
    static VERBOSE: OnceLock<bool> = OnceLock::new();
    if *VERBOSE.get_or_init(|| std::env::var_os("NETVALE_VERBOSE").is_some_and(|v| !v.is_empty())) {
        netvale_control::note!("netvale: {e}");
    }
}
