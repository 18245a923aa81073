//! System calls and files that the sandbox permits for network interfaces.

use libc::{AF_PACKET, AF_XDP, PACKET_ADD_MEMBERSHIP, PACKET_QDISC_BYPASS, SOL_PACKET, SOL_XDP};
use netvale_afxdp::bpf::tags::KERNEL_TYPES;
use netvale_afxdp::{bpf, iface};

use crate::system::sandbox::{KernelNeeds, int};

/// AF_XDP sockets, BPF programs, and packet sockets that do not receive (protocol 0). The kernel's BTF types are needed
/// for BPF programs that query drivers about VLAN tags.
pub const KERNEL: KernelNeeds = KernelNeeds {
    calls: &[
        (libc::SYS_socket, &[&[int(0, AF_PACKET), int(2, 0)], &[int(0, AF_XDP)]]),
        (
            libc::SYS_setsockopt,
            &[
                &[int(1, SOL_PACKET), int(2, PACKET_ADD_MEMBERSHIP)],
                &[int(1, SOL_PACKET), int(2, PACKET_QDISC_BYPASS)],
                &[int(1, SOL_XDP)],
            ],
        ),
    ],
    values: &[(libc::SYS_bpf, 0, &bpf::COMMANDS), (libc::SYS_ioctl, 1, &iface::IOCTLS)],
    read: &[KERNEL_TYPES],
    ..KernelNeeds::NOTHING
};
