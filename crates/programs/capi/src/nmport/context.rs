//! `nmctx_*`: contexts, which receive error reports and allocate memory for libnetmap.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void, size_t};
use rustix::io::Errno;

use super::structs::NmCtx;

/// Maximum length of an error's text in bytes.
const TEXT: usize = 1024;

struct DefaultCtx(std::cell::UnsafeCell<NmCtx>);

// SAFETY: the fields are set at compile time. Later, the program changes the fields at its own risk, and this library
// changes only the list of regions, under the context's lock.
unsafe impl Sync for DefaultCtx {}

static DEFAULT: DefaultCtx = DefaultCtx(std::cell::UnsafeCell::new(NmCtx {
    verbose: 1,
    error: Some(default_error),
    malloc: Some(default_malloc),
    free: Some(default_free),
    lock: Some(default_lock),
    mem_descs: std::ptr::null_mut(),
}));
static CURRENT: AtomicPtr<NmCtx> = AtomicPtr::new(std::ptr::null_mut());
static LOCKED: AtomicBool = AtomicBool::new(false);

/// A symbol that programs reference to request a thread-safe libnetmap. This library is always thread-safe.
// SAFETY: the name is libnetmap's; this library never reads the value.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_upper_case_globals)]
pub static nmctx_threadsafe: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(1);

/// # Safety
/// The contract of callbacks in `struct nmctx`.
unsafe extern "C" fn default_error(_ctx: *mut NmCtx, text: *const c_char) {
    // SAFETY: a C string, by this function's contract.
    netvale_control::note!("{}", unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy());
}

/// # Safety
/// The contract of callbacks in `struct nmctx`.
unsafe extern "C" fn default_malloc(_ctx: *mut NmCtx, size: size_t) -> *mut c_void {
    // SAFETY: malloc takes any size.
    unsafe { libc::malloc(size) }
}

/// # Safety
/// The contract of callbacks in `struct nmctx`.
unsafe extern "C" fn default_free(_ctx: *mut NmCtx, p: *mut c_void) {
    // SAFETY: the memory came from `default_malloc`.
    unsafe { libc::free(p) };
}

/// Locks if `lock` is not 0, otherwise unlocks. The lock is held only for a few list operations and an mmap, so waiting
/// threads just yield.
///
/// # Safety
/// The contract of callbacks in `struct nmctx`.
unsafe extern "C" fn default_lock(_ctx: *mut NmCtx, lock: c_int) {
    if lock == 0 {
        LOCKED.store(false, Ordering::Release);
        return;
    }
    while LOCKED.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// Returns the current context.
// SAFETY: the name and type are those of libnetmap, which this library replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn nmctx_get() -> *mut NmCtx {
    let current = CURRENT.load(Ordering::Acquire);
    if current.is_null() { DEFAULT.0.get() } else { current }
}

/// Replaces the current context. Returns the previous one.
// SAFETY: the name and type are those of libnetmap, which this library replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn nmctx_set_default(ctx: *mut NmCtx) -> *mut NmCtx {
    let before = nmctx_get();
    CURRENT.store(ctx, Ordering::Release);
    before
}

/// Does nothing: contexts are always thread-safe.
// SAFETY: the name and type are those of libnetmap, which this library replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn nmctx_set_threadsafe() {}

/// Allocates memory from a context.
///
/// # Safety
/// `ctx` is a valid context.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmctx_malloc(ctx: *mut NmCtx, size: size_t) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { (*ctx).malloc.map_or(std::ptr::null_mut(), |malloc| malloc(ctx, size)) }
}

/// Returns memory to a context.
///
/// # Safety
/// `ctx` is a valid context, and `p` was allocated from it.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmctx_free(ctx: *mut NmCtx, p: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(free) = (*ctx).free {
            free(ctx, p);
        }
    }
}

/// Locks a context's list of regions.
///
/// # Safety
/// `ctx` is a valid context.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmctx_lock(ctx: *mut NmCtx) {
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(lock) = (*ctx).lock {
            lock(ctx, 1);
        }
    }
}

/// Unlocks a context's list of regions.
///
/// # Safety
/// `ctx` is a valid context.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmctx_unlock(ctx: *mut NmCtx) {
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(lock) = (*ctx).lock {
            lock(ctx, 0);
        }
    }
}

/// Reports an error, unless the context disables reports. Preserves `errno`.
///
/// # Safety
/// `ctx` is a valid context.
pub unsafe fn report_error(ctx: *mut NmCtx, text: &str) {
    let errno = crate::errno::get();
    crate::told::note(text);
    // SAFETY: the caller's contract.
    let (verbose, error) = unsafe { ((*ctx).verbose, (*ctx).error) };
    if let (true, Some(error), Ok(text)) = (verbose != 0, error, CString::new(text)) {
        // SAFETY: a valid context and a C string.
        unsafe { error(ctx, text.as_ptr()) };
    }
    crate::errno::set(errno);
}

/// Reports an error, sets `errno`, and returns -1.
///
/// # Safety
/// `ctx` is a valid context.
pub unsafe fn fail(ctx: *mut NmCtx, errno: Errno, text: &str) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { report_error(ctx, text) };
    crate::errno::fail(errno)
}

// SAFETY: the C library's declaration.
unsafe extern "C" {
    /// vsnprintf(3). A `va_list` is passed by its address on x86-64 and aarch64.
    fn vsnprintf(into: *mut c_char, size: size_t, format: *const c_char, args: *mut c_void) -> c_int;
}

/// The rest of `nmctx_ferror`, once its variable arguments are in a `va_list`.
///
/// # Safety
/// The conditions of vprintf; the context is valid.
unsafe extern "C" fn ferror(ctx: *mut NmCtx, format: *const c_char, args: *mut c_void) {
    let mut text = [0u8; TEXT];
    // SAFETY: format and arguments are the program's, as for printf; the text has room for `TEXT` bytes.
    unsafe { vsnprintf(text.as_mut_ptr().cast(), TEXT, format, args) };
    let text = text.split(|b| *b == 0).next().unwrap_or(&[]);
    // SAFETY: the program's context.
    unsafe { report_error(ctx, &String::from_utf8_lossy(text)) };
}

/// Reports an error to a context, formatted as with printf. Stable Rust cannot define a variadic function, so this
/// builds the `va_list` by hand, as the calling convention defines it (System V ABI, AMD64, 3.5.7).
///
/// # Safety
/// The conditions of printf; the context is valid.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn nmctx_ferror() {
    std::arch::naked_asm!(
        // 176 bytes are for the register save area and 24 for the va_list; the other 16 align the stack for the call.
        "sub rsp, 216",
        "mov [rsp + 48], rdx",
        "mov [rsp + 56], rcx",
        "mov [rsp + 64], r8",
        "mov [rsp + 72], r9",
        "test al, al",
        "je 2f",
        "movaps [rsp + 80], xmm0",
        "movaps [rsp + 96], xmm1",
        "movaps [rsp + 112], xmm2",
        "movaps [rsp + 128], xmm3",
        "movaps [rsp + 144], xmm4",
        "movaps [rsp + 160], xmm5",
        "movaps [rsp + 176], xmm6",
        "movaps [rsp + 192], xmm7",
        "2:",
        // gp_offset is 16, as the named arguments take two registers; fp_offset is 48, after the six general registers.
        "mov dword ptr [rsp + 8], 16",
        "mov dword ptr [rsp + 12], 48",
        "lea rax, [rsp + 224]",
        "mov [rsp + 16], rax",
        "lea rax, [rsp + 32]",
        "mov [rsp + 24], rax",
        "lea rdx, [rsp + 8]",
        "call {ferror}",
        "add rsp, 216",
        "ret",
        ferror = sym ferror,
    )
}

/// Reports an error to a context, formatted as with printf. Like the x86-64 variant, this builds the `va_list` by hand
/// (AAPCS64, appendix B).
///
/// # Safety
/// The conditions of printf; the context is valid.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn nmctx_ferror() {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, -240]!",
        "mov x29, sp",
        "stp x2, x3, [sp, 64]",
        "stp x4, x5, [sp, 80]",
        "stp x6, x7, [sp, 96]",
        "stp q0, q1, [sp, 112]",
        "stp q2, q3, [sp, 144]",
        "stp q4, q5, [sp, 176]",
        "stp q6, q7, [sp, 208]",
        // The fields of the va_list: __stack, __gr_top, __vr_top, __gr_offs, __vr_offs.
        "add x9, sp, 240",
        "str x9, [sp, 16]",
        "add x10, sp, 112",
        "str x10, [sp, 24]",
        "str x9, [sp, 32]",
        "mov w9, -48",
        "mov w10, -128",
        "stp w9, w10, [sp, 40]",
        "add x2, sp, 16",
        "bl {ferror}",
        "ldp x29, x30, [sp], 240",
        "ret",
        ferror = sym ferror,
    )
}
