//! Messages with file descriptors over UNIX sockets (`SCM_RIGHTS`, unix(7)), and the [`state`] that they carry.

pub mod state;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Maximum number of descriptors in a message (`SCM_MAX_FD`).
pub const MOST: usize = 253;

/// Sends bytes, with the descriptors attached to the first byte. Returns the number of bytes sent.
///
/// # Errors
/// The error of sendmsg(2); `ETOOMANYREFS` for more than [`MOST`] descriptors; `EPIPE`, without SIGPIPE, if the peer
/// has closed its socket.
pub fn send(to: impl AsFd, bytes: &[u8], fds: &[impl AsFd], flags: SendFlags) -> rustix::io::Result<usize> {
    send_parts(to, &[IoSlice::new(bytes)], fds, flags)
}

/// Sends bytes from several buffers, like [`send`].
///
/// # Errors
/// As [`send`].
pub fn send_parts(
    to: impl AsFd,
    parts: &[IoSlice<'_>],
    fds: &[impl AsFd],
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The padding of the buffer has room for one more descriptor, which the kernel would refuse.
    let fits = borrowed.len() <= MOST;
    let is_passed = borrowed.is_empty() || fits && control.push(SendAncillaryMessage::ScmRights(&borrowed));
    if !is_passed {
        return Err(Errno::TOOMANYREFS);
    }
    sendmsg(to, parts, &mut control, flags | SendFlags::NOSIGNAL)
}

/// A received message.
#[derive(Debug)]
pub struct ReceivedMessage {
    /// Number of bytes; 0 if the peer has closed its socket.
    pub bytes: usize,
    /// The descriptors, which are close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// Whether the kernel dropped descriptors because this process has reached its limit of open files.
    pub is_short: bool,
}

/// Receives bytes, and all descriptors that are attached to them.
///
/// # Errors
/// The error of recvmsg(2).
pub fn receive(from: impl AsFd, bytes: &mut [u8], flags: RecvFlags) -> rustix::io::Result<ReceivedMessage> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(from, &mut [IoSliceMut::new(bytes)], &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    let passed = |message| if let RecvAncillaryMessage::ScmRights(fds) = message { Some(fds) } else { None };
    let fds = control.drain().filter_map(passed).flatten().collect();
    Ok(ReceivedMessage { bytes: got.bytes, fds, is_short: got.flags.contains(ReturnFlags::CTRUNC) })
}

#[cfg(test)]
mod tests {
    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// Objective: the kernel's maximum number of descriptors arrives with the message's bytes, and all are
    /// close-on-exec; a larger number is refused.
    #[test]
    fn the_maximum_number_of_descriptors_arrives() {
        let (here, there) = pair();
        let mut bytes = [0; 8];
        for count in [0, 1, 2, MOST] {
            let fds: Vec<_> = std::iter::repeat_n(here.as_fd(), count).collect();
            assert_eq!(send(&here, b"some", &fds, SendFlags::empty()), Ok(4));
            let got = receive(&there, &mut bytes, RecvFlags::DONTWAIT).unwrap();
            assert_eq!((got.bytes, got.fds.len(), got.is_short), (4, count, false));
            assert!(got.fds.iter().all(|fd| fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC)));
        }
        let fds = [here.as_fd(); MOST + 1];
        assert_eq!(send(&here, b"some", &fds, SendFlags::empty()), Err(Errno::TOOMANYREFS));
    }

    /// Objective: a peeked message stays in the socket, and each receive call yields copies of the message's
    /// descriptors; a peer that has closed its socket is distinguished from a silent peer.
    #[test]
    fn a_peeked_message_stays() {
        let (here, there) = pair();
        let mut bytes = [0; 8];
        let mut look = |flags| receive(&there, &mut bytes, flags | RecvFlags::DONTWAIT);
        assert_eq!(look(RecvFlags::empty()).unwrap_err(), Errno::AGAIN);
        assert_eq!(
            send_parts(&here, &[IoSlice::new(b"a"), IoSlice::new(b"b")], &[here.as_fd()], SendFlags::empty()),
            Ok(2)
        );
        for flags in [RecvFlags::PEEK, RecvFlags::empty()] {
            let got = look(flags).unwrap();
            assert_eq!((got.bytes, got.fds.len()), (2, 1));
        }
        drop(here);
        let got = look(RecvFlags::empty()).unwrap();
        assert_eq!((got.bytes, got.fds.len()), (0, 0));
        let none: [OwnedFd; 0] = [];
        assert_eq!(send(&there, b"a", &none, SendFlags::empty()), Err(Errno::PIPE));
    }
}
