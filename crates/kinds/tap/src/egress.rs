//! The egress to the host's stack: one write per frame.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use netvale_port::batch::{Batch, MAX_FRAGS};
use netvale_port::pace::QueuePace;
use netvale_port::{DropReason, Egress, FrameRef, RingCounters, Scratch, soft};
use netvale_wire::offload::Offload;
use rustix::io::Errno;

use crate::device::HDR_LEN;
use crate::link::TapLink;

/// Maximum length of a frame in bytes: a 64 KiB packet after an Ethernet header with a VLAN tag.
const LONGEST: usize = 65_535 + 18;
/// Size in bytes of the buffer in which a short frame follows its header. Copying a frame takes less time than the
/// kernel needs to read a second address: 8 % more frames of 64 bytes, and 6 % more of 1,500, than with `writev`.
const SHORT: usize = 2048;

/// One queue of a TAP as an egress. Concurrent writes of several workers are safe.
pub struct TapEgress {
    queue: Arc<OwnedFd>,
    counters: Arc<RingCounters>,
    link: TapLink,
    pace: QueuePace,
    /// Whether the kernel takes large UDP frames (USO, Linux 6.2): until it has refused one.
    uso: AtomicBool,
}

/// The result of writing a frame.
enum TapWriteResult {
    Yes,
    No(DropReason),
    Full,
}

impl TapEgress {
    /// Creates the egress of `queue`. `link` records what the results of calls on the queue show about the interface.
    pub fn new(queue: Arc<OwnedFd>, link: TapLink) -> Self {
        let uso = AtomicBool::new(true);
        TapEgress { queue, counters: Arc::default(), link, pace: QueuePace::default(), uso }
    }

    /// Writes a frame. For a large UDP frame that the kernel refuses, returns `Err`: the frame must be cut.
    fn write(&self, frame: &FrameRef<'_>, short: &mut [u8; SHORT]) -> Result<TapWriteResult, Uncut> {
        let is_uso = matches!(frame.offload(), Offload::Gso(gso) if !gso.kind.is_tcp());
        if is_uso && !self.takes_uso() {
            return Err(Uncut);
        }
        let header = soft::header_bytes(&frame.offload());
        let written = match frame.len() {
            len if len <= SHORT - HDR_LEN => self.write_copy(frame, &header, short),
            len if len <= LONGEST => self.write_pieces(frame, &header),
            _ => return Ok(TapWriteResult::No(DropReason::TooLong)),
        };
        if is_uso && written == Err(Errno::INVAL) {
            self.uso.store(false, Ordering::Relaxed);
            return Err(Uncut);
        }
        Ok(TapWriteResult::of(written))
    }

    /// Writes a copy of the frame and its header.
    fn write_copy(&self, frame: &FrameRef<'_>, header: &[u8], short: &mut [u8; SHORT]) -> Result<usize, Errno> {
        let (head, body) = short.split_at_mut(header.len());
        head.copy_from_slice(header);
        let end = header.len() + frame.copy_out(0, body);
        self.link.call(|| rustix::io::write(&*self.queue, &short[..end]))
    }

    /// Writes the frame directly from its buffers.
    fn write_pieces(&self, frame: &FrameRef<'_>, header: &[u8]) -> Result<usize, Errno> {
        let empty: &[u8] = &[];
        let mut iov = [IoSlice::new(empty); 1 + MAX_FRAGS];
        let used = 1 + frame.pieces().min(MAX_FRAGS);
        for (k, place) in iov.iter_mut().take(used).enumerate() {
            *place = match k.checked_sub(1) {
                None => IoSlice::new(header),
                Some(i) => {
                    let (ptr, len) = frame.piece(i).raw();
                    // SAFETY: `ptr` is readable for `len` bytes until the batch is cleared (the contract of
                    // `Batch::push`), and the batch outlives this call. This process never reads the slice, which only
                    // carries address and length to writev; writev copies the bytes.
                    IoSlice::new(unsafe { std::slice::from_raw_parts(ptr, len) })
                }
            };
        }
        self.link.call(|| rustix::io::writev(&*self.queue, &iov[..used]))
    }

    /// Writes the segments of a large UDP frame while `goes_on` permits. If the first segments only find room, the rest
    /// is lost, as on a wire.
    fn write_cut(
        &self,
        frame: &FrameRef<'_>,
        scratch: &mut Scratch,
        mut goes_on: impl FnMut() -> bool,
    ) -> TapWriteResult {
        let header = soft::header_bytes(&Offload::None);
        let mut last = TapWriteResult::Yes;
        let mut written = 0;
        let cut = scratch.soften(frame, |segment| {
            if !matches!(last, TapWriteResult::Yes) {
                return;
            }
            let iov = [IoSlice::new(&header), IoSlice::new(segment)];
            last = match goes_on() {
                true => TapWriteResult::of(self.link.call(|| rustix::io::writev(&*self.queue, &iov))),
                false => TapWriteResult::No(DropReason::Device),
            };
            written += u32::from(matches!(last, TapWriteResult::Yes));
        });
        match (cut, last) {
            (Err(why), _) => TapWriteResult::No(why),
            (Ok(_), TapWriteResult::Full) if written > 0 => TapWriteResult::No(DropReason::NoRoom),
            (Ok(_), last) => last,
        }
    }
}

/// The kernel refuses a large UDP frame, which must be cut into segments.
struct Uncut;

impl TapWriteResult {
    fn of(written: Result<usize, Errno>) -> TapWriteResult {
        match written {
            Ok(_) => TapWriteResult::Yes,
            Err(Errno::AGAIN | Errno::NOBUFS) => TapWriteResult::Full,
            // The interface is down.
            Err(Errno::IO) => TapWriteResult::No(DropReason::Idle),
            Err(_) => TapWriteResult::No(DropReason::Device),
        }
    }
}

impl Egress for TapEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let mut frames = 0;
        let mut bytes = 0;
        let mut done = 0;
        let mut short = [0; SHORT];
        let mut meter = self.pace.begin(picks.len());
        for &pick in picks {
            if !meter.goes_on() {
                self.counters.dropped(DropReason::Device, (picks.len() - done) as u64);
                done = picks.len();
                break;
            }
            if let Some(frame) = batch.get(usize::from(pick)) {
                let written = self.write(&frame, &mut short);
                match written.unwrap_or_else(|Uncut| self.write_cut(&frame, scratch, || meter.goes_on())) {
                    TapWriteResult::Yes => {
                        frames += 1;
                        bytes += frame.len() as u64;
                    }
                    TapWriteResult::No(why) => self.counters.dropped(why, 1),
                    TapWriteResult::Full => break,
                }
            }
            done += 1;
        }
        meter.end();
        self.counters.passed(frames, bytes);
        done
    }

    fn takes_uso(&self) -> bool {
        self.uso.load(Ordering::Relaxed)
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use netvale_wire::offload::{Gso, GsoKind};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

    use super::*;

    /// Length of the frame's headers, bytes.
    const HEADERS: usize = 42;

    /// Returns a UDP frame whose payload is to be cut into segments of 1,000 bytes.
    fn large(payload: usize) -> (Vec<u8>, Offload) {
        let mut frame = vec![7; HEADERS + payload];
        frame[..HEADERS].fill(0);
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 17;
        let kind = GsoKind::Udp4;
        let gso = Gso { kind, gso_size: 1000, hdr_len: 42, csum_start: 34, csum_offset: 6, ecn: false };
        (frame, Offload::Gso(gso))
    }

    fn deliver(egress: &TapEgress, frame: &[u8], offload: Offload) -> usize {
        let mut batch = Batch::new();
        // SAFETY: `frame` outlives the batch and is not written.
        assert!(unsafe { batch.push(frame.as_ptr(), frame.len() as u32) });
        batch.set_offload(offload);
        egress.deliver(&batch, &[0], &mut Scratch::new())
    }

    /// Objective: on a kernel that cannot cut UDP frames, a large UDP frame arrives in segments, and counts as one
    /// frame.
    #[test]
    fn large_udp_frames_are_cut_for_older_kernels() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, stack) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let mut egress = TapEgress::new(Arc::new(ours), TapLink::default());
        *egress.uso.get_mut() = false;
        let (frame, offload) = large(2500);
        assert_eq!(deliver(&egress, &frame, offload), 1);
        let mut bytes = [0; 2048];
        let lengths: Vec<usize> =
            std::iter::from_fn(|| rustix::io::read(&stack, &mut bytes).ok()).map(|n| n - HDR_LEN - HEADERS).collect();
        assert_eq!(lengths, [1000, 1000, 500]);
        assert_eq!((egress.counters().frames(), egress.counters().bytes()), (1, frame.len() as u64));
    }

    /// Objective: a kernel that refuses a large UDP frame gets no further ones; a refusal of segments is a drop.
    #[test]
    fn a_refused_udp_frame_ends_uso() {
        // The kernel refuses writes to a timer in the same way.
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
        let egress = TapEgress::new(Arc::new(timer), TapLink::default());
        let (frame, offload) = large(2500);
        assert_eq!(deliver(&egress, &frame, Offload::None), 1);
        assert!(egress.takes_uso());
        assert_eq!(deliver(&egress, &frame, offload), 1);
        assert!(!egress.takes_uso());
        assert_eq!(egress.counters().drops(DropReason::Device), 2);
    }
}
