//! libnetmap's structures (libnetmap.h).

use libc::{c_char, c_int, c_void, size_t};
use netvale_abi::NetmapIf;
use netvale_abi::nmreq::{NmreqHeader, NmreqOptExtmem, NmreqOptOffsets, NmreqRegister};

/// `struct nmctx`: a context, which determines how libnetmap reports errors, allocates memory and locks.
#[repr(C)]
pub struct NmCtx {
    /// Whether errors are reported.
    pub verbose: c_int,
    /// Callback that receives the texts of errors.
    pub error: Option<unsafe extern "C" fn(*mut NmCtx, *const c_char)>,
    /// Callback that allocates memory.
    pub malloc: Option<unsafe extern "C" fn(*mut NmCtx, size_t) -> *mut c_void>,
    /// Callback that frees memory.
    pub free: Option<unsafe extern "C" fn(*mut NmCtx, *mut c_void)>,
    /// Callback that locks (1) and unlocks (0) the list of regions.
    pub lock: Option<unsafe extern "C" fn(*mut NmCtx, c_int)>,
    /// First region of the list of regions in use; null if the list is empty.
    pub mem_descs: *mut MemDesc,
}

/// `struct nmem_d`: a mapped region.
#[repr(C)]
pub struct MemDesc {
    /// The region's number.
    pub mem_id: u16,
    /// Number of ports that use the region.
    pub refcount: c_int,
    /// Address at which the region is mapped.
    pub mem: *mut c_void,
    /// Length of the region in bytes.
    pub size: size_t,
    /// Whether the program provided the memory.
    pub is_extmem: c_int,
    /// Next region of the list.
    pub next: *mut MemDesc,
    /// Previous region of the list.
    pub prev: *mut MemDesc,
}

/// The library's private state of a port.
#[derive(Clone, Copy)]
pub struct PortPrivate {
    /// Address and length of the mapped file of an extmem option; the address is null if there is no such file.
    pub file: (*mut c_void, size_t),
    /// The request's offsets option; null if the request has none.
    pub offsets: *mut NmreqOptOffsets,
    /// Whether the registration request is filled in.
    pub parsed: bool,
}

/// `struct nmport_d`; what follows `cur_rx_ring` is not public.
#[repr(C)]
pub struct PortDesc {
    /// Header of the registration request.
    pub hdr: NmreqHeader,
    /// Body of the registration request.
    pub reg: NmreqRegister,
    /// The region; ports in the same region share it.
    pub mem: *mut MemDesc,
    /// The context in which the port was created.
    pub ctx: *mut NmCtx,
    /// Whether the port is registered.
    pub register_done: c_int,
    /// Whether the region is mapped.
    pub mmap_done: c_int,
    /// The extmem option; null if the request has none.
    pub extmem: *mut NmreqOptExtmem,
    /// The netmap descriptor; -1 if the port is not open.
    pub fd: c_int,
    /// The port's `netmap_if`.
    pub nifp: *mut NetmapIf,
    /// Index of the first bound tx ring. If it is greater than `last_tx_ring`, no tx ring is bound.
    pub first_tx_ring: u16,
    /// Index of the last bound tx ring.
    pub last_tx_ring: u16,
    /// Index of the first bound rx ring. If it is greater than `last_rx_ring`, no rx ring is bound.
    pub first_rx_ring: u16,
    /// Index of the last bound rx ring.
    pub last_rx_ring: u16,
    /// Index of the tx ring that `nmport_inject` tries first.
    pub cur_tx_ring: u16,
    /// A field for the program's own use, which is initialised with the index of the first bound rx ring.
    pub cur_rx_ring: u16,
    /// This library's private state.
    pub private: PortPrivate,
}
