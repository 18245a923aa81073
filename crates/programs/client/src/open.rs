//! Opens ports: through the daemon, without a daemon, or as both ends of a pipe inside the program.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_control::attach::{AttachReply, AttachRequest, FLAG_HUGE, FLAG_LOSSLESS};
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RegionSizes};
use netvale_mem::mapping::PageKind;
use netvale_mem::notify::Doorbell;
use netvale_mem::pipe::PipeTx;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_portspec::PortSpec;

use crate::connect::{attach, connect_to};
use crate::error::Error;
use crate::parts::bell;
use crate::port::{Options, Port};
use crate::ring::{RxRing, TxKind, TxRing};
use crate::{direct, guest};

impl Port {
    /// Opens a port by its name in netmap's grammar, e.g. `vale0:a`, `netmap:p{1`, `vale0:a/r`.
    ///
    /// # Errors
    /// [`Error`] if the name is invalid, no daemon listens, or the daemon refuses.
    pub fn open(name: &str) -> Result<Port, Error> {
        Self::open_with(name, &Options::default())
    }

    /// Opens a port with options. In a virtual machine, `ptnet-pci:0000:00:05.0` is a ptnet device without a driver. If
    /// no daemon listens, the program itself opens an interface (`netmap:eth0`, `netmap:eth0-1`), for which it needs
    /// the privilege.
    ///
    /// # Errors
    /// The errors of [`Port::open`].
    pub fn open_with(name: &str, options: &Options) -> Result<Port, Error> {
        if let Some(address) = name.strip_prefix("ptnet-pci:") {
            return guest::open_function(address, options.hdr_len);
        }
        // The name is parsed here to get an error that points at the invalid character; the daemon parses it again.
        let spec = PortSpec::parse(name)?;
        match connect_to(options.run_dir.as_deref()) {
            Err(Error::NoDaemon(_)) if direct::is_possible(&spec) => direct::open(&direct::meant(spec), options),
            conn => Self::open_on(conn?, name, options),
        }
    }

    /// Opens a port on a connection to the daemon.
    pub(crate) fn open_on(conn: OwnedFd, name: &str, options: &Options) -> Result<Port, Error> {
        let flags = if options.lossless { FLAG_LOSSLESS } else { 0 } | if options.huge { FLAG_HUGE } else { 0 };
        let request = AttachRequest {
            name: name.to_owned(),
            flags,
            tx_rings: options.rings,
            rx_rings: options.rings,
            tx_slots: options.slots,
            rx_slots: options.slots,
            buf_size: options.buf_size,
            extra_bufs: options.extra_bufs,
            hdr_len: options.hdr_len,
            pipes: options.pipes,
            ..AttachRequest::default()
        };
        let a = attach(conn.as_fd(), &request)?;
        Ok(Port::new(name.to_owned(), Some(conn), a.reply, a.map, a.tx, a.rx, None))
    }

    /// Opens both ends of a pipe inside this program (and its forked children), without a daemon. If `slots` or
    /// `buf_size` is 0, 256 slots or the default buffer size is used.
    ///
    /// # Errors
    /// [`Error::Region`] or [`Error::System`] if the memory or a descriptor cannot be created.
    pub fn pipe_pair(slots: u32, buf_size: u32) -> Result<(Port, Port), Error> {
        let slots = if slots == 0 { 256 } else { slots };
        let buf_size = if buf_size == 0 { DEFAULT_BUF_SIZE } else { buf_size };
        let region =
            Region::shared("netvale-pipe", RegionSizes::for_port(4, slots, buf_size, 0, 0), PageKind::Ordinary)?;
        let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: slots, rx_slots: slots };
        let ends = Arc::new((region.port(shape)?, region.port(shape)?));
        let bells = || -> Result<[Doorbell; 2], Error> { Ok([bell()?, bell()?]) };
        // Each direction has a pair of doorbells: one rings when frames have arrived, the other when there is room
        // again.
        let to_b = bells()?;
        let to_a = bells()?;
        let a = local_end("{", &ends, &ends.0, &ends.1, &to_b, &to_a)?;
        let b = local_end("}", &ends, &ends.1, &ends.0, &to_a, &to_b)?;
        Ok((a, b))
    }
}

fn local_end(
    name: &str,
    ends: &Arc<(PortMem, PortMem)>,
    own: &PortMem,
    peer: &PortMem,
    out: &[Doorbell; 2],
    back: &[Doorbell; 2],
) -> Result<Port, Error> {
    let again = |b: &Doorbell| b.try_clone().map_err(Error::system("duplicate an eventfd"));
    let [arrived_there, room_here] = [again(&out[0])?, again(&out[1])?];
    let [arrived_here, room_there] = [again(&back[0])?, again(&back[1])?];
    let missing = Error::Inconsistent("a port without rings");
    let (Some(tx), Some(rx), Some(peer_rx)) = (own.tx.first(), own.rx.first(), peer.rx.first()) else {
        return Err(missing);
    };
    let mut pipe = PipeTx::new(tx.clone(), peer_rx.clone(), arrived_there)
        .ok_or(Error::Inconsistent("pipe ends in two regions"))?;
    pipe.resume();
    let ring = AppRing::new(rx.clone(), Dir::Rx, room_there);
    let shape = own.shape();
    let reply = AttachReply {
        buf_size: tx.ring.buf_size(),
        tx_rings: 1,
        rx_rings: 1,
        tx_slots: shape.tx_slots,
        rx_slots: shape.rx_slots,
        num_bufs: tx.ring.num_bufs(),
        ..AttachReply::default()
    };
    let tx = TxRing::new(TxKind::Pipe(pipe), room_here);
    let rx = RxRing::new(ring, arrived_here);
    let map = Arc::clone(own.region().mapping());
    let keep = Arc::clone(ends) as Arc<dyn Any + Send + Sync>;
    Ok(Port::new(name.to_owned(), None, reply, map, vec![tx], vec![rx], Some(keep)))
}
