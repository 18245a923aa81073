//! The gateway's link to a single guest that is not on a switch: a TAP, whose frames the gateway itself reads and
//! writes. The TAP's *owner*, a process at the other end of a UNIX socket, sends the TAP's queue; the link ends when
//! the owner closes that socket.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::MAX_FRAME;

/// Maximum number of parts of a frame that one call writes; the kernel's limit is 1024. The parts of a frame with more
/// are joined by copying.
const PARTS: usize = 64;

/// A TAP's non-blocking queue, whose frames have virtio-net headers of 12 bytes, and the socket to the TAP's owner.
pub struct GuestTap {
    queue: OwnedFd,
    owner: OwnedFd,
}

/// The error if the owner has not sent a TAP.
#[derive(Debug, thiserror::Error)]
pub enum GuestTapError {
    /// The owner has closed the socket or sent no TAP, or the descriptor is not a socket.
    #[error("expected the queue of a TAP on the socket, found {0}")]
    NoTap(String),
}

impl GuestTap {
    /// Waits until the owner sends the TAP's queue, and receives the queue.
    ///
    /// # Errors
    /// [`GuestTapError::NoTap`] if the owner closes the socket without sending a queue.
    pub fn receive_from(owner: OwnedFd) -> Result<GuestTap, GuestTapError> {
        let mut byte = [0];
        let message = netvale_fdio::receive(&owner, &mut byte, RecvFlags::empty());
        let message = message.map_err(|why| GuestTapError::NoTap(why.to_string()))?;
        let queue = message.fds.into_iter().next();
        queue.map(|queue| GuestTap { queue, owner }).ok_or_else(|| GuestTapError::NoTap("its end".to_owned()))
    }

    /// Reports to the owner that the gateway is ready. If the owner has gone, the link ends.
    pub fn tell_ready(&self) {
        let _ = rustix::net::send(&self.owner, b"r", SendFlags::NOSIGNAL);
    }

    /// Returns the TAP's queue, which is readable while frames wait.
    pub fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// Returns the socket to the owner.
    pub fn owner(&self) -> BorrowedFd<'_> {
        self.owner.as_fd()
    }

    /// Reads the next frame. Returns the frame's length; `None` if there is no frame.
    pub fn receive(&self, into: &mut [u8]) -> Option<usize> {
        loop {
            match rustix::io::readv(&self.queue, &mut [IoSliceMut::new(into)]) {
                Err(Errno::INTR) => {}
                got => return got.ok().filter(|len| *len > 0),
            }
        }
    }

    /// Writes a frame that is given in parts. Returns whether the kernel took the frame.
    pub fn send(&self, parts: &[&[u8]]) -> bool {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > MAX_FRAME {
            return false;
        }
        if parts.len() > PARTS {
            return self.write(&[IoSlice::new(&parts.concat())]);
        }
        let slices: [IoSlice<'_>; PARTS] = std::array::from_fn(|n| IoSlice::new(parts.get(n).copied().unwrap_or(&[])));
        self.write(&slices[..parts.len()])
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> bool {
        loop {
            match rustix::io::writev(&self.queue, slices) {
                Err(Errno::INTR) => {}
                done => return done.is_ok(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each frame is one write, however many parts it has; without an owner, there is no link.
    #[test]
    #[cfg_attr(miri, ignore = "sockets are not available under Miri")]
    fn a_frame_in_parts_is_one_write() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let pair = |kind| socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let (mine, theirs) = pair(SocketType::STREAM);
        // A SEQPACKET socket keeps the boundaries of writes, as a TAP does.
        let (queue, other) = pair(SocketType::SEQPACKET);
        netvale_fdio::send(&mine, b"t", &[queue], SendFlags::empty()).unwrap();
        let link = GuestTap::receive_from(theirs).unwrap();
        let mut into = vec![0; MAX_FRAME];
        for count in [1, 3, PARTS, PARTS + 1] {
            let parts = vec![&b"abc"[..]; count];
            assert!(link.send(&parts));
            assert_eq!(rustix::io::read(&other, &mut into[..]).unwrap(), 3 * count);
        }
        assert!(!link.send(&[&vec![0; MAX_FRAME + 1]]));
        rustix::io::write(&other, b"frame").unwrap();
        assert_eq!(link.receive(&mut into), Some(5));
        link.tell_ready();
        assert_eq!(rustix::io::read(&mine, &mut into[..]).unwrap(), 1);
        let (gone, theirs) = pair(SocketType::STREAM);
        drop(gone);
        assert!(GuestTap::receive_from(theirs).is_err());
    }
}
