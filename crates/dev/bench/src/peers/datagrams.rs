//! A sender on a UDP socket, in a process of its own: one datagram or many per call.

use netvale_wire::build::UDP4_PAYLOAD;

use crate::prelude::*;
use crate::sys::rawsock::{MAX_BATCH, send_batch};

/// Name of the worker role [`send`].
pub const SENDER: &str = "udp-tx";

/// The sender's parameters.
#[derive(Debug, Serialize, Deserialize)]
pub struct UdpWay {
    /// The destination, as `ADDRESS:PORT`.
    pub to: String,
    /// The length of the resulting frames.
    pub frame_bytes: u32,
    /// Whether a call sends many datagrams (sendmmsg) rather than one (sendto).
    pub is_batched: bool,
}

/// Sends as fast as the kernel accepts datagrams.
pub fn send(context: &Context) -> Result<()> {
    let UdpWay { to, frame_bytes, is_batched } = context.arguments()?;
    let opened = sys::udp_between("0.0.0.0:0", &to);
    let socket = opened.map_err(BenchError::io(format!("opening a UDP socket to {to}")))?;
    let payload = vec![0u8; (frame_bytes as usize).saturating_sub(UDP4_PAYLOAD)];
    context.ready()?;
    loop {
        if is_batched {
            send_batch(&socket, &payload, MAX_BATCH)?;
        } else if let Err(error) = socket.send(&payload) {
            // A full queue is not an error.
            if error.raw_os_error() != Some(libc::ENOBUFS) {
                return Err(BenchError::io("sending UDP")(error));
            }
        }
    }
}
