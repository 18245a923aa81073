//! The XDP program, which redirects frames of queues with a socket to that socket and passes all other frames to the
//! stack. This module assembles the program, loads it with bpf(2), and attaches it by a BPF link, so the kernel
//! detaches the program when this process ends.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

pub mod barrier;
mod continued;
pub mod tags;

// Commands of bpf(2) (linux/bpf.h).
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;

/// The commands of bpf(2) that this crate uses, for seccomp filters.
pub const COMMANDS: [u32; 8] = [
    MAP_CREATE as u32,
    MAP_LOOKUP_ELEM as u32,
    MAP_UPDATE_ELEM as u32,
    MAP_DELETE_ELEM as u32,
    PROG_LOAD as u32,
    PROG_GET_FD_BY_ID as u32,
    OBJ_GET_INFO_BY_FD as u32,
    LINK_CREATE as u32,
];

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
/// `BPF_F_XDP_HAS_FRAGS`: the program accepts frames in several buffers (Linux 5.18).
const XDP_HAS_FRAGS: u32 = 1 << 5;
/// Flags to attach a program before another one, which is named by its link (`BPF_F_BEFORE` and `BPF_F_LINK`).
const BEFORE_LINK: u32 = 1 << 3 | 1 << 13;
const NAME: &[u8; 16] = b"netvale\0\0\0\0\0\0\0\0\0";

/// The XDP mode: where in the network stack a program runs. The values are flags of linux/if_link.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before it creates an skb (`XDP_FLAGS_DRV_MODE`).
    Native = 1 << 2,
    /// In the stack, with any driver (`XDP_FLAGS_SKB_MODE`).
    Generic = 1 << 1,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct MapElem {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    name: [u8; 16],
    ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    /// If the flags contain [`BEFORE_LINK`], the link before which the program is attached.
    relative_fd: u32,
    pad: u32,
    expected_revision: u64,
}

impl LinkCreate {
    /// Returns the request to attach a program to the interface `ifindex`, without flags.
    fn new(prog: &OwnedFd, ifindex: u32, attach_type: u32) -> LinkCreate {
        LinkCreate { prog_fd: number(prog.as_fd()), target_ifindex: ifindex, attach_type, ..LinkCreate::default() }
    }
}

#[repr(C)]
#[derive(Default)]
struct ObjInfo {
    fd: u32,
    len: u32,
    info: u64,
}

/// Calls bpf(2).
///
/// # Safety
/// `attr` must be the structure that the command takes, and the addresses in it must be valid.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> Result<libc::c_long, Errno> {
    // SAFETY: the caller's contract.
    let n = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if n < 0 { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)) } else { Ok(n) }
}

/// Calls bpf(2) for commands that create a descriptor.
///
/// # Safety
/// As for [`bpf`].
unsafe fn bpf_fd<T>(command: libc::c_int, attr: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's contract; the descriptor is new, hence ours.
    unsafe { bpf(command, attr).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

fn link(mut create: LinkCreate) -> Result<OwnedFd, Errno> {
    // SAFETY: the structure of this command, without addresses.
    unsafe { bpf_fd(LINK_CREATE, &mut create) }
}

/// Creates a map with one counter.
fn counter() -> Result<OwnedFd, Errno> {
    let sizes = MapCreate { map_type: MAP_TYPE_ARRAY, key_size: 4, value_size: 8, ..MapCreate::default() };
    let mut create = MapCreate { max_entries: 1, name: *NAME, ..sizes };
    // SAFETY: the structure of this command, without addresses.
    unsafe { bpf_fd(MAP_CREATE, &mut create) }
}

/// Reads the value of a map made by [`counter`]; 0 if the request fails.
fn counted(map: BorrowedFd<'_>) -> u64 {
    let key = 0u32;
    let mut value = 0u64;
    let at = (std::ptr::from_ref(&key) as u64, std::ptr::from_mut(&mut value) as u64);
    let mut elem = MapElem { map_fd: number(map), key: at.0, value: at.1, ..MapElem::default() };
    // SAFETY: the structure of this command; the key has four bytes and the value eight, as `counter` made the map.
    let found = unsafe { bpf(MAP_LOOKUP_ELEM, &mut elem) };
    if found.is_ok() { value } else { 0 }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

// Operation codes of instructions (linux/bpf.h, linux/bpf_common.h).
const LOAD_WORD: u8 = 0x61;
const STORE_WORD: u8 = 0x63;
const MOVE_IMM: u8 = 0xb7;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Encodes one instruction: operation, registers, offset, immediate value.
fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    let [o0, o1] = off.to_le_bytes();
    let [i0, i1, i2, i3] = imm.to_le_bytes();
    u64::from_ne_bytes([code, src << 4 | dst, o0, o1, i0, i1, i2, i3])
}

/// Offset of `rx_queue_index` in struct xdp_md.
const RX_QUEUE_INDEX: i16 = 16;
/// Result of an XDP program that drops the frame (`XDP_DROP`).
const DROP: i32 = 1;
/// Result of an XDP program that passes the frame to the stack (`XDP_PASS`).
const PASS: i32 = 2;
/// Number of the BPF helper function bpf_map_lookup_elem.
const MAP_LOOKUP_ELEM_HELPER: i32 = 1;
/// Number of the BPF helper function bpf_redirect_map.
const REDIRECT_MAP: i32 = 51;

/// Returns the program `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`.
fn redirect_to(map: BorrowedFd<'_>) -> [u64; 6] {
    [
        insn(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0),
        insn(LOAD_IMM64, 1, PSEUDO_MAP_FD, 0, map.as_raw_fd()),
        insn(0, 0, 0, 0, 0),
        insn(MOVE_IMM, 3, 0, 0, PASS),
        insn(CALL, 0, 0, 0, REDIRECT_MAP),
        insn(EXIT, 0, 0, 0, 0),
    ]
}

/// A BPF map from indices to 32-bit words.
#[derive(Debug)]
struct Map {
    fd: OwnedFd,
    /// Whether this process may change the map. It may not change the map while a predecessor may still resume and need
    /// the map unchanged.
    is_own: AtomicBool,
}

impl Map {
    fn new(map_type: u32, max_entries: u32) -> Result<Map, Errno> {
        let mut create =
            MapCreate { map_type, key_size: 4, value_size: 4, max_entries, name: *NAME, ..MapCreate::default() };
        // SAFETY: the structure of this command, without addresses.
        unsafe { bpf_fd(MAP_CREATE, &mut create) }.map(|fd| Map { fd, is_own: AtomicBool::new(true) })
    }

    fn set(&self, key: u32, value: u32) -> Result<(), Errno> {
        if !self.is_own.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut elem = MapElem {
            map_fd: number(self.fd.as_fd()),
            key: std::ptr::from_ref(&key) as u64,
            value: std::ptr::from_ref(&value) as u64,
            ..MapElem::default()
        };
        // SAFETY: the structure of this command; key and value are four bytes each, as the map was made.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut elem) }.map(|_| ())
    }

    fn clear(&self, key: u32) {
        if !self.is_own.load(Ordering::Relaxed) {
            return;
        }
        let mut elem =
            MapElem { map_fd: number(self.fd.as_fd()), key: std::ptr::from_ref(&key) as u64, ..MapElem::default() };
        // SAFETY: the structure of this command; the key is four bytes. Fails only for an absent key.
        let _ = unsafe { bpf(MAP_DELETE_ELEM, &mut elem) };
    }
}

/// An attached XDP program. Dropping it detaches the program.
#[derive(Debug)]
pub struct XdpProgram {
    map: Map,
    mode: XdpMode,
    link: OwnedFd,
    puts_tags_back: bool,
}

impl XdpProgram {
    /// Loads the program and attaches it to the interface `ifindex`, which has `queues` queues: in the driver if
    /// possible, otherwise in the stack. If `tags` is true, a program in the driver also inserts into each frame the
    /// VLAN tag that the driver reports in the frame's metadata, provided that the kernel supports this.
    ///
    /// # Errors
    /// The step that failed, and the kernel's error: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`, `EBUSY` or `EEXIST`
    /// if the interface has an XDP program already.
    pub fn attach(ifindex: u32, queues: u32, tags: bool) -> Result<XdpProgram, (&'static str, Errno)> {
        let map = Map::new(MAP_TYPE_XSKMAP, queues).map_err(|e| ("create the map of sockets", e))?;
        let attached = |prog: &OwnedFd, mode: XdpMode| {
            let create = LinkCreate { flags: mode as u32, ..LinkCreate::new(prog, ifindex, ATTACH_XDP) };
            link(create).map(|link| (link, mode))
        };
        let is_final = |linked: &Result<_, Errno>| {
            matches!(linked, Err(Errno::BUSY | Errno::EXIST | Errno::PERM | Errno::NODEV) | Ok(_))
        };
        let tagging = if tags { tags::load(map.fd.as_fd(), ifindex).ok() } else { None };
        let tagging = tagging.map(|prog| attached(&prog, XdpMode::Native)).filter(is_final);
        let puts_tags_back = tagging.is_some();
        let linked = match tagging {
            Some(linked) => linked,
            None => {
                let prog = load(&redirect_to(map.fd.as_fd()), PROG_TYPE_XDP, ATTACH_XDP);
                let prog = prog.map_err(|e| ("load the XDP program", e))?;
                let native = attached(&prog, XdpMode::Native);
                if is_final(&native) { native } else { attached(&prog, XdpMode::Generic) }
            }
        };
        let (link, mode) = linked.map_err(|e| ("attach the XDP program", e))?;
        Ok(XdpProgram { map, mode, link, puts_tags_back })
    }

    /// Whether the program inserts VLAN tags from metadata into frames. False for a restored program, for which this is
    /// unknown.
    pub fn puts_tags_back(&self) -> bool {
        self.puts_tags_back
    }

    /// The mode in which the program runs.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Redirects frames of `queue` to `socket`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        self.map.set(queue, number(socket))
    }

    /// Passes frames of `queue` to the stack again.
    pub fn clear(&self, queue: u32) {
        self.map.clear(queue);
    }
}

/// The TCX hooks that divert an interface's outgoing frames to the TAP of the host rings, and the TAP's frames to the
/// interface. Dropping this value detaches the hooks.
#[derive(Debug)]
pub struct Diversion {
    /// A map with one word for each ring: 1 if the ring is open.
    rings: Map,
    links: [OwnedFd; 3],
}

impl Diversion {
    /// Attaches the hooks. The hook on `interface` runs before the program that the link `before` attaches, if given.
    /// Frames that the stack sends on `interface` are spread over `rings` rings by flow; frames of an open ring are
    /// redirected to the queue of `tap` with the ring's index. Frames written to `tap` are received on `interface`.
    ///
    /// # Errors
    /// The step that failed, and the kernel's error: `EINVAL` before Linux 6.6.
    pub fn attach(
        interface: u32,
        before: Option<BorrowedFd<'_>>,
        tap: u32,
        rings: u32,
    ) -> Result<Diversion, (&'static str, Errno)> {
        let open = Map::new(MAP_TYPE_ARRAY, rings).map_err(|e| ("create the map of host rings", e))?;
        let hook = |insns: &[u64], place: u32, at: u32| {
            let prog = load(insns, PROG_TYPE_SCHED_CLS, place).map_err(|e| ("load a program for host rings", e))?;
            let mut create = LinkCreate::new(&prog, at, place);
            if let Some(other) = before.filter(|_| at == interface) {
                create.flags = BEFORE_LINK;
                create.relative_fd = number(other);
            }
            link(create).map_err(|e| ("attach a program for host rings (TCX, Linux 6.6 or newer)", e))
        };
        // Attach the TAP's own hook first: the TAP must drop foreign frames before frames are redirected to it.
        let only = hook(&only_marked(), TCX_EGRESS, tap)?;
        let back = hook(&redirect(interface, 1), TCX_INGRESS, tap)?;
        let away = hook(&divert(open.fd.as_fd(), rings, tap), TCX_EGRESS, interface)?;
        Ok(Diversion { rings: open, links: [away, back, only] })
    }

    /// Sets whether frames of a ring's flows are redirected to the TAP (`open` is true) or pass to the interface
    /// (false).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_open(&self, ring: u32, open: bool) -> Result<(), Errno> {
        self.rings.set(ring, open.into())
    }
}

/// Loads the program that selects the TAP's queue by the ring's index in the frame's mark.
///
/// # Errors
/// The step that failed, and the kernel's error.
pub fn steering() -> Result<OwnedFd, (&'static str, Errno)> {
    const AND_IMM: u8 = 0x57;
    let insns = [insn(LOAD_WORD, 0, 1, SKB_MARK, 0), insn(AND_IMM, 0, 0, 0, MARK_RING), insn(EXIT, 0, 0, 0, 0)];
    load(&insns, PROG_TYPE_SOCKET_FILTER, 0).map_err(|e| ("load a program for the TAP's queues", e))
}

/// The mark of a redirected frame, which replaces its original mark; the lower 16 bits hold the ring's index.
const MARK: i32 = 0x6e76_0000;
/// Mask of the ring's index in the mark.
const MARK_RING: i32 = 0xffff;
/// Offset of `mark` in struct __sk_buff.
const SKB_MARK: i16 = 8;
const MOVE_REG: u8 = 0xbf;
const ADD_IMM: u8 = 0x07;
/// The register that points to the end of the program's stack.
const STACK: u8 = 10;
const JUMP_IF_NOT_EQUAL: u8 = 0x55;
const JUMP_IF_EQUAL: u8 = 0x15;
const LOAD_IMM64: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;

/// Returns the program `ring = hash % rings; if (!open[ring]) return TCX_NEXT; skb->mark = MARK | ring; return
/// bpf_redirect(tap, 0)`. The hash is recomputed from the frame: a hash set by a socket may change during the socket's
/// life.
fn divert(open: BorrowedFd<'_>, rings: u32, tap: u32) -> Vec<u64> {
    const GET_HASH_RECALC: i32 = 34;
    const SET_HASH_INVALID: i32 = 41;
    const MOD_IMM_32: u8 = 0x94;
    const TCX_NEXT: i32 = -1;
    let choose = [
        insn(MOVE_REG, 1, 6, 0, 0),
        insn(CALL, 0, 0, 0, SET_HASH_INVALID),
        insn(MOVE_REG, 1, 6, 0, 0),
        insn(CALL, 0, 0, 0, GET_HASH_RECALC),
        insn(MOD_IMM_32, 0, 0, 0, rings.cast_signed()),
        insn(MOVE_REG, 7, 0, 0, 0),
    ];
    let only = [insn(MOVE_IMM, 7, 0, 0, 0)];
    let rest = [
        insn(STORE_WORD, STACK, 7, -4, 0),
        insn(LOAD_IMM64, 1, PSEUDO_MAP_FD, 0, open.as_raw_fd()),
        insn(0, 0, 0, 0, 0),
        insn(MOVE_REG, 2, STACK, 0, 0),
        insn(ADD_IMM, 2, 0, 0, -4),
        insn(CALL, 0, 0, 0, MAP_LOOKUP_ELEM_HELPER),
        insn(JUMP_IF_EQUAL, 0, 0, 8, 0),
        insn(LOAD_WORD, 0, 0, 0, 0),
        insn(JUMP_IF_EQUAL, 0, 0, 6, 0),
        insn(ADD_IMM, 7, 0, 0, MARK),
        insn(STORE_WORD, 6, 7, SKB_MARK, 0),
    ];
    let passed = [insn(MOVE_IMM, 0, 0, 0, TCX_NEXT), insn(EXIT, 0, 0, 0, 0)];
    let begin = [insn(MOVE_REG, 6, 1, 0, 0)];
    let which = if rings > 1 { &choose[..] } else { &only[..] };
    [&begin, which, &rest, &redirect(tap, 0), &passed].concat()
}

/// Returns the instructions `return bpf_redirect(to, flags)`. Flag 1 is `BPF_F_INGRESS`.
fn redirect(to: u32, flags: i32) -> [u64; 4] {
    const REDIRECT: i32 = 23;
    [
        insn(MOVE_IMM, 1, 0, 0, to.cast_signed()),
        insn(MOVE_IMM, 2, 0, 0, flags),
        insn(CALL, 0, 0, 0, REDIRECT),
        insn(EXIT, 0, 0, 0, 0),
    ]
}

/// Returns the program `return skb->mark >> 16 == MARK >> 16 ? TCX_PASS : TCX_DROP`.
fn only_marked() -> [u64; 6] {
    const SHIFT_RIGHT_IMM: u8 = 0x77;
    [
        insn(LOAD_WORD, 2, 1, SKB_MARK, 0),
        insn(SHIFT_RIGHT_IMM, 2, 0, 0, 16),
        insn(MOVE_IMM, 0, 0, 0, 0),
        insn(JUMP_IF_EQUAL, 2, 0, 1, MARK >> 16),
        insn(MOVE_IMM, 0, 0, 0, 2),
        insn(EXIT, 0, 0, 0, 0),
    ]
}

fn load(insns: &[u64], kind: u32, place: u32) -> Result<OwnedFd, Errno> {
    let flags = if kind == PROG_TYPE_XDP { XDP_HAS_FRAGS } else { 0 };
    let as_asked = |prog_flags: u32| {
        load_as(ProgLoad { prog_type: kind, expected_attach_type: place, prog_flags, ..ProgLoad::default() }, insns)
    };
    match as_asked(flags) {
        Err(Errno::INVAL) if flags != 0 => as_asked(0),
        other => other,
    }
}

fn load_as(attr: ProgLoad, insns: &[u64]) -> Result<OwnedFd, Errno> {
    let license = c"Dual BSD/GPL";
    let mut attr = ProgLoad {
        insn_cnt: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        name: *NAME,
        ..attr
    };
    // SAFETY: the structure of this command; instructions and license live until it returns.
    unsafe { bpf_fd(PROG_LOAD, &mut attr) }
}

/// Returns the first words of the kernel's information on a program, a map or a link.
fn info(fd: BorrowedFd<'_>) -> Result<[u32; 20], Errno> {
    let mut info = [0u32; 20];
    let mut get = ObjInfo { fd: number(fd), len: size_of_val(&info) as u32, info: info.as_mut_ptr() as u64 };
    // SAFETY: the structure of this command; `info` has the given number of bytes, without addresses.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut get) }?;
    Ok(info)
}

/// Returns the name of the program with this ID; `None` if the kernel does not report it.
pub fn program_name(id: u32) -> Option<String> {
    #[repr(C)]
    #[derive(Default)]
    struct ById {
        id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let mut by_id = ById { id, ..ById::default() };
    // SAFETY: the structure of this command, without addresses.
    let prog = unsafe { bpf_fd(PROG_GET_FD_BY_ID, &mut by_id) }.ok()?;
    /// Offset of the name in struct bpf_prog_info: 16 bytes, padded with zeros.
    const NAME_AT: usize = 64;
    let info = info(prog.as_fd()).ok()?;
    let bytes: Vec<u8> = info[NAME_AT / 4..].iter().flat_map(|w| w.to_ne_bytes()).take_while(|&b| b != 0).collect();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
