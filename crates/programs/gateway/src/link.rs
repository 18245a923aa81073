//! The gateway's port of the switch: frames with a virtio-net header, in both directions.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use netvale::{Error, Options, Port, RxRing, TxRing, slot};

/// Bytes of the longest frame with its virtio-net header.
pub const MAX_FRAME: usize = 65_550 + 12;
/// Slots of a ring, and bytes of a buffer: room for some 30 frames of 64 KiB.
const SLOTS: u32 = 1024;
const BUFFER: u32 = 2112;
/// Slots that the longest frame takes.
const LONGEST: u32 = (MAX_FRAME as u32).div_ceil(BUFFER);

/// The port, and what did not fit it.
pub struct GatewayLink {
    port: Port,
    lost: u64,
}

impl GatewayLink {
    /// Opens the port `name` at the daemon in `run_dir`, or in the default folder.
    ///
    /// # Errors
    /// As [`Port::open_with`].
    pub fn open(name: &str, run_dir: Option<&Path>) -> Result<Self, Error> {
        let options = Options {
            run_dir: run_dir.map(Path::to_path_buf),
            rings: 1,
            slots: SLOTS,
            buf_size: BUFFER,
            hdr_len: crate::frame::VNET_LEN as u32,
            ..Options::default()
        };
        Port::open_with(name, &options).map(Self::of)
    }

    /// The link over an open port of one ring in each direction, whose frames have a virtio-net header of 12 bytes.
    pub fn of(port: Port) -> Self {
        GatewayLink { port, lost: 0 }
    }

    /// Publishes what was sent, returns what was received, and looks for more.
    pub fn sync(&mut self) {
        self.port.sync();
    }

    /// The next frame, copied into `into`, which has [`MAX_FRAME`] bytes.
    pub fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        self.port.rx().first_mut()?.recv(into)
    }

    /// Whether the longest frame finds room.
    pub fn has_room(&mut self) -> bool {
        let Some(ring) = self.port.tx().first_mut() else { return false };
        if ring.space() < LONGEST {
            ring.sync();
        }
        ring.space() >= LONGEST
    }

    /// Sends a frame that lies in pieces, from the virtio-net header on. Without room it is lost, and counted.
    pub fn send(&mut self, parts: &[&[u8]]) -> bool {
        let sent = self.port.tx().first_mut().is_some_and(|ring| put(ring, parts));
        self.lost += u64::from(!sent);
        sent
    }

    /// Frames for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Asks to be woken by frames, and by room if `room` says so. Returns whether there already is what is asked for.
    pub fn arm(&mut self, room: bool) -> bool {
        let (tx, rx) = self.port.rings();
        let frames = rx.iter_mut().any(|ring| ring.arm());
        frames || (room && tx.iter_mut().any(|ring| ring.arm() && ring.space() >= LONGEST))
    }

    /// Stops asking.
    pub fn disarm(&mut self) {
        let (tx, rx) = self.port.rings();
        tx.iter().for_each(TxRing::disarm);
        rx.iter().for_each(RxRing::disarm);
    }

    /// Shows `watch` the descriptors that become readable for frames and for room, and `end` the one that does at the
    /// end of the port.
    ///
    /// # Errors
    /// Those of `watch` and `end`.
    pub fn watched<E>(
        &mut self,
        watch: impl Fn(BorrowedFd<'_>) -> Result<(), E>,
        end: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (tx, rx) = self.port.rings();
        tx.iter().try_for_each(|ring| watch(ring.wake_fd()))?;
        rx.iter().try_for_each(|ring| watch(ring.wake_fd()))?;
        self.port.connection().map_or(Ok(()), end)
    }

    /// Whether the daemon has closed the port.
    pub fn is_closed(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::PEEK;
        let end = self.port.connection().map(|conn| rustix::net::recv(conn.as_fd(), &mut byte[..], flags));
        matches!(end, Some(Ok((_, 0))))
    }
}

/// Copies the pieces of a frame into the next slots.
fn put(ring: &mut TxRing, parts: &[&[u8]]) -> bool {
    let size = ring.mem().room(0) as usize;
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let slots = len.div_ceil(size.max(1)).max(1) as u32;
    if ring.space() < slots {
        ring.sync();
    }
    if ring.space() < slots || len > MAX_FRAME {
        return false;
    }
    let mut filled = 0;
    let mut at = 0;
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            if at == size {
                ring.set_len(ring.at(filled), size as u16, slot::NS_MOREFRAG);
                filled += 1;
                at = 0;
            }
            let (now, later) = rest.split_at(rest.len().min(size - at));
            let index = ring.at(filled);
            ring.mem().write(ring.slot(index).buf_idx, at as u32, now);
            at += now.len();
            rest = later;
        }
    }
    ring.set_len(ring.at(filled), at as u16, 0);
    ring.advance(filled + 1);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a frame in pieces of any lengths arrives as the same bytes, and one without room is counted.
    #[test]
    fn frames_in_pieces_arrive_whole() {
        let (a, b) = Port::pipe_pair(64, 128).expect("a pipe");
        let mut from = GatewayLink::of(a);
        let mut to = GatewayLink::of(b);
        let bytes: Vec<u8> = (0..1000).map(|n| n as u8).collect();
        let mut into = vec![0; MAX_FRAME];
        for cut in [0, 1, 127, 128, 129, 500, 1000] {
            let (first, second) = bytes.split_at(cut);
            assert!(from.send(&[first, &[], second]));
            from.sync();
            to.sync();
            assert_eq!(to.receive(&mut into), Some(bytes.len()), "{cut}");
            assert_eq!(into[..bytes.len()], bytes);
            to.sync();
        }
        assert!(!from.send(&[&vec![0; 64 * 128]]));
        assert_eq!(from.lost(), 1);
    }
}
