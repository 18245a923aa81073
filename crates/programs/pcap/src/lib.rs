//! libpcap on netvale ports.
//!
//! `netvale run` loads this library before the system's libpcap. Unmodified programs can then open `vale0:x`, pipes,
//! monitors and `netmap:…` as interfaces. The system's libpcap handles all other names, and provides all functions that
//! this library does not define.
//!
//! ```text
//!   program ──pcap_*──► this library: a netvale name or handle? ──no──► libpcap-system.so,
//!                          │ yes                                        a link to the system's libpcap
//!                       netvale::Port: frames are read in place
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `sys` | libpcap's types, the system's functions |
//! | `handle` | netvale's `pcap_t` |
//! | `read` | loop, dispatch, next |
//! | `filter` | directions of frames |
//! | `output` | room to send, for poll |
//! | `open`, `setup`, `send`, `ask` | the other functions, by purpose |
//! | `again` | several handles of one port |
// Test builds do not export the functions, which then count as unused code.
#![cfg_attr(test, allow(dead_code))]

mod again;
mod ask;
mod filter;
mod handle;
mod open;
mod output;
mod read;
mod send;
mod setup;
mod sys;

/// Defines functions of libpcap whose first argument is a handle. The block runs for a netvale handle; any other handle
/// is passed to the system's function of the same name.
macro_rules! on_handle {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($p:ident, $h:ident $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)? = $symbol:literal $body:block
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The conditions in libpcap's manual.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($p: *mut crate::sys::Pcap $(, $arg: $ty)*) $(-> $ret)? {
            if let Some($h) = crate::handle::ours($p) {
                return $body;
            }
            static REAL: crate::sys::LibpcapFunction = crate::sys::LibpcapFunction::new($symbol);
            // SAFETY: in every libpcap, the function of this name has this type.
            let f = unsafe {
                std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C" fn(*mut crate::sys::Pcap $(, $ty)*) $(-> $ret)?,
                >(REAL.get())
            };
            // SAFETY: the caller's contract.
            unsafe { f($p $(, $arg)*) }
        }
    )* };
}
use on_handle;

/// Returns whether `name` names a netvale port, and not an interface of the host.
fn is_port(name: &str) -> bool {
    netvale::interface(name).is_some()
}

/// Returns a C string as text; `None` if it is null or not UTF-8.
///
/// # Safety
/// `p` is null or a C string.
#[allow(unsafe_code)]
unsafe fn text<'a>(p: *const libc::c_char) -> Option<&'a str> {
    // SAFETY: the caller's contract.
    if p.is_null() { None } else { unsafe { std::ffi::CStr::from_ptr(p) }.to_str().ok() }
}
