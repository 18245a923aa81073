//! Selection of frames: an expression of pcap-filter(7), and the length kept of a frame.

use netvale_policy::bpf::Program;

use crate::{CliError, libpcap};

/// Selects frames, and the part kept of each.
#[derive(Debug, Default)]
pub struct Filter {
    program: Option<Program>,
    snaplen: usize,
}

impl Filter {
    /// Compiles an expression; `snaplen`: bytes kept of each frame, 0: all.
    ///
    /// # Errors
    /// The expression cannot be compiled.
    pub fn new(expression: Option<&str>, snaplen: u32) -> Result<Filter, CliError> {
        let expression = expression.filter(|text| !text.trim().is_empty());
        Ok(Filter { program: expression.map(libpcap::compile).transpose()?, snaplen: snaplen as usize })
    }

    /// The part kept of a frame; `None` if the frame is not selected.
    pub fn kept<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        // A program that sees the whole frame never returns more than its length.
        let wanted =
            self.program.as_ref().is_none_or(|program| program.run(frame, frame.len() as u32).is_ok_and(|n| n > 0));
        let len = if self.snaplen == 0 { frame.len() } else { frame.len().min(self.snaplen) };
        wanted.then(|| &frame[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: without an expression all frames are selected, and longer ones are cut.
    #[test]
    fn cut() {
        let filter = Filter::new(Some(" "), 3).unwrap();
        assert_eq!((filter.kept(b"abcd"), filter.kept(b"ab")), (Some(&b"abc"[..]), Some(&b"ab"[..])));
        assert_eq!(Filter::default().kept(b"abcd"), Some(&b"abcd"[..]));
    }
}
