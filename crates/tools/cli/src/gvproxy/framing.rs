//! Converts frames between Hyperkit's stream (a two-byte length, low byte first) and QEMU's stream (a four-byte length,
//! high byte first), which the port on the switch uses.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::sync::Arc;

use rustix::net::Shutdown;

use super::stream::{self, GvStream};

/// Size of buffers in bytes: the longest frame of either stream fits into a buffer.
const BUFFER: usize = 128 << 10;
/// Maximum length of a frame from the switch.
const MAX_FRAME: u32 = 65_550;

/// Carries frames between a peer and a connection to a port on the switch, until either of them ends. `before` are the
/// bytes that were already received from the peer.
pub(super) fn carry(before: &[u8], peer: impl Read, mut to_peer: impl Write + Send + 'static, switch: GvStream) {
    let switch = Arc::new(switch);
    let from_switch = Arc::clone(&switch);
    let back = stream::begin("frames", move || {
        // After any error (a closed connection, an invalid length of a frame), no more frames can follow.
        let _ = to_hyperkit(BufReader::with_capacity(BUFFER, &*from_switch), &mut to_peer);
        from_switch.shutdown(Shutdown::Both);
    });
    if back.is_some() {
        let _ = to_qemu(BufReader::with_capacity(BUFFER, before.chain(peer)), &*switch);
    }
    switch.shutdown(Shutdown::Both);
}

fn to_qemu<R: Read, W: Write>(from: BufReader<R>, to: W) -> io::Result<()> {
    let put = |to: &mut BufWriter<W>, frame: &[u8]| {
        to.write_all(&(frame.len() as u32).to_be_bytes())?;
        to.write_all(frame)
    };
    convert(from, to, |len| u16::from_le_bytes(len).into(), put)
}

fn to_hyperkit<R: Read, W: Write>(from: BufReader<R>, to: W) -> io::Result<()> {
    let put = |to: &mut BufWriter<W>, frame: &[u8]| match u16::try_from(frame.len()) {
        Ok(len) => to.write_all(&len.to_le_bytes()).and_then(|()| to.write_all(frame)),
        // A frame whose length does not fit into two bytes is dropped.
        Err(_) => Ok(()),
    };
    convert(from, to, u32::from_be_bytes, put)
}

/// Reads frames until the end of `from`, and writes each frame by `put`. Each frame follows `N` bytes that contain its
/// length.
fn convert<R: Read, W: Write, const N: usize>(
    mut from: BufReader<R>,
    to: W,
    length: impl Fn([u8; N]) -> u32,
    put: impl Fn(&mut BufWriter<W>, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut to = BufWriter::with_capacity(BUFFER, to);
    let mut frame = vec![0; MAX_FRAME as usize];
    loop {
        if from.buffer().len() < N {
            to.flush()?;
        }
        if from.fill_buf()?.is_empty() {
            return Ok(());
        }
        let mut len = [0; N];
        from.read_exact(&mut len)?;
        let len = length(len);
        let Some(frame) = frame.get_mut(..len as usize) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {len} bytes")));
        };
        if from.buffer().len() < frame.len() {
            to.flush()?;
        }
        from.read_exact(frame)?;
        put(&mut to, frame)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn converted(bytes: &[u8], convert: fn(BufReader<&[u8]>, &mut Vec<u8>) -> io::Result<()>) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        convert(BufReader::with_capacity(BUFFER, bytes), &mut out).ok().map(|()| out)
    }

    fn qemu(bytes: &[u8]) -> Option<Vec<u8>> {
        converted(bytes, |from, to| to_qemu(from, to))
    }

    fn hyperkit(bytes: &[u8]) -> Option<Vec<u8>> {
        converted(bytes, |from, to| to_hyperkit(from, to))
    }

    #[test]
    fn frames_change_their_lengths_only() {
        assert_eq!(qemu(b"\x03\x00abc\x00\x00\x01\x00d"), Some(b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01d".to_vec()));
        assert_eq!(hyperkit(b"\0\0\0\x03abc\0\0\0\x01d"), Some(b"\x03\x00abc\x01\x00d".to_vec()));
        assert_eq!(qemu(b"\x03\x00ab"), None, "half a frame");
        assert_eq!(hyperkit(b"\xff\xff\xff\xff"), None, "a length that no frame has");
        let long = [&MAX_FRAME.to_be_bytes()[..], &vec![7; MAX_FRAME as usize], b"\0\0\0\x01d"].concat();
        assert_eq!(hyperkit(&long), Some(b"\x01\x00d".to_vec()), "a frame without room is left out");
    }

    proptest! {
        /// Objective: frames that are converted to the other form and back are unchanged.
        #[test]
        fn frames_come_back(frames in vec(vec(any::<u8>(), 0..2000), 0..20)) {
            let bytes: Vec<u8> =
                frames.iter().flat_map(|frame| [&(frame.len() as u16).to_le_bytes()[..], frame].concat()).collect();
            prop_assert_eq!(qemu(&bytes).and_then(|bytes| hyperkit(&bytes)), Some(bytes));
        }
    }
}
