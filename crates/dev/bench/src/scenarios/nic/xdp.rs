//! A bare loop over AF_XDP sockets: without netmap's rings and without a daemon.
#![allow(unsafe_code)]

use std::ops::Range;

use netvale_afxdp::Nic;
use netvale_afxdp::nic::NicQueue;
use netvale_afxdp::socket::{BufferLayout, HEADROOM, XdpDesc, XdpReceiver, XdpSender};
use netvale_mem::Mapping;
use netvale_mem::copy::copy_bytes;

use super::*;

/// Number of entries of each ring; each direction has as many buffers.
const ENTRIES: u32 = 1024;
/// Indices of the buffers for received frames. Buffer 0 is unused, because it has no room for the kernel's headroom.
const RX: Range<u32> = 1..1 + ENTRIES;
/// Indices of the buffers for frames to send.
const TX: Range<u32> = 1 + ENTRIES..1 + 2 * ENTRIES;
const BUFFERS: BufferLayout = BufferLayout { first: 0, stride: 2112, count: 1 + 4 * ENTRIES };

/// A queue of an interface, with both halves of its AF_XDP socket.
struct Opened {
    receiver: XdpReceiver,
    sender: XdpSender,
    _queue: Arc<NicQueue>,
}

impl Opened {
    fn at(name: &str, memory: &Arc<Mapping>) -> Result<Opened> {
        let failed = |e: netvale_afxdp::NicError| BenchError::Usage(e.to_string());
        let unmapped = |e: rustix::io::Errno| BenchError::io("mapping a socket's rings")(std::io::Error::from(e));
        let nic = Nic::open(name).map_err(failed)?;
        let opened = nic.queue(0, ENTRIES, memory, BUFFERS).map_err(failed)?;
        let receiver = opened.socket.receiver().map_err(unmapped)?;
        let sender = opened.socket.sender().map_err(unmapped)?;
        opened.bind().map_err(failed)?;
        opened.receive().map_err(failed)?;
        Ok(Opened { receiver, sender, _queue: opened.queue })
    }
}

/// The bare loop's sockets and buffers.
pub struct Loop {
    from: Option<Opened>,
    to: Option<Opened>,
    free: Vec<u64>,
    /// The bytes written to each sent frame.
    bytes: Vec<u8>,
    batch: u32,
    memory: Arc<Mapping>,
}

impl Loop {
    /// Opens the sockets that the case needs.
    pub fn new(case: &Case, namespace: &Netns) -> Result<Loop> {
        let bytes = (BUFFERS.count as usize * BUFFERS.stride as usize).next_multiple_of(4096);
        let memory = Arc::new(Mapping::private(bytes).ok_or_else(|| BenchError::Usage("no memory".into()))?);
        let open = |name: &str| namespace.inside(|| Opened::at(name, &memory));
        let (mut from, to) = match case.variant.as_str() {
            "tx" => (None, Some(open("p0")?)),
            "rx" => (Some(open("p1")?), None),
            _ => (Some(open("p1")?), Some(open("p2")?)),
        };
        if let Some(from) = &mut from {
            RX.filter_map(|i| BUFFERS.at(i)).for_each(|at| from.receiver.fill.put(at - HEADROOM));
            from.receiver.fill.publish();
        }
        let free = TX.filter_map(|i| BUFFERS.at(i)).collect();
        Ok(Loop { from, to, free, bytes: frame(1, 0, case.frame_bytes), batch: case.batch.max(1), memory })
    }

    /// Runs one round. Returns the number of frames received.
    pub fn round(&mut self) -> u64 {
        let received = match (&mut self.from, &mut self.to) {
            (Some(from), None) => receive(from, self.batch),
            (Some(from), Some(to)) => {
                pass_on(from, to, self.batch);
                0
            }
            _ => {
                self.send();
                0
            }
        };
        if let Some(to) = &mut self.to {
            to.sender.tx.publish();
            if to.sender.tx.needs_wakeup() {
                // Frames that the kernel cannot send now are sent after a later kick.
                let _ = to.sender.socket.kick();
            }
        }
        received
    }

    fn send(&mut self) {
        let Some(to) = &mut self.to else { return };
        reclaim(to, &mut self.free);
        let n = to.sender.tx.room().min(self.free.len() as u32).min(self.batch);
        let len = self.bytes.len();
        for _ in 0..n {
            let addr = self.free.pop().unwrap_or(0);
            if let Some(place) = self.memory.at(addr, len as u64, 1) {
                // SAFETY: `at` checked that the buffer has that many bytes; the buffer belongs to the program until it
                // is published.
                unsafe { copy_bytes(self.bytes.as_ptr(), place.as_ptr(), len) };
            }
            to.sender.tx.put(XdpDesc { addr, len: len as u32, options: 0 });
        }
    }
}

fn receive(from: &mut Opened, batch: u32) -> u64 {
    let n = from.receiver.rx.ready().min(batch);
    for _ in 0..n {
        let desc = from.receiver.rx.take();
        from.receiver.fill.put(desc.begin() - HEADROOM);
    }
    refill(from, n);
    n.into()
}

fn pass_on(from: &mut Opened, to: &mut Opened, batch: u32) {
    let mut sent = Vec::with_capacity(batch as usize);
    reclaim(to, &mut sent);
    let back = sent.len() as u32;
    sent.into_iter().for_each(|at| from.receiver.fill.put(at - HEADROOM));
    let n = from.receiver.rx.ready().min(to.sender.tx.room()).min(batch);
    for _ in 0..n {
        let desc = from.receiver.rx.take();
        to.sender.tx.put(XdpDesc { addr: desc.begin(), len: desc.len, options: 0 });
    }
    refill(from, n.max(back));
}

fn reclaim(to: &mut Opened, free: &mut Vec<u64>) {
    let n = to.sender.completion.ready();
    free.extend((0..n).map(|_| to.sender.completion.take()));
    if n > 0 {
        to.sender.completion.release();
    }
}

fn refill(from: &mut Opened, n: u32) {
    if n > 0 {
        from.receiver.rx.release();
        from.receiver.fill.publish();
        if from.receiver.fill.needs_wakeup() {
            from.receiver.socket.poke();
        }
    }
}
