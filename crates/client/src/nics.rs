//! Rings of network interfaces: the program's own socket behind each.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_control::attach::{AttachReply, NIC_FORWARDS, NIC_MULTI_BUFFER, NIC_TAP_HEADER};
use netvale_mem::Mapping;
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::HostTx;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;
use netvale_nic::outlet::Outlet;
use netvale_nic::socket::{Buffers, Socket};
use netvale_nic::through::{RxEnd, ThroughRx, ThroughTx};

use crate::error::Error;
use crate::port::bell;
use crate::ring::{NicTx, RxRing, TxKind, TxRing};

fn buffers(reply: &AttachReply) -> Buffers {
    Buffers { first: reply.buf_pool, stride: reply.buf_size, count: reply.num_bufs }
}

/// A tx ring whose first descriptor is its queue's socket.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn tx(
    reply: &AttachReply,
    map: &Arc<Mapping>,
    side: RingSide,
    (socket, _): (Doorbell, Doorbell),
) -> Result<TxRing, Error> {
    let socket = Socket::adopt(socket.into_fd(), reply.nic_entries, map);
    let sender = socket.sender().map_err(Error::system("map the interface's rings"))?;
    let multi_buffer = reply.nic_flags & NIC_MULTI_BUFFER != 0;
    let host = HostTx::new(side.clone(), bell()?);
    let through = ThroughTx::new(host, (sender, buffers(reply), multi_buffer), Box::new(()))
        .map_err(Error::system("wait for the interface"))?;
    let wake = copied(through.wake_fd().try_clone_to_owned())?;
    let ring = AppRing::new(side, Dir::Tx, bell()?);
    Ok(TxRing { kind: TxKind::Nic(Box::new(NicTx { ring, through })), wake })
}

/// An rx ring whose first descriptor is its queue's socket, the second where its frames are forwarded to.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn rx(
    reply: &AttachReply,
    map: &Arc<Mapping>,
    side: RingSide,
    (socket, forward): (Doorbell, Doorbell),
) -> Result<RxRing, Error> {
    let socket = Socket::adopt(socket.into_fd(), reply.nic_entries, map);
    let receiver = socket.receiver().map_err(Error::system("map the interface's rings"))?;
    let forwards = reply.nic_flags & NIC_FORWARDS != 0;
    let outlet = forwards.then(|| Outlet::tap(Arc::new(forward.into_fd()), NIC_TAP_HEADER));
    let fresh = !receiver.fill.was_used();
    let mut through =
        ThroughRx::new(RxEnd::new(side.clone(), bell()?), (receiver, buffers(reply)), outlet, Box::new(()));
    if fresh {
        through.begin();
    }
    let wake = copied(through.wake_fd().try_clone_to_owned())?;
    Ok(RxRing { ring: AppRing::new(side, Dir::Rx, bell()?), wake, nic: Some(Box::new(through)) })
}

/// Something to wait for.
fn copied(fd: std::io::Result<OwnedFd>) -> Result<Doorbell, Error> {
    fd.map(Doorbell::from_fd).map_err(|source| Error::System { what: "copy a descriptor", source })
}
