//! Rings of network interfaces, which this process syncs with the kernel through AF_XDP sockets.

use std::ops::Range;
use std::sync::Arc;

use netvale_afxdp::outlet::Outlet;
use netvale_afxdp::rx_end::RxEnd;
use netvale_afxdp::socket::{BufferLayout, QueueAddress, XdpSocket};
use netvale_afxdp::through::{ThroughRx, ThroughTx};
use netvale_control::attach::{AttachReply, NIC_BOUND, NIC_FORWARDS, NIC_MULTI_BUFFER, NIC_RESUMED};
use netvale_mem::Mapping;
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::HostTx;
use netvale_mem::mirror::{Mirror, Moment};
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;

use crate::error::Error;
use crate::nic_tx::NicTx;
use crate::parts::{bell, places};
use crate::ring::{RxRing, TxKind, TxRing};

fn buffers(reply: &AttachReply) -> BufferLayout {
    BufferLayout { first: reply.buf_pool, stride: reply.buf_size, count: reply.num_bufs }
}

/// Creates a tx ring for the interface's queue to which `socket` belongs.
///
/// # Errors
/// [`Error::System`] if a system call fails.
pub(crate) fn tx(reply: &AttachReply, map: &Arc<Mapping>, side: RingSide, socket: Doorbell) -> Result<TxRing, Error> {
    let socket = XdpSocket::adopt(socket.into_fd(), reply.nic_entries, map);
    let sender = socket.sender().map_err(Error::system("map the interface's rings"))?;
    let host = HostTx::new(side.clone(), bell()?);
    let through = ThroughTx::new(host, sender, buffers(reply)).map_err(Error::system("wait for the interface"))?;
    let wake = through.wake_fd().try_clone_to_owned().map_err(Error::system("copy a descriptor"))?;
    let mirror = |moment| Mirror::new(map, places(reply), moment);
    let through = through.mirrored(mirror(Moment::Passing), mirror(Moment::Released));
    let ring = AppRing::new(side, Dir::Tx, bell()?);
    Ok(TxRing::new(TxKind::Nic(Box::new(NicTx { ring, through })), Doorbell::from_fd(wake)))
}

/// Creates an rx ring for the interface's queue to which `socket` belongs. If the reply has `NIC_FORWARDS`, `forward`
/// is the TAP to which frames are forwarded.
///
/// # Errors
/// [`Error::System`] if a system call fails.
pub(crate) fn rx(
    reply: &AttachReply,
    map: &Arc<Mapping>,
    side: RingSide,
    socket: Doorbell,
    forward: Doorbell,
) -> Result<RxRing, Error> {
    let socket = XdpSocket::adopt(socket.into_fd(), reply.nic_entries, map);
    let receiver = socket.receiver().map_err(Error::system("map the interface's rings"))?;
    let forwards = reply.nic_flags & NIC_FORWARDS != 0;
    let outlet = forwards.then(|| Outlet::tap(Arc::new(forward.into_fd())));
    let mirror = |moment| Mirror::new(map, places(reply), moment);
    let mut through = ThroughRx::new(RxEnd::new(side.clone(), bell()?), receiver, buffers(reply), outlet)
        .mirrored(mirror(Moment::Passing));
    if reply.nic_flags & NIC_RESUMED == 0 {
        through.begin();
    }
    let wake = through.wake_fd().try_clone_to_owned().map_err(Error::system("copy a descriptor"))?;
    let ring = AppRing::new(side, Dir::Rx, bell()?).mirrored(mirror(Moment::Released));
    Ok(RxRing { nic: Some(Box::new(through)), ..RxRing::new(ring, Doorbell::from_fd(wake)) })
}

/// Binds the sockets to their queues, unless the daemon has done so. The caller must have mapped all rings before.
///
/// # Errors
/// [`Error::Nic`] if the kernel refuses.
pub(crate) fn bind(reply: &AttachReply, name: &str, tx: &mut [TxRing], rx: &mut [RxRing]) -> Result<(), Error> {
    let queues = reply.tx_rings - reply.host_tx_rings;
    let bound = reply.nic_flags & NIC_BOUND != 0;
    for queue in reply.tx_bound.start.min(reply.rx_bound.start)..reply.tx_bound.end.max(reply.rx_bound.end) {
        let place = |range: &Range<u32>| range.contains(&queue).then(|| (queue - range.start) as usize);
        let sends = place(&reply.tx_bound).and_then(|i| match &mut tx.get_mut(i)?.kind {
            TxKind::Nic(nic) => Some(&mut nic.through),
            _ => None,
        });
        let receives = place(&reply.rx_bound).and_then(|i| rx.get(i)?.nic.as_ref());
        let socket = receives.map(|rx| rx.socket()).or_else(|| sends.as_ref().map(|tx| tx.socket()));
        let Some(socket) = socket.filter(|_| queue < queues) else { continue };
        let multi_buffer = if bound {
            reply.nic_flags & NIC_MULTI_BUFFER != 0
        } else {
            let address = QueueAddress { ifindex: reply.nic_ifindex, queue };
            netvale_afxdp::nic::bind(socket, address, name, reply.nic_mtu, buffers(reply))?.multi_buffer
        };
        if let Some(through) = sends {
            through.set_multi_buffer(multi_buffer);
        }
    }
    Ok(())
}
