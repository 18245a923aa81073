//! Which way a handle's frames go, and what filters may ask of that.

use netvale_portspec::Directions;

use crate::sys::BpfInsn;

/// From here on, offsets of loads stand for what the kernel knows of a frame besides its bytes (`SKF_AD_OFF`).
const ANCILLARY: u32 = 0xffff_f000;
/// `SKF_AD_PKTTYPE`: whether a frame came or went.
const PACKET_TYPE: u32 = ANCILLARY + 4;
/// `PACKET_HOST` and `PACKET_OUTGOING`.
const CAME: u32 = 0;
const WENT: u32 = 4;
/// `BPF_LD | BPF_ABS` of a word, a halfword and a byte.
const LOADS: [u16; 3] = [0x20, 0x28, 0x30];
/// `BPF_LD | BPF_IMM`.
const LOAD_CONSTANT: u16 = 0;

/// The ways that the frames of the port of that name go: a program receives what comes, a monitor sees what it watches.
pub fn ways(name: &str) -> Directions {
    let monitor = netvale::interface(name).and_then(|spec| spec.flags.monitor);
    monitor.map_or(Directions::Rx, |monitor| monitor.directions)
}

/// Puts into a filter what the frames' way is, in place of the loads that ask the kernel (`inbound`, `outbound`).
///
/// # Errors
/// Why frames cannot be filtered by it.
pub fn settle(insns: &mut [BpfInsn], ways: Directions) -> Result<(), &'static str> {
    for insn in insns.iter_mut().filter(|insn| LOADS.contains(&insn.code) && insn.k >= ANCILLARY) {
        if insn.k != PACKET_TYPE {
            return Err("the filter asks for what the kernel knows of a frame; a port's frames have their bytes only");
        }
        insn.k = match ways {
            Directions::Rx => CAME,
            Directions::Tx => WENT,
            Directions::Both => return Err(UNKNOWN),
        };
        insn.code = LOAD_CONSTANT;
    }
    Ok(())
}

/// A monitor's copies do not say which way they went.
pub const UNKNOWN: &str = "a monitor of both directions cannot tell them apart: open NAME/r, or NAME/t";
