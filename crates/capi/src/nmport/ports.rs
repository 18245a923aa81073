//! `nmport_*`: from a name to rings.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_char, c_int, c_void, size_t};
use netvale_abi::ioctl::NIOCCTRL;
use netvale_abi::nmreq::{
    NETMAP_REQ_OPT_OFFSETS, NETMAP_REQ_REGISTER, NmreqHeader, NmreqOptExtmem, NmreqOptOffsets, NmreqOption,
    NmreqRegister,
};
use netvale_abi::slot::NS_MOREFRAG;
use netvale_abi::{NetmapIf, NetmapRing, NetmapSlot};
use netvale_portspec::{Memory, PortSpec};
use rustix::io::Errno;

use super::context::{Ctx, fail, nmctx_free, nmctx_get, nmctx_malloc, tell};
use super::memory;
use super::regions::{self, MemDesc};
use super::requests::{
    is_prefixed, nmreq_get_mem_id, nmreq_header_init, nmreq_option_name, nmreq_push_option, nmreq_remove_option, text,
};

/// What the library keeps with a port beside its public fields.
#[derive(Clone, Copy)]
pub struct Private {
    /// The mapped file of an extmem option.
    pub file: (*mut c_void, size_t),
    /// The offsets option.
    offsets: *mut NmreqOptOffsets,
    parsed: bool,
}

/// `struct nmport_d`; what follows `cur_rx_ring` is not public.
#[repr(C)]
pub struct PortDesc {
    /// The request.
    pub hdr: NmreqHeader,
    /// Its body.
    pub reg: NmreqRegister,
    /// The region, equal for ports that lie in one.
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
    /// Where `nmport_inject` goes on.
    pub cur_tx_ring: u16,
    /// For the program.
    pub cur_rx_ring: u16,
    /// Stands where libnetmap has a private pointer.
    pub private: Private,
}

/// Options that may not be used, a bit each in the order of [`OPTION_NAMES`]; offsets need a program that knows them.
static DISABLED: AtomicU32 = AtomicU32::new(1 << OFFSET);
const OPTION_NAMES: [&str; 4] = ["share", "extmem", "conf", "offset"];
const OFFSET: u32 = 3;

fn option_bit(name: *const c_char) -> Option<u32> {
    // SAFETY: a C string, by the contract of the two functions that call this.
    let name = unsafe { text(name) }?;
    OPTION_NAMES.iter().position(|n| *n == name).map(|i| 1 << i)
}

/// Makes an option of specifications an error.
///
/// # Safety
/// `name` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_disable_option(name: *const c_char) {
    if let Some(bit) = option_bit(name) {
        DISABLED.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Allows it.
///
/// # Safety
/// `name` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_enable_option(name: *const c_char) -> c_int {
    match option_bit(name) {
        Some(bit) => {
            DISABLED.fetch_and(!bit, Ordering::Relaxed);
            0
        }
        None => crate::errno::fail(Errno::OPNOTSUPP),
    }
}

/// An empty port.
// SAFETY: libnetmap's own name and type.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn nmport_new() -> *mut PortDesc {
    // SAFETY: the current context is valid.
    unsafe { new_with(nmctx_get()) }
}

/// # Safety
/// `ctx` is a valid context.
unsafe fn new_with(ctx: *mut Ctx) -> *mut PortDesc {
    // SAFETY: the caller's; zeros are a valid value of all fields; the request points at the port's own body.
    unsafe {
        let d = nmctx_malloc(ctx, size_of::<PortDesc>()).cast::<PortDesc>();
        if d.is_null() {
            fail(ctx, Errno::NOMEM, "cannot allocate a port");
            return d;
        }
        d.write_bytes(0, 1);
        nmreq_header_init(&raw mut (*d).hdr, NETMAP_REQ_REGISTER, (&raw mut (*d).reg).cast());
        (*d).ctx = ctx;
        (*d).fd = -1;
        d
    }
}

/// Gives a port's memory back.
///
/// # Safety
/// `d` is null or a port, which is not used after.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_delete(d: *mut PortDesc) {
    // SAFETY: the caller's.
    unsafe {
        if !d.is_null() {
            nmctx_free((*d).ctx, d.cast());
        }
    }
}

/// Fills a port's request from a specification.
///
/// # Safety
/// As libnetmap.h says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_parse(d: *mut PortDesc, spec: *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let ctx = (*d).ctx;
        let Some(all) = text(spec) else { return fail(ctx, Errno::INVAL, "a port name that is not text") };
        if !is_prefixed(all) {
            return fail(ctx, Errno::INVAL, &format!("{all}: a port is named netmap:NAME or valeID:NAME"));
        }
        let parsed = match PortSpec::parse(all) {
            Ok(parsed) => parsed,
            Err(e) => return fail(ctx, Errno::INVAL, &e.to_string()),
        };
        if let Some(name) = disabled(&parsed) {
            return fail(ctx, Errno::OPNOTSUPP, &format!("{all}: option {name} is disabled"));
        }
        fill(d, &parsed)
    }
}

/// An option of the specification that may not be used.
fn disabled(spec: &PortSpec) -> Option<&'static str> {
    let used = [
        matches!(spec.memory, Memory::SharedWith(_)),
        matches!(spec.memory, Memory::External(_)),
        spec.conf != Default::default(),
        spec.offset.is_some(),
    ];
    let off = DISABLED.load(Ordering::Relaxed);
    (0..OPTION_NAMES.len()).find(|i| used[*i] && off & (1 << i) != 0).map(|i| OPTION_NAMES[i])
}

/// # Safety
/// `d` is a port that is not registered.
unsafe fn fill(d: *mut PortDesc, spec: &PortSpec) -> c_int {
    let mut reg = spec.to_register();
    // SAFETY: the caller's; C strings live over the calls they are given to.
    unsafe {
        if let Memory::SharedWith(name) = &spec.memory {
            let Ok(name) = std::ffi::CString::new(name.to_string()) else { return crate::errno::fail(Errno::INVAL) };
            let mut at = name.as_ptr();
            match u16::try_from(nmreq_get_mem_id(&raw mut at, (*d).ctx)) {
                Ok(id) => reg.nr_mem_id = id,
                Err(_) => return -1,
            }
        }
        if let Memory::External(extmem) = &spec.memory
            && memory::from_spec(d, extmem) < 0
        {
            return -1;
        }
        if let Some(o) = spec.offset {
            let bits = o.bits.map_or(0, |b| u64::from(b.get()));
            if nmport_offset(d, o.initial, o.initial, bits, 0) < 0 {
                memory::undo(d);
                return -1;
            }
        }
        (*d).hdr.nr_name = spec.name.nr_name_field();
        (*d).reg = reg;
        (*d).private.parsed = true;
    }
    0
}

/// Takes back what [`nmport_parse`] did.
///
/// # Safety
/// `d` is a port that is not registered.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_parse(d: *mut PortDesc) {
    // SAFETY: the caller's.
    unsafe {
        memory::undo(d);
        let offsets = (*d).private.offsets;
        if !offsets.is_null() {
            nmreq_remove_option(&raw mut (*d).hdr, offsets.cast());
            nmctx_free((*d).ctx, offsets.cast());
            (*d).private.offsets = std::ptr::null_mut();
        }
        (*d).hdr.nr_name = [0; 64];
        (*d).reg = NmreqRegister::default();
        (*d).private.parsed = false;
    }
}

/// Asks for frames at an offset in their buffers.
///
/// # Safety
/// `d` is a port that is not registered.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_offset(d: *mut PortDesc, initial: u64, most: u64, bits: u64, gap: u64) -> c_int {
    // SAFETY: the caller's; the option is written whole before it is linked in.
    unsafe {
        let ctx = (*d).ctx;
        let option = nmctx_malloc(ctx, size_of::<NmreqOptOffsets>()).cast::<NmreqOptOffsets>();
        if option.is_null() {
            return fail(ctx, Errno::NOMEM, "offsets: out of memory");
        }
        option.write(NmreqOptOffsets {
            nro_opt: NmreqOption { nro_reqtype: NETMAP_REQ_OPT_OFFSETS, ..NmreqOption::default() },
            nro_max_offset: most,
            nro_initial_offset: initial,
            nro_offset_bits: u32::try_from(bits).unwrap_or(u32::MAX),
            nro_tx_align: 0,
            nro_min_gap: gap,
        });
        nmreq_push_option(&raw mut (*d).hdr, option.cast());
        (*d).private.offsets = option;
        0
    }
}

/// Opens `/dev/netmap` and registers the port.
///
/// # Safety
/// As libnetmap.h says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_register(d: *mut PortDesc) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let ctx = (*d).ctx;
        let name = String::from_utf8_lossy(netvale_abi::name::get(&(*d).hdr.nr_name)).into_owned();
        if (*d).register_done != 0 {
            return fail(ctx, Errno::INVAL, &format!("{name}: already registered"));
        }
        (*d).fd = libc::open(c"/dev/netmap".as_ptr(), libc::O_RDWR);
        if (*d).fd < 0 {
            tell(ctx, "/dev/netmap cannot be opened: is a netvale daemon running?");
            return -1;
        }
        let before = (*d).reg;
        if libc::ioctl((*d).fd, NIOCCTRL.into(), &raw mut (*d).hdr) < 0 {
            let errno = crate::errno::last();
            (*d).reg = before;
            report_options(d);
            libc::close((*d).fd);
            (*d).fd = -1;
            return fail(ctx, errno, &format!("{name}: {}", std::io::Error::from(errno)));
        }
        (*d).register_done = 1;
        0
    }
}

/// Tells which options were refused.
///
/// # Safety
/// `d` is a port; the options of its request are valid.
unsafe fn report_options(d: *mut PortDesc) {
    // SAFETY: the caller's.
    unsafe {
        let mut option = (*d).hdr.nr_options as *const NmreqOption;
        while !option.is_null() {
            let status = (*option).nro_status as i32;
            if status != 0 {
                let name = text(nmreq_option_name((*option).nro_reqtype)).unwrap_or("unknown");
                let why = std::io::Error::from_raw_os_error(status);
                tell((*d).ctx, &format!("option {name}: {why}"));
            }
            option = (*option).nro_next as *const NmreqOption;
        }
    }
}

/// Takes back what [`nmport_register`] did.
///
/// # Safety
/// `d` is a port.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_register(d: *mut PortDesc) {
    // SAFETY: the caller's.
    unsafe {
        if (*d).fd >= 0 {
            libc::close((*d).fd);
        }
        ((*d).fd, (*d).register_done) = (-1, 0);
    }
}

/// Maps the port's region and finds its rings.
///
/// # Safety
/// As libnetmap.h says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_mmap(d: *mut PortDesc) -> c_int {
    // SAFETY: the caller's; the region holds the netmap_if at the offset the registration gave.
    unsafe {
        let ctx = (*d).ctx;
        if (*d).mmap_done != 0 || (*d).register_done == 0 {
            return fail(ctx, Errno::INVAL, "a port is mapped once, after it has been registered");
        }
        match regions::acquire(d) {
            Ok(mem) => (*d).mem = mem,
            Err(e) => return fail(ctx, e, "cannot map the port's region"),
        }
        (*d).nifp = (*(*d).mem).mem.cast::<u8>().add((*d).reg.nr_offset as usize).cast();
        let nifp = (*d).nifp;
        let tx = (*nifp).ni_tx_rings + (*nifp).ni_host_tx_rings;
        let rx = (*nifp).ni_rx_rings + (*nifp).ni_host_rx_rings;
        ((*d).first_tx_ring, (*d).last_tx_ring) = bound(nifp, 0, tx);
        ((*d).first_rx_ring, (*d).last_rx_ring) = bound(nifp, tx, rx);
        ((*d).cur_tx_ring, (*d).cur_rx_ring) = ((*d).first_tx_ring, (*d).first_rx_ring);
        (*d).mmap_done = 1;
        0
    }
}

/// The `i`-th ring offset of a `netmap_if`.
///
/// # Safety
/// It has that many.
unsafe fn ring_ofs(nifp: *const NetmapIf, i: u32) -> isize {
    // SAFETY: the caller's: the offsets follow the structure.
    unsafe { nifp.add(1).cast::<isize>().add(i as usize).read_volatile() }
}

/// First and last of the `count` rings from `from` on that are bound; (1, 0) when none is.
///
/// # Safety
/// The `netmap_if` has them.
unsafe fn bound(nifp: *const NetmapIf, from: u32, count: u32) -> (u16, u16) {
    // SAFETY: the caller's.
    let is_bound = |i: &u32| unsafe { ring_ofs(nifp, from + i) } != 0;
    match (0..count).find(is_bound) {
        Some(first) => (first as u16, (first..count).take_while(is_bound).last().unwrap_or(first) as u16),
        None => (1, 0),
    }
}

/// Takes back what [`nmport_mmap`] did.
///
/// # Safety
/// `d` is a port.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_mmap(d: *mut PortDesc) {
    // SAFETY: the caller's.
    unsafe {
        if (*d).mmap_done != 0 {
            regions::release(d);
        }
        ((*d).mmap_done, (*d).nifp) = (0, std::ptr::null_mut());
        ((*d).first_tx_ring, (*d).last_tx_ring, (*d).first_rx_ring, (*d).last_rx_ring) = (0, 0, 0, 0);
    }
}

/// [`nmport_new`], then [`nmport_parse`].
///
/// # Safety
/// `spec` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_prepare(spec: *const c_char) -> *mut PortDesc {
    // SAFETY: the caller's.
    unsafe {
        let d = nmport_new();
        if !d.is_null() && nmport_parse(d, spec) < 0 {
            nmport_delete(d);
            return std::ptr::null_mut();
        }
        d
    }
}

/// Takes it back.
///
/// # Safety
/// `d` is a port, which is not used after.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_prepare(d: *mut PortDesc) {
    // SAFETY: the caller's.
    unsafe {
        nmport_undo_parse(d);
        nmport_delete(d);
    }
}

/// [`nmport_register`], then [`nmport_mmap`].
///
/// # Safety
/// As theirs.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_open_desc(d: *mut PortDesc) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if nmport_register(d) < 0 {
            return -1;
        }
        if nmport_mmap(d) < 0 {
            let errno = crate::errno::get();
            nmport_undo_register(d);
            crate::errno::set(errno);
            return -1;
        }
        0
    }
}

/// Takes it back.
///
/// # Safety
/// `d` is a port.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_undo_open_desc(d: *mut PortDesc) {
    // SAFETY: the caller's.
    unsafe {
        nmport_undo_mmap(d);
        nmport_undo_register(d);
    }
}

/// Opens a port by its specification.
///
/// # Safety
/// `spec` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_open(spec: *const c_char) -> *mut PortDesc {
    // SAFETY: the caller's.
    unsafe {
        let d = nmport_prepare(spec);
        if !d.is_null() && nmport_open_desc(d) < 0 {
            let errno = crate::errno::get();
            nmport_undo_prepare(d);
            crate::errno::set(errno);
            return std::ptr::null_mut();
        }
        d
    }
}

/// Closes it.
///
/// # Safety
/// `d` is null or a port, which is not used after.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_close(d: *mut PortDesc) {
    // SAFETY: the caller's.
    unsafe {
        if !d.is_null() {
            nmport_undo_open_desc(d);
            nmport_undo_prepare(d);
        }
    }
}

/// A copy of a port's request, to be opened; options are left out. A registered port's copy asks for its region.
///
/// # Safety
/// `d` is a port.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_clone(d: *mut PortDesc) -> *mut PortDesc {
    // SAFETY: the caller's.
    unsafe {
        if !(*d).extmem.is_null() && (*d).register_done == 0 {
            fail((*d).ctx, Errno::INVAL, "a port with extmem can be cloned only once it is registered");
            return std::ptr::null_mut();
        }
        let copy = new_with((*d).ctx);
        if !copy.is_null() {
            (*copy).hdr.nr_name = (*d).hdr.nr_name;
            (*copy).reg = (*d).reg;
            (*copy).private.parsed = true;
        }
        copy
    }
}

/// Copies a frame into a tx ring, the rings taking turns. 0, or -1 when there is no room or the frame is longer than a ring.
///
/// # Safety
/// `d` is an open port, `buf` has `size` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmport_inject(d: *mut PortDesc, buf: *const c_void, size: size_t) -> c_int {
    // SAFETY: the caller's; rings and buffers are where netmap's rules say, in a region of the program's own.
    unsafe {
        let (first, last) = ((*d).first_tx_ring, (*d).last_tx_ring);
        let count = u32::from(last) + 1 - u32::from(first).min(u32::from(last) + 1);
        for k in 0..count {
            let index = first + ((u32::from((*d).cur_tx_ring - first) + k) % count) as u16;
            let ring = (*d).nifp.cast::<u8>().offset(ring_ofs((*d).nifp, index.into())).cast::<NetmapRing>();
            if put(ring, buf.cast(), size) {
                (*d).cur_tx_ring = index;
                return 0;
            }
        }
        -1
    }
}

/// # Safety
/// As [`nmport_inject`].
unsafe fn put(ring: *mut NetmapRing, buf: *const u8, size: usize) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let (slots, buf_size) = ((*ring).num_slots, (*ring).nr_buf_size as usize);
        let (tail, mut i) = ((&raw const (*ring).tail).read_volatile(), (*ring).head);
        let need = size.div_ceil(buf_size).max(1);
        if (netvale_abi::ring_space(i, tail, slots) as usize) < need {
            return false;
        }
        for k in 0..need {
            let slot = ring.add(1).cast::<NetmapSlot>().add(i as usize);
            let part = (size - k * buf_size).min(buf_size);
            let to = ring.cast::<u8>().offset((*ring).buf_ofs as isize).add((*slot).buf_idx as usize * buf_size);
            std::ptr::copy_nonoverlapping(buf.add(k * buf_size), to, part);
            (*slot).len = part as u16;
            (*slot).flags = if k + 1 < need { NS_MOREFRAG } else { 0 };
            i = netvale_abi::ring_next(i, slots);
        }
        ((*ring).head, (*ring).cur) = (i, i);
        true
    }
}
