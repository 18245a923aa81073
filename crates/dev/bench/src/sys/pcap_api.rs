//! A program that receives or forwards through the libpcap that the loader finds: the system's libpcap or netvale's
//! libpcap.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::hint::black_box;

use libc::{c_char, c_int, c_uint, c_void, timeval};

use crate::error::{BenchError, Result};
use crate::frames::LINE;

const ERRBUF_SIZE: usize = 256;

/// `struct pcap_pkthdr`.
#[repr(C)]
struct Header {
    _ts: timeval,
    caplen: c_uint,
    _len: c_uint,
}

type Callback = unsafe extern "C" fn(*mut u8, *const Header, *const u8);
type OpenLive = unsafe extern "C" fn(*const c_char, c_int, c_int, c_int, *mut c_char) -> *mut c_void;
type Dispatch = unsafe extern "C" fn(*mut c_void, c_int, Callback, *mut u8) -> c_int;
type Inject = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int;

/// An interface, opened by `pcap_open_live`.
pub struct Capture {
    handle: *mut c_void,
    dispatch: Dispatch,
    inject: Inject,
}

fn function(library: *mut c_void, name: &CStr) -> Result<*mut c_void> {
    // SAFETY: a handle from dlopen, and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        Err(BenchError::Usage(format!("libpcap has no {}", name.to_string_lossy())))
    } else {
        Ok(found)
    }
}

impl Capture {
    /// Opens an interface.
    pub fn open(interface: &str) -> Result<Capture> {
        let no_library = || BenchError::Usage("cannot load libpcap.so.0.8 or libpcap.so.1".into());
        let load = |name: &CStr| {
            // SAFETY: a C string; libpcap's initializers have no requirements.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            (!library.is_null()).then_some(library)
        };
        let library = load(c"libpcap.so.0.8").or_else(|| load(c"libpcap.so.1")).ok_or_else(no_library)?;
        let name = CString::new(interface).map_err(|_| BenchError::Usage("NUL byte in the interface's name".into()))?;
        let mut why = [0 as c_char; ERRBUF_SIZE];
        // SAFETY: functions of these names have these types in every libpcap; the buffer has the required size.
        let (handle, dispatch, inject) = unsafe {
            let open = std::mem::transmute::<*mut c_void, OpenLive>(function(library, c"pcap_open_live")?);
            let dispatch = std::mem::transmute::<*mut c_void, Dispatch>(function(library, c"pcap_dispatch")?);
            let inject = std::mem::transmute::<*mut c_void, Inject>(function(library, c"pcap_inject")?);
            (open(name.as_ptr(), 65_535, 1, 10, why.as_mut_ptr()), dispatch, inject)
        };
        if handle.is_null() {
            // SAFETY: libpcap ends its message with a NUL.
            let why = unsafe { CStr::from_ptr(why.as_ptr()) }.to_string_lossy();
            return Err(BenchError::Usage(format!("libpcap: {why}")));
        }
        Ok(Capture { handle, dispatch, inject })
    }

    /// Takes the available frames, at most `most`, and counts them in `tally`.
    pub fn take(&mut self, most: u32, tally: &mut Tally) -> Result<()> {
        // SAFETY: the handle is open, and the tally exists for the duration of the call.
        let done = unsafe { (self.dispatch)(self.handle, most.cast_signed(), count, std::ptr::from_mut(tally).cast()) };
        if done < 0 { Err(BenchError::Usage(format!("pcap_dispatch failed with {done}"))) } else { Ok(()) }
    }

    /// Sends the available frames, at most `most`, through another handle. Returns the number of these frames.
    pub fn forward(&mut self, most: u32, to: &Capture) -> Result<u64> {
        let to = std::ptr::from_ref(to).cast_mut().cast();
        // SAFETY: the handle is open; `to` is borrowed for the duration of the call, and `pass_on` only reads it.
        let done = unsafe { (self.dispatch)(self.handle, most.cast_signed(), pass_on, to) };
        u64::try_from(done).map_err(|_| BenchError::Usage(format!("pcap_dispatch failed with {done}")))
    }
}

/// libpcap's callback of a forwarder. A frame for which there is no room is lost, as with all programs that forward by
/// libpcap.
///
/// # Safety
/// `user` is a [`Capture`] whose handle is open; header and data are valid for the duration of the call, the data for
/// `caplen` bytes.
unsafe extern "C" fn pass_on(user: *mut u8, header: *const Header, data: *const u8) {
    // SAFETY: libpcap fulfils this function's contract.
    unsafe {
        let to = &*user.cast::<Capture>();
        let _ = (to.inject)(to.handle, data.cast(), (*header).caplen as usize);
    }
}

/// libpcap's callback of a receiver.
///
/// # Safety
/// `user` is a [`Tally`]; header and data are valid for the duration of the call, the data for `caplen` bytes.
unsafe extern "C" fn count(user: *mut u8, header: *const Header, data: *const u8) {
    // SAFETY: libpcap fulfils this function's contract.
    unsafe {
        let tally = &mut *user.cast::<Tally>();
        tally.frames += 1;
        if (*header).caplen != tally.len {
            tally.wrong += 1;
        } else if tally.touch {
            black_box(data.cast::<[u8; LINE]>().read());
        }
    }
}

/// The counts of received frames.
#[derive(Debug)]
pub struct Tally {
    /// Frames received.
    pub frames: u64,
    /// Frames of an unexpected length.
    pub wrong: u64,
    /// The expected length, at least [`LINE`].
    pub len: u32,
    /// Whether the first cache line of each frame is read.
    pub touch: bool,
}
