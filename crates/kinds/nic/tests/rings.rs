//! Tests of an interface's queue in plain memory; the test acts as the kernel, on the other sides of the rings.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_afxdp::ring::XdpRing;
use netvale_afxdp::socket::{BufferLayout, CONTINUES, HEADROOM, XdpDesc, XdpReceiver, XdpSender, XdpSocket};
use netvale_fdio::state::BadState;
use netvale_mem::Mapping;
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_nic::continued::{PausedIngress, check_sending};
use netvale_nic::egress::NicEgress;
use netvale_nic::ingress::NicIngress;
use netvale_port::{DropReason, Egress, Ingress, Scratch, Source};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::xdp::XdpRingOffset;

const ENTRIES: u32 = 64;
const BUFFERS: BufferLayout = BufferLayout { first: 4096, stride: 2112, count: 64 };
const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };

/// Creates a ring. Returns our side, the kernel's side, and the memory.
fn ring<T: Copy>(produces: bool) -> (XdpRing<T>, XdpRing<T>, OwnedFd) {
    let memory: OwnedFd = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, 4096).unwrap();
    let side = |produces| XdpRing::map(memory.as_fd(), 0, &AT, ENTRIES, produces).unwrap();
    (side(produces), side(!produces), memory)
}

/// Creates a port's memory. Returns its file, its mapping, and a stand-in for the socket.
fn memory() -> (OwnedFd, Arc<Mapping>, Arc<XdpSocket>) {
    let (fd, map, _) = sealed_memfd("netvale-test", 4096 * 64, PageKind::Ordinary).unwrap();
    let map = Arc::new(map);
    let socket = XdpSocket::adopt(eventfd(0, EventfdFlags::CLOEXEC).unwrap(), ENTRIES, &map);
    (fd, map, socket)
}

/// The kernel's sides of the receiving half's rings.
struct Receiving {
    memory: OwnedFd,
    rx: XdpRing<XdpDesc>,
    rx_memory: OwnedFd,
    fill: XdpRing<u64>,
    fill_memory: OwnedFd,
}

impl Receiving {
    fn new() -> (Receiving, Source<NicIngress>, Arc<Mapping>) {
        let (memory, map, socket) = memory();
        let (rx, kernel_rx, rx_memory) = ring(false);
        let (fill, kernel_fill, fill_memory) = ring(true);
        let receiver = XdpReceiver { rx, fill, socket };
        let ingress = NicIngress::new(receiver, Arc::clone(&map), BUFFERS, 2..34, Arc::new(()));
        let kernel = Receiving { memory, rx: kernel_rx, rx_memory, fill: kernel_fill, fill_memory };
        (kernel, Source::new(Box::new(ingress)), map)
    }

    /// Number of buffers in the fill ring, counted through a second mapping of the kernel's side.
    fn buffers(&self) -> u32 {
        XdpRing::<u64>::map(self.fill_memory.as_fd(), 0, &AT, ENTRIES, false).unwrap().ready()
    }

    /// Acts as the driver: receives a frame with one buffer per piece. `None` if the fill ring has too few buffers.
    fn receive(&mut self, pieces: &[&[u8]]) -> Option<()> {
        if (self.buffers() as usize) < pieces.len() {
            return None;
        }
        for (i, piece) in pieces.iter().enumerate() {
            let at = self.fill.take() + HEADROOM;
            rustix::io::pwrite(&self.memory, piece, at).unwrap();
            let options = if i + 1 < pieces.len() { CONTINUES } else { 0 };
            self.rx.put(XdpDesc { addr: at, len: piece.len() as u32, options });
        }
        self.fill.release();
        self.rx.publish();
        Some(())
    }
}

/// Takes a batch, and returns its frames as bytes.
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

/// Objective: frames in one or several buffers arrive in order and unchanged; each buffer is returned once, so the
/// kernel never runs out of buffers.
#[test]
fn received_frames_arrive_in_order_and_unchanged() {
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

/// Objective: an incomplete frame and its buffers are kept until the frame's end arrives.
#[test]
fn an_unended_frame_is_kept_until_its_end_arrives() {
    let (mut kernel, mut source, _map) = Receiving::new();
    kernel.receive(&[&[1; 100], &[2; 100]]).unwrap();
    let first = kernel.fill.take() + HEADROOM;
    let second = [3u8; 100];
    kernel.fill.release();
    rustix::io::pwrite(&kernel.memory, &second, first).unwrap();
    kernel.rx.put(XdpDesc { addr: first, len: 100, options: CONTINUES });
    kernel.rx.publish();
    assert_eq!(frames(&mut source), [[[1; 100], [2; 100]].concat()]);
    assert_eq!(kernel.buffers(), 29, "no buffers of a batch are returned while a frame is incomplete");
    kernel.receive(&[&[4; 100]]).unwrap();
    assert_eq!(frames(&mut source), [[[3; 100], [4; 100]].concat()]);
    assert_eq!(kernel.buffers(), 32);
}

/// Restores a queue from the memory of its rings.
fn go_on(kernel: &Receiving, map: &Arc<Mapping>, settled: &PausedIngress) -> Result<Source<NicIngress>, BadState> {
    let rx = XdpRing::map(kernel.rx_memory.as_fd(), 0, &AT, ENTRIES, false).unwrap();
    let fill = XdpRing::map(kernel.fill_memory.as_fd(), 0, &AT, ENTRIES, true).unwrap();
    let socket = XdpSocket::adopt(eventfd(0, EventfdFlags::CLOEXEC).unwrap(), ENTRIES, map);
    let receiver = XdpReceiver { rx, fill, socket };
    settled.check(&receiver, &BUFFERS, 2..34)?;
    NicIngress::continued(receiver, Arc::clone(map), BUFFERS, settled, Arc::new(())).map(|i| Source::new(Box::new(i)))
}

/// Objective: a restored queue yields each frame once, including a frame of which only the first pieces had arrived; no
/// buffer is lost.
#[test]
fn a_continued_queue_yields_each_frame_once() {
    let (mut kernel, mut source, map) = Receiving::new();
    for round in 0..20u8 {
        kernel.receive(&[&[round; 100]]).unwrap();
        assert_eq!(frames(&mut source), [[round; 100]]);
        kernel.receive(&[&[1; 100]]).unwrap();
        let first = kernel.fill.take() + HEADROOM;
        kernel.fill.release();
        rustix::io::pwrite(&kernel.memory, &[2; 100], first).unwrap();
        kernel.rx.put(XdpDesc { addr: first, len: 100, options: CONTINUES });
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

/// Objective: a buffer in two places, a foreign buffer, a piece outside the buffers, and inconsistent indices are
/// refused.
#[test]
fn forged_buffers_and_indices_are_refused() {
    let (mut kernel, _source, map) = Receiving::new();
    let refused = |kernel: &Receiving, taken: &[u32], pieces: &[(u64, u32)]| {
        let settled = PausedIngress { taken: taken.to_vec(), pieces: pieces.to_vec() };
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
        assert_eq!(refused(&kernel, &[foreign], &[]), "a buffer does not belong to the queue");
    }
    for (at, len) in [(other, 10), (free, u32::MAX), (u64::MAX, 1)] {
        assert_eq!(refused(&kernel, &[index], &[(at, len)]), "a piece is outside the queue's buffers");
    }
    kernel.rx.put(XdpDesc { addr: free, len: 60, options: 0 });
    kernel.rx.publish();
    assert_eq!(refused(&kernel, &[index], &[]), "a buffer is in two places");
    rustix::io::pwrite(&kernel.rx_memory, &1000u32.to_ne_bytes(), AT.producer).unwrap();
    assert_eq!(refused(&kernel, &[], &[]), "a ring has inconsistent indices");
}

/// Objective: send buffers in two places, and foreign send buffers, are refused.
#[test]
fn forged_send_buffers_are_refused() {
    let (_memory, map, socket) = memory();
    let (mut tx, _, _a) = ring::<XdpDesc>(true);
    let (completion, mut done, _b) = ring::<u64>(false);
    let at = |index| BUFFERS.at(index).unwrap();
    tx.put(XdpDesc { addr: at(41), len: 60, options: 0 });
    tx.publish();
    done.put(at(42));
    done.publish();
    let sender = XdpSender { tx, completion, socket };
    let check = |free: &[u32]| check_sending(free, &sender, &BUFFERS, 40..44).err().map(|e| e.to_string());
    assert_eq!((check(&[]), check(&[40, 43])), (None, None));
    for twice in [&[40, 40][..], &[41], &[42]] {
        assert_eq!(check(twice).as_deref(), Some("a buffer is in two places"), "{twice:?}");
    }
    assert_eq!(check(&[39]).as_deref(), Some("a buffer does not belong to the queue"));
    let egress = NicEgress::new(sender, map, BUFFERS, [40, 43], true, Arc::new(()));
    assert_eq!(egress.free(), Some((vec![40, 43], true)));
}

/// Objective: a descriptor outside the port's memory is dropped, and other frames arrive.
#[test]
fn a_descriptor_outside_the_memory_is_no_frame() {
    let (mut kernel, mut source, map) = Receiving::new();
    for addr in [0, 1 << 40, map.len() as u64, u64::MAX] {
        kernel.rx.put(XdpDesc { addr, len: 60, options: 0 });
    }
    kernel.receive(&[&[5; 60]]).unwrap();
    let came: Vec<_> = frames(&mut source).into_iter().filter(|frame| !frame.is_empty()).collect();
    assert_eq!(came, [vec![5; 60]]);
}

/// Objective: frames are sent from the port's own buffers, in pieces that fit; buffers are reused once sent. Frames
/// that find no room are left to the switch; frames that can never be sent are dropped with a reason.
#[test]
fn frames_are_sent_from_the_ports_own_buffers() {
    for (multi_buffer, length) in [(false, 1500_usize), (true, 5000)] {
        let (mut kernel, mut source, _map) = Receiving::new();
        let (file, map, socket) = memory();
        let (tx, mut kernel_tx, _) = ring::<XdpDesc>(true);
        let (completion, mut kernel_completion, _) = ring::<u64>(false);
        let sender = XdpSender { tx, completion, socket };
        let egress = NicEgress::new(sender, map, BUFFERS, 40..43, multi_buffer, Arc::new(()));
        let frame: Vec<u8> = (0..length).map(|i| (i % 255) as u8).collect();
        let pieces: Vec<&[u8]> = frame.chunks(1700).collect();
        kernel.receive(&pieces).unwrap();
        kernel.receive(&[&[9; 13]]).unwrap();
        let mut spare = Box::default();
        let mut scratch = Scratch::new();
        let batch = source.take(&mut spare);
        let pieces = length.div_ceil(2048);
        let room = 3 / pieces;
        // Send until the buffers are used up.
        let picks = vec![0; room + 1];
        assert_eq!(egress.deliver(batch, &picks, &mut scratch), room);
        assert_eq!(egress.deliver(batch, &[0], &mut scratch), 0);
        // Act as the kernel: send all frames.
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
        assert_eq!(egress.deliver(batch, &[1], &mut scratch), 1, "a runt is finished, but not sent");
        assert_eq!(egress.counters().drops(DropReason::TooLong), 1);
        assert_eq!(egress.counters().frames(), room as u64 + 1);
        source.release(&mut spare);
    }
}
