//! Reading frames, and queries for a handle's properties and counters.
#![allow(unsafe_code)]

use libc::{FILE, c_char, c_int, timeval};
use netvale_control::client::Client;
use netvale_control::dirs;

use crate::handle::Handle;
use crate::sys::{self, DLT_EN10MB, Dumper, PcapHandler, PcapStat, PktHdr};
use crate::{on_handle, read, text};

fn after(h: &Handle, value: c_int) -> c_int {
    if h.is_active() { value } else { sys::ERROR_NOT_ACTIVATED }
}

/// Returns the descriptor for poll(2) and select(2), and from then on keeps the descriptor's readiness up to date.
fn selectable(h: &Handle) -> c_int {
    // SAFETY: the borrow ends within this statement.
    unsafe { h.active() }.map_or(sys::ERROR, |a| a.selectable())
}

/// Returns the number of frames that this port dropped for lack of room, as the daemon counts them; 0 for monitors and
/// pipes.
fn dropped(name: &str) -> u64 {
    let Some(spec) = netvale::interface(name) else { return 0 };
    let Ok(mut client) = Client::connect(&dirs::daemon_run_dir(dirs::CONTROL_SOCKET)) else { return 0 };
    let port = spec.names().into_iter().find_map(|name| client.show(&name.to_string()).ok());
    port.and_then(|port| port.drops.get("no-room").copied()).unwrap_or(0)
}

on_handle! {
    /// Passes frames to a callback: `count` frames, or frames without limit if `count` is not positive.
    fn pcap_loop(p, h, count: c_int, callback: PcapHandler, user: *mut u8) -> c_int = c"pcap_loop" {
        read::run(h, count, callback, user)
    }
    /// Passes the available frames, at most `count`, to a callback. Returns their number, 0 after the time limit, or an
    /// error.
    fn pcap_dispatch(p, h, count: c_int, callback: PcapHandler, user: *mut u8) -> c_int = c"pcap_dispatch" {
        read::dispatch(h, count, callback, user)
    }
    /// Gets the next frame. Returns 1, 0 after the time limit, or an error.
    fn pcap_next_ex(p, h, header: *mut *mut PktHdr, data: *mut *const u8) -> c_int = c"pcap_next_ex" {
        read::next_ex(h, header, data)
    }
    /// Returns the next frame; null if none arrives within the handle's time limit, or on an error.
    fn pcap_next(p, h, header: *mut PktHdr) -> *const u8 = c"pcap_next" {
        let mut head = std::ptr::null_mut::<PktHdr>();
        let mut data = std::ptr::null();
        if read::next_ex(h, &raw mut head, &raw mut data) != 1 {
            return std::ptr::null();
        }
        // SAFETY: `next_ex` has set `head` and `data`; the caller guarantees that `header` is valid.
        unsafe { header.write(*head) };
        data
    }
    /// Ends a loop; may be called from a signal handler or another thread.
    fn pcap_breakloop(p, h) = c"pcap_breakloop" { crate::handle::break_off(h) }

    /// Returns the numbers of frames received and dropped.
    fn pcap_stats(p, h, stat: *mut PcapStat) -> c_int = c"pcap_stats" {
        if !h.is_active() {
            return h.fail(sys::ERROR_NOT_ACTIVATED, "not activated");
        }
        // 32-bit counters wrap, like those of the system's libpcap.
        let stats = PcapStat { recv: h.received.get() as u32, drop: dropped(&h.name) as u32, ifdrop: 0 };
        // SAFETY: the caller guarantees that `stat` is valid.
        unsafe { stat.write(stats) };
        0
    }
    /// Returns the text of the last error.
    fn pcap_geterr(p, h) -> *mut c_char = c"pcap_geterr" { h.errbuf() }
    /// Prints the last error to standard error.
    fn pcap_perror(p, h, prefix: *const c_char) = c"pcap_perror" {
        // SAFETY: C strings of the caller and of the handle.
        let (prefix, why) = unsafe { (text(prefix).unwrap_or(""), text(h.errbuf()).unwrap_or("")) };
        netvale_control::note!("{prefix}: {why}");
    }

    /// Returns the link type, which is always Ethernet.
    fn pcap_datalink(p, h) -> c_int = c"pcap_datalink" { after(h, DLT_EN10MB) }
    /// Returns the link type, which is always Ethernet.
    fn pcap_datalink_ext(p, h) -> c_int = c"pcap_datalink_ext" { after(h, DLT_EN10MB) }
    /// Stores a list that contains only Ethernet in `list`. Returns its length, 1, or an error.
    fn pcap_list_datalinks(p, h, list: *mut *mut c_int) -> c_int = c"pcap_list_datalinks" {
        if !h.is_active() {
            return h.fail(sys::ERROR_NOT_ACTIVATED, "not activated");
        }
        // SAFETY: the memory has room for one number, and the caller frees it with `pcap_free_datalinks`; the caller
        // guarantees that `list` is valid.
        unsafe {
            let one = libc::malloc(size_of::<c_int>()).cast::<c_int>();
            if one.is_null() {
                return h.fail(sys::ERROR, "out of memory");
            }
            one.write(DLT_EN10MB);
            *list = one;
        }
        1
    }
    /// Accepts Ethernet and refuses any other link type.
    fn pcap_set_datalink(p, h, kind: c_int) -> c_int = c"pcap_set_datalink" {
        if kind == DLT_EN10MB { after(h, 0) } else { h.fail(sys::ERROR, "a netvale port supports only Ethernet") }
    }
    /// Returns the snapshot length, the maximum number of captured bytes per frame.
    fn pcap_snapshot(p, h) -> c_int = c"pcap_snapshot" { after(h, h.snaplen.get()) }
    /// Returns 0, since a port is not a capture file.
    fn pcap_is_swapped(p, h) -> c_int = c"pcap_is_swapped" { after(h, 0) }
    /// Returns 0, since a port is not a capture file.
    fn pcap_major_version(p, h) -> c_int = c"pcap_major_version" { after(h, 0) }
    /// Returns 0, since a port is not a capture file.
    fn pcap_minor_version(p, h) -> c_int = c"pcap_minor_version" { after(h, 0) }
    /// Returns 0, since a handle has no capture buffer: frames stay in the port's rings.
    fn pcap_bufsize(p, h) -> c_int = c"pcap_bufsize" { after(h, 0) }
    /// Returns null, since a port is not a capture file.
    fn pcap_file(p, _h) -> *mut FILE = c"pcap_file" { std::ptr::null_mut() }
    /// Returns the descriptor for poll(2) and select(2).
    fn pcap_fileno(p, h) -> c_int = c"pcap_fileno" { selectable(h) }
    /// Returns a descriptor that becomes readable when frames arrive and, under `netvale run`, writable when there is
    /// room to send.
    fn pcap_get_selectable_fd(p, h) -> c_int = c"pcap_get_selectable_fd" { selectable(h) }
    /// Returns null, since programs may wait for the descriptor without a timeout.
    fn pcap_get_required_select_timeout(p, _h) -> *const timeval = c"pcap_get_required_select_timeout" {
        std::ptr::null()
    }

    /// Creates a capture file with the handle's link type.
    fn pcap_dump_open(p, h, name: *const c_char) -> *mut Dumper = c"pcap_dump_open" {
        // SAFETY: a function of the system's libpcap gets one of its own handles.
        dumper(h, || unsafe { sys::dump_open(h.dead.get(), name) })
    }
    /// Opens a capture file to which frames are appended; creates the file if it does not exist.
    fn pcap_dump_open_append(p, h, name: *const c_char) -> *mut Dumper = c"pcap_dump_open_append" {
        // SAFETY: a function of the system's libpcap gets one of its own handles.
        dumper(h, || unsafe { sys::dump_open_append(h.dead.get(), name) })
    }
    /// Creates a capture file like `pcap_dump_open`, but in a file that is already open.
    fn pcap_dump_fopen(p, h, file: *mut FILE) -> *mut Dumper = c"pcap_dump_fopen" {
        // SAFETY: a function of the system's libpcap gets one of its own handles.
        dumper(h, || unsafe { sys::dump_fopen(h.dead.get(), file) })
    }
}

fn dumper(h: &Handle, open: impl FnOnce() -> *mut Dumper) -> *mut Dumper {
    if !h.is_active() {
        h.fail(sys::ERROR, "not-yet-activated pcap_t passed to pcap_dump_open");
        return std::ptr::null_mut();
    }
    let dumper = open();
    if dumper.is_null() {
        // SAFETY: the system's function returns the error text in its handle, a C string.
        let why = unsafe { text(sys::geterr(h.dead.get())) };
        h.fail(sys::ERROR, why.unwrap_or("cannot open the capture file"));
    }
    dumper
}
