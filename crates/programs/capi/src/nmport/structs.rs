//! libnetmap's structures, which point to one another (libnetmap.h).

use libc::{c_char, c_int, c_void, size_t};
use netvale_abi::NetmapIf;
use netvale_abi::nmreq::{NmreqHeader, NmreqOptExtmem, NmreqOptOffsets, NmreqRegister};

/// `struct nmctx`.
#[repr(C)]
pub struct Ctx {
    /// Whether errors are reported at all.
    pub verbose: c_int,
    /// Receives errors.
    pub error: Option<unsafe extern "C" fn(*mut Ctx, *const c_char)>,
    /// Allocates memory.
    pub malloc: Option<unsafe extern "C" fn(*mut Ctx, size_t) -> *mut c_void>,
    /// Frees memory.
    pub free: Option<unsafe extern "C" fn(*mut Ctx, *mut c_void)>,
    /// Locks (1) and unlocks (0) the list of regions.
    pub lock: Option<unsafe extern "C" fn(*mut Ctx, c_int)>,
    /// Regions in use.
    pub mem_descs: *mut MemDesc,
}

/// `struct nmem_d`.
#[repr(C)]
pub struct MemDesc {
    /// The region's number.
    pub mem_id: u16,
    /// Ports that use it.
    pub refcount: c_int,
    /// Address at which it is mapped.
    pub mem: *mut c_void,
    /// Length in bytes.
    pub size: size_t,
    /// Whether the program brought the memory.
    pub is_extmem: c_int,
    /// Next region of the list.
    pub next: *mut MemDesc,
    /// Previous region of the list.
    pub prev: *mut MemDesc,
}

/// The library's private state of a port.
#[derive(Clone, Copy)]
pub struct Private {
    /// The mapped file of an extmem option.
    pub file: (*mut c_void, size_t),
    /// The offsets option.
    pub offsets: *mut NmreqOptOffsets,
    /// Whether the request is filled in.
    pub parsed: bool,
}

/// `struct nmport_d`; what follows `cur_rx_ring` is not public.
#[repr(C)]
pub struct PortDesc {
    /// The request.
    pub hdr: NmreqHeader,
    /// Its body.
    pub reg: NmreqRegister,
    /// The region; ports in the same region share it.
    pub mem: *mut MemDesc,
    /// The context it was made with.
    pub ctx: *mut Ctx,
    /// Registered.
    pub register_done: c_int,
    /// Mapped.
    pub mmap_done: c_int,
    /// The extmem option, if any.
    pub extmem: *mut NmreqOptExtmem,
    /// The netmap descriptor; -1 when not open.
    pub fd: c_int,
    /// The port's `netmap_if`.
    pub nifp: *mut NetmapIf,
    /// Bound rings; empty if first > last.
    pub first_tx_ring: u16,
    /// Last of them.
    pub last_tx_ring: u16,
    /// Bound rings; empty if first > last.
    pub first_rx_ring: u16,
    /// Last of them.
    pub last_rx_ring: u16,
    /// The ring at which `nmport_inject` continues.
    pub cur_tx_ring: u16,
    /// For the program's own use.
    pub cur_rx_ring: u16,
    /// In the place of libnetmap's private pointer.
    pub private: Private,
}
