//! libpcap's types (pcap/pcap.h, pcap/bpf.h), and the functions of the system's libpcap that this library calls.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_uint, c_void, timeval};

/// `pcap_t`: opaque, since a pointer may lead to this library's [`Handle`](crate::handle::Handle) or to a handle of the
/// system's libpcap.
pub enum Pcap {}
/// `pcap_dumper_t`: an open capture file.
pub enum Dumper {}

/// `struct pcap_pkthdr`. With nanosecond precision, `tv_usec` holds nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PktHdr {
    /// Time of arrival.
    pub ts: timeval,
    /// Number of captured bytes.
    pub caplen: c_uint,
    /// Number of bytes on the wire.
    pub len: c_uint,
}

/// `pcap_handler`: the program's callback for a frame.
pub type PcapHandler = unsafe extern "C" fn(*mut u8, *const PktHdr, *const u8);

/// `struct bpf_insn`: an instruction of a filter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BpfInsn {
    /// Operation code.
    pub code: u16,
    jt: u8,
    jf: u8,
    /// The instruction's constant.
    pub k: u32,
}

/// `struct bpf_program`: a compiled filter.
#[repr(C)]
#[derive(Debug)]
pub struct BpfProgram {
    /// Number of instructions.
    pub len: c_uint,
    /// The first instruction.
    pub insns: *mut BpfInsn,
}

/// `struct pcap_stat`: a handle's counters.
#[repr(C)]
#[derive(Debug)]
pub struct PcapStat {
    /// Number of received frames.
    pub recv: c_uint,
    /// Number of frames that were dropped for lack of room.
    pub drop: c_uint,
    /// Number of frames that the interface itself dropped.
    pub ifdrop: c_uint,
}

/// `struct pcap_if`: an entry in the list of interfaces.
#[repr(C)]
pub struct PcapInterface {
    /// The next interface.
    pub next: *mut PcapInterface,
    /// The interface's name.
    pub name: *mut c_char,
    /// A description of the interface that programs show to users.
    pub description: *mut c_char,
    /// The interface's addresses.
    pub addresses: *mut c_void,
    /// The interface's flags, `PCAP_IF_*`.
    pub flags: c_uint,
}

/// `DLT_EN10MB`: Ethernet.
pub const DLT_EN10MB: c_int = 1;
/// Size of an error's text in bytes, including the NUL.
pub const ERRBUF_SIZE: usize = 256;
/// Generic error.
pub const ERROR: c_int = -1;
/// The loop was ended by `pcap_breakloop`.
pub const ERROR_BREAK: c_int = -2;
/// The handle is not activated yet.
pub const ERROR_NOT_ACTIVATED: c_int = -3;
/// The handle is already activated.
pub const ERROR_ACTIVATED: c_int = -4;
/// There is no such interface.
pub const ERROR_NO_SUCH_DEVICE: c_int = -5;
/// The user may not open the interface.
pub const ERROR_PERM_DENIED: c_int = -8;
/// `PCAP_TSTAMP_HOST`: time stamps by the host's clock.
pub const TSTAMP_HOST: c_int = 0;
/// `PCAP_TSTAMP_PRECISION_MICRO`: time stamps in microseconds.
pub const PRECISION_MICRO: c_int = 0;
/// `PCAP_TSTAMP_PRECISION_NANO`: time stamps in nanoseconds.
pub const PRECISION_NANO: c_int = 1;

/// A function of the system's libpcap, looked up at its first call.
pub struct LibpcapFunction {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl LibpcapFunction {
    /// Declares the function with this name.
    pub const fn new(name: &'static CStr) -> LibpcapFunction {
        LibpcapFunction { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the function's address. Ends the program if the system's libpcap has no such function, as the loader
    /// would.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: dlsym takes any NUL-terminated name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            netvale_control::note!("netvale: the system's libpcap has no {}", self.name.to_string_lossy());
            std::process::abort();
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Declares functions of the system's libpcap.
macro_rules! real {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $symbol:literal;)*) => { $(
        /// Calls the system's function of this name.
        ///
        /// # Safety
        /// The conditions in libpcap's manual.
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            static REAL: LibpcapFunction = LibpcapFunction::new($symbol);
            // SAFETY: in every libpcap, the function of this name has this type.
            let f = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) $(-> $ret)?>(REAL.get())
            };
            // SAFETY: the caller's contract.
            unsafe { f($($arg),*) }
        }
    )* };
}

real! {
    fn open_dead(linktype: c_int, snaplen: c_int, precision: c_uint) -> *mut Pcap =
        c"pcap_open_dead_with_tstamp_precision";
    fn close(p: *mut Pcap) = c"pcap_close";
    fn compile(p: *mut Pcap, program: *mut BpfProgram, text: *const c_char, optimize: c_int, mask: u32) -> c_int =
        c"pcap_compile";
    fn geterr(p: *mut Pcap) -> *mut c_char = c"pcap_geterr";
    fn bpf_filter(insns: *const BpfInsn, frame: *const u8, len: c_uint, caplen: c_uint) -> c_uint = c"bpf_filter";
    fn bpf_validate(insns: *const BpfInsn, len: c_int) -> c_int = c"bpf_validate";
    fn create(name: *const c_char, errbuf: *mut c_char) -> *mut Pcap = c"pcap_create";
    fn open_live(name: *const c_char, snaplen: c_int, promisc: c_int, ms: c_int, errbuf: *mut c_char) -> *mut Pcap =
        c"pcap_open_live";
    fn findalldevs(list: *mut *mut PcapInterface, errbuf: *mut c_char) -> c_int = c"pcap_findalldevs";
    fn lookupnet(name: *const c_char, net: *mut u32, mask: *mut u32, errbuf: *mut c_char) -> c_int = c"pcap_lookupnet";
    fn dump_open(p: *mut Pcap, name: *const c_char) -> *mut Dumper = c"pcap_dump_open";
    fn dump_open_append(p: *mut Pcap, name: *const c_char) -> *mut Dumper = c"pcap_dump_open_append";
    fn dump_fopen(p: *mut Pcap, file: *mut libc::FILE) -> *mut Dumper = c"pcap_dump_fopen";
}
