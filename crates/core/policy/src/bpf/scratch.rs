//! Checks that each cell of the scratch memory is written before it is read.

use super::VerificationError;
use super::decode::Op;

/// A set of cells, one bit each.
type CellSet = u16;

/// Refuses a program in which an instruction reads a cell that is unwritten on a path to the instruction.
///
/// All jumps go forward, so one pass over the instructions sees every path to an instruction before the instruction
/// itself.
pub(super) fn check(ops: &[Op]) -> Result<(), VerificationError> {
    // For each instruction, the cells written on every jump to it.
    let mut jumped = vec![CellSet::MAX; ops.len()];
    let mut written: CellSet = 0;
    for (at, op) in ops.iter().enumerate() {
        written &= jumped.get(at).copied().unwrap_or(CellSet::MAX);
        match *op {
            Op::Store(cell) | Op::StoreX(cell) => written |= bit(cell),
            Op::Load(cell) | Op::LoadX(cell) if written & bit(cell) == 0 => {
                return Err(VerificationError::UnwrittenCell { at, cell });
            }
            Op::Jump(to) => leave(&mut jumped, &mut written, [to, to]),
            Op::If { yes, no, .. } | Op::IfX { yes, no, .. } => leave(&mut jumped, &mut written, [yes, no]),
            // A return is treated like any other instruction. The kernel's check assumes that the instruction after it
            // is reachable, and the kernel must accept every program that is accepted here.
            _ => {}
        }
    }
    Ok(())
}

/// Passes the written cells to both targets of a jump. The next instruction is then reached only by jumps.
fn leave(jumped: &mut [CellSet], written: &mut CellSet, targets: [u16; 2]) {
    for target in targets {
        if let Some(cells) = jumped.get_mut(usize::from(target)) {
            *cells &= *written;
        }
    }
    *written = CellSet::MAX;
}

fn bit(cell: u8) -> CellSet {
    1 << (cell & 0xf)
}
