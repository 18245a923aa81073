//! The frames of the kernel's peers.

use crate::prelude::*;
use crate::sys::rawsock::MAX_BATCH;

/// An experimental EtherType (IEEE 802, local experimental 1), so that no protocol stack answers.
const LOCAL_EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

/// The locally administered address of application `index`.
pub fn address(index: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0x0b, index as u8]
}

/// A frame of `length` bytes (at least a header) from application `from` to application `to`.
pub fn frame(from: usize, to: usize, length: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(address(to));
    bytes.extend(address(from));
    bytes.extend(LOCAL_EXPERIMENTAL);
    bytes.resize((length as usize).max(bytes.len()), 0);
    bytes
}

/// The batch of one system call: the case's, as far as it goes.
pub fn batch(case: &Case) -> usize {
    if case.batch == 0 { MAX_BATCH } else { (case.batch as usize).min(MAX_BATCH) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    /// Objective: frames have the length asked for and the right addresses.
    #[test]
    fn frames_are_addressed() {
        let bytes = frame(0, 1, 60);
        assert_eq!(bytes.len(), 60);
        assert_eq!(bytes.get(..6), Some(&address(1)[..]));
        assert_eq!(bytes.get(6..12), Some(&address(0)[..]));
        assert_eq!(frame(0, 1, 0).len(), 14);
    }

    /// Objective: batches are cut to one call's limit; 0 means the best.
    #[test]
    fn batches() {
        let mut case = sample(None).case;
        assert_eq!(batch(&case), MAX_BATCH);
        case.batch = 3;
        assert_eq!(batch(&case), 3);
        case.batch = 0;
        assert_eq!(batch(&case), MAX_BATCH);
        assert!((case.rate(2e6) - 2.0).abs() < 1e-9);
    }
}
