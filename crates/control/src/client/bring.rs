//! Passes the daemon a device that this program created.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::{ClientError, DEFAULT_TIMEOUT};
use crate::attach::{AttachReply, BRING_LEN, BringRequest, MAX_BROUGHT, REPLY_LEN};
use crate::dirs::ATTACH_SOCKET;
use crate::error::{ErrorCode, RpcError};
use crate::types::AttachParams;

/// A connection to the daemon's attach socket, for one device. The daemon sees the user that this process had when it
/// connected (`SO_PEERCRED`).
#[derive(Debug)]
pub struct BringConnection {
    conn: OwnedFd,
    socket: PathBuf,
}

impl BringConnection {
    /// Connects to the daemon whose sockets are in `run_dir`.
    ///
    /// # Errors
    /// [`ClientError`] if no daemon answers.
    pub fn connect(run_dir: &Path) -> Result<BringConnection, ClientError> {
        let socket = run_dir.join(ATTACH_SOCKET);
        let conn = super::connect(run_dir, &socket, SocketType::SEQPACKET, DEFAULT_TIMEOUT)?;
        Ok(BringConnection { conn, socket })
    }

    /// Passes a device's queues to the daemon, which attaches a port to them. Returns the port's full name.
    ///
    /// # Errors
    /// [`ClientError`] if no answer arrives or the daemon refuses the request.
    pub fn attach(self, params: AttachParams, queues: &[OwnedFd]) -> Result<String, ClientError> {
        let lost = |e: rustix::io::Errno| ClientError::Lost { socket: self.socket.clone(), source: e.into() };
        if queues.is_empty() || queues.len() > MAX_BROUGHT {
            return Err(refusal(format!("{} TAP queues requested: expected 1 to {MAX_BROUGHT}", queues.len())));
        }
        let message = BringRequest { queues: queues.len() as u16, params }.encode();
        if message.len() > BRING_LEN {
            return Err(refusal("the port's options are too long for one message".into()));
        }
        let (ours, theirs) = answer_socket().map_err(lost)?;
        let fds: Vec<BorrowedFd<'_>> = std::iter::once(&theirs).chain(queues).map(AsFd::as_fd).collect();
        netvale_fdio::send(&self.conn, &message, &fds, SendFlags::empty()).map_err(lost)?;
        // Leaves only the daemon's copy of `theirs`: if the daemon ends, `recv` on `ours` returns.
        drop(theirs);
        let mut bytes = [0; REPLY_LEN];
        let (got, _) = rustix::io::retry_on_intr(|| rustix::net::recv(&ours, &mut bytes[..], RecvFlags::empty()))
            .map_err(|e| match e {
                rustix::io::Errno::AGAIN => {
                    ClientError::Timeout { socket: self.socket.clone(), limit: DEFAULT_TIMEOUT }
                }
                e => lost(e),
            })?;
        if got == 0 {
            return Err(ClientError::Lost { socket: self.socket, source: std::io::ErrorKind::UnexpectedEof.into() });
        }
        let reply = AttachReply::decode(bytes.get(..got).unwrap_or(&[]));
        let reply = reply.map_err(|e| ClientError::Protocol { socket: self.socket.clone(), detail: e.to_string() })?;
        match reply.status {
            0 => Ok(reply.text),
            errno => Err(ClientError::Refused(refused(errno, &reply.text))),
        }
    }
}

/// Creates a socket pair for the answer. Returns the client's end and the daemon's end.
fn answer_socket() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(DEFAULT_TIMEOUT))?;
    Ok((ours, theirs))
}

fn refused(errno: i32, text: &str) -> RpcError {
    let (what, hint) = text.rsplit_once("; ").unwrap_or((text, "see 'netvale list' and the daemon's log"));
    RpcError::from_errno(errno, what, hint)
}

fn refusal(what: String) -> ClientError {
    ClientError::Refused(RpcError::new(ErrorCode::InvalidParams, what, "request fewer queues, or shorten the options"))
}
