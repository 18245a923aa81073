//! Messages on attach connections: requests to open a port, to describe the port that the connection holds, and
//! netmap's other requests.

use std::os::fd::OwnedFd;

use netvale_control::attach::{
    AttachReply, AttachRequest, BRING_LEN, BadMessage, BringRequest, FILE_AT_FAULT, FLAG_NULL, IN_FILE, MAX_BROUGHT,
    NOTE_LEN, OFFSETS_AT_FAULT, REQUEST_LEN,
};
use netvale_control::device::{DeviceRequest, HoldRequest, MessageKind};
use netvale_control::succession::{Succession, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, sockopt};

use super::attaching::bring;
use super::netmap;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::handover::items::HoldItem;
use crate::naming;
use crate::permission::{self, PermissionRequest};
use crate::ports;
use crate::ports::attachment::{Attachment, OpenedPort};
use crate::ports::brought::{self, BroughtFile};
use crate::ports::memory::by_number;
use crate::refusal::{Refusal, refuse};
use crate::system::closing::{self, Strangers};
use crate::system::peer;

/// An attach connection's hold on a port, which keeps the port open until it is released or the connection closes. The
/// note consists of bytes that the client chose; the daemon returns these bytes whenever it describes the port to the
/// client.
pub(crate) struct AttachHold {
    attachment: Box<dyn Attachment>,
    note: [u8; NOTE_LEN],
}

impl AttachHold {
    /// Restores a connection's hold that another process saved.
    ///
    /// # Errors
    /// [`Refusal`] if the port does not exist.
    pub(crate) fn continued(
        d: &mut Daemon,
        item: HoldItem,
        note: Vec<u8>,
        caller: Caller,
    ) -> Result<AttachHold, Refusal> {
        let mut own = [0; NOTE_LEN];
        own.iter_mut().zip(note).for_each(|(to, from)| *to = from);
        Ok(AttachHold { attachment: ports::continue_hold(d, item, caller)?, note: own })
    }

    /// Saves the hold for another process. Returns `None` if the hold cannot outlive this process.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    pub(crate) fn save(&self) -> std::io::Result<Option<(HoldItem, Vec<u8>)>> {
        Ok(self.attachment.save()?.map(|item| (item, self.note.to_vec())))
    }

    pub(crate) fn close(self, d: &mut Daemon, client: u64) {
        self.attachment.close(d, client);
    }
}

/// Handles one message of a client. Returns whether to keep the connection.
///
/// A malformed message does not release the port, because a program may have written to the wrong descriptor. The
/// daemon refuses such a message, as the program may read the answer, and keeps the connection.
pub(crate) fn serve(d: &mut Daemon, fd: &OwnedFd, holds: &mut Option<AttachHold>, caller: Caller) -> bool {
    let mut bytes = [0u8; LONGEST + 1];
    let (got, answer_to, brought) = match receive(fd, &mut bytes, caller) {
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return true,
        Err(_) => return false,
    };
    // A receive of 0 bytes may be an empty message, or a closed connection.
    let has_ended = got == 0 && has_hung_up(fd);
    let to = answer_to.as_ref().unwrap_or(fd);
    d.changes.clients.extend((!has_ended).then_some(caller.client));
    let keep = !has_ended && answer(d, to, bytes.get(..got).unwrap_or(&[]), brought, holds, caller);
    answer_to.into_iter().for_each(|to| closing::close(to, caller.uid));
    keep
}

/// Executes a message, and sends the answer. Returns whether to keep the connection.
fn answer(
    d: &mut Daemon,
    to: &OwnedFd,
    message: &[u8],
    mut brought: Strangers,
    holds: &mut Option<AttachHold>,
    caller: Caller,
) -> bool {
    match AttachMessage::decode(message) {
        Ok(AttachMessage::Attach(request)) => {
            let file = brought.pop().map(|file| BroughtFile::new(file, caller.uid));
            open(d, to, &request, file, holds, caller)
        }
        Ok(AttachMessage::Bring(request)) => {
            d.changes.everything = true;
            let reply = bring(d, &request, brought, caller).map_or_else(
                |refusal| {
                    d.note_refusal(caller, &refusal.text);
                    AttachReply::refusal(refusal.errno, refusal.text)
                },
                |full| AttachReply { text: full, ..AttachReply::default() },
            );
            send_reply(to, &reply, &[])
        }
        Ok(AttachMessage::Holding(which)) => holding(d, to, which, holds, caller),
        Ok(AttachMessage::Device(request)) => {
            d.changes.everything |= netmap::changes_something(&request);
            send(to, &netmap::request(d, &request, caller).encode(), &[])
        }
        Ok(AttachMessage::Succession(which)) => succession(d, to, which, caller),
        Err(bad) => {
            d.note_refusal(caller, &format!("{bad}; the connection is unchanged"));
            send_reply(to, &AttachReply::refusal(Errno::PROTO.raw_os_error(), bad.to_string()), &[]);
            true
        }
    }
}

enum AttachMessage {
    Attach(AttachRequest),
    Holding(HoldRequest),
    Device(Box<DeviceRequest>),
    Succession(Succession),
    Bring(Box<BringRequest>),
}

/// Length of the longest message in bytes.
const LONGEST: usize = if BRING_LEN > REQUEST_LEN { BRING_LEN } else { REQUEST_LEN };

impl AttachMessage {
    fn decode(bytes: &[u8]) -> Result<AttachMessage, BadMessage> {
        Ok(match MessageKind::of(bytes) {
            MessageKind::Attach => AttachMessage::Attach(AttachRequest::decode(bytes)?),
            MessageKind::Holding => AttachMessage::Holding(HoldRequest::decode(bytes)?),
            MessageKind::Succession => AttachMessage::Succession(Succession::decode(bytes)?),
            MessageKind::Device => AttachMessage::Device(Box::new(DeviceRequest::decode(bytes)?)),
            MessageKind::Bring => AttachMessage::Bring(Box::new(BringRequest::decode(bytes)?)),
        })
    }
}

fn has_hung_up(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::RDHUP)];
    let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut fds, Some(&nothing)), Ok(0))
}

/// Receives a message with its descriptors. Returns its length, the socket for the answer (`None` if the answer goes to
/// the connection), and the other descriptors: a file, or the queues of a device. A message with more descriptors than
/// these ends the connection.
fn receive(fd: &OwnedFd, bytes: &mut [u8], caller: Caller) -> rustix::io::Result<(usize, Option<OwnedFd>, Strangers)> {
    let (got, mut fds) = closing::receive(fd, bytes)?;
    let is_device = MessageKind::of(bytes.get(..got).unwrap_or(&[])) == MessageKind::Bring;
    if fds.len() > 1 + if is_device { MAX_BROUGHT } else { 1 } {
        let Caller { uid, pid, .. } = caller;
        tracing::warn!(uid, pid, "closed a connection: too many descriptors in one message ({})", fds.len());
        fds.into_iter().for_each(|stranger| closing::close(stranger, uid));
        return Err(Errno::PROTO);
    }
    let brought = Strangers::new(fds.split_off(fds.len().min(1)), caller.uid);
    let answer_to = match fds.pop() {
        Some(other) if !may_answer(&other, caller) => {
            closing::close(other, caller.uid);
            None
        }
        answer_to => answer_to,
    };
    Ok((got, answer_to, brought))
}

/// Whether the daemon may answer on the socket `fd`. Unless the caller is trusted, the peer of that socket must have
/// the caller's user, because another user's program would take the answer for a message that the daemon sent to that
/// program.
fn may_answer(fd: &OwnedFd, caller: Caller) -> bool {
    let is_unix = sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX);
    let is_connected = matches!(sockopt::socket_type(fd), Ok(SocketType::SEQPACKET | SocketType::STREAM));
    let is_theirs = || peer::of(fd).is_ok_and(|peer| peer.uid == caller.uid);
    is_unix && is_connected && (permission::is_trusted(caller) || is_theirs())
}

fn open(
    d: &mut Daemon,
    to: &OwnedFd,
    request: &AttachRequest,
    file: Option<BroughtFile>,
    holds: &mut Option<AttachHold>,
    caller: Caller,
) -> bool {
    let opened = match holds {
        Some(_) => Err(Refusal::new(Errno::BUSY, "this connection already holds a port; open another connection")),
        None => open_in(d, request, file, caller).map(|opened| (opened, request.note)),
    };
    match opened {
        Ok(((mut reply, fds, attachment), note)) => {
            reply.note = note;
            if !send_reply(to, &reply, &fds) {
                attachment.close(d, caller.client);
                return false;
            }
            *holds = Some(AttachHold { attachment, note });
            true
        }
        Err(refusal) => {
            d.note_refusal(caller, &refusal.text);
            let port_flags = if refusal.offsets_at_fault { OFFSETS_AT_FAULT } else { 0 }
                | if refusal.file_at_fault { FILE_AT_FAULT } else { 0 };
            send_reply(to, &AttachReply { port_flags, ..AttachReply::refusal(refusal.errno, refusal.text) }, &[])
        }
    }
}

/// Opens a port. If the request names a file for the port's memory, the rings are placed in that file.
fn open_in(
    d: &mut Daemon,
    request: &AttachRequest,
    file: Option<BroughtFile>,
    caller: Caller,
) -> Result<OpenedPort, Refusal> {
    let (opened, held) = match request.file {
        None => (open_port(d, request, caller)?, Ok(())),
        Some(asked) => {
            // This binding keeps the region alive until the port refers to it.
            let (region, mem_id) = brought::region(d, request, file, asked, caller)?;
            let opened = open_port(d, &AttachRequest { mem_id, file: None, ..request.clone() }, caller)?;
            (opened, brought::has_held(&region))
        }
    };
    let (reply, ..) = &opened;
    let in_file = reply.port_flags & IN_FILE != 0;
    match held.and_then(|()| if in_file { permission::may_map_file(d, reply.mem_id, caller) } else { Ok(()) }) {
        Ok(()) => Ok(opened),
        Err(refusal) => {
            opened.2.close(d, caller.client);
            Err(refusal)
        }
    }
}

fn open_port(d: &mut Daemon, request: &AttachRequest, caller: Caller) -> Result<OpenedPort, Refusal> {
    if request.flags & FLAG_NULL != 0 {
        permission::admit(d, caller, PermissionRequest::OpenNull(request))?;
        return ports::bare::open(d, request, caller);
    }
    let mut spec = naming::wanted(d, request).or_else(|e| refuse(Errno::INVAL, format!("{e:#}")))?;
    spec.memory = by_number(request.mem_id, spec.memory);
    permission::admit(d, caller, PermissionRequest::Open(&spec, request))?;
    ports::open(d, request, &spec, caller)
}

fn holding(d: &mut Daemon, to: &OwnedFd, which: HoldRequest, holds: &mut Option<AttachHold>, caller: Caller) -> bool {
    let nothing = || Refusal::new(Errno::NXIO, "this connection holds no port");
    let done = match which {
        HoldRequest::Resume => holds.as_ref().ok_or_else(nothing).and_then(|held| {
            held.attachment.describe(d).map(|(reply, fds)| (AttachReply { note: held.note, ..reply }, fds))
        }),
        HoldRequest::Release => holds.take().ok_or_else(nothing).map(|held| {
            held.close(d, caller.client);
            (AttachReply::default(), Vec::new())
        }),
    };
    match done {
        Ok((reply, fds)) => send_reply(to, &reply, &fds),
        Err(refusal) => {
            d.note_refusal(caller, &refusal.text);
            send_reply(to, &AttachReply::refusal(refusal.errno, refusal.text), &[])
        }
    }
}

/// Answers a successor's message, and returns whether to keep the connection. A request to begin the hand-over is only
/// noted; the main thread starts the hand-over later.
fn succession(d: &mut Daemon, to: &OwnedFd, which: Succession, caller: Caller) -> bool {
    let admitted = permission::admit(d, caller, PermissionRequest::HandOver).and_then(|()| match which {
        Succession::Hello(VERSION) => Ok(()),
        Succession::Hello(other) => {
            let text = format!(
                "this daemon hands over version {VERSION} of its state, and the successor expects {other}; restart \
                 the daemon"
            );
            refuse(Errno::PROTO, text)
        }
        Succession::Begin => {
            d.successor = Some(caller.client);
            Ok(())
        }
    });
    match admitted {
        Ok(()) if which == Succession::Begin => true,
        Ok(()) => send_reply(to, &AttachReply::default(), &[]),
        Err(refusal) => {
            d.note_refusal(caller, &refusal.text);
            send_reply(to, &AttachReply::refusal(refusal.errno, refusal.text), &[])
        }
    }
}

fn send_reply(to: &OwnedFd, reply: &AttachReply, fds: &[OwnedFd]) -> bool {
    send(to, &reply.encode(), fds)
}

fn send(to: &OwnedFd, message: &[u8], fds: &[OwnedFd]) -> bool {
    netvale_fdio::send(to, message, fds, SendFlags::DONTWAIT).is_ok()
}
