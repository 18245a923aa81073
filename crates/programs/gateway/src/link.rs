//! The gateway's port on the switch, whose frames have a virtio-net header in both directions. [`tap`] is the
//! alternative for a guest that is not on a switch.

pub mod tap;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use netvale::{Error, Options, Port, RxRing, TxRing, slot};

use tap::GuestTap;

/// Maximum length of a frame in bytes, including its virtio-net header and a VLAN tag.
pub const MAX_FRAME: usize = 65_550 + 4 + 12;
/// Number of slots per ring. With buffers of [`BUFFER`] bytes, a ring has room for about 30 frames of 64 KiB.
const SLOTS: u32 = 1024;
/// Size of a slot's buffer in bytes.
const BUFFER: u32 = 2112;
/// Number of slots that the longest frame needs.
const LONGEST: u32 = (MAX_FRAME as u32).div_ceil(BUFFER);

/// The gateway's port, with a count of the frames that were lost for lack of room.
pub struct GatewayLink {
    way: LinkWay,
    lost: u64,
}

/// What carries a link's frames.
enum LinkWay {
    Port(Box<Port>),
    Tap(GuestTap),
}

impl GatewayLink {
    /// Opens the port `name` through the daemon whose run directory is `run_dir`; `None` means the default directory.
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

    /// Wraps an open port that has one ring in each direction and a virtio-net header of 12 bytes before each frame.
    pub fn of(port: Port) -> Self {
        GatewayLink { way: LinkWay::Port(Box::new(port)), lost: 0 }
    }

    /// Wraps the TAP of a single guest.
    pub fn of_tap(tap: GuestTap) -> Self {
        GatewayLink { way: LinkWay::Tap(tap), lost: 0 }
    }

    /// Returns whether the link is a TAP, which ends together with its only guest.
    pub fn is_tap(&self) -> bool {
        matches!(self.way, LinkWay::Tap(_))
    }

    /// Reports to a TAP's owner that the gateway is ready.
    pub fn tell_ready(&self) {
        if let LinkWay::Tap(tap) = &self.way {
            tap.tell_ready();
        }
    }

    /// Publishes the frames that were sent, releases the slots of the frames that were received, and updates the
    /// indices of both rings.
    pub fn sync(&mut self) {
        if let LinkWay::Port(port) = &mut self.way {
            port.sync();
        }
    }

    /// Copies the next frame into `into`, which has [`MAX_FRAME`] bytes. Returns the frame's length; `None` if there is
    /// no frame.
    pub fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        match &mut self.way {
            LinkWay::Port(port) => port.rx().first_mut()?.recv(into),
            LinkWay::Tap(tap) => tap.receive(into),
        }
    }

    /// Returns whether the transmit ring has room for the longest frame; always true for a TAP.
    pub fn has_room(&mut self) -> bool {
        let LinkWay::Port(port) = &mut self.way else { return true };
        let Some(ring) = port.tx().first_mut() else { return false };
        if ring.space() < LONGEST {
            ring.sync();
        }
        ring.space() >= LONGEST
    }

    /// Sends a frame that is given in parts, beginning with the virtio-net header. Returns whether the frame was sent.
    /// If there is no room, the frame is lost and counted.
    pub fn send(&mut self, parts: &[&[u8]]) -> bool {
        let sent = match &mut self.way {
            LinkWay::Port(port) => port.tx().first_mut().is_some_and(|ring| put(ring, parts)),
            LinkWay::Tap(tap) => tap.send(parts),
        };
        self.lost += u64::from(!sent);
        sent
    }

    /// Returns the number of frames that were lost because the ring had no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Arms the wake-up for received frames and, if `room`, the wake-up for room to send. Returns `true` if
    /// frames have already arrived or, if `room`, the ring already has room. A TAP's queue needs no arming.
    pub fn arm(&mut self, room: bool) -> bool {
        let LinkWay::Port(port) = &mut self.way else { return false };
        let (tx, rx) = port.rings();
        let frames = rx.iter_mut().any(|ring| ring.arm());
        frames || (room && tx.iter_mut().any(|ring| ring.arm() && ring.space() >= LONGEST))
    }

    /// Disarms the wake-ups for received frames and for room to send.
    pub fn disarm(&mut self) {
        let LinkWay::Port(port) = &mut self.way else { return };
        let (tx, rx) = port.rings();
        tx.iter().for_each(TxRing::disarm);
        rx.iter().for_each(RxRing::disarm);
    }

    /// Calls `watch` with each descriptor that becomes readable when frames arrive or there is room, and `end` with the
    /// descriptor that becomes readable when the port is closed.
    ///
    /// # Errors
    /// An error of `watch` or `end`.
    pub fn watched<E>(
        &mut self,
        watch: impl Fn(BorrowedFd<'_>) -> Result<(), E>,
        end: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let port = match &mut self.way {
            LinkWay::Port(port) => port,
            LinkWay::Tap(tap) => return watch(tap.queue()).and_then(|()| end(tap.owner())),
        };
        let (tx, rx) = port.rings();
        tx.iter().try_for_each(|ring| watch(ring.wake_fd()))?;
        rx.iter().try_for_each(|ring| watch(ring.wake_fd()))?;
        port.connection().map_or(Ok(()), end)
    }

    /// Returns whether the daemon, or a TAP's owner, has closed the connection.
    pub fn is_closed(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::PEEK;
        let connection = match &self.way {
            LinkWay::Port(port) => port.connection(),
            LinkWay::Tap(tap) => Some(tap.owner()),
        };
        let end = connection.map(|conn| rustix::net::recv(conn.as_fd(), &mut byte[..], flags));
        matches!(end, Some(Ok((_, 0))))
    }
}

/// Copies the parts of a frame into the next slots. Returns `false` if there is no room for the whole frame.
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

    /// Objective: a frame that is sent in parts of any lengths arrives as the same bytes, and a frame for which there
    /// is no room is counted.
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
