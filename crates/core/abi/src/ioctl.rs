//! The ioctl numbers, which include the size of the argument like those of Linux's `_IO` and `_IOWR`.

use crate::layout::assert_layout;
use crate::legacy::Nmreq;
use crate::nmreq::NmreqHeader;

/// Argument of [`NIOCCONFIG`] (netmap.h: `struct nm_ifreq`), 272 bytes. Each switch defines the meaning of `data`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NmIfreq {
    /// Name of the switch, NUL-terminated. Written by the application.
    pub nifr_name: [u8; 16],
    /// Data of the request; the host may write its reply here.
    pub data: [u8; 256],
}

assert_layout!(NmIfreq, size 272, { nifr_name: 0, data: 16 });

const READ_WRITE: u32 = 3 << 30;

const fn io(nr: u32) -> u32 {
    ((b'i' as u32) << 8) | nr
}

const fn iowr<T>(nr: u32) -> u32 {
    READ_WRITE | ((size_of::<T>() as u32) << 16) | io(nr)
}

/// Legacy: information on a port; the argument is an [`Nmreq`].
pub const NIOCGINFO: u32 = iowr::<Nmreq>(145);
/// Legacy: registration of a port; the argument is an [`Nmreq`].
pub const NIOCREGIF: u32 = iowr::<Nmreq>(146);
/// Sync of the bound tx rings; no argument.
pub const NIOCTXSYNC: u32 = io(148);
/// Sync of the bound rx rings; no argument.
pub const NIOCRXSYNC: u32 = io(149);
/// Configuration of a switch; the argument is an [`NmIfreq`].
pub const NIOCCONFIG: u32 = iowr::<NmIfreq>(150);
/// All other requests; the argument is an [`NmreqHeader`].
pub const NIOCCTRL: u32 = iowr::<NmreqHeader>(151);

const _: () = {
    assert!(NIOCGINFO == 0xc03c_6991);
    assert!(NIOCREGIF == 0xc03c_6992);
    assert!(NIOCTXSYNC == 0x6994);
    assert!(NIOCRXSYNC == 0x6995);
    assert!(NIOCCONFIG == 0xc110_6996);
    assert!(NIOCCTRL == 0xc058_6997);
};
