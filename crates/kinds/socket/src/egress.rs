//! The egress to a peer: sends frames without copying them, many per system call. If the peer takes no virtio-net
//! header, the egress computes pending checksums and cuts frames into segments in private memory.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_mem::noted::NotedCounts;
use netvale_port::pace::{MachineClock, Meter, QueuePace};
use netvale_port::seat::ToPeer;
use netvale_port::{Batch, DropReason, FrameRef, MAX_FRAME, RingCounters, Scratch};
use netvale_wire::offload::Offload;

use crate::backlog::Backlog;
use crate::parts::PeerParts;
use crate::rules::FrameFormat;
use crate::sys::Parcels;

mod cut;
mod send;

/// Size in bytes of the private memory, which holds frames with a computed checksum, and the segments of one frame.
const PRIVATE: usize = 2 * (MAX_FRAME + 32 * 1024);

/// A frame that waits to be sent.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    /// Position of the frame among the frames to deliver (`picks`).
    pick: usize,
    /// Length of the frame in bytes, including its length prefix and virtio-net header.
    bytes: usize,
    /// Length of the frame in bytes, without prefix and header.
    frame: usize,
}

/// The egress to a peer. While the peer is connected, the egress is in a seat: the part of the port's queue that
/// outlives peers.
pub struct PeerEgress {
    parts: PeerParts,
    carrier: Carrier,
    counters: Arc<RingCounters>,
    parcels: Parcels,
    entries: Vec<Parcel>,
    private: Vec<u8>,
    backlog: Backlog,
    pace: Arc<QueuePace>,
    /// A record in memory that a successor shares: whether the peer's stream lacks the rest of a frame. `None` if
    /// frames are messages.
    noted: Option<NotedCounts>,
}

/// A delivery in progress: its time limit, and the frames and bytes sent so far.
struct Delivery<'a> {
    meter: Meter<'a, MachineClock>,
    frames: u64,
    bytes: u64,
}

/// Error: the socket has no room. Contains the position in `picks` of the first undelivered frame, from which the
/// caller must try again.
struct OutOfRoom(usize);

/// Properties of a peer's socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carrier {
    pub format: FrameFormat,
    /// Whether the socket is a TCP socket, which may take any part of a frame.
    pub is_tcp: bool,
    /// Whether an error of the socket means that the peer is gone.
    pub is_connection: bool,
}

impl PeerEgress {
    /// Creates the egress; `backlog` contains the data that a predecessor accepted and did not send.
    pub(crate) fn new(
        parts: PeerParts,
        carrier: Carrier,
        counters: Arc<RingCounters>,
        noted: Option<NotedCounts>,
        backlog: &[Vec<u8>],
    ) -> PeerEgress {
        let mut queue = PeerEgress {
            parts,
            carrier,
            counters,
            parcels: Parcels::default(),
            entries: Vec::with_capacity(crate::sys::PARCELS),
            private: Vec::with_capacity(PRIVATE),
            backlog: Backlog::default(),
            pace: Arc::default(),
            noted,
        };
        for message in backlog {
            queue.backlog.add(message.len(), |bytes| bytes.extend_from_slice(message));
        }
        if !queue.backlog.is_empty() {
            queue.await_room();
        }
        queue
    }

    /// Returns the accepted data that is not sent yet.
    pub(crate) fn backlog(&self) -> Vec<Vec<u8>> {
        self.backlog.messages()
    }

    fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.parts.socket)
    }

    /// Delivers the frames of `batch` with the indices `picks`. Returns the number of frames that are sent or dropped.
    fn put_all(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch, delivery: &mut Delivery<'_>) -> usize {
        for (pick, frame) in picks.iter().enumerate() {
            let Some(frame) = batch.get(usize::from(*frame)) else { continue };
            if let Err(OutOfRoom(done)) = self.put(pick, &frame, scratch, delivery) {
                return done;
            }
        }
        self.send_all(picks.len(), delivery).err().map_or(picks.len(), |OutOfRoom(done)| done)
    }

    fn put(
        &mut self,
        pick: usize,
        frame: &FrameRef<'_>,
        scratch: &mut Scratch,
        delivery: &mut Delivery<'_>,
    ) -> Result<(), OutOfRoom> {
        match frame.offload() {
            Offload::Gso(_) if !self.parts.rules.takes_offloads() => self.put_segments(pick, frame, scratch, delivery),
            _ if !self.parts.rules.fits(frame) => self.drop_one(pick, DropReason::TooLong, delivery),
            Offload::CsumPartial { .. } if !self.parts.rules.takes_offloads() => {
                self.put_summed(pick, frame, scratch, delivery)
            }
            offload => self.put_whole(pick, frame, &offload, delivery),
        }
    }

    /// Adds a frame, without copying it, to the frames that the next system call sends.
    #[inline]
    fn put_whole(
        &mut self,
        pick: usize,
        frame: &FrameRef<'_>,
        offload: &Offload,
        delivery: &mut Delivery<'_>,
    ) -> Result<(), OutOfRoom> {
        if !self.parcels.has_room(frame.pieces()) {
            self.send_all(pick, delivery)?;
        }
        let (head, len) = self.parts.rules.head(self.carrier.format, offload, frame.len());
        // SAFETY: `put_all` sends all frames before it returns, or clears them, and borrows the batch for that long.
        unsafe { self.parcels.add_frame(&head[..len], frame) };
        self.entries.push(Parcel { pick, bytes: len + frame.len(), frame: frame.len() });
        Ok(())
    }

    /// Adds a copy of a frame with its checksum filled in.
    fn put_summed(
        &mut self,
        pick: usize,
        frame: &FrameRef<'_>,
        scratch: &mut Scratch,
        delivery: &mut Delivery<'_>,
    ) -> Result<(), OutOfRoom> {
        if !self.parcels.has_room(1) || self.private.len() + frame.len() > PRIVATE {
            self.send_all(pick, delivery)?;
        }
        let begin = self.private.len();
        let private = &mut self.private;
        if let Err(why) = scratch.soften(frame, |bytes| private.extend_from_slice(bytes)) {
            self.private.truncate(begin);
            return self.drop_one(pick, why, delivery);
        }
        self.add_private(pick, begin);
        Ok(())
    }

    /// Adds the frame in private memory that begins at offset `begin`.
    fn add_private(&mut self, pick: usize, begin: usize) {
        let bytes = self.private.get(begin..).unwrap_or_default();
        let (head, len) = self.parts.rules.head(self.carrier.format, &Offload::None, bytes.len());
        // SAFETY: `private` never grows beyond its capacity, so it is not moved. The used part of `private` is not
        // written before the frames are sent or cleared, and is emptied with them.
        unsafe { self.parcels.add_bytes(&head[..len], bytes) };
        self.entries.push(Parcel { pick, bytes: len + bytes.len(), frame: bytes.len() });
    }

    /// Drops a frame. Sends the earlier frames before it counts the drop: if they must wait, the caller delivers this
    /// frame again, and the drop would be counted twice.
    #[cold]
    fn drop_one(&mut self, pick: usize, why: DropReason, delivery: &mut Delivery<'_>) -> Result<(), OutOfRoom> {
        self.send_all(pick, delivery)?;
        self.counters.dropped(why, 1);
        Ok(())
    }
}

impl ToPeer for PeerEgress {
    fn deliver(&mut self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> Option<usize> {
        if self.parts.news.is_over() {
            return None;
        }
        if !self.flush() {
            return Some(0);
        }
        let pace = Arc::clone(&self.pace);
        let mut delivery = Delivery { meter: pace.begin(picks.len()), frames: 0, bytes: 0 };
        let done = self.put_all(batch, picks, scratch, &mut delivery);
        self.forget();
        delivery.meter.end();
        self.counters.passed(delivery.frames, delivery.bytes);
        Some(done)
    }
}
