//! The handshake: connect, request a port, receive the region and the doorbells.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use netvale_control::attach::{
    AttachReply, AttachRequest, FILE_AT_FAULT, FilePlacement, IN_FILE, OFFSETS_AT_FAULT, PORT_OF_SWITCH, REPLY_LEN,
    Role,
};
use netvale_control::client::ClientError;
use netvale_control::device::{DeviceReply, DeviceRequest, HoldRequest};
use netvale_control::dirs;
use netvale_mem::Mapping;
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::mirror::{Mirror, Moment};
use netvale_mem::notify::Doorbell;
use netvale_mem::pipe::PipeTx;
use netvale_mem::region::RingSide;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::Error;
use crate::nics;
use crate::parts::places;
use crate::ring::{RxRing, TxKind, TxRing};

/// Time limit for the daemon's answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The errno with which the daemon refuses a file while one of its threads still uses the memory of a closed port in
/// this file.
const AGAIN: i32 = Errno::AGAIN.raw_os_error();
/// Pause before the next attempt after [`AGAIN`].
const PAUSE: Duration = Duration::from_millis(5);

/// An attached port without its connection to the daemon: the daemon's reply, the mapping of the region, and the rings.
pub struct AttachedRings {
    /// The daemon's description of the port.
    pub reply: AttachReply,
    /// The region's mapping.
    pub map: Arc<Mapping>,
    /// The tx rings.
    pub tx: Vec<TxRing>,
    /// The rx rings.
    pub rx: Vec<RxRing>,
    /// The region's memfd, or the user's file that contains the region.
    pub region: OwnedFd,
}

/// Connects to the daemon whose sockets are in `run_dir`, or in the default directory.
///
/// # Errors
/// [`Error::NoDaemon`] if no daemon listens there.
pub fn connect_to(run_dir: Option<&Path>) -> Result<OwnedFd, Error> {
    let dir = run_dir.map_or_else(|| dirs::daemon_run_dir(dirs::ATTACH_SOCKET), Path::to_path_buf);
    connect(&dir)
}

/// Requests a port on a connection that has none.
///
/// # Errors
/// [`Error::Refused`] if the daemon refuses; another [`Error`] if its answer is unusable.
pub fn attach(conn: BorrowedFd<'_>, request: &AttachRequest) -> Result<AttachedRings, Error> {
    let (bytes, fds) = ask(conn, &request.encode(), None)?;
    resumed(attached(&bytes, fds)?)
}

/// Requests a port like [`attach`], with the region in the user's file. If the file already contains a region there,
/// that region is used.
///
/// # Errors
/// The errors of [`attach`]; [`Error::File`] if the daemon does not accept the file.
pub fn attach_in(
    conn: BorrowedFd<'_>,
    request: &AttachRequest,
    file: BorrowedFd<'_>,
    place: FilePlacement,
) -> Result<AttachedRings, Error> {
    let request = AttachRequest { file: Some(place), ..request.clone() }.encode();
    let begun = Instant::now();
    loop {
        match ask(conn, &request, Some(file)).and_then(|(bytes, fds)| attached(&bytes, fds)) {
            Err(Error::File { errno, .. }) if errno == AGAIN && begun.elapsed() < TIMEOUT => {
                std::thread::sleep(PAUSE);
            }
            done => return resumed(done?),
        }
    }
}

fn resumed(mut attached: AttachedRings) -> Result<AttachedRings, Error> {
    if attached.reply.alone {
        attached.tx.iter_mut().for_each(TxRing::resume);
        attached.rx.iter_mut().for_each(RxRing::resume);
    }
    Ok(attached)
}

/// Returns the rings of a connection that another process has opened and passed on. The state of the rings is not
/// reset, as the other process may be using them.
///
/// # Errors
/// The errors of [`attach`]; `ENXIO` if the connection has no port.
pub fn resume(conn: BorrowedFd<'_>) -> Result<AttachedRings, Error> {
    let (bytes, fds) = ask(conn, &HoldRequest::Resume.encode(), None)?;
    attached(&bytes, fds)
}

/// Releases the port of a connection; the connection can then be used for another port.
///
/// # Errors
/// The errors of [`attach`]; `ENXIO` if the connection has no port.
pub fn release(conn: BorrowedFd<'_>) -> Result<(), Error> {
    let (bytes, _) = ask(conn, &HoldRequest::Release.encode(), None)?;
    let reply = AttachReply::decode(&bytes)?;
    if reply.status == 0 { Ok(()) } else { Err(Error::Refused { errno: reply.status, text: reply.text }) }
}

/// Sends one of netmap's ioctl requests other than registrations.
///
/// # Errors
/// [`Error`] if there is no usable answer. A refusal by the daemon is in the reply's status.
pub fn request(conn: BorrowedFd<'_>, request: &DeviceRequest) -> Result<DeviceReply, Error> {
    let (bytes, _) = ask(conn, &request.encode(), None)?;
    Ok(DeviceReply::decode(&bytes)?)
}

fn attached(bytes: &[u8], mut fds: Vec<OwnedFd>) -> Result<AttachedRings, Error> {
    let reply = AttachReply::decode(bytes)?;
    match (reply.status, reply.port_flags) {
        (0, _) => {}
        (errno, flags) if flags & OFFSETS_AT_FAULT != 0 => return Err(Error::Offsets { errno, text: reply.text }),
        (errno, flags) if flags & FILE_AT_FAULT != 0 => return Err(Error::File { errno, text: reply.text }),
        (errno, _) => return Err(Error::Refused { errno, text: reply.text }),
    }
    if fds.len() != reply.num_fds() {
        return Err(Error::Inconsistent("wrong number of descriptors"));
    }
    let region = fds.remove(0);
    let len = usize::try_from(reply.memsize).map_err(|_| Error::Inconsistent("region too large for this machine"))?;
    let csb = (reply.port_flags & IN_FILE != 0).then(|| fds.remove(0));
    let map = match &csb {
        None => mapped(&region, len, || Mapping::of_any(region.as_fd(), len))?,
        // A region in a file is identified by the memfd of its CSB arrays, as the file may contain several regions.
        Some(csb) => mapped(csb, len, || {
            let room = usize::try_from(reply.csb_atok).map_err(|_| Errno::NOMEM)?;
            let rest = len.checked_sub(room).ok_or(Errno::INVAL)?;
            Mapping::joined(region.as_fd(), reply.file_offset, room, csb.as_fd(), rest)
        })?,
    };
    let mut bells = fds.into_iter().map(Doorbell::from_fd);
    let (tx, rx) = rings(&reply, &map, &mut bells)?;
    Ok(AttachedRings { reply, map, tx, rx, region })
}

/// Sends a message and waits for its answer. The answer arrives on a separate socket, so that other threads may use the
/// connection at the same time.
fn ask(conn: BorrowedFd<'_>, message: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(Vec<u8>, Vec<OwnedFd>), Error> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(Error::system("create a socket"))?;
    rustix::net::sockopt::set_socket_timeout(&ours, rustix::net::sockopt::Timeout::Recv, Some(TIMEOUT))
        .map_err(Error::system("set a time limit"))?;
    let sent: Vec<BorrowedFd<'_>> = [Some(theirs.as_fd()), file].into_iter().flatten().collect();
    netvale_fdio::send(conn, message, &sent, SendFlags::empty()).map_err(Error::system("query the daemon"))?;
    // Now only the daemon holds its end of the socket pair: if the daemon exits, the wait ends immediately.
    drop(theirs);
    receive(&ours)
}

fn connect(dir: &Path) -> Result<OwnedFd, Error> {
    let socket = dir.join(dirs::ATTACH_SOCKET);
    let conn = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(Error::system("create a socket"))?;
    let foreign = || Err(Error::NoDaemon(ClientError::Foreign { run_dir: dir.into() }));
    if dirs::is_foreign(dir) {
        return foreign();
    }
    let connected = SocketAddrUnix::new(&socket).and_then(|address| rustix::net::connect(&conn, &address));
    connected.map_err(|errno| Error::NoDaemon(ClientError::connecting(socket, TIMEOUT, errno.into())))?;
    if dirs::is_impostor(dir, &conn) { foreign() } else { Ok(conn) }
}

fn receive(conn: &OwnedFd) -> Result<(Vec<u8>, Vec<OwnedFd>), Error> {
    let mut bytes = [0u8; REPLY_LEN];
    let got = rustix::io::retry_on_intr(|| netvale_fdio::receive(conn, &mut bytes, RecvFlags::empty()));
    let got = got.map_err(|e| match e {
        Errno::AGAIN => Error::Timeout(TIMEOUT),
        e => Error::system("wait for an answer from the daemon")(e),
    })?;
    if got.is_short {
        return Err(Error::system("take the daemon's descriptors")(Errno::MFILE));
    }
    if got.bytes == 0 {
        return Err(Error::Closed);
    }
    Ok((bytes.get(..got.bytes).unwrap_or(&[]).to_vec(), got.fds))
}

/// The mappings of regions in this program, by the device and the inode of each region's memfd. The inode is not reused
/// while a mapping exists.
static MAPPED: Mutex<Vec<(InodeNumbers, Weak<Mapping>)>> = Mutex::new(Vec::new());

/// Device and inode numbers.
type InodeNumbers = (u64, u64);

/// Maps a region once for all of this program's ports in it, so that their rings can swap buffers.
fn mapped(
    region: &OwnedFd,
    len: usize,
    map: impl FnOnce() -> rustix::io::Result<Mapping>,
) -> Result<Arc<Mapping>, Error> {
    let stat = rustix::fs::fstat(region).map_err(Error::system("get the identity of the port's region"))?;
    let key = (stat.st_dev, stat.st_ino);
    let mut known = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(_, map)| map.strong_count() > 0);
    let same = |(k, map): &(InodeNumbers, Weak<Mapping>)| (*k == key).then(|| map.upgrade()).flatten();
    if let Some(map) = known.iter().find_map(same).filter(|map| map.len() == len) {
        return Ok(map);
    }
    let map = Arc::new(map().map_err(Error::system("map the port's region"))?);
    known.push((key, Arc::downgrade(&map)));
    Ok(map)
}

/// Builds the rings that a reply describes, in the region mapped at `map`.
pub(crate) fn rings(
    reply: &AttachReply,
    map: &Arc<Mapping>,
    bells: &mut impl Iterator<Item = Doorbell>,
) -> Result<(Vec<TxRing>, Vec<RxRing>), Error> {
    let places = places(reply);
    let side = |first: u32, index: u32, slots: u32| -> Result<RingSide, Error> {
        let id = first.checked_add(index).ok_or(Error::Inconsistent("a ring number out of range"))?;
        places.ring(map, id, slots).ok_or(Error::Inconsistent("a ring outside the region"))
    };
    let mut bell = || bells.next().ok_or(Error::Inconsistent("too few descriptors"));
    let mut tx = Vec::new();
    let mut rx = Vec::new();
    let of_nic = |i: u32, rings: u32| reply.nic_entries > 0 && i < rings;
    for i in reply.tx_bound.clone() {
        let own = side(reply.csb_first, i, reply.tx_slots)?;
        let doorbell = bell()?;
        let wake = bell()?;
        if of_nic(i, reply.tx_rings - reply.host_tx_rings) {
            tx.push(nics::tx(reply, map, own, doorbell)?);
            continue;
        }
        let kind = match reply.role {
            Role::Switch => TxKind::Switch(AppRing::new(own, Dir::Tx, doorbell)),
            Role::Monitor => TxKind::Monitor(AppRing::new(own, Dir::Tx, doorbell)),
            Role::Pipe => {
                let peer = side(reply.peer_csb_first, reply.tx_rings + i, reply.rx_slots)?;
                let pipe = PipeTx::new(own, peer, doorbell).ok_or(Error::Inconsistent("pipe ends in two regions"))?;
                TxKind::Pipe(pipe.mirrored(Mirror::new(map, places, Moment::Passing)))
            }
        };
        tx.push(TxRing { indirect: reply.port_flags & PORT_OF_SWITCH != 0, ..TxRing::new(kind, wake) });
    }
    for i in reply.rx_bound.clone() {
        let own = side(reply.csb_first, reply.tx_rings + i, reply.rx_slots)?;
        let doorbell = bell()?;
        let wake = bell()?;
        if of_nic(i, reply.rx_rings - reply.host_rx_rings) {
            rx.push(nics::rx(reply, map, own, doorbell, wake)?);
            continue;
        }
        let ring = AppRing::new(own, Dir::Rx, doorbell).mirrored(Mirror::new(map, places, Moment::Released));
        rx.push(RxRing::new(ring, wake));
    }
    if reply.nic_entries > 0 {
        nics::bind(reply, "the interface", &mut tx, &mut rx)?;
    }
    Ok((tx, rx))
}

/// Returns whether the daemon has closed the connection.
pub(crate) fn is_closed(conn: BorrowedFd<'_>) -> bool {
    let mut byte = [0u8; 1];
    matches!(rustix::net::recv(conn, &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK), Ok((0, _)))
}
