//! `NETMAP_REQ_REGISTER`: binding a port to a descriptor.

use std::os::fd::BorrowedFd;

use netvale::raw::{self, Attached};
use netvale_abi::nmreq::{
    NETMAP_REQ_OPT_CSB, NETMAP_REQ_OPT_EXTMEM, NR_ACCEPT_VNET_HDR, NR_EXCLUSIVE, NR_MONITOR_RX, NR_MONITOR_TX,
    NR_REG_ALL_NIC, NR_REG_NIC_SW, NR_REG_NULL, NR_REG_ONE_NIC, NR_REG_ONE_SW, NR_REG_PIPE_MASTER, NR_REG_PIPE_SLAVE,
    NR_REG_SW, NR_RX_RINGS_ONLY, NR_TX_RINGS_ONLY, NR_ZCOPY_MON, NmreqOptCsb, NmreqRegister,
};
use netvale_control::attach::{AttachRequest, FLAG_NO_HEADER, FLAG_NULL, FLAG_SHARED, NOTE_LEN};
use rustix::io::Errno;

use crate::csb::UserCsb;
use crate::descriptor::{Bound, Descriptor};
use crate::extmem::Extmem;
use crate::open::errno_of;
use crate::options::Options;
use crate::user;

/// Registers `name` on the connection `fd`; `reg` comes back as netmap would leave it.
///
/// # Errors
/// What netmap gives: `EBUSY` on a second registration, `ENXIO` for a port that is not there, `EINVAL`, `EOPNOTSUPP`, `EFAULT`, …
pub fn register(
    fd: BorrowedFd<'_>,
    descriptor: &Descriptor,
    name: &str,
    reg: &mut NmreqRegister,
    options: &mut Options,
) -> Result<(), Errno> {
    let _one_at_a_time = descriptor.registering.lock().map_err(|_| Errno::IO)?;
    if descriptor.bound().is_some() {
        return Err(Errno::BUSY);
    }
    options.refuse_twins()?;
    options.refuse_others(&[NETMAP_REQ_OPT_EXTMEM, NETMAP_REQ_OPT_CSB])?;
    let csb = options.take(NETMAP_REQ_OPT_CSB);
    if csb.is_some() && reg.nr_flags & NR_EXCLUSIVE == 0 {
        return Err(Errno::INVAL);
    }
    let mut extmem = options.take(NETMAP_REQ_OPT_EXTMEM).map(|o| Extmem::read(o.addr)).transpose()?;
    let mut request = request(name, reg)?;
    if let Some(extmem) = &extmem {
        request.pools = extmem.pools;
    }
    let attached = raw::attach(fd, &request).map_err(|e| {
        crate::say(&e);
        errno_of(&e)
    })?;
    let done = finish(descriptor, attached, reg, csb.map(|o| o.addr), extmem.as_mut());
    if done.is_err() {
        // Nobody but the daemon could be told, and it knows.
        let _ = raw::release(fd);
    }
    done
}

fn finish(
    descriptor: &Descriptor,
    attached: Attached,
    reg: &mut NmreqRegister,
    csb: Option<u64>,
    extmem: Option<&mut Extmem>,
) -> Result<(), Errno> {
    let bound = Bound::new(attached, reg.nr_flags);
    if let Some(addr) = csb {
        enable_csb(&bound, addr)?;
    }
    if let Some(extmem) = extmem {
        extmem.replace(&bound)?;
    }
    let r = &bound.reply;
    reg.nr_offset = r.nifp;
    reg.nr_memsize = r.memsize;
    (reg.nr_tx_slots, reg.nr_rx_slots) = (r.tx_slots, r.rx_slots);
    (reg.nr_tx_rings, reg.nr_rx_rings) = ((r.tx_rings - r.host_rings) as u16, (r.rx_rings - r.host_rings) as u16);
    (reg.nr_host_tx_rings, reg.nr_host_rx_rings) = (1, 1);
    reg.nr_mem_id = u16::try_from(r.mem_id).unwrap_or(u16::MAX);
    reg.nr_extra_bufs = r.extra_bufs;
    descriptor.bind(bound);
    Ok(())
}

/// Goes to CSB mode with the option at `addr`.
///
/// # Errors
/// `EBUSY` when it is in that mode already, `EINVAL` and `EFAULT` for addresses that are none.
pub fn enable_csb(bound: &Bound, addr: u64) -> Result<(), Errno> {
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

/// What a connection that came from elsewhere holds, if anything.
pub fn resume(fd: BorrowedFd<'_>, descriptor: &Descriptor) {
    if let Ok(attached) = raw::resume(fd) {
        let flags = attached.reply.note.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        descriptor.bind(Bound::new(attached, flags));
    }
}

/// The daemon's request for a registration.
fn request(name: &str, reg: &NmreqRegister) -> Result<AttachRequest, Errno> {
    let mut note = [0; NOTE_LEN];
    note[..8].copy_from_slice(&reg.nr_flags.to_le_bytes());
    let flag = |cond: bool, flag: u32| if cond { flag } else { 0 };
    Ok(AttachRequest {
        name: format!("{name}{}", suffix(reg)?),
        flags: flag(reg.nr_flags & NR_EXCLUSIVE == 0, FLAG_SHARED)
            | flag(reg.nr_flags & NR_ACCEPT_VNET_HDR == 0, FLAG_NO_HEADER)
            | flag(reg.nr_mode == NR_REG_NULL, FLAG_NULL),
        tx_rings: reg.nr_tx_rings.into(),
        rx_rings: reg.nr_rx_rings.into(),
        tx_slots: reg.nr_tx_slots,
        rx_slots: reg.nr_rx_slots,
        extra_bufs: reg.nr_extra_bufs,
        mem_id: reg.nr_mem_id.into(),
        note,
        ..AttachRequest::default()
    })
}

/// Mode and flags as they follow a port's name in netmap's grammar.
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
