//! Lists of system *calls*, with conditions on their arguments.

use std::collections::BTreeMap;

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::CallRules;

/// A condition on an argument of a call: its bits in `mask` equal `value`.
#[derive(Clone, Copy, PartialEq)]
pub struct Argument {
    /// Index of the argument, from 0.
    pub index: u8,
    /// Bits that are compared.
    pub mask: u64,
    /// Required value of these bits.
    pub value: u64,
}

/// Returns the condition that the `int` argument `index` equals `value`. The condition compares only 32 bits of the
/// register, because the kernel reads only these.
pub const fn int(index: u8, value: libc::c_int) -> Argument {
    Argument { index, mask: u32::MAX as u64, value: value.cast_unsigned() as u64 }
}

/// Returns the condition that argument `index` has none of these bits set.
pub const fn without(index: u8, bits: u64) -> Argument {
    Argument { index, mask: bits, value: 0 }
}

/// Returns the condition that the pointer argument `index` is null.
pub const fn null(index: u8) -> Argument {
    without(index, u64::MAX)
}

/// A system call, with alternative lists of conditions on arguments. All conditions of a list must hold. Without lists,
/// any arguments match.
pub type Calls = (i64, &'static [&'static [Argument]]);

/// Calls that every program needs, with any arguments: memory, signals, exit, time, random numbers.
pub const BASE: &[i64] = &[
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
];

/// A list of calls under construction. Equal lists of conditions for one call are kept once.
#[derive(Default)]
pub struct CallList(BTreeMap<i64, Vec<Vec<Argument>>>);

impl CallList {
    /// Adds calls with their conditions.
    pub fn add(&mut self, calls: &[Calls]) {
        for (call, lines) in calls {
            lines.iter().for_each(|line| self.add_line(*call, line));
        }
    }

    /// Adds a call with one list of conditions.
    pub fn add_line(&mut self, call: i64, line: &[Argument]) {
        let known = self.0.entry(call).or_default();
        if !known.iter().any(|known| known == line) {
            known.push(line.to_vec());
        }
    }

    /// Returns the rules of a filter: these calls, and the calls of `any` with any arguments.
    ///
    /// # Errors
    /// A condition is invalid.
    pub fn rules(self, any: impl IntoIterator<Item = i64>) -> Result<CallRules, BackendError> {
        let of = |lines: Vec<Vec<Argument>>| lines.iter().map(|line| rule(line)).collect::<Result<_, _>>();
        let mut rules: CallRules =
            self.0.into_iter().map(|(call, lines)| Ok((call, of(lines)?))).collect::<Result<_, BackendError>>()?;
        rules.extend(any.into_iter().map(|call| (call, Vec::new())));
        Ok(rules)
    }
}

fn rule(line: &[Argument]) -> Result<SeccompRule, BackendError> {
    let condition = |argument: &Argument| {
        let masked = SeccompCmpOp::MaskedEq(argument.mask);
        SeccompCondition::new(argument.index, SeccompCmpArgLen::Qword, masked, argument.value)
    };
    SeccompRule::new(line.iter().map(condition).collect::<Result<_, _>>()?)
}

/// Returns the rule that an `int` argument has none of these values.
///
/// # Errors
/// The list is empty.
pub fn none_of(index: u8, values: &[libc::c_int]) -> Result<SeccompRule, BackendError> {
    let other = |value: &libc::c_int| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value.cast_unsigned().into())
    };
    SeccompRule::new(values.iter().map(other).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[Calls] = &[(1, &[&[int(0, 1)], &[int(0, 1)], &[int(0, 2)]]), (2, &[&[null(3)]])];

    #[test]
    fn equal_lines_are_kept_once_and_any_arguments_replace_lines() {
        let mut list = CallList::default();
        list.add(LIST);
        list.add_line(1, &[int(0, 2)]);
        let rules = list.rules([2, 3]).unwrap();
        let counts: Vec<_> = rules.iter().map(|(call, rules)| (*call, rules.len())).collect();
        assert_eq!(counts, [(1, 2), (2, 0), (3, 0)]);
    }

    #[test]
    fn a_rule_without_values_is_refused() {
        assert!(none_of(0, &[]).is_err());
        assert!(none_of(0, &[1, 2]).is_ok());
    }
}
