//! A sender and a receiver on packet sockets, each a process of its own that the scheduler places.
//!
//! Both move up to 64 frames a call. The receiver sleeps while there are none, and so leaves the CPU to the sender.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::contender::{Sample, Session};
use crate::disturb::Disturbance;
use crate::error::Result;
use crate::interrupt;
use crate::peers::frames::{self, frame};
use crate::sys::netns::Netns;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role};
use crate::sys::worker::{self, Context, Worker};

const SENDER: &str = "packet-tx";
const RECEIVER: &str = "packet-rx";
/// The roles by name.
pub const ROLES: [(&str, worker::Role); 2] = [(SENDER, send), (RECEIVER, receive)];
/// Counter of frames received.
const FRAMES: usize = 0;
/// The longest sleep of the receiver.
const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    interface: String,
    case: Case,
}

/// Both at work.
pub struct Packets {
    case: Case,
    sender: Worker,
    receiver: Worker,
    _namespace: Netns,
}

impl Packets {
    /// Starts both on the interfaces `p0` and `p1` of a namespace.
    ///
    /// # Errors
    /// An interface is missing.
    pub fn start(case: &Case, namespace: Netns) -> Result<Self> {
        let start = |role, interface: &str| {
            let task = Task { interface: interface.into(), case: case.clone() };
            let worker = Worker::spawn_anywhere_in(&namespace, role, &task)?;
            worker.freeze().map(|()| worker)
        };
        let receiver = start(RECEIVER, "p1")?;
        Ok(Self { case: case.clone(), sender: start(SENDER, "p0")?, receiver, _namespace: namespace })
    }
}

fn send(context: &Context) -> Result<()> {
    let Task { interface, case } = context.arguments()?;
    let mut socket = PacketSocket::open(&interface, Role::Send)?;
    let bytes = frame(0, 1, case.frame_bytes);
    context.ready()?;
    loop {
        socket.send(&bytes, frames::batch(&case))?;
    }
}

fn receive(context: &Context) -> Result<()> {
    let Task { interface, case } = context.arguments()?;
    let mut socket = PacketSocket::open(&interface, Role::Receive)?;
    // A bridge learns where we are.
    PacketSocket::open(&interface, Role::Send)?.send(&frame(1, 0, case.frame_bytes), 1)?;
    context.ready()?;
    loop {
        match socket.receive(MAX_BATCH)? {
            0 => socket.wait(PATIENCE)?,
            came => {
                context.counters.counter(FRAMES).fetch_add(came, Ordering::Relaxed);
            }
        }
    }
}

impl Session for Packets {
    fn resume(&mut self) -> Result<()> {
        self.receiver.thaw()?;
        self.sender.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.sender.freeze()?;
        self.receiver.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let (before, start) = (self.receiver.count(FRAMES), Instant::now());
        interrupt::sleep(window)?;
        let (frames, seconds) = (self.receiver.count(FRAMES) - before, start.elapsed().as_secs_f64());
        Ok(Sample::new(frames::in_unit(&self.case, frames as f64 / seconds), Disturbance::default()))
    }

    fn cores(&self) -> String {
        "sender and receiver not pinned".into()
    }

    fn touched(&self) -> bool {
        true
    }

    fn processes(&self) -> Vec<u32> {
        vec![self.sender.pid(), self.receiver.pid()]
    }
}
