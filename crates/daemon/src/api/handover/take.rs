//! The successor's side of a hand-over.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use netvale_control::attach::{AttachReply, REPLY_LEN};
use netvale_control::succession::{Succession, VERSION};
use netvale_fdio::state::Fd;
use netvale_mem::notify::nap;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::continuing::{ContinuedClient, ContinuedState};
use super::{GO, READY};
use crate::daemon::Daemon;
use crate::handover::items::{Item, ProcessItem};
use crate::handover::wire;
use crate::system::closing;
use crate::system::sockets::ListeningSockets;
use crate::worker::parking::ParkedWorkers;

/// The connection to the daemon that this process replaces.
pub struct Predecessor(OwnedFd);

/// The restored state of the predecessor. Workers stay parked until [`PredecessorState::go`].
pub struct PredecessorState {
    predecessor: OwnedFd,
    parked: ParkedWorkers,
    continued: ContinuedState,
    sockets: ListeningSockets,
    output: [Fd; 2],
    kept: Vec<String>,
}

/// The predecessor's sockets and connections, which the main thread serves from now on.
pub struct MainThreadState {
    pub sockets: ListeningSockets,
    pub clients: Vec<ContinuedClient>,
    /// Names of the predecessor's items in the service manager's store.
    pub kept: Vec<String>,
}

impl Predecessor {
    /// Connects to the daemon at the attach socket `attach`, and checks that this version can restore that daemon's
    /// state.
    ///
    /// # Errors
    /// A message with the reason why the daemon cannot be replaced.
    pub fn find(attach: &Path) -> Result<Predecessor, String> {
        let failed = |e: Errno| format!("no daemon answers at {}: {e}", attach.display());
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let fd = fd.map_err(failed)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(attach).map_err(failed)?).map_err(failed)?;
        rustix::net::send(&fd, &Succession::Hello(VERSION).encode(), SendFlags::NOSIGNAL).map_err(failed)?;
        let mut bytes = [0; REPLY_LEN];
        let got = receive(&fd, &mut bytes).map_err(failed)?;
        let reply = AttachReply::decode(bytes.get(..got).unwrap_or_default());
        match reply
            .map_err(|_| "the running daemon is too old to hand over its ports; restart the daemon".to_owned())?
        {
            AttachReply { status: 0, .. } => Ok(Predecessor(fd)),
            refused => Err(refused.text),
        }
    }

    /// Restores all items in the daemon `d`, which must have no ports. After a failure, the workers of `d` stay parked,
    /// so `d` must not be dropped.
    ///
    /// # Errors
    /// A message that names the item that cannot be restored; in this case, the predecessor resumes.
    pub fn take(self, d: &mut Daemon) -> Result<PredecessorState, String> {
        let fd = self.0;
        rustix::net::send(&fd, &Succession::Begin.encode(), SendFlags::NOSIGNAL).map_err(|e| e.to_string())?;
        let parked = d.workers.park().map_err(|_| "the workers did not start in time")?;
        match receive_all(&fd, d) {
            Ok((continued, ((sockets, output), kept))) => {
                Ok(PredecessorState { predecessor: fd, parked, continued, sockets, output, kept })
            }
            Err(why) => {
                let _ = rustix::net::send(&fd, why.as_bytes(), SendFlags::NOSIGNAL);
                std::mem::forget(parked);
                Err(why)
            }
        }
    }
}

/// Receives a message; waits no longer than [`wire::LIMIT`].
fn receive(fd: &OwnedFd, bytes: &mut [u8]) -> rustix::io::Result<usize> {
    if nap(fd.as_fd(), wire::LIMIT) { Ok(closing::receive(fd, bytes)?.0) } else { Err(Errno::TIMEDOUT) }
}

/// What the successor inherits besides ports and connections: the listening sockets, standard output and error, and the
/// names of the items in the service manager's store.
type InheritedDescriptors = ((ListeningSockets, [Fd; 2]), Vec<String>);

fn receive_all(fd: &OwnedFd, d: &mut Daemon) -> Result<(ContinuedState, InheritedDescriptors), String> {
    let mut continued = ContinuedState::default();
    let mut own = None;
    let mut inbox = wire::HandoverInbox::new(fd);
    loop {
        match inbox.receive().map_err(|e| e.to_string())? {
            Item::End => break,
            Item::Failed(why) => return Err(why),
            Item::Process(item) => own = Some(process(item)?),
            item => continued.add(d, item)?,
        }
    }
    continued.complete(d);
    Ok((continued, own.ok_or("the running daemon sent no sockets")?))
}

fn process(item: ProcessItem) -> Result<InheritedDescriptors, String> {
    let ProcessItem { lock, attach, control, output, kept, own } = item;
    let taken = |fd: Fd| fd.take().map_err(|e| format!("cannot use the running daemon's sockets: {e}"));
    let all = [taken(lock)?, taken(attach)?, taken(control)?];
    let sockets = ListeningSockets::continued(all, own).map_err(|which| format!("{which} does not listen"))?;
    Ok(((sockets, output), kept))
}

impl PredecessorState {
    /// Reports readiness to the predecessor, and resumes the workers.
    ///
    /// # Errors
    /// A message with the reason why the predecessor resumes instead.
    pub fn go(self, d: &mut Daemon) -> Result<MainThreadState, String> {
        let PredecessorState { predecessor: fd, parked, continued, sockets, output, kept } = self;
        let mut answer = [0; 16];
        let answered = rustix::net::send(&fd, READY, SendFlags::NOSIGNAL).and_then(|_| receive(&fd, &mut answer));
        // If the answer is `GO`, the predecessor is about to end. If the socket is closed without an answer, the
        // predecessor has already ended.
        if !matches!(answered, Ok(got) if answer.get(..got) == Some(GO) || got == 0) {
            std::mem::forget((parked, continued));
            return Err(format!("the running daemon did not confirm the hand-over: {answered:?}"));
        }
        drop(parked);
        d.held.clear();
        take_output(&output);
        if continued.begins_anew() > 0 {
            // Wait until the predecessor has ended, because its sockets and devices are free only then.
            let _ = receive(&fd, &mut answer);
        }
        Ok(MainThreadState { sockets, clients: continued.begin_others(d), kept })
    }
}

/// Takes over the predecessor's standard output and error, to continue its log.
fn take_output([output, error]: &[Fd; 2]) {
    let set = rustix::stdio::dup2_stdout(output).and_then(|()| rustix::stdio::dup2_stderr(error));
    if let Err(e) = set {
        tracing::warn!("cannot continue the predecessor's log: {e}");
    }
}
