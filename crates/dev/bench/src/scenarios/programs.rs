//! The programs at the ends of a path: senders and receivers, each in a process of its own, for each API.

use std::hint::black_box;

use libc::{POLLIN, POLLOUT};

use super::own::open;
use super::*;
use crate::frames::LINE;
use crate::sys::netmap_api::ApiPort;
use crate::sys::pcap_api::{Capture, Tally};

/// Name of the worker role [`sender`]: sends on a netvale port.
pub const SENDER: &str = "sender";
/// Name of the worker role [`receiver`]: receives on a netvale port.
pub const RECEIVER: &str = "receiver";
/// Name of the worker role [`pkt_gen`]: receives as `netvale pkt-gen` does.
pub const PKT_GEN: &str = "pkt-gen-rx";
/// Name of the worker role [`netmap_sender`]: sends by netmap's API.
pub const NETMAP_SENDER: &str = "netmap-tx";
/// Name of the worker role [`netmap_receiver`]: receives by netmap's API.
pub const NETMAP_RECEIVER: &str = "netmap-rx";
/// Name of the worker role [`pcap_receiver`]: receives by libpcap.
pub const PCAP_RECEIVER: &str = "pcap-rx";
/// Name of the worker role [`pcap_forwarder`]: forwards by libpcap.
pub const PCAP_FORWARDER: &str = "pcap-forward";

/// How long pkt-gen polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Maximum sleep of pkt-gen.
const PATIENCE: Duration = Duration::from_millis(50);
/// How many frames ahead bytes are prefetched.
const AHEAD: u32 = 8;

/// The parameters of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Run directory of the daemon.
    pub dir: PathBuf,
    /// Name of the port or interface.
    pub port: String,
    /// The case.
    pub case: Case,
    /// Which bytes of frames the program touches.
    pub touch: Touch,
    /// Whether netvale's sender sleeps while there is no room.
    pub sleeps: bool,
}

/// Sends as fast as there is room.
pub fn sender(context: &Context) -> Result<()> {
    let Program { dir, port, case, touch, sleeps } = context.arguments()?;
    let mut port = open(&dir, &port, SLOTS)?;
    let mut sender = Sender::new(1, (2, 1), case.frame_bytes, touch);
    sender.fill(&port.tx()[0]);
    let sent = context.counter(FRAMES);
    let batch = case.batch.max(1);
    context.ready()?;
    let tx = &mut port.tx()[0];
    loop {
        if sender.send(tx, batch) == 0 && sleeps {
            tx.wait(SPIN, PATIENCE);
        }
        publish(sent, sender.sent);
    }
}

/// Receives as fast as it can.
pub fn receiver(context: &Context) -> Result<()> {
    let Program { dir, port, case, touch, .. } = context.arguments()?;
    let mut port = open(&dir, &port, SLOTS)?;
    let mut receiver = Receiver::new(touch);
    let received = context.counter(FRAMES);
    let wrong = context.counter(WRONG);
    let batch = case.batch.max(1);
    context.ready()?;
    let rx = &mut port.rx()[0];
    loop {
        receiver.receive(rx, batch);
        publish(received, receiver.received);
        publish(wrong, receiver.wrong);
    }
}

/// Runs the loop of pkt-gen's receiver. If the loop touches bytes, it prefetches them, which is the fastest known way.
pub fn pkt_gen(context: &Context) -> Result<()> {
    let Program { dir, port, case, touch, .. } = context.arguments()?;
    let mut port = open(&dir, &port, SLOTS)?;
    let touches = touch != Touch::Nothing;
    context.ready()?;
    let mut received = 0;
    let mut wrong = 0;
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
        publish(context.counter(FRAMES), received);
        publish(context.counter(WRONG), wrong);
    }
}

/// Sends as netmap programs do.
pub fn netmap_sender(context: &Context) -> Result<()> {
    let Program { port, case, touch, .. } = context.arguments()?;
    let port = ApiPort::open(&port, SLOTS)?;
    let bytes = frame(2, 1, case.frame_bytes);
    let len = case.frame_bytes as u16;
    let line = if touch == Touch::Nothing { None } else { bytes.get(..LINE) };
    let mut ring = port.tx();
    ring.fill(&bytes);
    context.ready()?;
    loop {
        port.poll(POLLOUT)?;
        let n = ring.space().min(case.batch);
        ring.send(n, len, line);
    }
}

/// Receives as netmap programs do.
pub fn netmap_receiver(context: &Context) -> Result<()> {
    let Program { port, case, touch, .. } = context.arguments()?;
    let port = ApiPort::open(&port, SLOTS)?;
    let mut ring = port.rx();
    context.ready()?;
    let mut received = 0;
    let mut wrong = 0;
    loop {
        port.poll(POLLIN)?;
        let n = ring.space().min(case.batch);
        wrong += ring.receive(n, case.frame_bytes, touch != Touch::Nothing);
        received += u64::from(n);
        publish(context.counter(FRAMES), received);
        publish(context.counter(WRONG), wrong);
    }
}

/// Receives as libpcap programs do.
pub fn pcap_receiver(context: &Context) -> Result<()> {
    let Program { port, case, touch, .. } = context.arguments()?;
    let mut capture = Capture::open(&port)?;
    let mut tally = Tally { frames: 0, wrong: 0, len: case.frame_bytes, touch: touch != Touch::Nothing };
    context.ready()?;
    loop {
        capture.take(case.batch, &mut tally)?;
        publish(context.counter(FRAMES), tally.frames);
        publish(context.counter(WRONG), tally.wrong);
    }
}

/// The parameters of a libpcap forwarder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PcapWay {
    /// The interface from which the forwarder receives.
    pub from: String,
    /// The interface on which the forwarder sends.
    pub to: String,
    /// Maximum number of frames per call.
    pub batch: u32,
}

/// Forwards as libpcap programs do: each received frame is sent by a call of its own.
pub fn pcap_forwarder(context: &Context) -> Result<()> {
    let PcapWay { from, to, batch } = context.arguments()?;
    let mut from = Capture::open(&from)?;
    let to = Capture::open(&to)?;
    context.ready()?;
    let mut done = 0;
    loop {
        done += from.forward(batch, &to)?;
        publish(context.counter(FRAMES), done);
    }
}
