//! The format and length limits of a port's frames, and the checks of frames from a peer. A checksum or segmentation
//! that the peer's kernel left to a network card is recorded in the batch. The *front* of a stream is its first frame,
//! whole or in part.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use netvale_port::{Batch, DropReason, FrameRef, MAX_FRAME, RingCounters, soft};
use netvale_wire::half_summed::left_to_do;
use netvale_wire::offload::Offload;
use netvale_wire::{VnetHdr, ethernet, vnet};

use crate::sys::HEAD;

/// Size of the length prefix in a stream, in bytes.
pub const PREFIX: usize = 4;
/// Size of an Ethernet header with two tags, in bytes.
const TAGGED: usize = ethernet::HEADER_LEN + 2 * ethernet::VLAN_TAG_LEN;
/// Largest MTU.
const MAX_MTU: u32 = 65_535;

/// The format of frames in a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// A byte stream; each frame follows its length, four bytes, big-endian.
    Stream,
    /// One frame per message.
    Messages,
}

/// The rules for a port's frames: the size of their virtio-net header, and the MTU.
#[derive(Debug)]
pub struct FrameRules {
    /// Size of the virtio-net header in bytes: 0, 10 or 12.
    header: usize,
    mtu: AtomicU32,
}

impl FrameRules {
    /// Creates rules for frames with a virtio-net header of this size. Without a header, the MTU limits all frames.
    pub fn new(header: u32, mtu: u32) -> FrameRules {
        FrameRules { header: header as usize, mtu: AtomicU32::new(mtu.min(MAX_MTU)) }
    }

    /// Sets the MTU, which applies to later frames.
    pub fn set_mtu(&self, mtu: u32) {
        self.mtu.store(mtu.min(MAX_MTU), Ordering::Relaxed);
    }

    /// Returns the MTU.
    pub fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed) as usize
    }

    /// Returns the size of the virtio-net header in bytes.
    pub fn header(&self) -> usize {
        self.header
    }

    /// Returns the maximum size of a frame with its header, in bytes.
    pub fn longest(&self) -> usize {
        self.header + MAX_FRAME
    }

    /// Returns whether frames may have a pending checksum or segmentation.
    #[inline]
    pub fn takes_offloads(&self) -> bool {
        self.header > 0
    }

    /// Returns the maximum size in bytes of a frame that starts with the bytes `head`: the MTU plus the Ethernet header
    /// and its tags.
    fn limit(&self, head: &[u8]) -> usize {
        let network = ethernet::network(head).map_or(ethernet::HEADER_LEN, |(_, at)| at);
        network + self.mtu()
    }

    /// Returns whether a frame is short enough for the peer.
    #[inline]
    pub fn fits(&self, frame: &FrameRef<'_>) -> bool {
        if self.takes_offloads() || frame.len() <= ethernet::HEADER_LEN + self.mtu() {
            return true;
        }
        let mut head = [0; TAGGED];
        let known = frame.copy_out(0, &mut head);
        frame.len() <= self.limit(&head[..known])
    }

    /// Returns whether a contiguous frame without pending segmentation is short enough for the peer.
    #[inline]
    pub fn fits_whole(&self, frame: &[u8]) -> bool {
        frame.len() <= ethernet::HEADER_LEN + self.mtu() || frame.len() <= self.limit(frame)
    }

    /// Returns the length prefix and the virtio-net header of a frame of `len` bytes, and their total size in bytes.
    #[inline]
    pub fn head(&self, format: FrameFormat, offload: &Offload, len: usize) -> ([u8; HEAD], usize) {
        let mut head = [0; HEAD];
        let begin = match format {
            FrameFormat::Stream => PREFIX,
            FrameFormat::Messages => 0,
        };
        if format == FrameFormat::Stream {
            head[..PREFIX].copy_from_slice(&((self.header + len) as u32).to_be_bytes());
        }
        if self.header > 0 {
            head[begin..begin + self.header].copy_from_slice(&soft::header_bytes(offload)[..self.header]);
        }
        (head, begin + self.header)
    }

    /// Adds a peer's frame to a batch that has room. Returns the frame's length.
    ///
    /// # Errors
    /// The reason for dropping the frame.
    ///
    /// # Safety
    /// The conditions of [`Batch::push`], for all bytes.
    unsafe fn push(&self, bytes: &[u8], batch: &mut Batch) -> Result<usize, DropReason> {
        let (header, frame) = bytes.split_at_checked(self.header).ok_or(DropReason::Runt)?;
        if frame.len() < ethernet::HEADER_LEN {
            return Err(DropReason::Runt);
        }
        if frame.len() > MAX_FRAME {
            return Err(DropReason::TooLong);
        }
        if self.header == 0 {
            // SAFETY: the caller's contract.
            return unsafe { self.push_bare(frame, batch) };
        }
        let header = soft::parse_header(header).ok_or(DropReason::BadVnetHeader)?;
        // SAFETY: the caller's contract.
        unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
        soft::set_offload(batch, &header)?;
        Ok(frame.len())
    }

    /// Adds a frame without a header, whose checksum or segmentation the sender's kernel may have left pending.
    ///
    /// # Safety
    /// The conditions of [`FrameRules::push`].
    unsafe fn push_bare(&self, frame: &[u8], batch: &mut Batch) -> Result<usize, DropReason> {
        let limit = self.limit(frame);
        let left = left_to_do(frame, limit, 0);
        let is_long = frame.len() > limit;
        // The segment sizes of coalesced datagrams are unknown.
        let is_lost = left.is_none_or(|left: VnetHdr| left.gso_type == vnet::GSO_UDP_L4);
        if is_long && is_lost {
            return Err(DropReason::TooLong);
        }
        // SAFETY: the caller's contract.
        unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
        if let Some(left) = left
            && soft::set_offload(batch, &left).is_err()
        {
            if is_long {
                return Err(DropReason::TooLong);
            }
            // An offload that contradicts its frame was not left by a kernel, so the frame is complete.
            // SAFETY: the caller's contract.
            unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
        }
        Ok(frame.len())
    }
}

/// A batch that takes frames from a peer, with the rules for the frames.
pub struct PeerIntake<'a> {
    /// The batch.
    pub batch: &'a mut Batch,
    /// The rules for the frames.
    pub rules: &'a FrameRules,
    /// Counters of dropped frames.
    pub counters: &'a RingCounters,
    /// Total size of the added frames in bytes.
    pub bytes: u64,
}

impl PeerIntake<'_> {
    /// Adds a frame with its header, or counts the reason for dropping it. The batch must have room.
    ///
    /// # Safety
    /// The conditions of [`Batch::push`].
    pub unsafe fn add(&mut self, bytes: &[u8]) {
        // SAFETY: the caller's contract.
        match unsafe { self.rules.push(bytes, self.batch) } {
            Ok(len) => self.bytes += len as u64,
            Err(why) => self.counters.dropped(why, 1),
        }
    }
}

/// The front of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFront {
    /// A whole frame of this many bytes; the length prefix is not counted.
    Whole(usize),
    /// A part of a frame, or of the length prefix.
    Part,
    /// A frame whose length prefix, given here, exceeds the maximum.
    Bad(u32),
}

/// Determines the front of a stream in which no frame has more than `longest` bytes.
pub fn front(bytes: &[u8], longest: usize) -> StreamFront {
    let Some((length, rest)) = bytes.split_first_chunk::<PREFIX>() else { return StreamFront::Part };
    let length = u32::from_be_bytes(*length);
    match length as usize {
        len if len > longest => StreamFront::Bad(length),
        len if rest.len() < len => StreamFront::Part,
        len => StreamFront::Whole(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the front of a stream is determined wherever the stream is cut. Only a frame whose length exceeds the
    /// maximum is refused, as soon as the length prefix is complete.
    #[test]
    fn fronts() {
        let frame = [&[0, 0, 0, 3][..], b"abc"].concat();
        for cut in 0..frame.len() {
            assert_eq!(front(&frame[..cut], 10), StreamFront::Part, "{cut}");
        }
        assert_eq!(front(&frame, 3), StreamFront::Whole(3));
        assert_eq!(front(&frame, 2), StreamFront::Bad(3));
        assert_eq!(front(&[0; 4], 10), StreamFront::Whole(0));
        assert_eq!(front(&[0xff; 4], 65_550), StreamFront::Bad(u32::MAX));
        assert_eq!(front(&[0, 1, 0, 15], 65_550), StreamFront::Bad(65_551));
        assert_eq!(front(&[0, 1, 0, 14], 65_550), StreamFront::Part);
    }

    /// Objective: a head has a length prefix only in a stream, and a virtio-net header only if the rules have one.
    #[test]
    fn heads() {
        for (header, format, expected) in [
            (0, FrameFormat::Messages, &[][..]),
            (0, FrameFormat::Stream, &[0, 0, 0, 60]),
            (10, FrameFormat::Messages, &[0; 10]),
            (12, FrameFormat::Stream, &[0, 0, 0, 72, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let (head, len) = FrameRules::new(header, 1500).head(format, &Offload::None, 60);
            assert_eq!(&head[..len], expected, "{header} {format:?}");
        }
    }

    fn added(rules: &FrameRules, bytes: &[u8]) -> Result<Offload, DropReason> {
        let mut batch = Batch::new();
        // SAFETY: the bytes outlive the batch.
        let added = unsafe { rules.push(bytes, &mut batch) };
        assert_eq!(added.is_ok(), batch.len() == 1, "{added:?}");
        added.map(|_| batch.get(0).map_or(Offload::None, |frame| frame.offload()))
    }

    /// Returns a TCP segment over IPv4; if `sum` is `None`, its checksum field contains only the sum of the
    /// pseudo-header, as kernels leave it for a network card.
    fn segment(payload: usize, sum: Option<u16>, tag: bool) -> Vec<u8> {
        let len = 40 + payload;
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if tag {
            frame.extend([0x81, 0, 0, 5]);
        }
        frame.extend([8, 0, 0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0]);
        let addresses = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let half = netvale_wire::checksum::pseudo(addresses.0, addresses.1, 6, (20 + payload) as u16);
        frame.extend(sum.unwrap_or(half.unwrap().fold()).to_be_bytes());
        frame.extend([0, 0]);
        frame.resize(frame.len() + payload, 3);
        frame
    }

    /// Objective: frames of a peer without a header pass up to the MTU, with one tag or none; pending checksums and
    /// segmentation are recorded in the batch; complete frames that are too long are dropped.
    #[test]
    fn frames_without_header() {
        let rules = FrameRules::new(0, 1500);
        assert_eq!(added(&rules, &[]), Err(DropReason::Runt));
        assert_eq!(added(&rules, &[0; 13]), Err(DropReason::Runt));
        assert_eq!(added(&rules, &[0; 14]), Ok(Offload::None));
        assert_eq!(added(&rules, &[0; 1514]), Ok(Offload::None));
        assert_eq!(added(&rules, &[0; 1515]), Err(DropReason::TooLong));
        assert_eq!(added(&rules, &segment(1460, Some(7), true)), Ok(Offload::None));
        assert_eq!(added(&rules, &segment(1461, Some(7), true)), Err(DropReason::TooLong));
        assert_eq!(added(&rules, &segment(1461, Some(7), false)), Err(DropReason::TooLong));
        assert_eq!(added(&rules, &segment(100, None, false)), Ok(Offload::CsumPartial { start: 34, offset: 16 }));
        for (tag, headers) in [(false, 54), (true, 58)] {
            let Ok(Offload::Gso(gso)) = added(&rules, &segment(60_000, None, tag)) else { panic!("it is cut") };
            assert_eq!((gso.hdr_len, gso.gso_size), (headers, 1460));
        }
        rules.set_mtu(65_535);
        assert_eq!(added(&rules, &[0; 60_000]), Ok(Offload::None));
    }

    /// Objective: with a virtio-net header, frames may be longer than the MTU; a frame that contradicts its header is
    /// dropped.
    #[test]
    fn frames_behind_headers() {
        let rules = FrameRules::new(12, 1500);
        assert_eq!(added(&rules, &[0; 11]), Err(DropReason::Runt));
        assert_eq!(added(&rules, &[0; 25]), Err(DropReason::Runt));
        assert_eq!(added(&rules, &[0; 12 + MAX_FRAME]), Ok(Offload::None));
        assert_eq!(added(&rules, &[0; 13 + MAX_FRAME]), Err(DropReason::TooLong));
        let bad = [&[1, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0][..], &[0; 60]].concat();
        assert_eq!(added(&rules, &bad), Err(DropReason::BadVnetHeader));
    }
}
