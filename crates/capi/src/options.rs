//! The list of options behind a request (netmap.h, `struct nmreq_option`): read once, answered in place.

use netvale_abi::nmreq::{
    NETMAP_REQ_MAXSIZE, NETMAP_REQ_OPT_CSB, NETMAP_REQ_OPT_EXTMEM, NETMAP_REQ_OPT_OFFSETS,
    NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS, NETMAP_REQ_OPT_SYNC_KLOOP_MODE, NmreqOptCsb, NmreqOptExtmem, NmreqOptOffsets,
    NmreqOptSyncKloopMode, NmreqOption,
};
use rustix::io::Errno;

use crate::user;

/// One option, as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Where it is.
    pub addr: u64,
    /// Its header.
    pub header: NmreqOption,
    status: Option<u32>,
}

/// The options of a request.
#[derive(Debug, Default)]
pub struct Options(Vec<Opt>);

/// `nro_status` is its third field.
const STATUS_AT: u64 = std::mem::offset_of!(NmreqOption, nro_status) as u64;

impl Options {
    /// Reads the list.
    ///
    /// # Errors
    /// `EFAULT`; `EMSGSIZE` when request and options together are longer than netmap takes, a list without end included.
    pub fn read(mut addr: u64, body: usize) -> Result<Options, Errno> {
        let (mut list, mut total) = (Vec::new(), body);
        while addr != 0 {
            let header: NmreqOption = user::read(addr)?;
            total = total.saturating_add(size_of_option(&header));
            if total > NETMAP_REQ_MAXSIZE {
                return Err(Errno::MSGSIZE);
            }
            list.push(Opt { addr, header, status: None });
            addr = header.nro_next;
        }
        Ok(Options(list))
    }

    /// The option of a type, if it is there; from then on it counts as understood.
    pub fn take(&mut self, kind: u32) -> Option<Opt> {
        let opt = self.0.iter_mut().find(|o| o.header.nro_reqtype == kind)?;
        opt.status = opt.status.or(Some(0));
        Some(*opt)
    }

    /// Two options of one type are both at fault.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn refuse_twins(&mut self) -> Result<(), Errno> {
        let kinds: Vec<u32> = self.0.iter().map(|o| o.header.nro_reqtype).collect();
        let mut any = false;
        for opt in &mut self.0 {
            let twins = kinds.iter().filter(|k| **k == opt.header.nro_reqtype).count() > 1;
            if twins && is_known(opt.header.nro_reqtype) {
                opt.status = Some(number(Errno::INVAL));
                any = true;
            }
        }
        if any { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// An option that cannot be honoured.
    pub fn set_status(&mut self, kind: u32, status: Errno) {
        self.0.iter_mut().filter(|o| o.header.nro_reqtype == kind).for_each(|o| o.status = Some(number(status)));
    }

    /// Refuses what is left over once `kinds` are set aside: nobody understands it.
    ///
    /// # Errors
    /// `EOPNOTSUPP`.
    pub fn refuse_others(&mut self, kinds: &[u32]) -> Result<(), Errno> {
        let mut any = false;
        for opt in self.0.iter_mut().filter(|o| !kinds.contains(&o.header.nro_reqtype)) {
            opt.status = Some(number(Errno::OPNOTSUPP));
            any = true;
        }
        if any { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    /// Writes what became of each option.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn write_back(&self) -> Result<(), Errno> {
        for opt in &self.0 {
            if let Some(status) = opt.status {
                user::write_bytes(opt.addr + STATUS_AT, &status.to_ne_bytes())?;
            }
        }
        Ok(())
    }
}

fn number(e: Errno) -> u32 {
    e.raw_os_error().cast_unsigned()
}

fn is_known(kind: u32) -> bool {
    (NETMAP_REQ_OPT_EXTMEM..=NETMAP_REQ_OPT_OFFSETS).contains(&kind)
}

/// Bytes an option takes: by its type; what is unknown counts as its header.
fn size_of_option(header: &NmreqOption) -> usize {
    match header.nro_reqtype {
        NETMAP_REQ_OPT_EXTMEM => size_of::<NmreqOptExtmem>(),
        NETMAP_REQ_OPT_CSB => size_of::<NmreqOptCsb>(),
        NETMAP_REQ_OPT_OFFSETS => size_of::<NmreqOptOffsets>(),
        NETMAP_REQ_OPT_SYNC_KLOOP_MODE => size_of::<NmreqOptSyncKloopMode>(),
        NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS => {
            usize::try_from(header.nro_size).unwrap_or(usize::MAX).max(size_of::<NmreqOption>())
        }
        _ => size_of::<NmreqOption>(),
    }
}
