//! The roles of the scenario's processes.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libc::{POLLIN, POLLOUT};
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::error::Result;
use crate::peers::frames;
use crate::scenarios::compat::over_pipe;
use crate::scenarios::own::open;
use crate::scenarios::traffic::{SLOTS, Sender, Touch, frame};
use crate::sys::netmap_api::{ApiPort, LINE};
use crate::sys::pcap_api::{Capture, Tally};
use crate::sys::rawsock::{self, PacketSocket};
use crate::sys::worker::{Context, Role};

/// How pkt-gen waits: a look for so long, then asleep for up to so long.
const SPIN: Duration = Duration::from_micros(50);
const PATIENCE: Duration = Duration::from_millis(50);
/// The number of frames ahead that bytes are fetched.
const AHEAD: u32 = 8;
/// Counter of frames moved.
pub const FRAMES: usize = 0;
/// Counter of frames with another length than was sent.
pub const WRONG: usize = 1;

/// The task of a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// Run directory of the daemon.
    pub dir: String,
    /// Port or interface.
    pub port: String,
    /// The case.
    pub case: Case,
}

/// The roles by name.
pub const ROLES: [(&str, Role); 6] = [
    ("compat-own-tx", own_tx),
    ("compat-own-rx", own_rx),
    ("compat-netmap-tx", netmap_tx),
    ("compat-netmap-rx", netmap_rx),
    ("compat-pcap-rx", pcap_rx),
    ("compat-packet-tx", packet_tx),
];

/// The bytes of frames that the programs touch.
pub fn touch(case: &Case) -> Touch {
    if over_pipe(case) { Touch::Line } else { Touch::Nothing }
}

fn store(counter: &AtomicU64, value: u64) {
    if counter.load(Ordering::Relaxed) != value {
        counter.store(value, Ordering::Relaxed);
    }
}

fn own_tx(context: &Context) -> Result<()> {
    let Task { dir, port, case } = context.arguments()?;
    let mut port = open(Path::new(&dir), &port, SLOTS)?;
    let mut sender = Sender::new(1, (2, 1), case.frame_bytes, touch(&case));
    sender.fill(&port.tx()[0]);
    context.ready()?;
    loop {
        if sender.send(&mut port.tx()[0], case.batch) == 0 {
            port.tx()[0].wait(SPIN, PATIENCE);
        }
        store(context.counters.counter(FRAMES), sender.sent);
    }
}

/// The loop of pkt-gen's receiver; over a pipe it fetches bytes ahead, as fast as we know how.
fn own_rx(context: &Context) -> Result<()> {
    let Task { dir, port, case } = context.arguments()?;
    let mut port = open(Path::new(&dir), &port, SLOTS)?;
    let touches = touch(&case) != Touch::Nothing;
    context.ready()?;
    let (mut received, mut wrong) = (0, 0);
    loop {
        let ring = &mut port.rx()[0];
        let _ = ring.sync();
        let n = ring.space().min(case.batch);
        for k in 0..n {
            let i = ring.at(k);
            wrong += u64::from(u32::from(ring.slot(i).len) != case.frame_bytes);
            if touches {
                ring.mem().prefetch_read(ring.slot(ring.at((k + AHEAD).min(n - 1))).buf_idx);
                let mut line = [0u8; LINE];
                black_box(ring.read(i, &mut line));
            }
        }
        ring.advance(n);
        if n == 0 {
            ring.wait(SPIN, PATIENCE);
        }
        received += u64::from(n);
        store(context.counters.counter(FRAMES), received);
        store(context.counters.counter(WRONG), wrong);
    }
}

fn netmap_tx(context: &Context) -> Result<()> {
    let Task { port, case, .. } = context.arguments()?;
    let port = ApiPort::open(&port, SLOTS)?;
    let (bytes, len) = (frame(2, 1, case.frame_bytes), case.frame_bytes as u16);
    let touches = touch(&case) != Touch::Nothing;
    let mut ring = port.tx();
    ring.fill(&bytes);
    context.ready()?;
    let mut sent = 0;
    loop {
        port.poll(POLLOUT)?;
        let n = ring.space().min(case.batch);
        ring.send(n, len, if touches { bytes.get(..LINE) } else { None });
        sent += u64::from(n);
        store(context.counters.counter(FRAMES), sent);
    }
}

fn netmap_rx(context: &Context) -> Result<()> {
    let Task { port, case, .. } = context.arguments()?;
    let port = ApiPort::open(&port, SLOTS)?;
    let touches = touch(&case) != Touch::Nothing;
    let mut ring = port.rx();
    context.ready()?;
    let (mut received, mut wrong) = (0, 0);
    loop {
        port.poll(POLLIN)?;
        let n = ring.space().min(case.batch);
        wrong += ring.receive(n, case.frame_bytes, touches);
        received += u64::from(n);
        store(context.counters.counter(FRAMES), received);
        store(context.counters.counter(WRONG), wrong);
    }
}

fn pcap_rx(context: &Context) -> Result<()> {
    let Task { port, case, .. } = context.arguments()?;
    let mut capture = Capture::open(&port)?;
    let mut tally = Tally { frames: 0, wrong: 0, len: case.frame_bytes, touch: touch(&case) != Touch::Nothing };
    context.ready()?;
    loop {
        capture.take(case.batch, &mut tally)?;
        store(context.counters.counter(FRAMES), tally.frames);
        store(context.counters.counter(WRONG), tally.wrong);
    }
}

fn packet_tx(context: &Context) -> Result<()> {
    let Task { port, case, .. } = context.arguments()?;
    let mut socket = PacketSocket::open(&port, rawsock::Role::Send)?;
    let bytes = frames::frame(0, 1, case.frame_bytes);
    context.ready()?;
    let mut sent = 0;
    loop {
        sent += socket.send(&bytes, frames::batch(&case))?;
        store(context.counters.counter(FRAMES), sent);
    }
}
