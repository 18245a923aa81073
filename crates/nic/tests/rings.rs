//! A queue of an interface whose kernel is this test: the other sides of its rings, in plain memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_afxdp::ring::Ring;
use netvale_afxdp::socket::{Buffers, CONTINUES, Desc, HEADROOM, Receiver, Sender, Socket};
use netvale_mem::Mapping;
use netvale_mem::mapping::{Pages, sealed_memfd};
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
    fill: Ring<u64>,
    fill_memory: OwnedFd,
}

impl Receiving {
    fn new() -> (Receiving, Source<NicIngress>, Arc<Mapping>) {
        let (memory, map, socket) = memory();
        let ((rx, kernel_rx, _), (fill, kernel_fill, fill_memory)) = (ring(false), ring(true));
        let receiver = Receiver { rx, fill, socket };
        let ingress = NicIngress::new(receiver, Arc::clone(&map), BUFFERS, 2..34, Arc::new(()));
        let kernel = Receiving { memory, rx: kernel_rx, fill: kernel_fill, fill_memory };
        (kernel, Source::new(Box::new(ingress)), map)
    }

    /// Buffers that the kernel has: a side that looks for the first time sees them all.
    fn buffers(&self) -> u32 {
        Ring::<u64>::map(self.fill_memory.as_fd(), 0, &AT, ENTRIES, false).unwrap().ready()
    }

    /// A frame in as many buffers as there are pieces. None: the driver has no buffers left.
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

/// Frames that a source has now.
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

/// Objective: frames come in order and as they are, of one buffer or of several; buffers go back, each once, so that the kernel never runs out of them.
#[test]
fn received() {
    let (mut kernel, mut source, _map) = Receiving::new();
    assert_eq!(kernel.buffers(), 32);
    let (mut sent, mut came) = (Vec::new(), Vec::new());
    for round in 0..50u8 {
        let (short, long) = (vec![round; 60 + usize::from(round)], vec![round ^ 0xff; 1700]);
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

/// Objective: a frame whose end has not come is kept until it has, with its buffers.
#[test]
fn unended() {
    let (mut kernel, mut source, _map) = Receiving::new();
    kernel.receive(&[&[1; 100], &[2; 100]]).unwrap();
    let (first, second) = (kernel.fill.take() + HEADROOM, [3u8; 100]);
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

/// Objective: a descriptor of a place outside the port's memory is no frame, and costs no other.
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

/// Objective: frames are sent from buffers of the port's own, in pieces that fit; buffers are used again once they are sent; what has no room stays the
/// switch's, and what can never go is dropped by name.
#[test]
fn sent() {
    for (multi_buffer, length) in [(false, 1500_usize), (true, 5000)] {
        let (mut kernel, mut source, _map) = Receiving::new();
        let (file, map, socket) = memory();
        let ((tx, mut kernel_tx, _), (completion, mut kernel_completion, _)) = (ring::<Desc>(true), ring::<u64>(false));
        let sender = Sender { tx, completion, socket };
        let egress = NicEgress::new(sender, map, BUFFERS, 40..43, (multi_buffer, Arc::new(())));
        let frame: Vec<u8> = (0..length).map(|i| (i % 255) as u8).collect();
        let pieces: Vec<&[u8]> = frame.chunks(1700).collect();
        kernel.receive(&pieces).unwrap();
        kernel.receive(&[&[9; 13]]).unwrap();
        let (mut spare, mut scratch) = (Box::default(), Scratch::new());
        let batch = source.take(&mut spare);
        let pieces = length.div_ceil(2048);
        let room = 3 / pieces;
        // As long as there are buffers, then not.
        let picks = vec![0; room + 1];
        assert_eq!(egress.deliver(batch, &picks, &mut scratch), room);
        assert_eq!(egress.deliver(batch, &[0], &mut scratch), 0);
        // They are sent.
        let (mut got, mut count) = (Vec::new(), 0);
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
