//! Tests of a TAP's queue. A socket pair takes the place of the TAP: like a TAP, it keeps frame boundaries.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_port::{DropReason, Egress, Ingress, MAX_FRAME, Scratch, Source};
use netvale_tap::{TapEgress, TapIngress, TapLink};
use netvale_wire::offload::Offload;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Bytes of virtio-net header.
const HDR: usize = 12;

/// Returns a queue, and the end of the socket pair that stands for the host's stack.
fn queue() -> (Arc<OwnedFd>, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    (Arc::new(ours), theirs)
}

fn ingress(queue: Arc<OwnedFd>) -> Source<TapIngress> {
    Source::new(Box::new(TapIngress::new(queue, TapLink::default())))
}

/// Returns a frame, preceded by a virtio-net header without offloads.
fn with_header(frame: &[u8]) -> Vec<u8> {
    [&[0; HDR], frame].concat()
}

/// Returns an IPv4 TCP frame with a pending checksum, preceded by the virtio-net header that describes it.
fn unfinished() -> Vec<u8> {
    let mut frame = [0; 14 + 20 + 20 + 6];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&46u16.to_be_bytes());
    frame[23] = 6;
    frame[46] = 0x50;
    let mut header = [0; HDR];
    // NEEDS_CSUM; start of the checksummed bytes; offset of the checksum from that start.
    header[0] = 1;
    header[6] = 34;
    header[8] = 16;
    [&header, &frame[..]].concat()
}

/// Objective: frames from the stack arrive unchanged and in order, up to 32 per call of `take`; frames from the switch
/// arrive at the stack with a header; frames in both directions are counted.
#[test]
fn frames_pass_unchanged_and_are_counted() {
    let (queue, stack) = queue();
    let mut source = ingress(Arc::clone(&queue));
    let egress = TapEgress::new(queue, TapLink::default());
    let frames: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i; 60 + 30 * usize::from(i)]).collect();
    for frame in &frames {
        rustix::io::write(&stack, &with_header(frame)).unwrap();
    }
    let mut spare = Box::default();
    let mut scratch = Scratch::new();
    let mut back = Vec::new();
    for looked in [32, 8, 0] {
        let batch = source.take(&mut spare);
        assert_eq!(batch.len(), looked);
        let picks: Vec<u16> = (0..looked as u16).collect();
        assert_eq!(egress.deliver(batch, &picks, &mut scratch), looked);
        source.release(&mut spare);
        let mut bytes = [0; 4096];
        for _ in 0..looked {
            let n = rustix::io::read(&stack, &mut bytes).unwrap();
            back.push(bytes[HDR..n].to_vec());
        }
    }
    assert!(back == frames);
    let bytes = frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    let counted = [source.ingress().counters(), egress.counters()].map(|c| (c.frames(), c.bytes()));
    assert_eq!(counted, [(40, bytes); 2]);
}

/// Objective: pending offloads are passed on in both directions; a frame that contradicts its header is dropped and
/// counted under that reason alone.
#[test]
fn headers_pass_pending_offloads_both_ways() {
    let (queue, stack) = queue();
    let mut source = ingress(Arc::clone(&queue));
    let egress = TapEgress::new(queue, TapLink::default());
    let mut bad = unfinished();
    bad[6] = 0xff;
    for message in [&unfinished(), &bad, &with_header(&[7; 60])] {
        rustix::io::write(&stack, message).unwrap();
    }
    let mut spare = Box::default();
    let batch = source.take(&mut spare);
    assert_eq!(batch.len(), 2);
    assert!(matches!(batch.get(0).unwrap().offload(), Offload::CsumPartial { .. }));
    assert_eq!(batch.get(1).unwrap().offload(), Offload::None);
    assert_eq!(egress.deliver(batch, &[0, 1], &mut Scratch::new()), 2);
    source.release(&mut spare);
    assert_eq!(source.ingress().counters().drops(DropReason::BadVnetHeader), 1);
    let mut bytes = [0; 256];
    let n = rustix::io::read(&stack, &mut bytes).unwrap();
    // A TAP does not use num_buffers, the last field.
    let sent = unfinished();
    let got = &bytes[..n];
    assert_eq!((&got[..10], &got[HDR..]), (&sent[..10], &sent[HDR..]));
}

/// Objective: frames for a full queue are not counted, either as sent or as dropped; frames for a queue whose device is
/// gone are counted as dropped for that reason.
#[test]
fn frames_for_a_full_queue_are_not_drops() {
    let (from, sender) = queue();
    let mut source = ingress(from);
    let (queue, stack) = queue();
    let egress = TapEgress::new(queue, TapLink::default());
    for _ in 0..8 {
        rustix::io::write(&sender, &with_header(&[1; 1500])).unwrap();
    }
    let mut spare = Box::default();
    let batch = source.take(&mut spare);
    let picks = [0, 1, 2, 3, 4, 5, 6, 7];
    let mut scratch = Scratch::new();
    let mut sent = 0;
    loop {
        let done = egress.deliver(batch, &picks, &mut scratch);
        sent += done as u64;
        if done < picks.len() {
            break;
        }
    }
    assert!(sent > 0);
    assert_eq!((egress.counters().frames(), egress.counters().all_drops().count()), (sent, 0));
    let mut bytes = [0; 2048];
    let came = std::iter::from_fn(|| rustix::io::read(&stack, &mut bytes).ok()).count();
    assert_eq!((came as u64, rustix::io::read(&stack, &mut bytes)), (sent, Err(Errno::AGAIN)));
    drop(stack);
    assert_eq!(egress.deliver(batch, &picks[..3], &mut scratch), 3);
    assert_eq!(egress.counters().drops(DropReason::Device), 3);
    source.release(&mut spare);
}

/// Objective: a frame of the maximum length arrives; a read that is shorter than a virtio-net header yields no frame.
#[test]
fn frame_lengths_are_bounded() {
    let (queue, stack) = queue();
    let mut source = ingress(queue);
    let mut spare = Box::default();
    rustix::io::write(&stack, &with_header(&vec![3; MAX_FRAME])).unwrap();
    assert_eq!(source.take(&mut spare).get(0).map(|frame| frame.len()), Some(MAX_FRAME));
    source.release(&mut spare);
    rustix::io::write(&stack, &[0; HDR - 1]).unwrap();
    assert!(source.take(&mut spare).is_empty());
    source.release(&mut spare);
}
