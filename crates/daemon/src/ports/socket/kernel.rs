//! System calls that the sandbox permits for socket ports.

use libc::{
    AF_INET, AF_INET6, IP_ADD_MEMBERSHIP, IP_MULTICAST_IF, IP_MULTICAST_LOOP, IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP,
    SO_PASSCRED, SO_RCVBUF, SO_REUSEADDR, SO_SNDBUF, SOL_SOCKET, TCP_NODELAY,
};

use crate::system::sandbox::{Argument, KernelNeeds, int};

/// Returns the condition that the type argument of socket(2) is `kind`, with or without `SOCK_CLOEXEC` and
/// `SOCK_NONBLOCK`. The mask has 32 bits, because the kernel reads only 32 bits of the argument.
const fn of_type(kind: libc::c_int) -> Argument {
    Argument {
        index: 1,
        mask: !((libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u32) as u64,
        value: kind.cast_unsigned() as u64,
    }
}

/// TCP and UDP sockets, in addition to Unix sockets.
pub const KERNEL: KernelNeeds = KernelNeeds {
    any: &[libc::SYS_sendmmsg, libc::SYS_recvmmsg, libc::SYS_getpeername],
    calls: &[
        (
            libc::SYS_socket,
            &[
                &[int(0, AF_INET), of_type(libc::SOCK_STREAM), int(2, IPPROTO_TCP)],
                &[int(0, AF_INET6), of_type(libc::SOCK_STREAM), int(2, IPPROTO_TCP)],
                &[int(0, AF_INET), of_type(libc::SOCK_DGRAM), int(2, IPPROTO_UDP)],
                &[int(0, AF_INET6), of_type(libc::SOCK_DGRAM), int(2, IPPROTO_UDP)],
            ],
        ),
        (
            libc::SYS_setsockopt,
            &[
                &[int(1, SOL_SOCKET), int(2, SO_RCVBUF)],
                &[int(1, SOL_SOCKET), int(2, SO_SNDBUF)],
                &[int(1, SOL_SOCKET), int(2, SO_REUSEADDR)],
                &[int(1, SOL_SOCKET), int(2, SO_PASSCRED)],
                &[int(1, IPPROTO_TCP), int(2, TCP_NODELAY)],
                &[int(1, IPPROTO_IP), int(2, IP_ADD_MEMBERSHIP)],
                &[int(1, IPPROTO_IP), int(2, IP_MULTICAST_IF)],
                &[int(1, IPPROTO_IP), int(2, IP_MULTICAST_LOOP)],
            ],
        ),
    ],
    sockets: &netvale_socket::exchange::SOCKETS_OF_PEERS,
    ..KernelNeeds::NOTHING
};
