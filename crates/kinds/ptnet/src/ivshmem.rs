//! The server's side of QEMU's ivshmem protocol (QEMU docs/specs/ivshmem-spec), which passes memory, doorbells and
//! interrupts to a guest.
//!
//! The server sends 64-bit little-endian numbers, some with a descriptor:
//!
//! | number | descriptor | meaning |
//! |---|---|---|
//! | 0 | none | the protocol version |
//! | the guest's peer number | none | the guest's identity |
//! | -1 | memfd | the memory |
//! | the host's peer number, once per vector | eventfd | the target of the guest's doorbells |
//! | the guest's own number, once per vector | eventfd | an interrupt of the guest |
//!
//! Guests send nothing. The only peers are the guest and this server, the host: memory is never shared between guests.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::header::HOST_PEER;
use crate::instance::PtnetInstance;

/// The only protocol version.
const VERSION: i64 = 0;
/// The number that announces the memory.
const MEMORY: i64 = -1;
/// The guest's peer number.
pub const GUEST_PEER: u32 = 1;
/// Maximum wait for room in the socket, until the other end has read earlier messages.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A message: a number and, optionally, a descriptor.
pub type IvshmemMessage<'a> = (i64, Option<BorrowedFd<'a>>);

/// Returns the messages for a new guest, in order.
///
/// # Errors
/// `EBADF` if the device has no memory to pass on.
pub fn greeting(device: &PtnetInstance) -> Result<Vec<IvshmemMessage<'_>>, Errno> {
    let memory = device.memory().ok_or(Errno::BADF)?;
    let host = device.doorbells().iter().map(|bell| (i64::from(HOST_PEER), Some(bell.as_fd())));
    let guest = device.vectors().iter().map(|bell| (i64::from(GUEST_PEER), Some(bell.as_fd())));
    let first = [(VERSION, None), (i64::from(GUEST_PEER), None), (MEMORY, Some(memory))];
    Ok(first.into_iter().chain(host).chain(guest).collect())
}

/// Sends messages.
///
/// # Errors
/// The error of sendmsg(2); `ETIMEDOUT` if the other end does not read, `ECANCELED` if `stop` became readable
/// meanwhile.
pub fn send(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>, messages: &[IvshmemMessage<'_>]) -> Result<(), Errno> {
    messages.iter().try_for_each(|message| send_one(socket, stop, message))
}

fn send_one(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>, (number, fd): &IvshmemMessage<'_>) -> Result<(), Errno> {
    let bytes = number.to_le_bytes();
    let mut done = 0;
    while done < bytes.len() {
        // The descriptor goes with the first byte.
        let fds = if done == 0 { fd.as_slice() } else { &[] };
        let rest = bytes.get(done..).unwrap_or_default();
        match netvale_fdio::send(socket, rest, fds, SendFlags::DONTWAIT) {
            Ok(sent) => done += sent,
            Err(Errno::AGAIN) => wait_for_room(socket, stop)?,
            Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn wait_for_room(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>) -> Result<(), Errno> {
    let limit = Timespec { tv_sec: TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    let mut both = [PollFd::from_borrowed_fd(socket, PollFlags::OUT), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
    match poll(&mut both, Some(&limit)) {
        Ok(0) => Err(Errno::TIMEDOUT),
        Ok(_) if !both[1].revents().is_empty() => Err(Errno::CANCELED),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(other) => Err(other),
    }
}
