//! Whether each cell of the scratch memory is written before it is read.

use super::Unverified;
use super::decode::Op;

/// A set of cells, one bit each.
type Cells = u16;

/// Refuses a program in which an instruction reads a cell that some way to it leaves unwritten.
///
/// All jumps lead forward, so that one pass over the instructions has seen each way to an instruction before it comes
/// to the instruction itself.
pub(super) fn check(ops: &[Op]) -> Result<(), Unverified> {
    // For each instruction, the cells that are written on each jump to it.
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
            // The kernel looks at what follows a return as if the return could be passed, and refuses a few programs
            // more for it. What is taken here has to be taken there as well.
            _ => {}
        }
    }
    Ok(())
}

/// A jump takes what is written along to both of its targets; nothing comes from it to the next instruction.
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
