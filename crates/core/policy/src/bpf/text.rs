//! Programs as text. `tcpdump -ddd` prints the number of instructions, then each instruction as a line of four numbers;
//! `tc` reads the same with commas instead of line ends (tc-bpf(8), `bytecode`).

use core::fmt;
use core::str::FromStr;

use super::{FilterProgram, Insn, VerificationError};

/// The reason why a text is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BpfTextError {
    /// The text is empty.
    #[error("the filter is empty: expected the number of instructions and the instructions, as in `tcpdump -ddd`")]
    Empty,
    /// A word that is not a number, or is too large for its field.
    #[error("invalid number {word:?} in the filter: expected a decimal number that fits its field")]
    NoNumber {
        /// The word.
        word: String,
    },
    /// An incomplete instruction.
    #[error("instruction {at} is incomplete: expected four numbers, code, jt, jf and k")]
    Unfinished {
        /// The instruction's number, counted from 0.
        at: usize,
    },
    /// The number of instructions differs from the announced number.
    #[error("the filter has {found} instructions: expected {announced}, the number at its start")]
    Count {
        /// The number at the start of the text.
        announced: usize,
        /// The number of instructions in the rest of the text.
        found: usize,
    },
    /// An invalid program in a valid text.
    #[error(transparent)]
    Unverified(#[from] VerificationError),
}

impl FilterProgram {
    /// Reads a program from decimal numbers separated by commas or white space.
    ///
    /// # Errors
    /// [`BpfTextError`] if the text is not a program, or [`FilterProgram::verify`] refuses it.
    pub fn parse(text: &str) -> Result<FilterProgram, BpfTextError> {
        let mut words = text.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let announced = number(words.next().ok_or(BpfTextError::Empty)?)?;
        let mut insns = Vec::new();
        while let Some(code) = words.next() {
            insns.push(insn(insns.len(), code, &mut words)?);
        }
        if announced != insns.len() {
            return Err(BpfTextError::Count { announced, found: insns.len() });
        }
        Ok(FilterProgram::verify(&insns)?)
    }
}

/// Reads instruction number `at`, which consists of the word `code` and the next three words.
fn insn<'a>(at: usize, code: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<Insn, BpfTextError> {
    let mut next = || words.next().ok_or(BpfTextError::Unfinished { at });
    Ok(Insn { code: number(code)?, jt: number(next()?)?, jf: number(next()?)?, k: number(next()?)? })
}

fn number<T: FromStr>(word: &str) -> Result<T, BpfTextError> {
    word.parse().map_err(|_| BpfTextError::NoNumber { word: word.to_owned() })
}

impl FromStr for FilterProgram {
    type Err = BpfTextError;

    fn from_str(text: &str) -> Result<FilterProgram, BpfTextError> {
        FilterProgram::parse(text)
    }
}

/// Prints one line in the format of `tc`, which [`FilterProgram::parse`] reads.
impl fmt::Display for FilterProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.insns.len())?;
        self.insns.iter().try_for_each(|Insn { code, jt, jf, k }| write!(f, ",{code} {jt} {jf} {k}"))
    }
}
