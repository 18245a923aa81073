//! The list of options of a request (netmap.h, `struct nmreq_option`): the list is read once, and the status of each
//! option is written back into the program's memory.
//!
//! netmap copies request and options into one buffer of fixed size, and sets the status `EOPNOTSUPP` in an option that
//! no handler recognised. This module limits the length of a list in the same way, and sets the same statuses.

use netvale_abi::nmreq::{
    NETMAP_REQ_MAXSIZE, NETMAP_REQ_OPT_CSB, NETMAP_REQ_OPT_EXTMEM, NETMAP_REQ_OPT_OFFSETS,
    NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS, NETMAP_REQ_OPT_SYNC_KLOOP_MODE, NmreqOptCsb, NmreqOptExtmem, NmreqOptOffsets,
    NmreqOptSyncKloopMode, NmreqOption,
};
use rustix::io::Errno;

use crate::user;

/// An option, as the library read it.
#[derive(Clone, Copy, Debug)]
pub struct NmOption {
    /// Address of the option.
    pub addr: u64,
    /// The option's header.
    pub header: NmreqOption,
    /// The status that is written to the option when the request is done.
    status: u32,
}

/// The options of a request.
#[derive(Debug, Default)]
pub struct RequestOptions(Vec<NmOption>);

/// Offset of `nro_status` in an option.
const STATUS_AT: u64 = std::mem::offset_of!(NmreqOption, nro_status) as u64;
/// Size of an option's header in bytes.
const HEADER: usize = size_of::<NmreqOption>();
/// Number of option types, including type 0, which is invalid.
const KINDS: usize = NETMAP_REQ_OPT_OFFSETS as usize + 1;
/// Size of a pointer in netmap's buffer in bytes.
const POINTER: usize = size_of::<u64>();
/// Size of netmap's buffer for a request: two pointers, body and options of the largest size, a pointer before each
/// kind of option, and netmap's table of options.
const BUFFER: usize = (2 + KINDS) * POINTER + NETMAP_REQ_MAXSIZE + KINDS * POINTER;

/// Number of bytes that netmap would have used so far in its buffer for a request.
struct OptionRoom {
    /// Bytes used for everything, including the pointers and the table of options.
    buffer: usize,
    /// Bytes used for the request's body and options alone, at most `NETMAP_REQ_MAXSIZE`.
    request: usize,
}

impl RequestOptions {
    /// Reads the list of options at `addr` of a request whose body has `body` bytes. On an error, the status of each
    /// option that was read before the error is written back.
    ///
    /// # Errors
    /// `EFAULT` for unmapped memory; `EINVAL` for an option of type 0 and for two options of the same type; `EMSGSIZE`
    /// if request and options together exceed netmap's buffer, as with an endless list.
    pub fn read(addr: u64, body: usize) -> Result<RequestOptions, Errno> {
        let mut this = RequestOptions::default();
        match this.fill(addr, body) {
            Ok(()) => {
                this.0.iter_mut().for_each(|o| o.status = number(Errno::OPNOTSUPP));
                Ok(this)
            }
            Err(e) => Err(this.write_back().err().unwrap_or(e)),
        }
    }

    fn fill(&mut self, mut addr: u64, body: usize) -> Result<(), Errno> {
        let mut room = OptionRoom { buffer: 2 * POINTER + body + KINDS * POINTER, request: body };
        while addr != 0 {
            if room.buffer + POINTER + HEADER > BUFFER {
                // The list may contain a loop, so no status is written back.
                self.0.clear();
                return Err(Errno::MSGSIZE);
            }
            let header: NmreqOption = user::read(addr)?;
            room.buffer += POINTER + HEADER;
            room.request += HEADER;
            self.0.push(NmOption { addr, header, status: 0 });
            if header.nro_reqtype == 0 {
                self.set(0, Err(Errno::INVAL));
                return Err(Errno::INVAL);
            }
            if (header.nro_reqtype as usize) < KINDS {
                self.known(&header, addr, &mut room)?;
            }
            addr = header.nro_next;
        }
        Ok(())
    }

    /// Reads the rest of an option of a known type.
    fn known(&mut self, header: &NmreqOption, addr: u64, room: &mut OptionRoom) -> Result<(), Errno> {
        if self.0.iter().filter(|o| o.header.nro_reqtype == header.nro_reqtype).count() > 1 {
            self.set(header.nro_reqtype, Err(Errno::INVAL));
            return Err(Errno::INVAL);
        }
        let size = usize::try_from(header.nro_size).unwrap_or(usize::MAX);
        let rest = rest_of_option(header.nro_reqtype, size);
        let is_long = size.max(rest) > NETMAP_REQ_MAXSIZE || room.request + rest > NETMAP_REQ_MAXSIZE;
        if is_long || room.buffer + rest > BUFFER {
            return Err(Errno::MSGSIZE);
        }
        room.request += rest;
        room.buffer += rest;
        user::read_bytes(addr + HEADER as u64, &mut vec![0; rest])
    }

    /// Returns the option of type `kind`; `None` if the request has no such option.
    pub fn find(&self, kind: u32) -> Option<NmOption> {
        self.0.iter().find(|o| o.header.nro_reqtype == kind).copied()
    }

    /// Reads the option of type `kind` with `read`, and records the result. Returns `None` if the request has no such
    /// option.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn take<T>(&mut self, kind: u32, read: impl FnOnce(NmOption) -> Result<T, Errno>) -> Result<Option<T>, Errno> {
        let done = self.find(kind).map(read).transpose();
        self.set(kind, done.as_ref().map(drop).map_err(|e| *e));
        done
    }

    /// Records the result of the option of type `kind`, which then counts as recognised.
    pub fn set(&mut self, kind: u32, done: Result<(), Errno>) {
        let status = done.err().map_or(0, number);
        self.0.iter_mut().filter(|o| o.header.nro_reqtype == kind).for_each(|o| o.status = status);
    }

    /// Checks that all options were recognised.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if any option was not recognised.
    pub fn check(&self) -> Result<(), Errno> {
        let unsupported = number(Errno::OPNOTSUPP);
        if self.0.iter().any(|o| o.status == unsupported) { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    /// Writes the status of each option.
    ///
    /// # Errors
    /// `EFAULT` for unmapped memory.
    pub fn write_back(&self) -> Result<(), Errno> {
        self.0.iter().try_for_each(|opt| user::write_bytes(opt.addr + STATUS_AT, &opt.status.to_ne_bytes()))
    }
}

fn number(e: Errno) -> u32 {
    e.raw_os_error().cast_unsigned()
}

/// Returns the size in bytes of the part of an option after its header, as determined by the option's type or its size
/// field.
fn rest_of_option(kind: u32, size: usize) -> usize {
    let whole = match kind {
        NETMAP_REQ_OPT_EXTMEM => size_of::<NmreqOptExtmem>(),
        NETMAP_REQ_OPT_CSB => size_of::<NmreqOptCsb>(),
        NETMAP_REQ_OPT_OFFSETS => size_of::<NmreqOptOffsets>(),
        NETMAP_REQ_OPT_SYNC_KLOOP_MODE => size_of::<NmreqOptSyncKloopMode>(),
        NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS => size.max(HEADER),
        _ => HEADER,
    };
    whole - HEADER
}
