//! How far into a frame a program can look.
//!
//! One pass over the instructions follows each path with the maximum of each register. libpcap's programs read at fixed
//! offsets, and past an IPv4 header of at most 60 bytes: nearly all of them have a limit, and it is low.

use super::CELLS;
use super::decode::{Alu, Op};

/// The maximum of a register or cell. `u32::MAX`: unknown.
type Most = u32;

/// Knowledge on arrival at an instruction.
#[derive(Clone, Copy, Default)]
struct Known {
    a: Most,
    x: Most,
    cells: [Most; CELLS],
}

/// The number of a frame's first bytes that contains all loads within the frame, or `None` if any byte may be loaded.
pub(super) fn reach(ops: &[Op]) -> Option<u32> {
    // None: no path seen leads there. All paths to an instruction have been seen before its turn.
    let mut known: Vec<Option<Known>> = vec![None; ops.len()];
    arrive(&mut known, 0, Known::default());
    let mut reach = 0;
    for (at, op) in ops.iter().enumerate() {
        let Some(mut here) = known.get(at).copied().flatten() else { continue };
        reach = reach.max(end_of_load(op, here.x)?);
        match *op {
            Op::Return(_) | Op::ReturnA => {}
            Op::Jump(to) => arrive(&mut known, to.into(), here),
            Op::If { yes, no, .. } | Op::IfX { yes, no, .. } => {
                arrive(&mut known, yes.into(), here);
                arrive(&mut known, no.into(), here);
            }
            _ => {
                here.step(op);
                arrive(&mut known, at + 1, here);
            }
        }
    }
    Some(reach)
}

/// Merges the knowledge on one path to an instruction with that of the others.
fn arrive(known: &mut [Option<Known>], at: usize, here: Known) {
    if let Some(there) = known.get_mut(at) {
        *there = Some(there.map_or(here, |there| there.or(here)));
    }
}

/// End of the load that `op` makes, 0 without one; `None` if it can be anywhere.
fn end_of_load(op: &Op, x: Most) -> Option<u32> {
    match *op {
        // No frame is so long that a load past the last number lies in it: such loads end the program.
        Op::Word(k) => Some(k.saturating_add(4)),
        Op::Half(k) => Some(k.saturating_add(2)),
        Op::Byte(k) | Op::HeaderLen(k) => Some(k.saturating_add(1)),
        Op::WordX(k) => x.checked_add(k)?.checked_add(4),
        Op::HalfX(k) => x.checked_add(k)?.checked_add(2),
        Op::ByteX(k) => x.checked_add(k)?.checked_add(1),
        _ => Some(0),
    }
}

impl Known {
    /// Merges the knowledge of two paths.
    fn or(mut self, other: Known) -> Known {
        self.a = self.a.max(other.a);
        self.x = self.x.max(other.x);
        for (cell, other) in self.cells.iter_mut().zip(other.cells) {
            *cell = (*cell).max(other);
        }
        self
    }

    /// Updates the knowledge by an instruction other than a jump.
    fn step(&mut self, op: &Op) {
        match *op {
            Op::Half(_) | Op::HalfX(_) => self.a = u16::MAX.into(),
            Op::Byte(_) | Op::ByteX(_) => self.a = u8::MAX.into(),
            Op::HeaderLen(_) => self.x = 60,
            Op::Word(_) | Op::WordX(_) | Op::Len => self.a = Most::MAX,
            Op::LenX => self.x = Most::MAX,
            Op::Const(k) => self.a = k,
            Op::ConstX(k) => self.x = k,
            Op::Load(cell) => self.a = *self.cell(cell),
            Op::LoadX(cell) => self.x = *self.cell(cell),
            Op::Store(cell) => *self.cell(cell) = self.a,
            Op::StoreX(cell) => *self.cell(cell) = self.x,
            Op::Alu(alu, k) => self.a = combine_constant(alu, self.a, k),
            Op::AluX(alu) => self.a = combine(alu, self.a, self.x),
            Op::Neg => self.a = Most::MAX,
            Op::ToX => self.x = self.a,
            Op::ToA => self.a = self.x,
            _ => {}
        }
    }

    fn cell(&mut self, cell: u8) -> &mut Most {
        &mut self.cells[usize::from(cell) % CELLS]
    }
}

/// The maximum result for a number of at most `a` and the constant `k`.
fn combine_constant(alu: Alu, a: Most, k: u32) -> Most {
    match alu {
        Alu::Div => a.checked_div(k).unwrap_or(a),
        Alu::Rem => a.min(k.saturating_sub(1)),
        Alu::Shr => a.checked_shr(k).unwrap_or(0),
        Alu::Shl => u32::try_from(u64::from(a) << (k % u32::BITS)).unwrap_or(Most::MAX),
        _ => combine(alu, a, k),
    }
}

/// The maximum result for two numbers of at most `a` and `b`: unknown if a sum or product may overflow.
fn combine(alu: Alu, a: Most, b: Most) -> Most {
    match alu {
        Alu::Add => a.saturating_add(b),
        Alu::Mul => a.saturating_mul(b),
        Alu::And => a.min(b),
        Alu::Or | Alu::Xor => (a | b).checked_next_power_of_two().map_or(Most::MAX, |above| (a | b) | (above - 1)),
        Alu::Div | Alu::Rem | Alu::Shr => a,
        Alu::Sub | Alu::Shl => Most::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    const ALL: [Alu; 10] =
        [Alu::Add, Alu::Sub, Alu::Mul, Alu::Div, Alu::Rem, Alu::And, Alu::Or, Alu::Xor, Alu::Shl, Alu::Shr];

    /// A limit, and a number within it; small and large ones are equally likely.
    fn limited() -> impl Strategy<Value = (Most, u32)> {
        (any::<u32>(), any::<u32>(), 0..32_u32).prop_map(|(most, value, less)| {
            let most = most >> less;
            (most, most.checked_add(1).map_or(value, |end| value % end))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Objective: no result of arithmetic exceeds the limit derived from its operands' limits.
        #[test]
        fn limits_hold(alu in select(ALL.to_vec()), (most_a, a) in limited(), (most_b, b) in limited()) {
            if let Ok(result) = alu.apply(a, b) {
                prop_assert!(result <= combine(alu, most_a, most_b));
                prop_assert!(result <= combine_constant(alu, most_a, b));
            }
        }
    }
}
