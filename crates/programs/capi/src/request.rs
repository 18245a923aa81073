//! `NIOCCTRL`: executes a request of netmap's control API.

use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netvale::raw;
use netvale_abi::nmreq::{
    NETMAP_REQ_CSB_ENABLE, NETMAP_REQ_OPT_CSB, NETMAP_REQ_POOLS_INFO_GET, NETMAP_REQ_PORT_HDR_GET,
    NETMAP_REQ_PORT_HDR_SET, NETMAP_REQ_PORT_INFO_GET, NETMAP_REQ_REGISTER, NETMAP_REQ_SYNC_KLOOP_START,
    NETMAP_REQ_SYNC_KLOOP_STOP, NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_DETACH, NETMAP_REQ_VALE_LIST,
    NETMAP_REQ_VALE_NEWIF, NETMAP_REQ_VALE_POLLING_DISABLE, NETMAP_REQ_VALE_POLLING_ENABLE, NmreqHeader,
    NmreqPoolsInfo, NmreqPortHdr, NmreqPortInfoGet, NmreqRegister, NmreqSyncKloopStart, NmreqValeAttach,
    NmreqValeDetach, NmreqValeList, NmreqValeNewif, NmreqValePolling,
};
use netvale_abi::{NETMAP_MAX_API, NETMAP_MIN_API, name};
use netvale_control::device::{BODY_LEN, DeviceRequest};
use rustix::io::Errno;

use crate::descriptor::Descriptor;
use crate::options::{NmOption, RequestOptions};
use crate::{kloop, register, user};

/// Executes the request whose header is at `addr`.
///
/// # Errors
/// netmap's errors.
pub fn control(fd: BorrowedFd<'_>, descriptor: &Arc<Descriptor>, addr: u64) -> Result<(), Errno> {
    let header: NmreqHeader = user::read(addr)?;
    if !(NETMAP_MIN_API..=NETMAP_MAX_API).contains(&u32::from(header.nr_version)) {
        return Err(Errno::INVAL);
    }
    let body = body_len(header.nr_reqtype);
    if header.nr_reserved != 0 || (body == 0) != (header.nr_body == 0) {
        return Err(Errno::INVAL);
    }
    user::read_bytes(header.nr_body, &mut vec![0; body])?;
    let mut options = RequestOptions::read(header.nr_options, body)?;
    end_name(&header, addr)?;
    let done = carry_out(fd, descriptor, &header, addr, &mut options);
    // The status of each option is written back even if the request failed. If both fail, the request's error is
    // returned.
    let told = options.write_back();
    done.and(told)
}

/// Writes a NUL to the end of a name that the program did not terminate, as netmap does.
fn end_name(header: &NmreqHeader, addr: u64) -> Result<(), Errno> {
    let last = header.nr_name.len() - 1;
    if header.nr_name[last] == 0 {
        return Ok(());
    }
    user::write_bytes(addr + (offset_of!(NmreqHeader, nr_name) + last) as u64, &[0])
}

/// Returns the size of a request's body in bytes: 0 for a request that has no body, and for an unknown request.
fn body_len(reqtype: u16) -> usize {
    match reqtype {
        NETMAP_REQ_REGISTER => size_of::<NmreqRegister>(),
        NETMAP_REQ_PORT_INFO_GET => size_of::<NmreqPortInfoGet>(),
        NETMAP_REQ_VALE_ATTACH => size_of::<NmreqValeAttach>(),
        NETMAP_REQ_VALE_DETACH => size_of::<NmreqValeDetach>(),
        NETMAP_REQ_VALE_LIST => size_of::<NmreqValeList>(),
        NETMAP_REQ_PORT_HDR_SET | NETMAP_REQ_PORT_HDR_GET => size_of::<NmreqPortHdr>(),
        NETMAP_REQ_VALE_NEWIF => size_of::<NmreqValeNewif>(),
        NETMAP_REQ_VALE_POLLING_ENABLE | NETMAP_REQ_VALE_POLLING_DISABLE => size_of::<NmreqValePolling>(),
        NETMAP_REQ_POOLS_INFO_GET => size_of::<NmreqPoolsInfo>(),
        NETMAP_REQ_SYNC_KLOOP_START => size_of::<NmreqSyncKloopStart>(),
        _ => 0,
    }
}

fn carry_out(
    fd: BorrowedFd<'_>,
    descriptor: &Arc<Descriptor>,
    header: &NmreqHeader,
    addr: u64,
    options: &mut RequestOptions,
) -> Result<(), Errno> {
    let name = port_name(&header.nr_name)?;
    match header.nr_reqtype {
        NETMAP_REQ_REGISTER => {
            let mut reg: NmreqRegister = user::read(header.nr_body)?;
            register::register(fd, descriptor, name, &mut reg, options)?;
            user::write(header.nr_body, &reg)
        }
        NETMAP_REQ_SYNC_KLOOP_START => {
            let start: NmreqSyncKloopStart = user::read(header.nr_body)?;
            kloop::start(descriptor, start.sleep_us, options)
        }
        NETMAP_REQ_SYNC_KLOOP_STOP => {
            descriptor.kloop.stop_and_wait();
            Ok(())
        }
        NETMAP_REQ_CSB_ENABLE => {
            let enable = |option: NmOption| {
                let bound = descriptor.bound().ok_or(Errno::NXIO)?;
                register::enable_csb(&bound, option.addr)
            };
            options.take(NETMAP_REQ_OPT_CSB, enable)?.ok_or(Errno::INVAL)
        }
        reqtype => {
            let mut body = [0u8; BODY_LEN];
            let body = &mut body[..body_len(reqtype)];
            user::read_bytes(header.nr_body, body)?;
            let found = ask(fd, reqtype, name, body)?;
            user::write_bytes(header.nr_body, body)?;
            if reqtype == NETMAP_REQ_VALE_LIST {
                let field: [u8; 64] = name::cut(found.as_bytes());
                user::write_bytes(addr + offset_of!(NmreqHeader, nr_name) as u64, &field)?;
            }
            Ok(())
        }
    }
}

/// Returns the name in a request as text.
///
/// # Errors
/// `EINVAL` if the name is not UTF-8.
pub fn port_name(field: &[u8]) -> Result<&str, Errno> {
    // netmap itself terminates an unterminated field.
    let field = &field[..field.len().saturating_sub(1)];
    std::str::from_utf8(name::get(field)).map_err(|_| Errno::INVAL)
}

/// Sends a request to the daemon, and replaces `body` by the body of the answer. Returns the name in the answer.
///
/// # Errors
/// netmap's errors.
pub fn ask(fd: BorrowedFd<'_>, reqtype: u16, name: &str, body: &mut [u8]) -> Result<String, Errno> {
    let mut request = DeviceRequest { reqtype, name: name.to_owned(), ..DeviceRequest::default() };
    request.body[..body.len()].copy_from_slice(body);
    let reply = raw::request(fd, &request).map_err(|e| {
        crate::say(&e);
        crate::errno::of(&e)
    })?;
    match reply.status {
        0 => {
            body.copy_from_slice(&reply.body[..body.len()]);
            Ok(reply.name)
        }
        errno => Err(crate::errno::from_raw(errno)),
    }
}
