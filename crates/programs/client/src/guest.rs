//! Ports of ptnet devices. The device belongs to this virtual machine, or the program itself acts as the virtual
//! machine of a ptnet port.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use netvale_control::attach::AttachReply;
use netvale_guest::passthrough::Passthrough;
use netvale_guest::pci::{self, FoundDevice};
use netvale_guest::published::PublishedDevice;
use netvale_guest::{BareGuest, GuestError};
use netvale_mem::Mapping;
use netvale_mem::notify::Doorbell;
use netvale_portspec::{Directions, PortSpec, Rings};

use crate::connect::rings;
use crate::error::Error;
use crate::port::{Options, Port};
use crate::ring::{RxRing, TxKind, TxRing};

/// Opens a device that is bound to netvale's kernel driver.
///
/// # Errors
/// [`Error::Passthrough`] or [`Error::System`] if a step fails; [`Error::Inconsistent`] if the host's description
/// contradicts itself.
pub(crate) fn open_passthrough(spec: &PortSpec, device: &Path, options: &Options) -> Result<Port, Error> {
    let passthrough = Passthrough::open(device, options.hdr_len, options.extra_bufs)?;
    let reply = AttachReply::of_device(passthrough.header());
    let bound = |rings: u32, other: Directions| match spec.rings {
        _ if spec.flags.directions == other => 0..0,
        Rings::OneNic(i) if u32::from(i.get()) < rings => u32::from(i.get())..u32::from(i.get()) + 1,
        Rings::OneNic(_) => 0..0,
        _ => 0..rings,
    };
    let tx = bound(reply.tx_rings, Directions::Rx);
    let rx = bound(reply.rx_rings, Directions::Tx);
    let reply = AttachReply { tx_bound: tx, rx_bound: rx, hdr_len: options.hdr_len, alone: true, ..reply };
    let len = usize::try_from(reply.memsize).map_err(|_| Error::Inconsistent("memory too large for this machine"))?;
    let map =
        Arc::new(Mapping::of_device(passthrough.memory(), len).map_err(Error::system("map the device's memory"))?);
    let which = reply.tx_bound.clone().chain(reply.rx_bound.clone().map(|i| reply.tx_rings + i));
    let mut bells = Vec::new();
    for ring in which {
        let bell = passthrough.bell(ring).ok_or(Error::Inconsistent("a ring without a doorbell"))?;
        for _ in 0..2 {
            let copy = rustix::io::fcntl_dupfd_cloexec(bell.as_fd(), 0).map_err(Error::system("copy a doorbell"))?;
            bells.push(Doorbell::from_fd(copy));
        }
    }
    let (mut tx, mut rx) = rings(&reply, &map, &mut bells.into_iter())?;
    tx.iter_mut().for_each(TxRing::resume);
    rx.iter_mut().for_each(RxRing::resume);
    Ok(Port::new(spec.name.to_string(), None, reply, map, tx, rx, Some(Arc::new(passthrough))))
}

/// Opens the device at a PCI address, which must not have a driver.
///
/// # Errors
/// [`Error::Pci`] or [`Error::System`] if a step fails; [`Error::Device`] if the device is not a ptnet device;
/// [`Error::Refused`] if the host refuses.
pub(crate) fn open_function(address: &str, hdr_len: u32) -> Result<Port, Error> {
    match pci::open(address, hdr_len)? {
        FoundDevice::Ptnet(guest) => Port::of_guest(guest, hdr_len),
        FoundDevice::Published(device) => {
            let PublishedDevice { reply, map, tx, rx, keep } = *device;
            let tx = tx.into_iter().map(|(ring, wake)| TxRing::new(TxKind::Switch(ring), wake));
            let rx = rx.into_iter().map(|(ring, wake)| RxRing::new(ring, wake));
            Ok(Port::new("ptnet-pci".to_owned(), None, reply, map, tx.collect(), rx.collect(), Some(keep)))
        }
    }
}

impl Port {
    /// Acts as the guest of the ptnet port that listens at `path`, with `hdr_len` (0 or 12) bytes of virtio-net header
    /// before each frame.
    ///
    /// # Errors
    /// [`Error::System`] if a step fails; [`Error::Device`] if the other end is not a ptnet port; [`Error::Refused`] if
    /// the host refuses.
    pub fn as_guest(path: &Path, hdr_len: u32) -> Result<Port, Error> {
        Port::of_guest(BareGuest::connect(path)?, hdr_len)
    }

    /// Starts a guest's rings, with `hdr_len` (0 or 12) bytes of virtio-net header before each frame.
    ///
    /// # Errors
    /// [`Error::Refused`] if the host refuses; [`Error::System`] if a step fails; [`Error::Inconsistent`] if the host's
    /// description contradicts itself.
    pub fn of_guest(guest: BareGuest, hdr_len: u32) -> Result<Port, Error> {
        let running = guest.start(hdr_len)?;
        let (tx, rx) = rings(&running.reply, &running.map, &mut running.bells.into_iter())?;
        Ok(Port::new("ptnet".to_owned(), None, running.reply, running.map, tx, rx, Some(running.keep)))
    }
}

impl From<GuestError> for Error {
    fn from(e: GuestError) -> Self {
        match e {
            GuestError::Pci(why) => Error::Pci(why),
            GuestError::Refused { errno, text } => Error::Refused { errno, text },
            GuestError::Device(what) => Error::Device(what),
            GuestError::Closed => Error::Closed,
            GuestError::System { what, source } => Error::System { what, source },
        }
    }
}
