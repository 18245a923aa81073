//! Netmap programs in the guest, on its interface's own rings: one that sends, one that receives.

use super::*;
use crate::scenarios::guest::interface::mac;

/// Bytes of a virtio-net header.
pub const HEADER: u32 = 12;
/// Frames a sync.
const BATCH: u32 = 256;
/// The longest wait for frames, after which the receiver looks whether its time is up.
const PATIENCE: Duration = Duration::from_millis(20);

fn refused(why: &dyn std::fmt::Display) -> BenchError {
    BenchError::Usage(format!("netmap:eth0: {why}"))
}

/// The interface's rings, with that many bytes of header before each frame.
fn open(hdr_len: u32) -> Result<Port> {
    let options = Options { hdr_len, ..Options::default() };
    Port::open_with("netmap:eth0", &options).map_err(|e| refused(&e))
}

/// A frame with an empty header.
fn with_header(hdr_len: u32, frame: Vec<u8>) -> Vec<u8> {
    [vec![0; hdr_len as usize], frame].concat()
}

/// Frames to another guest, by its address, or to the sink: first line written.
pub fn send(bytes: usize, hdr_len: u32, to: Option<&str>, window: Duration) -> Result<Done> {
    let number = to.and_then(|address| address.rsplit('.').next()?.parse().ok());
    let frame = with_header(hdr_len, raw_frame(number.map_or(SINK_MAC, mac), mac(GUEST), bytes));
    let mut port = open(hdr_len)?;
    during(window, || {
        if port.tx().iter().all(|ring| ring.space() == 0) {
            port.wait(Interest::Tx, Some(Duration::from_millis(100))).map_err(|e| refused(&e))?;
        }
        let ring = port.tx().first_mut().ok_or_else(|| refused(&"no ring"))?;
        let sent = (0..BATCH).take_while(|_| ring.send(&frame)).count() as u64;
        ring.sync();
        Ok(sent)
    })
}

/// Frames that come to the second guest: slots only.
pub fn take(hdr_len: u32, window: Duration) -> Result<Done> {
    let mut port = open(hdr_len)?;
    // The switch learns, or remembers, where this guest is.
    let hello = with_header(hdr_len, raw_frame(SINK_MAC, mac(PEER), 60));
    port.tx().first_mut().ok_or_else(|| refused(&"no ring"))?.send(&hello);
    port.sync();
    println!("taking");
    during(window, || {
        let ring = port.rx().first_mut().ok_or_else(|| refused(&"no ring"))?;
        let _ = ring.sync();
        let came = ring.space();
        ring.advance(came);
        if came == 0 {
            port.wait(Interest::Rx, Some(PATIENCE)).map_err(|e| refused(&e))?;
        }
        Ok(came.into())
    })
}
