//! Frames that wait for room, in a file of their own: there may be megabytes of them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;

/// Most bytes of such a file: a batch of the longest frames for each of many rings.
const MOST: u64 = 256 << 20;

/// Writes frames to a file, each behind its length in four bytes.
///
/// # Errors
/// When there is no memory or no descriptor.
pub fn pack<'a>(frames: impl Iterator<Item = &'a Vec<u8>>) -> std::io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("netvale-frames", MemfdFlags::CLOEXEC)?);
    for frame in frames {
        file.write_all(&(frame.len() as u32).to_le_bytes())?;
        file.write_all(frame)?;
    }
    Ok(file.into())
}

/// Reads the frames of such a file; those behind an incomplete one are left out.
///
/// # Errors
/// When it cannot be read.
pub fn unpack(fd: OwnedFd) -> std::io::Result<Vec<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut file = File::from(fd);
    std::io::Seek::rewind(&mut file)?;
    file.take(MOST).read_to_end(&mut bytes)?;
    let (mut rest, mut frames) = (&bytes[..], Vec::new());
    while let Some((len, behind)) = rest.split_first_chunk() {
        let Some((frame, next)) = behind.split_at_checked(u32::from_le_bytes(*len) as usize) else { break };
        frames.push(frame.to_vec());
        rest = next;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: frames come back as they were, and a length that is too large ends the list.
    #[test]
    fn there_and_back() {
        let frames = vec![vec![1u8; 60], Vec::new(), vec![2; 70_000]];
        assert_eq!(unpack(pack(frames.iter()).unwrap()).unwrap(), frames);
        let fd = pack(frames[..1].iter()).unwrap();
        rustix::io::pwrite(&fd, &u32::MAX.to_le_bytes(), 64).unwrap();
        assert_eq!(unpack(fd).unwrap(), frames[..1]);
    }
}
