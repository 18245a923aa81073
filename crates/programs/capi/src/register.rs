//! `NETMAP_REQ_REGISTER`: registers a port on a netmap descriptor.

use std::borrow::Cow;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;

use netvale::raw::{self, AttachedRings};
use netvale_abi::nmreq::{
    NETMAP_REQ_OPT_CSB, NETMAP_REQ_OPT_EXTMEM, NETMAP_REQ_OPT_OFFSETS, NR_ACCEPT_VNET_HDR, NR_EXCLUSIVE, NR_MONITOR_RX,
    NR_MONITOR_TX, NR_REG_ALL_NIC, NR_REG_NIC_SW, NR_REG_NULL, NR_REG_ONE_NIC, NR_REG_ONE_SW, NR_REG_PIPE_MASTER,
    NR_REG_PIPE_SLAVE, NR_REG_SW, NR_RX_RINGS_ONLY, NR_TX_RINGS_ONLY, NR_ZCOPY_MON, NmreqOptCsb, NmreqOptOffsets,
    NmreqRegister,
};
use netvale_control::attach::{
    AttachRequest, FLAG_NETMAP, FLAG_NO_HEADER, FLAG_NULL, FLAG_SHARED, IN_FILE, NOTE_LEN, OffsetsRequest, PoolSizes,
};
use netvale_portspec::{PortName, PortSpec, Rings};
use rustix::io::Errno;

use crate::csb::UserCsb;
use crate::descriptor::{BoundPort, Descriptor};
use crate::extmem::ProgramExtmem;
use crate::options::RequestOptions;
use crate::user;

/// Registers the port `name` on the connection `fd`, and fills in `reg` as netmap does.
///
/// # Errors
/// netmap's errors: `EBUSY` on a second registration, `ENXIO` for a missing port, `EINVAL`, `EOPNOTSUPP`, `EFAULT`, …
pub fn register(
    fd: BorrowedFd<'_>,
    descriptor: &Descriptor,
    name: &str,
    reg: &mut NmreqRegister,
    options: &mut RequestOptions,
) -> Result<(), Errno> {
    let _one_at_a_time = descriptor.registering.lock().map_err(|_| Errno::IO)?;
    if descriptor.bound().is_some() {
        return Err(Errno::BUSY);
    }
    if name.is_empty() && reg.nr_mode != NR_REG_NULL {
        return Err(Errno::NXIO);
    }
    let extmem = options.take(NETMAP_REQ_OPT_EXTMEM, |o| ProgramExtmem::read(o.addr))?;
    let offsets = options.find(NETMAP_REQ_OPT_OFFSETS);
    let mut request = request(name, reg)?;
    request.offsets = offsets.map(|o| read_offsets(o.addr)).transpose()?;
    let attached = match &extmem {
        Some(extmem) => attach_over(fd, request, extmem),
        None => raw::attach(fd, &request),
    };
    let attached = attached.map_err(|e| {
        crate::say(&e);
        // As in netmap, the options after a failed option count as not recognised.
        if matches!(e, netvale::Error::Offsets { .. }) {
            options.set(NETMAP_REQ_OPT_OFFSETS, Err(crate::errno::of(&e)));
        }
        crate::errno::of(&e)
    })?;
    if let Some(o) = offsets {
        options.set(NETMAP_REQ_OPT_OFFSETS, Ok(()));
        let at = o.addr + offset_of!(NmreqOptOffsets, nro_max_offset) as u64;
        user::write_bytes(at, &u64::from(attached.reply.max_offset).to_ne_bytes())?;
    }
    let done = finish(descriptor, attached, reg, options, extmem.as_ref());
    if done.is_err() {
        // The registration has already failed, so an error of the release is ignored.
        let _ = raw::release(fd);
    }
    done
}

/// Registers a port in the program's own memory: in the region that this memory already contains, or in a new region.
fn attach_over(
    fd: BorrowedFd<'_>,
    request: AttachRequest,
    extmem: &ProgramExtmem,
) -> Result<AttachedRings, netvale::Error> {
    let fresh = AttachRequest { mem_id: 0, pools: extmem.pools, ..request };
    if let Some((file, place)) = extmem.file() {
        match raw::attach_in(fd, &fresh, file, place) {
            // The daemon refuses the file, so the region is not placed in it, but replaces the program's mapping.
            Err(netvale::Error::File { .. }) => {}
            done => return done,
        }
    }
    let Some(mem_id) = extmem.known else { return raw::attach(fd, &fresh) };
    // If the known region has ended with its last port, a new region is created.
    raw::attach(fd, &AttachRequest { mem_id, pools: PoolSizes::default(), ..fresh.clone() })
        .or_else(|_| raw::attach(fd, &fresh))
}

fn finish(
    descriptor: &Descriptor,
    attached: AttachedRings,
    reg: &mut NmreqRegister,
    options: &mut RequestOptions,
    extmem: Option<&ProgramExtmem>,
) -> Result<(), Errno> {
    let bound = BoundPort::new(attached, reg.nr_flags);
    options.take(NETMAP_REQ_OPT_CSB, |o| enable_csb(&bound, o.addr))?;
    options.check()?;
    if let Some(extmem) = extmem {
        extmem.place(&bound)?;
    }
    let r = &bound.reply;
    reg.nr_offset = r.nifp;
    // If the region is in the program's own file, the program's memory contains only the region's pools.
    reg.nr_memsize = if r.port_flags & IN_FILE == 0 { r.memsize } else { r.csb_atok };
    reg.nr_tx_slots = r.tx_slots;
    reg.nr_rx_slots = r.rx_slots;
    reg.nr_tx_rings = (r.tx_rings - r.host_tx_rings) as u16;
    reg.nr_rx_rings = (r.rx_rings - r.host_rx_rings) as u16;
    reg.nr_host_tx_rings = r.host_tx_rings as u16;
    reg.nr_host_rx_rings = r.host_rx_rings as u16;
    reg.nr_mem_id = u16::try_from(r.mem_id).unwrap_or(u16::MAX);
    reg.nr_extra_bufs = r.extra_bufs;
    if reg.nr_flags & NR_ZCOPY_MON != 0 {
        // As in netmap, a monitor without a direction watches both directions.
        reg.nr_flags |= NR_MONITOR_TX | NR_MONITOR_RX;
    }
    descriptor.bind(bound);
    Ok(())
}

/// Reads the offsets option at `addr`. Alignment and gap only concern hardware, so netvale ignores them.
fn read_offsets(addr: u64) -> Result<OffsetsRequest, Errno> {
    let option: NmreqOptOffsets = user::read(addr)?;
    // A value of more than 32 bits becomes the largest 32-bit value, which the daemon refuses, too.
    let small = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
    let max = small(option.nro_max_offset);
    let initial = small(option.nro_initial_offset);
    Ok(OffsetsRequest { bits: option.nro_offset_bits, max, initial })
}

/// Enables CSB mode with the option at `addr`.
///
/// # Errors
/// `EINVAL` if the port was not registered with `NR_EXCLUSIVE`, `EBUSY` if it is already in CSB mode, `EINVAL` or
/// `EFAULT` for bad addresses.
pub fn enable_csb(bound: &BoundPort, addr: u64) -> Result<(), Errno> {
    if bound.flags & NR_EXCLUSIVE == 0 {
        return Err(Errno::INVAL);
    }
    let option: NmreqOptCsb = user::read(addr)?;
    if bound.is_csb() {
        return Err(Errno::BUSY);
    }
    let csb = UserCsb::new(option.csb_atok, option.csb_ktoa, bound.tx.len() + bound.rx.len())?;
    let headers = bound.tx.iter().map(|r| r.header()).chain(bound.rx.iter().map(|r| r.header()));
    for (i, header) in headers.enumerate() {
        let (head, cur, tail) = header.indices();
        csb.init(i, head, cur, head, tail);
    }
    bound.csb.set(csb).map_err(|_| Errno::BUSY)
}

/// Takes over the port of a connection that another process has opened; does nothing if that process has registered no
/// port.
pub fn resume(fd: BorrowedFd<'_>, descriptor: &Descriptor) {
    if let Ok(attached) = raw::resume(fd) {
        let flags = attached.reply.note.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        descriptor.bind(BoundPort::new(attached, flags));
    }
}

/// Converts a registration into the request to the daemon.
fn request(name: &str, reg: &NmreqRegister) -> Result<AttachRequest, Errno> {
    let mut note = [0; NOTE_LEN];
    note[..8].copy_from_slice(&reg.nr_flags.to_le_bytes());
    let flag = |cond: bool, flag: u32| if cond { flag } else { 0 };
    Ok(AttachRequest {
        name: format!("{}{}", closed(name), suffix(reg)?),
        flags: flag(reg.nr_flags & NR_EXCLUSIVE == 0, FLAG_SHARED)
            | flag(reg.nr_flags & NR_ACCEPT_VNET_HDR == 0, FLAG_NO_HEADER)
            | flag(reg.nr_mode == NR_REG_NULL, FLAG_NULL)
            | FLAG_NETMAP,
        tx_rings: reg.nr_tx_rings.into(),
        rx_rings: reg.nr_rx_rings.into(),
        tx_slots: reg.nr_tx_slots,
        rx_slots: reg.nr_rx_slots,
        host_tx_rings: reg.nr_host_tx_rings.into(),
        host_rx_rings: reg.nr_host_rx_rings.into(),
        extra_bufs: reg.nr_extra_bufs,
        mem_id: reg.nr_mem_id.into(),
        note,
        ..AttachRequest::default()
    })
}

/// Returns a request's port name in a form to which mode and flags can be appended. As a request's name never contains
/// a ring number, a name that would be parsed as a name with a ring number is quoted.
fn closed(name: &str) -> Cow<'_, str> {
    let looks_so = PortSpec::parse(name).is_ok_and(|spec| matches!(spec.rings, Rings::OneNic(_)));
    match PortName::parse(name) {
        Ok(parsed) if looks_so => Cow::Owned(PortSpec::from(parsed).to_string()),
        _ => Cow::Borrowed(name),
    }
}

/// Returns mode and flags in the form that follows a port's name in netmap's grammar.
fn suffix(reg: &NmreqRegister) -> Result<String, Errno> {
    let ring = reg.nr_ringid;
    let rings = match reg.nr_mode {
        NR_REG_ALL_NIC | NR_REG_NULL => String::new(),
        NR_REG_SW => "^".into(),
        NR_REG_NIC_SW => "*".into(),
        NR_REG_ONE_NIC => format!("-{ring}"),
        NR_REG_ONE_SW => format!("^{ring}"),
        NR_REG_PIPE_MASTER => format!("{{{ring}"),
        NR_REG_PIPE_SLAVE => format!("}}{ring}"),
        _ => return Err(Errno::INVAL),
    };
    let letters = [
        (NR_ZCOPY_MON, 'z'),
        (NR_MONITOR_TX, 't'),
        (NR_MONITOR_RX, 'r'),
        (NR_RX_RINGS_ONLY, 'R'),
        (NR_TX_RINGS_ONLY, 'T'),
    ];
    let flags: String = letters.iter().filter(|(bit, _)| reg.nr_flags & bit != 0).map(|(_, c)| c).collect();
    Ok(if flags.is_empty() { rings } else { format!("{rings}/{flags}") })
}
