//! Options of a request: a linked list of structs that all begin with [`NmreqOption`].

use super::NmreqPoolsInfo;
use crate::layout::assert_layout;

/// `struct nmreq_option`, 24 bytes: the start of every option.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqOption {
    /// Address of the next option, 0 at the end. Written by the application.
    pub nro_next: u64,
    /// `NETMAP_REQ_OPT_*`: the type of the option. Written by the application.
    pub nro_reqtype: u32,
    /// 0 if the option was accepted, else an errno: `EOPNOTSUPP` for an unknown option, `EINVAL` for an option that
    /// occurs twice. Written by the host.
    pub nro_status: u32,
    /// Size of an option of variable size, bytes; 0 for other options. Written by the application.
    pub nro_size: u64,
}

assert_layout!(NmreqOption, size 24, { nro_next: 0, nro_reqtype: 8, nro_status: 12, nro_size: 16 });

/// Use memory that the application provides: [`NmreqOptExtmem`].
pub const NETMAP_REQ_OPT_EXTMEM: u32 = 1;
/// Eventfds for the sync loop: [`NmreqOptSyncKloopEventfds`].
pub const NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS: u32 = 2;
/// Switch to CSB mode: [`NmreqOptCsb`].
pub const NETMAP_REQ_OPT_CSB: u32 = 3;
/// Modes of the sync loop: [`NmreqOptSyncKloopMode`].
pub const NETMAP_REQ_OPT_SYNC_KLOOP_MODE: u32 = 4;
/// Frames at an offset in their buffers: [`NmreqOptOffsets`].
pub const NETMAP_REQ_OPT_OFFSETS: u32 = 5;

/// `struct nmreq_opt_extmem`, 96 bytes. Written by the application; the host writes the actual values to `nro_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqOptExtmem {
    /// Common header.
    pub nro_opt: NmreqOption,
    /// Address of the memory.
    pub nro_usrptr: u64,
    /// Size of the memory, and its division into pools; 0 for defaults.
    pub nro_info: NmreqPoolsInfo,
}

assert_layout!(NmreqOptExtmem, size 96, { nro_opt: 0, nro_usrptr: 24, nro_info: 32 });

/// `struct nmreq_opt_csb`, 40 bytes. Written by the application.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqOptCsb {
    /// Common header.
    pub nro_opt: NmreqOption,
    /// Address of the array of [`crate::NmCsbAtok`], 64-byte aligned: an entry for each bound ring, tx rings first.
    pub csb_atok: u64,
    /// Address of the array of [`crate::NmCsbKtoa`], with the same alignment and order.
    pub csb_ktoa: u64,
}

assert_layout!(NmreqOptCsb, size 40, { nro_opt: 0, csb_atok: 24, csb_ktoa: 32 });

/// `struct nmreq_opt_offsets`, 56 bytes. Written by the application; the host writes back the values in use.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqOptOffsets {
    /// Common header.
    pub nro_opt: NmreqOption,
    /// Largest offset that the application will use, bytes.
    pub nro_max_offset: u64,
    /// Offset written to all slots at registration, bytes.
    pub nro_initial_offset: u64,
    /// Number of low bits of a slot's `ptr` that hold the offset; 0 for all 64.
    pub nro_offset_bits: u32,
    /// Alignment that the application keeps for tx frames, bytes; 0 for none.
    pub nro_tx_align: u32,
    /// Minimum distance between the offsets of two frames that share a buffer, bytes.
    pub nro_min_gap: u64,
}

assert_layout!(NmreqOptOffsets, size 56, {
    nro_opt: 0, nro_max_offset: 24, nro_initial_offset: 32, nro_offset_bits: 40, nro_tx_align: 44, nro_min_gap: 48,
});

/// `struct nmreq_opt_sync_kloop_eventfds`: the fixed part, 24 bytes. An [`NmEventfds`] for each bound ring follows, tx
/// rings first. `nro_size` must be the exact size of the whole option.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqOptSyncKloopEventfds {
    /// Common header.
    pub nro_opt: NmreqOption,
}

assert_layout!(NmreqOptSyncKloopEventfds, size 24, { nro_opt: 0 });

/// One entry after [`NmreqOptSyncKloopEventfds`], 8 bytes. Written by the application.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmEventfds {
    /// Eventfd on which the application kicks the host; -1 for none.
    pub ioeventfd: i32,
    /// Eventfd on which the host notifies the application; -1 for none.
    pub irqfd: i32,
}

assert_layout!(NmEventfds, size 8, { ioeventfd: 0, irqfd: 4 });

/// `struct nmreq_opt_sync_kloop_mode`, 32 bytes. Written by the application.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NmreqOptSyncKloopMode {
    /// Common header.
    pub nro_opt: NmreqOption,
    /// [`NM_OPT_SYNC_KLOOP_DIRECT_TX`] and [`NM_OPT_SYNC_KLOOP_DIRECT_RX`].
    pub mode: u32,
    /// Padding.
    pub pad1: u32,
}

assert_layout!(NmreqOptSyncKloopMode, size 32, { nro_opt: 0, mode: 24 });

/// `mode`: process tx notifications in the notifier's context.
pub const NM_OPT_SYNC_KLOOP_DIRECT_TX: u32 = 1 << 0;
/// `mode`: process rx notifications in the notifier's context.
pub const NM_OPT_SYNC_KLOOP_DIRECT_RX: u32 = 1 << 1;
