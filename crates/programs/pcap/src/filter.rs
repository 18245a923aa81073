//! The directions of a handle's frames, and filters that test the direction (`inbound`, `outbound`).

use netvale_portspec::Directions;

use crate::sys::BpfInsn;

/// Loads from this offset or a higher one read the kernel's metadata of a frame (`SKF_AD_OFF`).
const ANCILLARY: u32 = 0xffff_f000;
/// Offset of `SKF_AD_PKTTYPE`, the direction of a frame.
const PACKET_TYPE: u32 = ANCILLARY + 4;
/// `PACKET_HOST`: the direction of received frames.
const CAME: u32 = 0;
/// `PACKET_OUTGOING`: the direction of sent frames.
const WENT: u32 = 4;
/// The codes of `BPF_LD | BPF_ABS` for a word, a halfword and a byte.
const LOADS: [u16; 3] = [0x20, 0x28, 0x30];
/// `BPF_LD | BPF_IMM`.
const LOAD_CONSTANT: u16 = 0;

/// Returns the directions of the frames that a program reads from a port: for a monitor, the directions that it
/// watches; otherwise [`Directions::Rx`].
pub fn ways(name: &str) -> Directions {
    let monitor = netvale::interface(name).and_then(|spec| spec.flags.monitor);
    monitor.map_or(Directions::Rx, |monitor| monitor.directions)
}

/// Replaces the instructions of a filter that load a frame's direction (`inbound`, `outbound`) by instructions that
/// load a constant.
///
/// # Errors
/// The filter uses metadata that this port's frames lack, or the direction is unknown ([`UNKNOWN`]).
pub fn settle(insns: &mut [BpfInsn], ways: Directions) -> Result<(), &'static str> {
    for insn in insns.iter_mut().filter(|insn| LOADS.contains(&insn.code) && insn.k >= ANCILLARY) {
        if insn.k != PACKET_TYPE {
            return Err("the filter uses the kernel's metadata of frames, which frames of a port lack");
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

/// The error for a filter that tests the direction on a monitor that watches both directions: the monitor's copies do
/// not record the direction.
pub const UNKNOWN: &str = "a monitor of both directions cannot tell them apart: open NAME/r, or NAME/t";
