//! A sender and a receiver on packet sockets, each in a process of its own that the scheduler places.
//!
//! Sender and receiver move up to 64 frames per call. The receiver sleeps while there are no frames, which leaves the
//! CPU to the sender.

use std::sync::atomic::Ordering;

use crate::frames::frame;
use crate::prelude::*;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role, batch};

/// Name of the worker role [`send`].
pub const SENDER: &str = "packet-tx";
/// Name of the worker role [`receive`].
pub const RECEIVER: &str = "packet-rx";
/// Maximum sleep of the receiver.
const PATIENCE: Duration = Duration::from_millis(50);

/// Parameters of a program on a packet socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct Wire {
    /// The socket's interface.
    pub interface: String,
    /// The case that is measured.
    pub case: Case,
}

/// Starts sender and receiver on the interfaces `p0` and `p1` of a namespace.
pub fn start(case: &Case, namespace: Netns) -> Result<Session> {
    let spawn = |role, interface: &str| {
        let wire = Wire { interface: interface.into(), case: case.clone() };
        Worker::spawn(Wrapper::Network(&namespace), role, None, &wire)
    };
    let receiver = spawn(RECEIVER, "p1")?;
    let sender = spawn(SENDER, "p0")?;
    let words = "sender and receiver not pinned";
    received(case, words, true, [&sender, &receiver], CountOptions::default()).keeping(namespace).idle()
}

/// Sends frames, always in whole batches.
pub fn send(context: &Context) -> Result<()> {
    let Wire { interface, case } = context.arguments()?;
    let mut socket = PacketSocket::open(&interface, Role::Send)?;
    let bytes = frame(1, 0, case.frame_bytes);
    context.ready()?;
    loop {
        socket.send(&bytes, batch(&case))?;
    }
}

/// Receives, and sleeps while there are no frames.
pub fn receive(context: &Context) -> Result<()> {
    let Wire { interface, case } = context.arguments()?;
    let mut socket = PacketSocket::open(&interface, Role::Receive)?;
    // A frame teaches a bridge where the receiver is.
    PacketSocket::open(&interface, Role::Send)?.send(&frame(0, 1, case.frame_bytes), 1)?;
    context.ready()?;
    loop {
        match socket.receive(MAX_BATCH)? {
            0 => socket.wait(PATIENCE)?,
            came => {
                context.counter(FRAMES).fetch_add(came, Ordering::Relaxed);
            }
        }
    }
}
