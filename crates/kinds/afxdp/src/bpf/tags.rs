//! The XDP program for frames whose sender or driver has moved the VLAN tag to the frames' metadata. If the driver
//! reports the tag (Linux 6.8), the program inserts the tag into the frame, and then redirects the frame to its socket.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::{
    ADD_IMM, ATTACH_XDP, CALL, DROP, EXIT, JUMP_IF_NOT_EQUAL, LOAD_IMM64, LOAD_WORD, MAP_LOOKUP_ELEM_HELPER, MOVE_IMM,
    MOVE_REG, PASS, PROG_TYPE_XDP, PSEUDO_MAP_FD, ProgLoad, REDIRECT_MAP, RX_QUEUE_INDEX, STACK, STORE_WORD,
    XDP_HAS_FRAGS, insn, load_as,
};

/// File with the kernel's type information (BTF).
pub const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Flag for a program that is bound to one interface and may call its driver (`BPF_F_XDP_DEV_BOUND_ONLY`).
const DEVICE_BOUND: u32 = 1 << 6;

/// Loads the program for the interface `ifindex`.
///
/// # Errors
/// The kernel's error; `EOPNOTSUPP` if the kernel lacks the function that reports tags.
pub(super) fn load(map: BorrowedFd<'_>, ifindex: u32) -> Result<OwnedFd, Errno> {
    let types = std::fs::read(KERNEL_TYPES).map_err(|_| Errno::OPNOTSUPP)?;
    let ask = function(&types, "bpf_xdp_metadata_rx_vlan_tag").ok_or(Errno::OPNOTSUPP)?;
    let flags = XDP_HAS_FRAGS | DEVICE_BOUND;
    let bound = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        expected_attach_type: ATTACH_XDP,
        prog_flags: flags,
        ifindex,
        ..ProgLoad::default()
    };
    load_as(bound, &program(map, ask))
}

/// Offset of the queue's index in the program's stack.
const QUEUE: i16 = -4;
/// Offset of the reported tag's protocol in the program's stack.
const KIND: i16 = -8;
/// Offset of the reported tag's content in the program's stack.
const TAG: i16 = -16;
const LOAD_HALF: u8 = 0x69;
const STORE_HALF: u8 = 0x6b;

/// Returns the program `if (!map[queue]) return XDP_PASS; if (ask(ctx, &kind, &tag) == 0) { make room for the tag after
/// the addresses, and put it there, or return XDP_DROP; } return bpf_redirect_map(&map, queue, XDP_DROP)`. Frames for
/// the stack stay unchanged, because the stack reads the tag from the metadata.
fn program(map: BorrowedFd<'_>, ask: u32) -> Vec<u64> {
    let drop = [insn(MOVE_IMM, 0, 0, 0, DROP), insn(EXIT, 0, 0, 0, 0)];
    let redirect = redirect(map);
    let put = put_tag();
    let room = make_room(put.len() + redirect.len());
    let tag = ask_for_tag(ask, room.len() + put.len());
    [is_open(map), tag, room, put, redirect, drop.to_vec()].concat()
}

fn map_to(register: u8, map: BorrowedFd<'_>) -> [u64; 2] {
    [insn(LOAD_IMM64, register, PSEUDO_MAP_FD, 0, map.as_raw_fd()), insn(0, 0, 0, 0, 0)]
}

/// Returns the instructions that load the address of the stack offset `place` into `register`.
fn address_to(register: u8, place: i16) -> [u64; 2] {
    [insn(MOVE_REG, register, STACK, 0, 0), insn(ADD_IMM, register, 0, 0, place.into())]
}

/// Saves the context in register 6 and the queue in register 7. Frames of queues outside the map go to the stack.
fn is_open(map: BorrowedFd<'_>) -> Vec<u64> {
    [
        &[insn(MOVE_REG, 6, 1, 0, 0), insn(LOAD_WORD, 7, 6, RX_QUEUE_INDEX, 0), insn(STORE_WORD, STACK, 7, QUEUE, 0)],
        &map_to(1, map)[..],
        &address_to(2, QUEUE),
        &[insn(CALL, 0, 0, 0, MAP_LOOKUP_ELEM_HELPER), insn(JUMP_IF_NOT_EQUAL, 0, 0, 2, 0)],
        &[insn(MOVE_IMM, 0, 0, 0, PASS), insn(EXIT, 0, 0, 0, 0)],
    ]
    .concat()
}

/// Requests the tag from the driver; for a frame without a tag in its metadata, the program skips the next `rest`
/// instructions. The memory for the answer is written first, because without `CAP_PERFMON` a program may not pass
/// uninitialised memory.
fn ask_for_tag(ask: u32, rest: usize) -> Vec<u64> {
    const PSEUDO_KERNEL_FUNCTION: u8 = 2;
    const STORE_IMM: u8 = 0x62;
    [
        &[insn(STORE_IMM, STACK, 0, KIND, 0), insn(STORE_IMM, STACK, 0, TAG, 0)][..],
        &[insn(MOVE_REG, 1, 6, 0, 0)],
        &address_to(2, KIND),
        &address_to(3, TAG),
        &[insn(CALL, 0, PSEUDO_KERNEL_FUNCTION, 0, ask.cast_signed()), insn(JUMP_IF_NOT_EQUAL, 0, 0, rest as i16, 0)],
    ]
    .concat()
}

/// Makes the frame four bytes longer, with its start in register 2. For a frame without room, the program skips the
/// next `rest` instructions.
fn make_room(rest: usize) -> Vec<u64> {
    const ADJUST_HEAD: i32 = 44;
    const JUMP_IF_GREATER: u8 = 0x2d;
    /// Length in bytes of two addresses, the tag, and the Ethertype.
    const BEGIN: i32 = 18;
    let rest = rest as i16;
    vec![
        insn(MOVE_REG, 1, 6, 0, 0),
        insn(MOVE_IMM, 2, 0, 0, -4),
        insn(CALL, 0, 0, 0, ADJUST_HEAD),
        insn(JUMP_IF_NOT_EQUAL, 0, 0, rest + 5, 0),
        insn(LOAD_WORD, 2, 6, 0, 0),
        insn(LOAD_WORD, 3, 6, 4, 0),
        insn(MOVE_REG, 4, 2, 0, 0),
        insn(ADD_IMM, 4, 0, 0, BEGIN),
        insn(JUMP_IF_GREATER, 4, 3, rest, 0),
    ]
}

/// Moves the addresses to the frame's new start, and writes the tag after them.
fn put_tag() -> Vec<u64> {
    const TO_BIG_ENDIAN: u8 = 0xdc;
    let copy = |from: i16, to: i16| [insn(LOAD_WORD, 5, 2, from, 0), insn(STORE_WORD, 2, 5, to, 0)];
    [
        &copy(4, 0)[..],
        &copy(8, 4),
        &copy(12, 8),
        &[insn(LOAD_HALF, 5, STACK, KIND, 0), insn(STORE_HALF, 2, 5, 12, 0)],
        &[insn(LOAD_HALF, 5, STACK, TAG, 0), insn(TO_BIG_ENDIAN, 5, 0, 0, 16), insn(STORE_HALF, 2, 5, 14, 0)],
    ]
    .concat()
}

fn redirect(map: BorrowedFd<'_>) -> Vec<u64> {
    [
        &[insn(MOVE_REG, 2, 7, 0, 0)][..],
        &map_to(1, map),
        &[insn(MOVE_IMM, 3, 0, 0, DROP), insn(CALL, 0, 0, 0, REDIRECT_MAP), insn(EXIT, 0, 0, 0, 0)],
    ]
    .concat()
}

/// Finds the ID of a kernel function (`BTF_KIND_FUNC`) in the kernel's type information (linux/btf.h); `None` if the
/// kernel has no such function.
fn function(types: &[u8], name: &str) -> Option<u32> {
    const FUNC: u32 = 12;
    let word = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let [header, type_at, type_len, text_at, text_len] =
        [4, 8, 12, 16, 20].map(|at| word(types, at).map(|n| n as usize));
    let part = |at: usize, len: usize| types.get(header?.checked_add(at)?..)?.get(..len);
    let all = part(type_at?, type_len?)?;
    let texts = part(text_at?, text_len?)?;
    let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
    let wanted = texts.windows(wanted.len()).position(|text| text == wanted)? as u32 + 1;
    let mut at = 0;
    let mut number = 1;
    while let (Some(text), Some(info)) = (word(all, at), word(all, at + 4)) {
        let kind = info >> 24 & 0x1f;
        if (kind, text) == (FUNC, wanted) {
            return Some(number);
        }
        at += 12 + more(kind, (info & 0xffff) as usize)?;
        number += 1;
    }
    None
}

/// Number of bytes of a BTF type after the 12 bytes that all types have (linux/btf.h); `None` if the type is unknown.
fn more(kind: u32, members: usize) -> Option<usize> {
    match kind {
        // Integers, variables, declaration tags.
        1 | 14 | 17 => Some(4),
        3 => Some(12),
        // Structures, unions, data sections, 64-bit enumerations.
        4 | 5 | 15 | 19 => Some(12 * members),
        6 | 13 => Some(8 * members),
        2 | 7..=12 | 16 | 18 => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a function is found by its name after types of other lengths, and not in truncated information.
    #[test]
    fn a_function_is_found_by_its_name() {
        let texts = b"\0one\0two\0";
        let kind = |text: u32, kind: u32, members: u32, rest: &[u32]| {
            let words = [&[text, kind << 24 | members, 0], rest].concat();
            words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()
        };
        let all = [kind(1, 1, 0, &[0]), kind(5, 4, 2, &[0; 6]), kind(1, 12, 0, &[]), kind(5, 12, 1, &[])].concat();
        let header = [0x1_eb9f, 24, 0, all.len() as u32, all.len() as u32, texts.len() as u32];
        let header: Vec<u8> = header.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        let types = [&header[..], &all, texts].concat();
        assert_eq!(
            (function(&types, "one"), function(&types, "two"), function(&types, "six")),
            (Some(3), Some(4), None)
        );
        for len in 0..types.len() {
            assert_eq!(function(&types[..len], "two"), None);
        }
    }
}
