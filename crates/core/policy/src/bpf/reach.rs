//! Computes how far into a frame a program can read.
//!
//! One pass over the instructions tracks the maximum of each register on all paths. libpcap's programs read at fixed
//! offsets, and at offsets after an IPv4 header of at most 60 bytes, so nearly all programs have a low limit.

use super::CELLS;
use super::decode::{Alu, Op};

/// The maximum of a register or cell; `u32::MAX` if it is unknown.
type MaxValue = u32;

/// The maximums of the registers and cells on arrival at an instruction.
#[derive(Clone, Copy, Default)]
struct ArrivalState {
    a: MaxValue,
    x: MaxValue,
    cells: [MaxValue; CELLS],
}

/// Returns the number of first bytes of a frame that a program can load, or `None` if it can load any byte.
pub(super) fn reach(ops: &[Op]) -> Option<u32> {
    // `None` if no path leads to the instruction. Jumps go only forward, so all paths to an instruction are known when
    // the loop reaches it.
    let mut known: Vec<Option<ArrivalState>> = vec![None; ops.len()];
    arrive(&mut known, 0, ArrivalState::default());
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

/// Merges the state on a path to instruction `at` with the state of the other paths.
fn arrive(known: &mut [Option<ArrivalState>], at: usize, here: ArrivalState) {
    if let Some(there) = known.get_mut(at) {
        *there = Some(there.map_or(here, |there| there.or(here)));
    }
}

/// Returns the offset after the last byte that `op` loads; 0 if `op` loads no bytes, `None` if the load can be anywhere
/// in a frame. `x` is the maximum of X.
fn end_of_load(op: &Op, x: MaxValue) -> Option<u32> {
    match *op {
        // No frame is longer than `u32::MAX` bytes, so a load that would end at a larger offset ends the program.
        Op::Word(k) => Some(k.saturating_add(4)),
        Op::Half(k) => Some(k.saturating_add(2)),
        Op::Byte(k) | Op::HeaderLen(k) => Some(k.saturating_add(1)),
        Op::WordX(k) => x.checked_add(k)?.checked_add(4),
        Op::HalfX(k) => x.checked_add(k)?.checked_add(2),
        Op::ByteX(k) => x.checked_add(k)?.checked_add(1),
        _ => Some(0),
    }
}

impl ArrivalState {
    /// Merges the states of two paths.
    fn or(mut self, other: ArrivalState) -> ArrivalState {
        self.a = self.a.max(other.a);
        self.x = self.x.max(other.x);
        for (cell, other) in self.cells.iter_mut().zip(other.cells) {
            *cell = (*cell).max(other);
        }
        self
    }

    /// Updates the state by an instruction other than a jump.
    fn step(&mut self, op: &Op) {
        match *op {
            Op::Half(_) | Op::HalfX(_) => self.a = u16::MAX.into(),
            Op::Byte(_) | Op::ByteX(_) => self.a = u8::MAX.into(),
            Op::HeaderLen(_) => self.x = 60,
            Op::Word(_) | Op::WordX(_) | Op::Len => self.a = MaxValue::MAX,
            Op::LenX => self.x = MaxValue::MAX,
            Op::Const(k) => self.a = k,
            Op::ConstX(k) => self.x = k,
            Op::Load(cell) => self.a = *self.cell(cell),
            Op::LoadX(cell) => self.x = *self.cell(cell),
            Op::Store(cell) => *self.cell(cell) = self.a,
            Op::StoreX(cell) => *self.cell(cell) = self.x,
            Op::Alu(alu, k) => self.a = combine_constant(alu, self.a, k),
            Op::AluX(alu) => self.a = combine(alu, self.a, self.x),
            Op::Neg => self.a = MaxValue::MAX,
            Op::ToX => self.x = self.a,
            Op::ToA => self.a = self.x,
            _ => {}
        }
    }

    fn cell(&mut self, cell: u8) -> &mut MaxValue {
        &mut self.cells[usize::from(cell) % CELLS]
    }
}

/// Returns the maximum result for a number of at most `a` and the constant `k`.
fn combine_constant(alu: Alu, a: MaxValue, k: u32) -> MaxValue {
    match alu {
        Alu::Div => a.checked_div(k).unwrap_or(a),
        Alu::Rem => a.min(k.saturating_sub(1)),
        Alu::Shr => a.checked_shr(k).unwrap_or(0),
        Alu::Shl => u32::try_from(u64::from(a) << (k % u32::BITS)).unwrap_or(MaxValue::MAX),
        _ => combine(alu, a, k),
    }
}

/// Returns the maximum result for two numbers of at most `a` and `b`; unknown if a sum or product may overflow.
fn combine(alu: Alu, a: MaxValue, b: MaxValue) -> MaxValue {
    match alu {
        Alu::Add => a.saturating_add(b),
        Alu::Mul => a.saturating_mul(b),
        Alu::And => a.min(b),
        Alu::Or | Alu::Xor => (a | b).checked_next_power_of_two().map_or(MaxValue::MAX, |above| (a | b) | (above - 1)),
        Alu::Div | Alu::Rem | Alu::Shr => a,
        Alu::Sub | Alu::Shl => MaxValue::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    const ALL: [Alu; 10] =
        [Alu::Add, Alu::Sub, Alu::Mul, Alu::Div, Alu::Rem, Alu::And, Alu::Or, Alu::Xor, Alu::Shl, Alu::Shr];

    /// Generates a limit, and a number within it. Small and large limits are equally likely.
    fn limited() -> impl Strategy<Value = (MaxValue, u32)> {
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
