//! `NIOCREGIF` and `NIOCGINFO`, the ioctls that netmap had before `NIOCCTRL`. They are translated to requests of
//! `NIOCCTRL`.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netvale_abi::legacy::{
    NETMAP_BDG_ATTACH, NETMAP_BDG_DELIF, NETMAP_BDG_DETACH, NETMAP_BDG_HOST, NETMAP_BDG_LIST, NETMAP_BDG_NEWIF,
    NETMAP_BDG_POLLING_OFF, NETMAP_BDG_POLLING_ON, NETMAP_BDG_VNET_HDR, NETMAP_DO_RX_POLL, NETMAP_HW_RING,
    NETMAP_NO_TX_POLL, NETMAP_RING_MASK, NETMAP_SW_RING, NETMAP_VNET_HDR_GET, NR_REG_MASK, Nmreq,
};
use netvale_abi::nmreq::{
    NETMAP_POLLING_MODE_MULTI_CPU, NETMAP_POLLING_MODE_SINGLE_CPU, NETMAP_REQ_PORT_HDR_GET, NETMAP_REQ_PORT_HDR_SET,
    NETMAP_REQ_PORT_INFO_GET, NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_DELIF, NETMAP_REQ_VALE_DETACH,
    NETMAP_REQ_VALE_LIST, NETMAP_REQ_VALE_NEWIF, NETMAP_REQ_VALE_POLLING_DISABLE, NETMAP_REQ_VALE_POLLING_ENABLE,
    NR_DO_RX_POLL, NR_NO_TX_POLL, NR_REG_ALL_NIC, NR_REG_DEFAULT, NR_REG_NIC_SW, NR_REG_ONE_NIC, NR_REG_SW,
    NmreqPortHdr, NmreqPortInfoGet, NmreqRegister, NmreqValeAttach, NmreqValeDetach, NmreqValeList, NmreqValeNewif,
    NmreqValePolling,
};
use netvale_abi::{NETMAP_API, NETMAP_MIN_API, name};
use netvale_control::device::BODY_LEN;
use rustix::io::Errno;

use crate::descriptor::Descriptor;
use crate::options::RequestOptions;
use crate::request::{ask, port_name};
use crate::user::{Plain, bytes_of, from_bytes};
use crate::{register, user};

/// Implements `NIOCREGIF`.
///
/// # Errors
/// netmap's errors; `EINVAL` for programs older than API 14, whose `netmap_if` has another layout.
pub fn regif(fd: BorrowedFd<'_>, descriptor: &Arc<Descriptor>, addr: u64) -> Result<(), Errno> {
    let mut nmr: Nmreq = user::read(addr)?;
    check_version(&mut nmr, addr)?;
    let done = match nmr.nr_cmd {
        0 => register_legacy(fd, descriptor, &mut nmr),
        cmd => switch_command(fd, cmd, &mut nmr),
    };
    done?;
    user::write(addr, &nmr)
}

/// Implements `NIOCGINFO`.
///
/// # Errors
/// netmap's errors.
pub fn ginfo(fd: BorrowedFd<'_>, addr: u64) -> Result<(), Errno> {
    let mut nmr: Nmreq = user::read(addr)?;
    check_version(&mut nmr, addr)?;
    match nmr.nr_cmd {
        NETMAP_BDG_LIST | NETMAP_VNET_HDR_GET => switch_command(fd, nmr.nr_cmd, &mut nmr)?,
        _ => info(fd, &mut nmr)?,
    }
    user::write(addr, &nmr)
}

fn check_version(nmr: &mut Nmreq, addr: u64) -> Result<(), Errno> {
    if nmr.nr_version >= NETMAP_MIN_API {
        return Ok(());
    }
    nmr.nr_version = NETMAP_API;
    user::write(addr, nmr)?;
    Err(Errno::INVAL)
}

fn register_legacy(fd: BorrowedFd<'_>, descriptor: &Arc<Descriptor>, nmr: &mut Nmreq) -> Result<(), Errno> {
    let field = nmr.nr_name;
    let mut reg = NmreqRegister {
        nr_tx_slots: nmr.nr_tx_slots,
        nr_rx_slots: nmr.nr_rx_slots,
        nr_tx_rings: nmr.nr_tx_rings,
        nr_rx_rings: nmr.nr_rx_rings,
        nr_mem_id: nmr.nr_arg2,
        nr_ringid: nmr.nr_ringid & NETMAP_RING_MASK,
        nr_mode: mode(nmr),
        nr_extra_bufs: nmr.nr_arg3,
        nr_flags: u64::from(nmr.nr_flags & !NR_REG_MASK) | poll_flags(nmr.nr_ringid),
        ..NmreqRegister::default()
    };
    register::register(fd, descriptor, port_name(&field)?, &mut reg, &mut RequestOptions::default())?;
    nmr.nr_offset = u32::try_from(reg.nr_offset).map_err(|_| Errno::OVERFLOW)?;
    nmr.nr_memsize = u32::try_from(reg.nr_memsize).unwrap_or(u32::MAX);
    nmr.nr_tx_slots = reg.nr_tx_slots;
    nmr.nr_rx_slots = reg.nr_rx_slots;
    nmr.nr_tx_rings = reg.nr_tx_rings;
    nmr.nr_rx_rings = reg.nr_rx_rings;
    nmr.nr_arg2 = reg.nr_mem_id;
    nmr.nr_arg3 = reg.nr_extra_bufs;
    Ok(())
}

/// Returns the mode (`NR_REG_*`). Programs from before `nr_flags` encode the mode in `nr_ringid`.
fn mode(nmr: &Nmreq) -> u32 {
    match nmr.nr_flags & NR_REG_MASK {
        NR_REG_DEFAULT if nmr.nr_ringid & NETMAP_SW_RING != 0 => NR_REG_SW,
        NR_REG_DEFAULT if nmr.nr_ringid & NETMAP_HW_RING != 0 => NR_REG_ONE_NIC,
        NR_REG_DEFAULT => NR_REG_ALL_NIC,
        mode => mode,
    }
}

fn poll_flags(ringid: u16) -> u64 {
    let flag = |bit, flag| if ringid & bit != 0 { flag } else { 0 };
    flag(NETMAP_NO_TX_POLL, NR_NO_TX_POLL) | flag(NETMAP_DO_RX_POLL, NR_DO_RX_POLL)
}

/// Sends a request with this body to the daemon, and replaces the body by the body of the answer. Returns the name in
/// the answer.
fn ask_with<T: Plain>(fd: BorrowedFd<'_>, reqtype: u16, port: &str, body: &mut T) -> Result<String, Errno> {
    let mut bytes: [u8; BODY_LEN] = bytes_of(body);
    let found = ask(fd, reqtype, port, &mut bytes[..size_of::<T>()])?;
    *body = from_bytes(&bytes);
    Ok(found)
}

fn info(fd: BorrowedFd<'_>, nmr: &mut Nmreq) -> Result<(), Errno> {
    let field = nmr.nr_name;
    let mut body = NmreqPortInfoGet {
        nr_tx_slots: nmr.nr_tx_slots,
        nr_rx_slots: nmr.nr_rx_slots,
        nr_tx_rings: nmr.nr_tx_rings,
        nr_rx_rings: nmr.nr_rx_rings,
        nr_mem_id: nmr.nr_arg2,
        ..NmreqPortInfoGet::default()
    };
    ask_with(fd, NETMAP_REQ_PORT_INFO_GET, port_name(&field)?, &mut body)?;
    // The field of the old structure has 32 bits.
    nmr.nr_memsize = body.nr_memsize as u32;
    nmr.nr_tx_slots = body.nr_tx_slots;
    nmr.nr_rx_slots = body.nr_rx_slots;
    nmr.nr_tx_rings = body.nr_tx_rings;
    nmr.nr_rx_rings = body.nr_rx_rings;
    nmr.nr_arg2 = body.nr_mem_id;
    Ok(())
}

/// Executes a command on a switch, whose arguments are in `nr_arg1` and `nr_arg2`.
fn switch_command(fd: BorrowedFd<'_>, cmd: u16, nmr: &mut Nmreq) -> Result<(), Errno> {
    let field = nmr.nr_name;
    let port = port_name(&field)?;
    match cmd {
        NETMAP_BDG_ATTACH => attach(fd, port, nmr),
        NETMAP_BDG_DETACH => ask_with(fd, NETMAP_REQ_VALE_DETACH, port, &mut NmreqValeDetach::default()).map(drop),
        NETMAP_BDG_DELIF => ask(fd, NETMAP_REQ_VALE_DELIF, port, &mut []).map(drop),
        NETMAP_BDG_NEWIF => {
            let mut body = NmreqValeNewif {
                nr_tx_slots: nmr.nr_tx_slots,
                nr_rx_slots: nmr.nr_rx_slots,
                nr_tx_rings: nmr.nr_tx_rings,
                nr_rx_rings: nmr.nr_rx_rings,
                nr_mem_id: nmr.nr_arg2,
                pad1: 0,
            };
            ask_with(fd, NETMAP_REQ_VALE_NEWIF, port, &mut body).map(drop)
        }
        NETMAP_BDG_LIST => {
            let mut body = NmreqValeList { nr_bridge_idx: nmr.nr_arg1, pad1: 0, nr_port_idx: nmr.nr_arg2.into() };
            let found = ask_with(fd, NETMAP_REQ_VALE_LIST, port, &mut body)?;
            nmr.nr_name = name::cut(found.as_bytes());
            nmr.nr_arg1 = body.nr_bridge_idx;
            nmr.nr_arg2 = body.nr_port_idx as u16;
            Ok(())
        }
        NETMAP_BDG_VNET_HDR => {
            let mut body = NmreqPortHdr { nr_hdr_len: nmr.nr_arg1.into(), pad1: 0 };
            ask_with(fd, NETMAP_REQ_PORT_HDR_SET, port, &mut body).map(drop)
        }
        NETMAP_VNET_HDR_GET => {
            let mut body = NmreqPortHdr::default();
            ask_with(fd, NETMAP_REQ_PORT_HDR_GET, port, &mut body)?;
            nmr.nr_arg1 = body.nr_hdr_len as u16;
            Ok(())
        }
        NETMAP_BDG_POLLING_ON | NETMAP_BDG_POLLING_OFF => polling(fd, port, cmd == NETMAP_BDG_POLLING_ON, nmr),
        _ => Err(Errno::INVAL),
    }
}

fn attach(fd: BorrowedFd<'_>, port: &str, nmr: &mut Nmreq) -> Result<(), Errno> {
    let nr_mode = if nmr.nr_arg1 & NETMAP_BDG_HOST != 0 { NR_REG_NIC_SW } else { NR_REG_ALL_NIC };
    let reg = NmreqRegister { nr_mode, nr_mem_id: nmr.nr_arg2, ..NmreqRegister::default() };
    let mut body = NmreqValeAttach { reg, ..NmreqValeAttach::default() };
    ask_with(fd, NETMAP_REQ_VALE_ATTACH, port, &mut body)?;
    nmr.nr_arg2 = body.reg.nr_mem_id;
    Ok(())
}

fn polling(fd: BorrowedFd<'_>, port: &str, on: bool, nmr: &Nmreq) -> Result<(), Errno> {
    // nr_flags selects one CPU for all rings or one CPU per ring; nr_ringid is the first CPU, and nr_arg1 is the number
    // of CPUs.
    let single = nmr.nr_flags & NR_REG_MASK != NR_REG_ONE_NIC;
    let mut body = NmreqValePolling {
        nr_mode: if single { NETMAP_POLLING_MODE_SINGLE_CPU } else { NETMAP_POLLING_MODE_MULTI_CPU },
        nr_first_cpu_id: (nmr.nr_ringid & NETMAP_RING_MASK).into(),
        nr_num_polling_cpus: nmr.nr_arg1.into(),
        pad1: 0,
    };
    let reqtype = if on { NETMAP_REQ_VALE_POLLING_ENABLE } else { NETMAP_REQ_VALE_POLLING_DISABLE };
    ask_with(fd, reqtype, port, &mut body).map(drop)
}
