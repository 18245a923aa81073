//! Functions that open and close handles and list interfaces.
#![allow(unsafe_code)]

use std::ffi::CString;

use libc::{c_char, c_int, c_uint};
use netvale::interface::{PREFIX, name_of};
use netvale_control::client::Client;
use netvale_control::dirs;

use crate::handle::{Handle, put_text};
use crate::sys::{self, Pcap, PcapInterface};
use crate::{is_port, on_handle, text};

/// Creates a handle for an interface, which the program then sets up and activates.
///
/// # Safety
/// The conditions in libpcap's manual.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pcap_create(name: *const c_char, errbuf: *mut c_char) -> *mut Pcap {
    // SAFETY: the caller's contract.
    match unsafe { text(name) }.filter(|n| is_port(n)) {
        Some(name) => Box::into_raw(Handle::new(name)).cast(),
        // SAFETY: the caller's contract.
        None => unsafe { sys::create(name, errbuf) },
    }
}

/// Creates a handle, sets it up and activates it.
///
/// # Safety
/// The conditions in libpcap's manual.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pcap_open_live(
    name: *const c_char,
    snaplen: c_int,
    promisc: c_int,
    ms: c_int,
    errbuf: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the caller's contract.
    let Some(port) = (unsafe { text(name) }).filter(|n| is_port(n)) else {
        // SAFETY: the caller's contract.
        return unsafe { sys::open_live(name, snaplen, promisc, ms, errbuf) };
    };
    let handle = Handle::new(port);
    handle.snaplen.set(snaplen);
    handle.timeout.set(ms);
    if handle.activate() == 0 {
        return Box::into_raw(handle).cast();
    }
    // SAFETY: the handle's error text is a C string; the caller guarantees that `errbuf` has room.
    unsafe { put_text(errbuf, text(handle.errbuf()).unwrap_or("cannot open the port")) };
    std::ptr::null_mut()
}

on_handle! {
    /// Activates a handle that `pcap_create` has created.
    fn pcap_activate(p, h) -> c_int = c"pcap_activate" { h.activate() }

    /// Closes a handle.
    fn pcap_close(p, _h) = c"pcap_close" {
        // SAFETY: the handle came from Box::into_raw in this file; the program does not use it afterwards.
        drop(unsafe { Box::from_raw(p.cast::<Handle>()) })
    }
}

/// Lists all interfaces: the system's, then the daemon's ports.
///
/// # Safety
/// The conditions in libpcap's manual.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pcap_findalldevs(list: *mut *mut PcapInterface, errbuf: *mut c_char) -> c_int {
    // SAFETY: the caller's contract.
    let found = unsafe { sys::findalldevs(list, errbuf) };
    if found == 0 {
        // SAFETY: the list is valid; its nodes were allocated by the system's libpcap or by this library.
        unsafe {
            let mut end = list;
            while !(*end).is_null() {
                end = &raw mut (**end).next;
            }
            for (name, description) in ports() {
                *end = node(&name, &description);
                if (*end).is_null() {
                    break;
                }
                end = &raw mut (**end).next;
            }
        }
    }
    found
}

/// Returns the daemon's ports with descriptions; empty if no daemon answers.
fn ports() -> Vec<(String, String)> {
    let Ok(mut client) = Client::connect(&dirs::daemon_run_dir(dirs::CONTROL_SOCKET)) else { return Vec::new() };
    let list = client.ports(None).unwrap_or_default();
    let about = |name: &str| format!("a copy of the traffic of netvale port {name}");
    let copies = list.iter().map(|port| (name_of(&format!("{}/z", port.name)), about(&port.name)));
    let mut named: Vec<_> = copies.filter(|(name, _)| is_port(name)).collect();
    let mut switches: Vec<_> = list.iter().filter_map(|port| port.switch.as_deref()).collect();
    switches.sort_unstable();
    switches.dedup();
    named.extend(switches.into_iter().map(|s| (format!("{PREFIX}{s}"), format!("a new port of netvale switch {s}"))));
    named
}

/// Creates a list node that the system's `pcap_freealldevs` can free.
///
/// # Safety
/// The conditions of malloc.
unsafe fn node(name: &str, description: &str) -> *mut PcapInterface {
    const UP: c_uint = 2;
    const RUNNING: c_uint = 4;
    let (Ok(name), Ok(description)) = (CString::new(name), CString::new(description)) else {
        return std::ptr::null_mut();
    };
    // SAFETY: malloc has returned room for the node, all fields of which are written; strdup allocates the strings.
    unsafe {
        let node = libc::malloc(size_of::<PcapInterface>()).cast::<PcapInterface>();
        if !node.is_null() {
            node.write(PcapInterface {
                next: std::ptr::null_mut(),
                name: libc::strdup(name.as_ptr()),
                description: libc::strdup(description.as_ptr()),
                addresses: std::ptr::null_mut(),
                flags: UP | RUNNING,
            });
        }
        node
    }
}

/// Reports the network address and netmask of an interface. A port has neither; callers accept 0 for both.
///
/// # Safety
/// The conditions in libpcap's manual.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pcap_lookupnet(
    name: *const c_char,
    net: *mut u32,
    mask: *mut u32,
    errbuf: *mut c_char,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        match text(name).filter(|n| is_port(n)) {
            None => sys::lookupnet(name, net, mask, errbuf),
            Some(port) => {
                *net = 0;
                *mask = 0;
                put_text(errbuf, &format!("{port}: no IPv4 address assigned"));
                sys::ERROR
            }
        }
    }
}
