//! The system's libpcap: its compiler, its check of programs and its interpreter.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};

use libc::{c_char, c_int, c_uint, c_void};
use netvale_policy::bpf::{FilterProgram, Insn};

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct BpfInsn {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// `struct bpf_program`.
#[repr(C)]
struct BpfProgram {
    len: c_uint,
    insns: *mut BpfInsn,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile = unsafe extern "C" fn(*mut c_void, *mut BpfProgram, *const c_char, c_int, u32) -> c_int;
type GetErr = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type FreeCode = unsafe extern "C" fn(*mut BpfProgram);
type Close = unsafe extern "C" fn(*mut c_void);
type Filter = unsafe extern "C" fn(*const BpfInsn, *const u8, c_uint, c_uint) -> c_uint;
type Validate = unsafe extern "C" fn(*const BpfInsn, c_int) -> c_int;

/// `DLT_EN10MB`: Ethernet.
const ETHERNET: c_int = 1;
/// The value that compiled programs return for a frame that they accept.
const SNAPLEN: c_int = 262_144;
/// 255.255.255.0, for `ip broadcast`, in libpcap's byte order.
const NETMASK: u32 = 0xffff_ff00;

/// libpcap's functions.
#[derive(Clone, Copy)]
pub struct Pcap {
    open_dead: OpenDead,
    compile: Compile,
    geterr: GetErr,
    freecode: FreeCode,
    close: Close,
    filter: Filter,
    validate: Validate,
}

/// A program run by libpcap.
pub struct Judge {
    pcap: Pcap,
    insns: Vec<BpfInsn>,
}

fn load(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string, and libpcap's initialisers do nothing.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    (!library.is_null()).then_some(library)
}

fn function(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the handle is from dlopen and never closed, and the name is a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() { Err(format!("libpcap has no {}", name.to_string_lossy())) } else { Ok(found) }
}

impl Pcap {
    /// Loads libpcap. The error contains the reason of a failure.
    pub fn load() -> Result<Pcap, String> {
        let library = load(c"libpcap.so.0.8").or_else(|| load(c"libpcap.so.1"));
        let library = library.ok_or("there is no libpcap.so.0.8 or libpcap.so.1 to load")?;
        let get = |name| function(library, name);
        // SAFETY: functions of these names have these types in every libpcap.
        Ok(unsafe {
            Pcap {
                open_dead: std::mem::transmute::<*mut c_void, OpenDead>(get(c"pcap_open_dead")?),
                compile: std::mem::transmute::<*mut c_void, Compile>(get(c"pcap_compile")?),
                geterr: std::mem::transmute::<*mut c_void, GetErr>(get(c"pcap_geterr")?),
                freecode: std::mem::transmute::<*mut c_void, FreeCode>(get(c"pcap_freecode")?),
                close: std::mem::transmute::<*mut c_void, Close>(get(c"pcap_close")?),
                filter: std::mem::transmute::<*mut c_void, Filter>(get(c"bpf_filter")?),
                validate: std::mem::transmute::<*mut c_void, Validate>(get(c"bpf_validate")?),
            }
        })
    }

    /// Compiles an expression for Ethernet.
    #[allow(dead_code)]
    pub fn compile(&self, expression: &str, optimise: bool) -> Result<Vec<Insn>, String> {
        let text = CString::new(expression).map_err(|e| e.to_string())?;
        let mut program = BpfProgram { len: 0, insns: std::ptr::null_mut() };
        // SAFETY: the arguments are plain numbers, and nothing is opened.
        let handle = unsafe { (self.open_dead)(ETHERNET, SNAPLEN) };
        assert!(!handle.is_null(), "pcap_open_dead fails only without memory");
        // SAFETY: the handle is open, the text ends with a NUL, and the call writes the program.
        let status = unsafe { (self.compile)(handle, &mut program, text.as_ptr(), optimise.into(), NETMASK) };
        let compiled = if status == 0 {
            // SAFETY: a compiled program has the number of instructions that it states.
            let insns = unsafe { std::slice::from_raw_parts(program.insns, program.len as usize) };
            Ok(insns.iter().map(|&BpfInsn { code, jt, jf, k }| Insn { code, jt, jf, k }).collect())
        } else {
            // SAFETY: libpcap ends its text with a NUL and keeps it with the handle.
            let reason = unsafe { CStr::from_ptr((self.geterr)(handle)) };
            Err(format!("{expression}: {}", reason.to_string_lossy()))
        };
        // SAFETY: the program, if there is one, is freed once, and the handle is closed once.
        unsafe {
            (self.freecode)(&mut program);
            (self.close)(handle);
        }
        compiled
    }

    /// Loads a verified program into libpcap's interpreter; `None` if libpcap's own check refuses the program.
    pub fn judge(&self, program: &FilterProgram) -> Option<Judge> {
        let insns: Vec<_> =
            program.insns().iter().map(|&Insn { code, jt, jf, k }| BpfInsn { code, jt, jf, k }).collect();
        // SAFETY: the array has the stated number of instructions.
        let valid = unsafe { (self.validate)(insns.as_ptr(), insns.len() as c_int) } != 0;
        valid.then_some(Judge { pcap: *self, insns })
    }
}

impl Judge {
    /// Returns the result of libpcap's interpreter for a frame.
    pub fn run(&self, frame: &[u8]) -> u32 {
        let len = frame.len() as c_uint;
        // SAFETY: libpcap has validated the program, and the frame has the stated length.
        unsafe { (self.pcap.filter)(self.insns.as_ptr(), frame.as_ptr(), len, len) }
    }
}
