//! Selects the frames of a capture by an expression of pcap-filter(7), and cuts them to the snapshot length.

use netvale_policy::bpf::FilterProgram;

use crate::{CliError, libpcap};

/// Selects frames, and limits the bytes kept of each.
#[derive(Debug, Default)]
pub struct CaptureFilter {
    program: Option<FilterProgram>,
    snaplen: usize,
}

impl CaptureFilter {
    /// Compiles an expression. `snaplen` is the maximum number of bytes kept of each frame; 0 for no limit.
    ///
    /// # Errors
    /// The expression cannot be compiled.
    pub fn new(expression: Option<&str>, snaplen: u32) -> Result<CaptureFilter, CliError> {
        let expression = expression.filter(|text| !text.trim().is_empty());
        Ok(CaptureFilter { program: expression.map(libpcap::compile).transpose()?, snaplen: snaplen as usize })
    }

    /// Returns the bytes to keep of a frame; `None` if the frame is not selected.
    pub fn kept<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        // A filter program that gets the whole frame never returns more than the frame's length.
        let wanted =
            self.program.as_ref().is_none_or(|program| program.run(frame, frame.len() as u32).is_ok_and(|n| n > 0));
        let len = if self.snaplen == 0 { frame.len() } else { frame.len().min(self.snaplen) };
        wanted.then(|| &frame[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: without an expression all frames are selected, and those longer than the limit are cut.
    #[test]
    fn longer_frames_are_cut() {
        let filter = CaptureFilter::new(Some(" "), 3).unwrap();
        assert_eq!((filter.kept(b"abcd"), filter.kept(b"ab")), (Some(&b"abc"[..]), Some(&b"ab"[..])));
        assert_eq!(CaptureFilter::default().kept(b"abcd"), Some(&b"abcd"[..]));
    }
}
