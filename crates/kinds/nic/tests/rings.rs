//! A queue of an interface with this test as its kernel: the other sides of its rings, in plain memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_afxdp::ring::Ring;
use netvale_afxdp::socket::{Buffers, CONTINUES, Desc, HEADROOM, Receiver, Sender, Socket};
use netvale_fdio::state::BadState;
use netvale_mem::Mapping;
use netvale_mem::mapping::{Pages, sealed_memfd};
use netvale_nic::continued::{Settled, check_sending};
use netvale_nic::egress::NicEgress;
use netvale_nic::ingress::NicIngress;
use netvale_port::{DropReason, Egress, Ingress, Scratch, Source};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::xdp::XdpRingOffset;

const ENTRIES: u32 = 64;
const BUFFERS: Buffers = Buffers { first: 4096, stride: 2112, count: 64 };
const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };

/// A ring, the kernel's side of it, and its memory.
fn ring<T: Copy>(produces: bool) -> (Ring<T>, Ring<T>, OwnedFd) {
    let memory: OwnedFd = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, 4096).unwrap();
    let side = |produces| Ring::map(memory.as_fd(), 0, &AT, ENTRIES, produces).unwrap();
    (side(produces), side(!produces), memory)
}

/// The memory of a port, and its file.
fn memory() -> (OwnedFd, Arc<Mapping>, Arc<Socket>) {
    let (fd, map, _) = sealed_memfd("netvale-test", 4096 * 64, Pages::Ordinary).unwrap();
    let map = Arc::new(map);
    let socket = Socket::adopt(eventfd(0, EventfdFlags::CLOEXEC).unwrap(), ENTRIES, &map);
    (fd, map, socket)
}

/// The kernel's part of receiving.
struct Receiving {
    memory: OwnedFd,
    rx: Ring<Desc>,
    rx_memory: OwnedFd,
    fill: Ring<u64>,
    fill_memory: OwnedFd,
}

impl Receiving {
    fn new() -> (Receiving, Source<NicIngress>, Arc<Mapping>) {
        let (memory, map, socket) = memory();
        let (rx, kernel_rx, rx_memory) = ring(false);
        let (fill, kernel_fill, fill_memory) = ring(true);
        let receiver = Receiver { rx, fill, socket };
        let ingress = NicIngress::new(receiver, Arc::clone(&map), BUFFERS, 2..34, Arc::new(()));
        let kernel = Receiving { memory, rx: kernel_rx, rx_memory, fill: kernel_fill, fill_memory };
        (kernel, Source::new(Box::new(ingress)), map)
    }

    /// Number of buffers that the kernel has: a new side sees them all.
    fn buffers(&self) -> u32 {
        Ring::<u64>::map(self.fill_memory.as_fd(), 0, &AT, ENTRIES, false).unwrap().ready()
    }

    /// Receives a frame in one buffer per piece. `None`: the driver is out of buffers.
    fn receive(&mut self, pieces: &[&[u8]]) -> Option<()> {
        if (self.buffers() as usize) < pieces.len() {
            return None;
        }
        for (i, piece) in pieces.iter().enumerate() {
            let at = self.fill.take() + HEADROOM;
            rustix::io::pwrite(&self.memory, piece, at).unwrap();
            let options = if i + 1 < pieces.len() { CONTINUES } else { 0 };
            self.rx.put(Desc { addr: at, len: piece.len() as u32, options });
        }
        self.fill.release();
        self.rx.publish();
        Some(())
    }
}

/// The frames that a source has now.
fn frames(source: &mut Source<NicIngress>) -> Vec<Vec<u8>> {
    let mut spare = Box::default();
    let batch = source.take(&mut spare);
    let bytes = |frame: netvale_port::FrameRef<'_>| {
        let mut bytes = vec![0; frame.len()];
        frame.copy_out(0, &mut bytes);
        bytes
    };
    let frames = batch.iter().map(bytes).collect();
    source.release(&mut spare);
    frames
}

/// Objective: frames arrive in order and unchanged, in one buffer or several; each buffer goes back once, so the kernel
/// never runs out.
#[test]
fn received() {
    let (mut kernel, mut source, _map) = Receiving::new();
    assert_eq!(kernel.buffers(), 32);
    let mut sent = Vec::new();
    let mut came = Vec::new();
    for round in 0..50u8 {
        let short = vec![round; 60 + usize::from(round)];
        let long = vec![round ^ 0xff; 1700];
        kernel.receive(&[&short]).unwrap();
        kernel.receive(&[&long, &short, &long]).unwrap();
        sent.push(short.clone());
        sent.push([&long[..], &short, &long].concat());
        came.extend(frames(&mut source));
        assert_eq!(kernel.buffers(), 32);
    }
    assert!(came == sent);
    let bytes = sent.iter().map(|frame| frame.len() as u64).sum::<u64>();
    let counters = source.ingress().counters();
    assert_eq!((counters.frames(), counters.bytes()), (100, bytes));
}

/// Objective: an incomplete frame is kept with its buffers until its end arrives.
#[test]
fn unended() {
    let (mut kernel, mut source, _map) = Receiving::new();
    kernel.receive(&[&[1; 100], &[2; 100]]).unwrap();
    let first = kernel.fill.take() + HEADROOM;
    let second = [3u8; 100];
    kernel.fill.release();
    rustix::io::pwrite(&kernel.memory, &second, first).unwrap();
    kernel.rx.put(Desc { addr: first, len: 100, options: CONTINUES });
    kernel.rx.publish();
    assert_eq!(frames(&mut source), [[[1; 100], [2; 100]].concat()]);
    assert_eq!(kernel.buffers(), 29, "nothing of a batch with a frame that goes on");
    kernel.receive(&[&[4; 100]]).unwrap();
    assert_eq!(frames(&mut source), [[[3; 100], [4; 100]].concat()]);
    assert_eq!(kernel.buffers(), 32);
}

/// Restores a queue in its rings' memory.
fn go_on(kernel: &Receiving, map: &Arc<Mapping>, settled: &Settled) -> Result<Source<NicIngress>, BadState> {
    let rx = Ring::map(kernel.rx_memory.as_fd(), 0, &AT, ENTRIES, false).unwrap();
    let fill = Ring::map(kernel.fill_memory.as_fd(), 0, &AT, ENTRIES, true).unwrap();
    let socket = Socket::adopt(eventfd(0, EventfdFlags::CLOEXEC).unwrap(), ENTRIES, map);
    let receiver = Receiver { rx, fill, socket };
    settled.check(&receiver, &BUFFERS, 2..34)?;
    NicIngress::continued(receiver, Arc::clone(map), BUFFERS, settled, Arc::new(())).map(|i| Source::new(Box::new(i)))
}

/// Objective: the successor of a queue gets each frame once, including one of which only the first pieces have arrived;
/// no buffer is lost.
#[test]
fn continued() {
    let (mut kernel, mut source, map) = Receiving::new();
    for round in 0..20u8 {
        kernel.receive(&[&[round; 100]]).unwrap();
        assert_eq!(frames(&mut source), [[round; 100]]);
        kernel.receive(&[&[1; 100]]).unwrap();
        let first = kernel.fill.take() + HEADROOM;
        kernel.fill.release();
        rustix::io::pwrite(&kernel.memory, &[2; 100], first).unwrap();
        kernel.rx.put(Desc { addr: first, len: 100, options: CONTINUES });
        kernel.rx.publish();
        assert_eq!(frames(&mut source), [[1; 100]]);
        source.settle();
        let settled = source.ingress().settled().lock().unwrap().clone();
        assert_eq!((settled.taken.len(), settled.pieces.len()), (2, 1));
        source = go_on(&kernel, &map, &settled).unwrap();
        kernel.receive(&[&[3; 100]]).unwrap();
        assert_eq!(frames(&mut source), [[[2; 100], [3; 100]].concat()]);
        assert_eq!(kernel.buffers(), 32);
    }
}

/// Objective: a buffer in two places, a foreign buffer, a piece elsewhere and impossible indices are refused.
#[test]
fn continued_forgeries() {
    let (mut kernel, _source, map) = Receiving::new();
    let refused = |kernel: &Receiving, taken: &[u32], pieces: &[(u64, u32)]| {
        let settled = Settled { taken: taken.to_vec(), pieces: pieces.to_vec() };
        go_on(kernel, &map, &settled).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(&kernel, &[], &[]), "");
    assert_eq!(refused(&kernel, &[2], &[]), "a buffer is in two places", "it is in the fill ring");
    let free = kernel.fill.take() + HEADROOM;
    let other = kernel.fill.take() + HEADROOM;
    kernel.fill.release();
    let index = BUFFERS.index(free).unwrap();
    assert_eq!(refused(&kernel, &[index], &[(free, 10)]), "");
    assert_eq!(refused(&kernel, &[index, index], &[]), "a buffer is in two places");
    for foreign in [0, 1, 34, u32::MAX] {
        assert_eq!(refused(&kernel, &[foreign], &[]), "a buffer is not the queue's");
    }
    for (at, len) in [(other, 10), (free, u32::MAX), (u64::MAX, 1)] {
        assert_eq!(refused(&kernel, &[index], &[(at, len)]), "a piece of a frame lies elsewhere");
    }
    kernel.rx.put(Desc { addr: free, len: 60, options: 0 });
    kernel.rx.publish();
    assert_eq!(refused(&kernel, &[index], &[]), "a buffer is in two places");
    rustix::io::pwrite(&kernel.rx_memory, &1000u32.to_ne_bytes(), AT.producer).unwrap();
    assert_eq!(refused(&kernel, &[], &[]), "the indices of a ring cannot be right");
}

/// Objective: send buffers are checked likewise.
#[test]
fn continued_sending() {
    let (_memory, map, socket) = memory();
    let (mut tx, _, _a) = ring::<Desc>(true);
    let (completion, mut done, _b) = ring::<u64>(false);
    let at = |index| BUFFERS.at(index).unwrap();
    tx.put(Desc { addr: at(41), len: 60, options: 0 });
    tx.publish();
    done.put(at(42));
    done.publish();
    let sender = Sender { tx, completion, socket };
    let check = |free: &[u32]| check_sending(free, &sender, &BUFFERS, 40..44).err().map(|e| e.to_string());
    assert_eq!((check(&[]), check(&[40, 43])), (None, None));
    for twice in [&[40, 40][..], &[41], &[42]] {
        assert_eq!(check(twice).as_deref(), Some("a buffer is in two places"), "{twice:?}");
    }
    assert_eq!(check(&[39]).as_deref(), Some("a buffer is not the queue's"));
    let egress = NicEgress::new(sender, map, BUFFERS, [40, 43], (true, Arc::new(())));
    assert_eq!(egress.free(), Some((vec![40, 43], true)));
}

/// Objective: a descriptor outside the port's memory is not a frame, and does not affect others.
#[test]
fn outside() {
    let (mut kernel, mut source, map) = Receiving::new();
    for addr in [0, 1 << 40, map.len() as u64, u64::MAX] {
        kernel.rx.put(Desc { addr, len: 60, options: 0 });
    }
    kernel.receive(&[&[5; 60]]).unwrap();
    let came: Vec<_> = frames(&mut source).into_iter().filter(|frame| !frame.is_empty()).collect();
    assert_eq!(came, [vec![5; 60]]);
}

/// Objective: frames are sent from the port's own buffers, in pieces that fit; buffers are reused once sent. Frames
/// without room stay the switch's; frames that can never be sent are dropped under their own counter.
#[test]
fn sent() {
    for (multi_buffer, length) in [(false, 1500_usize), (true, 5000)] {
        let (mut kernel, mut source, _map) = Receiving::new();
        let (file, map, socket) = memory();
        let (tx, mut kernel_tx, _) = ring::<Desc>(true);
        let (completion, mut kernel_completion, _) = ring::<u64>(false);
        let sender = Sender { tx, completion, socket };
        let egress = NicEgress::new(sender, map, BUFFERS, 40..43, (multi_buffer, Arc::new(())));
        let frame: Vec<u8> = (0..length).map(|i| (i % 255) as u8).collect();
        let pieces: Vec<&[u8]> = frame.chunks(1700).collect();
        kernel.receive(&pieces).unwrap();
        kernel.receive(&[&[9; 13]]).unwrap();
        let mut spare = Box::default();
        let mut scratch = Scratch::new();
        let batch = source.take(&mut spare);
        let pieces = length.div_ceil(2048);
        let room = 3 / pieces;
        // Until the buffers are used up.
        let picks = vec![0; room + 1];
        assert_eq!(egress.deliver(batch, &picks, &mut scratch), room);
        assert_eq!(egress.deliver(batch, &[0], &mut scratch), 0);
        // The kernel has sent them.
        let mut got = Vec::new();
        let mut count = 0;
        while kernel_tx.ready() > 0 {
            let desc = kernel_tx.take();
            let mut bytes = vec![0; desc.len as usize];
            rustix::io::pread(&file, &mut bytes, desc.addr).unwrap();
            assert!((40..43).contains(&BUFFERS.index(desc.addr).unwrap()));
            got.extend(bytes);
            count += 1;
            assert_eq!(desc.options == CONTINUES, count % pieces != 0);
            kernel_completion.put(desc.addr);
        }
        kernel_tx.release();
        kernel_completion.publish();
        assert!(got == frame.repeat(room));
        assert_eq!(egress.deliver(batch, &[0], &mut scratch), 1, "buffers are free again");
        assert_eq!(egress.deliver(batch, &[1], &mut scratch), 1, "and a runt is not sent");
        assert_eq!(egress.counters().drops(DropReason::TooLong), 1);
        assert_eq!(egress.counters().frames(), room as u64 + 1);
        source.release(&mut spare);
    }
}
