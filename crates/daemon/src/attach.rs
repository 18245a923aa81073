//! Messages on attach connections: opening a port, asking what a connection holds, netmap's other requests.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netvale_control::attach::{AttachReply, AttachRequest, MAX_RINGS, REQUEST_LEN};
use netvale_control::device::{DeviceReply, DeviceRequest, Holding, MessageKind};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use crate::refusal::Refusal;
use crate::server::Held;
use crate::state::{Caller, State};

/// One message of a client. Returns whether to keep the connection.
pub(crate) fn serve(state: &mut State, fd: &OwnedFd, holds: &mut Option<Held>, caller: Caller) -> bool {
    let mut bytes = [0u8; REQUEST_LEN + 1];
    let (got, answer_to) = match receive(fd, &mut bytes) {
        Ok((0, _)) => return false,
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return true,
        Err(_) => return false,
    };
    let message = bytes.get(..got).unwrap_or(&[]);
    let to = answer_to.as_ref().unwrap_or(fd);
    match MessageKind::of(message) {
        MessageKind::Attach => open(state, to, message, holds, caller),
        MessageKind::Holding => holding(state, to, message, holds, caller),
        MessageKind::Device => device(state, to, message, caller),
    }
}

/// A message and the socket its answer is to go to, if one came with it.
fn receive(fd: &OwnedFd, bytes: &mut [u8]) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(fd, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut fds = control
        .drain()
        .filter_map(|m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None })
        .flatten();
    Ok((got.bytes, fds.next()))
}

fn open(state: &mut State, to: &OwnedFd, message: &[u8], holds: &mut Option<Held>, caller: Caller) -> bool {
    let opened =
        AttachRequest::decode(message).map_err(|e| Refusal::new(Errno::PROTO, e.to_string())).and_then(|request| {
            match holds {
                Some(_) => {
                    Err(Refusal::new(Errno::BUSY, "this connection holds a port already: open another connection"))
                }
                None => state.open(&request, caller).map(|opened| (opened, request.note)),
            }
        });
    match opened {
        Ok(((mut reply, fds, attachment), note)) => {
            reply.note = note;
            if !send_reply(to, &reply, &fds) {
                state.close(attachment, caller.client);
                return false;
            }
            *holds = Some(Held { attachment, note });
            true
        }
        Err(refusal) => {
            tracing::info!(uid = caller.uid, pid = caller.pid, "refused: {refusal}");
            send_reply(to, &AttachReply::refusal(refusal.errno, refusal.text), &[])
        }
    }
}

fn holding(state: &mut State, to: &OwnedFd, message: &[u8], holds: &mut Option<Held>, caller: Caller) -> bool {
    let nothing = || Refusal::new(Errno::NXIO, "this connection holds no port");
    let done = match Holding::decode(message) {
        Err(e) => Err(Refusal::new(Errno::PROTO, e.to_string())),
        Ok(Holding::Resume) => holds.as_ref().ok_or_else(nothing).and_then(|held| {
            state.describe(&held.attachment).map(|(reply, fds)| (AttachReply { note: held.note, ..reply }, fds))
        }),
        Ok(Holding::Release) => holds.take().ok_or_else(nothing).map(|held| {
            state.close(held.attachment, caller.client);
            (AttachReply::default(), Vec::new())
        }),
    };
    match done {
        Ok((reply, fds)) => send_reply(to, &reply, &fds),
        Err(refusal) => send_reply(to, &AttachReply::refusal(refusal.errno, refusal.text), &[]),
    }
}

fn device(state: &mut State, to: &OwnedFd, message: &[u8], caller: Caller) -> bool {
    let reply = match DeviceRequest::decode(message) {
        Ok(request) => state.device_request(&request, caller),
        // What is not even a request is answered by an empty one.
        Err(_) => DeviceReply { status: Errno::PROTO.raw_os_error(), ..DeviceReply::default() },
    };
    send(to, &reply.encode(), &[])
}

fn send_reply(to: &OwnedFd, reply: &AttachReply, fds: &[OwnedFd]) -> bool {
    send(to, &reply.encode(), fds)
}

fn send(to: &OwnedFd, message: &[u8], fds: &[OwnedFd]) -> bool {
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1 + 2 * MAX_RINGS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return false;
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(to, &[IoSlice::new(message)], &mut control, flags).is_ok()
}
