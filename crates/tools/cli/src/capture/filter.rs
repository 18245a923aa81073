//! Selects the frames of a capture by an expression of pcap-filter(7), and truncates them to the snapshot length.

use netvale_policy::bpf::FilterProgram;

use crate::{CliError, libpcap};

/// Selects frames, and limits the number of bytes that are kept of each frame.
#[derive(Debug, Default)]
pub struct CaptureFilter {
    program: Option<FilterProgram>,
    snaplen: usize,
}

impl CaptureFilter {
    /// Compiles an expression. `snaplen` is the maximum number of bytes that are kept of each frame; 0 for no limit.
    ///
    /// # Errors
    /// The expression cannot be compiled.
    pub fn new(expression: Option<&str>, snaplen: u32) -> Result<CaptureFilter, CliError> {
        let expression = expression.filter(|text| !text.trim().is_empty());
        Ok(CaptureFilter { program: expression.map(libpcap::compile).transpose()?, snaplen: snaplen as usize })
    }

    /// Returns the bytes to keep of a frame; `None` if the frame is not selected.
    pub fn kept<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        // The filter program gets the whole frame; its result is used only to select the frame, and the snapshot length
        // alone limits the kept bytes.
        let wanted =
            self.program.as_ref().is_none_or(|program| program.run(frame, frame.len() as u32).is_ok_and(|n| n > 0));
        let len = if self.snaplen == 0 { frame.len() } else { frame.len().min(self.snaplen) };
        wanted.then(|| &frame[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: without an expression all frames are selected, and frames longer than the snapshot length are
    /// truncated.
    #[test]
    fn longer_frames_are_cut() {
        let filter = CaptureFilter::new(Some(" "), 3).unwrap();
        assert_eq!((filter.kept(b"abcd"), filter.kept(b"ab")), (Some(&b"abc"[..]), Some(&b"ab"[..])));
        assert_eq!(CaptureFilter::default().kept(b"abcd"), Some(&b"abcd"[..]));
    }
}
