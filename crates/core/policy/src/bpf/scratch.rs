//! Checks that each cell of the scratch memory is written before it is read.

use super::Unverified;
use super::decode::Op;

/// A set of cells, one bit each.
type Cells = u16;

/// Refuses a program in which an instruction reads a cell that some path to it leaves unwritten.
///
/// All jumps lead forward: one pass over the instructions sees every path to an instruction before the instruction
/// itself.
pub(super) fn check(ops: &[Op]) -> Result<(), Unverified> {
    // For each instruction, the cells written on every jump to it.
    let mut jumped = vec![Cells::MAX; ops.len()];
    let mut written: Cells = 0;
    for (at, op) in ops.iter().enumerate() {
        written &= jumped.get(at).copied().unwrap_or(Cells::MAX);
        match *op {
            Op::Store(cell) | Op::StoreX(cell) => written |= bit(cell),
            Op::Load(cell) | Op::LoadX(cell) if written & bit(cell) == 0 => {
                return Err(Unverified::UnwrittenCell { at, cell });
            }
            Op::Jump(to) => leave(&mut jumped, &mut written, [to, to]),
            Op::If { yes, no, .. } | Op::IfX { yes, no, .. } => leave(&mut jumped, &mut written, [yes, no]),
            // The kernel treats the instruction after a return as reachable, and so refuses a few programs more.
            // Programs accepted here must be accepted there, too.
            _ => {}
        }
    }
    Ok(())
}

/// A jump passes the written cells to both of its targets, and nothing to the next instruction.
fn leave(jumped: &mut [Cells], written: &mut Cells, targets: [u16; 2]) {
    for target in targets {
        if let Some(cells) = jumped.get_mut(usize::from(target)) {
            *cells &= *written;
        }
    }
    *written = Cells::MAX;
}

fn bit(cell: u8) -> Cells {
    1 << (cell & 0xf)
}
