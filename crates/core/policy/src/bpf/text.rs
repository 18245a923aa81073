//! Programs as text: `tcpdump -ddd` prints the number of instructions and then four numbers for each, one per line;
//! `tc` takes the same with commas for line ends (tc-bpf(8), `bytecode`).

use core::fmt;
use core::str::FromStr;

use super::{Insn, Program, Unverified};

/// Why a text is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unparsed {
    /// The text is empty.
    #[error("a filter is the number of its instructions and then each of them, as `tcpdump -ddd` prints it")]
    Empty,
    /// A word that is not a number, or too large for its place.
    #[error("{word:?} is no number, or one that is too large where it stands")]
    NoNumber {
        /// The word.
        word: String,
    },
    /// An incomplete instruction.
    #[error("instruction {at} has fewer than four numbers: code, jt, jf and k")]
    Unfinished {
        /// The instruction's number, counted from 0.
        at: usize,
    },
    /// The number of instructions differs from the announced one.
    #[error("the filter says that it has {announced} instructions, and it has {found}")]
    Count {
        /// The announced number.
        announced: usize,
        /// The number of instructions.
        found: usize,
    },
    /// A valid text of an invalid program.
    #[error(transparent)]
    Unverified(#[from] Unverified),
}

impl Program {
    /// Reads a program from decimal numbers separated by commas or blanks, including line ends.
    ///
    /// # Errors
    /// [`Unparsed`] if the text is not a program, or [`Program::verify`] refuses it.
    pub fn parse(text: &str) -> Result<Program, Unparsed> {
        let mut words = text.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let announced = number(words.next().ok_or(Unparsed::Empty)?)?;
        let mut insns = Vec::new();
        while let Some(code) = words.next() {
            insns.push(insn(insns.len(), code, &mut words)?);
        }
        if announced != insns.len() {
            return Err(Unparsed::Count { announced, found: insns.len() });
        }
        Ok(Program::verify(&insns)?)
    }
}

/// The instruction with the given `code`, completed by the next three words.
fn insn<'a>(at: usize, code: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<Insn, Unparsed> {
    let mut next = || words.next().ok_or(Unparsed::Unfinished { at });
    Ok(Insn { code: number(code)?, jt: number(next()?)?, jf: number(next()?)?, k: number(next()?)? })
}

fn number<T: FromStr>(word: &str) -> Result<T, Unparsed> {
    word.parse().map_err(|_| Unparsed::NoNumber { word: word.to_owned() })
}

impl FromStr for Program {
    type Err = Unparsed;

    fn from_str(text: &str) -> Result<Program, Unparsed> {
        Program::parse(text)
    }
}

/// One line in the format of `tc`, which [`Program::parse`] reads.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.insns.len())?;
        self.insns.iter().try_for_each(|Insn { code, jt, jf, k }| write!(f, ",{code} {jt} {jf} {k}"))
    }
}
