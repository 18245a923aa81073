//! The handshake: connect, ask, receive the region and the doorbells.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use netvale_control::attach::{AttachReply, AttachRequest, MAX_RINGS, REPLY_LEN, Role};
use netvale_mem::Mapping;
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::notify::Doorbell;
use netvale_mem::pipe::PipeTx;
use netvale_mem::region::RingSide;
use netvale_mem::view::Places;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};

use crate::error::Error;
use crate::ring::{RxRing, TxKind, TxRing};

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an attachment consists of.
pub(crate) struct Attached {
    pub(crate) conn: OwnedFd,
    pub(crate) reply: AttachReply,
    pub(crate) map: Arc<Mapping>,
    pub(crate) tx: Vec<TxRing>,
    pub(crate) rx: Vec<RxRing>,
}

pub(crate) fn attach(socket: &Path, request: &AttachRequest) -> Result<Attached, Error> {
    let conn = connect(socket)?;
    rustix::net::send(&conn, &request.encode(), SendFlags::NOSIGNAL)
        .map_err(Error::system("ask the daemon for a port"))?;
    let (reply, mut fds) = receive(&conn)?;
    if reply.status != 0 {
        return Err(Error::Refused { errno: reply.status, text: reply.text });
    }
    if fds.len() != reply.num_fds() {
        return Err(Error::Inconsistent("wrong number of descriptors"));
    }
    let region = fds.remove(0);
    let len = usize::try_from(reply.memsize).map_err(|_| Error::Inconsistent("region too large for this machine"))?;
    let map = mapped(&region, len)?;
    let mut bells = fds.into_iter().map(Doorbell::from_fd);
    let (tx, rx) = rings(&reply, &map, &mut bells)?;
    Ok(Attached { conn, reply, map, tx, rx })
}

fn connect(socket: &Path) -> Result<OwnedFd, Error> {
    let failed = |source: rustix::io::Errno| Error::NoDaemon {
        path: PathBuf::from(socket),
        dir: socket.parent().map(|d| d.display().to_string()).unwrap_or_default(),
        source: source.into(),
    };
    let conn = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(Error::system("make a socket"))?;
    if socket.parent().is_some_and(netvale_control::dirs::is_foreign) {
        return Err(failed(rustix::io::Errno::PERM));
    }
    let address = SocketAddrUnix::new(socket).map_err(failed)?;
    rustix::net::connect(&conn, &address).map_err(failed)?;
    rustix::net::sockopt::set_socket_timeout(&conn, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE))
        .map_err(Error::system("set a time limit"))?;
    Ok(conn)
}

fn receive(conn: &OwnedFd) -> Result<(AttachReply, Vec<OwnedFd>), Error> {
    let mut bytes = [0u8; REPLY_LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1 + 2 * MAX_RINGS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut iov = [std::io::IoSliceMut::new(&mut bytes)];
    let got = rustix::net::recvmsg(conn, &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC)
        .map_err(Error::system("hear from the daemon"))?;
    let fds = control
        .drain()
        .filter_map(|m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None })
        .flatten()
        .collect();
    if got.bytes == 0 {
        return Err(Error::Closed);
    }
    let message = bytes.get(..got.bytes).unwrap_or(&[]);
    Ok((AttachReply::decode(message)?, fds))
}

/// Regions this program has mapped, by their memfd's device and inode. As long as a mapping lives, its inode is not used again.
static MAPPED: Mutex<Vec<(Inode, Weak<Mapping>)>> = Mutex::new(Vec::new());

/// Device and inode.
type Inode = (u64, u64);

/// A region's mapping: one for all of this program's ports in it, so that buffers can be swapped between their rings.
fn mapped(region: &OwnedFd, len: usize) -> Result<Arc<Mapping>, Error> {
    let stat = rustix::fs::fstat(region).map_err(Error::system("look at the port's region"))?;
    let key = (stat.st_dev, stat.st_ino);
    let mut known = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(_, map)| map.strong_count() > 0);
    let same = |(k, map): &(Inode, Weak<Mapping>)| (*k == key).then(|| map.upgrade()).flatten();
    if let Some(map) = known.iter().find_map(same).filter(|map| map.len() == len) {
        return Ok(map);
    }
    let map = Arc::new(Mapping::map(region.as_fd(), len).map_err(Error::system("map the port's region"))?);
    known.push((key, Arc::downgrade(&map)));
    Ok(map)
}

fn rings(
    reply: &AttachReply,
    map: &Arc<Mapping>,
    bells: &mut impl Iterator<Item = Doorbell>,
) -> Result<(Vec<TxRing>, Vec<RxRing>), Error> {
    let places = Places {
        csb_atok: reply.csb_atok,
        csb_ktoa: reply.csb_ktoa,
        ring_pool: reply.ring_pool,
        ring_size: reply.ring_size,
        buf_pool: reply.buf_pool,
        num_bufs: reply.num_bufs,
        buf_size: reply.buf_size,
    };
    let side = |first: u32, index: u32, slots: u32| -> Result<RingSide, Error> {
        let id = first.checked_add(index).ok_or(Error::Inconsistent("ring number"))?;
        places.ring(map, id, slots).ok_or(Error::Inconsistent("a ring outside the region"))
    };
    let mut bell = || bells.next().ok_or(Error::Inconsistent("too few descriptors"));
    let (mut tx, mut rx) = (Vec::new(), Vec::new());
    for i in reply.tx_bound.clone() {
        let own = side(reply.csb_first, i, reply.tx_slots)?;
        let (doorbell, wake) = (bell()?, bell()?);
        let kind = match reply.role {
            Role::Switch => {
                let mut ring = AppRing::new(own, Dir::Tx, doorbell);
                ring.resume();
                TxKind::Switch(ring)
            }
            Role::Pipe => {
                let peer = side(reply.peer_csb_first, reply.tx_rings + i, reply.rx_slots)?;
                let mut pipe = PipeTx::new(own, peer, doorbell).ok_or(Error::Inconsistent("pipe ends apart"))?;
                pipe.resume();
                TxKind::Pipe(pipe)
            }
        };
        tx.push(TxRing { kind, wake });
    }
    for i in reply.rx_bound.clone() {
        let own = side(reply.csb_first, reply.tx_rings + i, reply.rx_slots)?;
        let (doorbell, wake) = (bell()?, bell()?);
        let mut ring = AppRing::new(own, Dir::Rx, doorbell);
        ring.resume();
        rx.push(RxRing { ring, wake });
    }
    Ok((tx, rx))
}

/// Whether the daemon has closed the connection.
pub(crate) fn is_closed(conn: BorrowedFd<'_>) -> bool {
    let mut byte = [0u8; 1];
    matches!(rustix::net::recv(conn, &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK), Ok((0, _)))
}
