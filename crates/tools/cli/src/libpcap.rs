//! The system's libpcap, which compiles expressions of pcap-filter(7). The library is loaded on first use, so only
//! commands that compile an expression require it.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};

use libloading::{Library, Symbol};
use netvale_policy::bpf::{FilterProgram, Insn};

use crate::CliError;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LibpcapInsn {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// `struct bpf_program`.
#[repr(C)]
struct LibpcapProgram {
    len: c_uint,
    insns: *mut LibpcapInsn,
}

/// `pcap_t`, opaque.
enum PcapHandle {}

type OpenDeadFn = unsafe extern "C" fn(c_int, c_int) -> *mut PcapHandle;
type CompileFn = unsafe extern "C" fn(*mut PcapHandle, *mut LibpcapProgram, *const c_char, c_int, u32) -> c_int;
type GetErrFn = unsafe extern "C" fn(*mut PcapHandle) -> *mut c_char;
type FreeCodeFn = unsafe extern "C" fn(*mut LibpcapProgram);
type CloseFn = unsafe extern "C" fn(*mut PcapHandle);

/// File names of the library: on Debian, and on other systems.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];
/// Ethernet (`DLT_EN10MB`).
const ETHERNET: c_int = 1;
/// Maximum length of a frame in bytes.
const LENGTH: c_int = 262_144;
/// Unknown netmask (`PCAP_NETMASK_UNKNOWN`).
const NO_MASK: u32 = u32::MAX;

/// Compiles an expression.
///
/// # Errors
/// libpcap is missing or reports an error in the expression, or netvale cannot run the compiled program.
pub fn compile(expression: &str) -> Result<FilterProgram, CliError> {
    let wrong = |why: String| CliError::usage(format!("{expression:?}: {why}"), "see pcap-filter(7) for the language");
    let text = CString::new(expression).map_err(|_| wrong("the filter contains a NUL byte".into()))?;
    let library = library()?;
    // SAFETY: functions of these names have these types in every libpcap; the library stays open as long as the
    // functions are used.
    let insns = unsafe { with_library(&library, &text) }.map_err(wrong)?;
    FilterProgram::verify(&insns).map_err(|why| wrong(why.to_string()))
}

fn library() -> Result<Library, CliError> {
    // SAFETY: libpcap's initializers have no requirements.
    let found = NAMES.iter().find_map(|name| unsafe { Library::new(name) }.ok());
    found.ok_or_else(|| {
        CliError::failed("libpcap, which compiles filters, is not installed", "install libpcap0.8 or libpcap")
    })
}

/// Compiles `text`. Returns the program's instructions, or libpcap's message.
///
/// # Safety
/// `library` must be libpcap.
unsafe fn with_library(library: &Library, text: &CStr) -> Result<Vec<Insn>, String> {
    let missing = |e: libloading::Error| e.to_string();
    // SAFETY: the caller's contract; each pointer is used as pcap(3) says: the handle until it is closed, the program
    // until it is freed, and the message until the handle is closed.
    unsafe {
        let open: Symbol<'_, OpenDeadFn> = library.get(b"pcap_open_dead\0").map_err(missing)?;
        let compile: Symbol<'_, CompileFn> = library.get(b"pcap_compile\0").map_err(missing)?;
        let geterr: Symbol<'_, GetErrFn> = library.get(b"pcap_geterr\0").map_err(missing)?;
        let free: Symbol<'_, FreeCodeFn> = library.get(b"pcap_freecode\0").map_err(missing)?;
        let close: Symbol<'_, CloseFn> = library.get(b"pcap_close\0").map_err(missing)?;
        let handle = open(ETHERNET, LENGTH);
        if handle.is_null() {
            return Err("libpcap is out of memory".into());
        }
        let mut program = LibpcapProgram { len: 0, insns: std::ptr::null_mut() };
        let result = if compile(handle, &raw mut program, text.as_ptr(), 1, NO_MASK) == 0 {
            let insns = std::slice::from_raw_parts(program.insns, program.len as usize);
            let insns = insns.iter().map(|i| Insn { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect();
            free(&raw mut program);
            Ok(insns)
        } else {
            Err(CStr::from_ptr(geterr(handle)).to_string_lossy().into_owned())
        };
        close(handle);
        result
    }
}
