//! System calls that the sandbox permits for tunnels.

use libc::{
    AF_INET, AF_INET6, IP_MTU_DISCOVER, IP_RECVTOS, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP,
    IPV6_MTU_DISCOVER, IPV6_RECVTCLASS, IPV6_TCLASS, IPV6_UNICAST_HOPS, IPV6_V6ONLY, SO_NO_CHECK, SO_RCVBUF, SO_SNDBUF,
    SOL_SOCKET,
};

use crate::system::sandbox::{Argument, KernelNeeds, int};

/// The condition that the type argument of socket(2) is `SOCK_DGRAM`, with or without `SOCK_CLOEXEC` and
/// `SOCK_NONBLOCK`.
const A_DATAGRAM: Argument = Argument {
    index: 1,
    // The mask has 32 bits, because the kernel reads only 32 bits of the argument.
    mask: !((libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u32) as u64,
    value: libc::SOCK_DGRAM as u64,
};

/// This constant is from linux/udp.h.
const UDP_GRO: libc::c_int = 104;

/// The sandbox permits UDP sockets, and no other sockets.
pub const KERNEL: KernelNeeds = KernelNeeds {
    any: &[libc::SYS_sendmmsg, libc::SYS_recvmmsg],
    calls: &[
        (
            libc::SYS_socket,
            &[
                &[int(0, AF_INET), A_DATAGRAM, int(2, IPPROTO_UDP)],
                &[int(0, AF_INET6), A_DATAGRAM, int(2, IPPROTO_UDP)],
            ],
        ),
        (
            libc::SYS_setsockopt,
            &[
                &[int(1, SOL_SOCKET), int(2, SO_RCVBUF)],
                &[int(1, SOL_SOCKET), int(2, SO_SNDBUF)],
                &[int(1, SOL_SOCKET), int(2, SO_NO_CHECK)],
                &[int(1, IPPROTO_IP), int(2, IP_TTL)],
                &[int(1, IPPROTO_IP), int(2, IP_TOS)],
                &[int(1, IPPROTO_IP), int(2, IP_RECVTOS)],
                &[int(1, IPPROTO_IP), int(2, IP_MTU_DISCOVER)],
                &[int(1, IPPROTO_IPV6), int(2, IPV6_V6ONLY)],
                &[int(1, IPPROTO_IPV6), int(2, IPV6_UNICAST_HOPS)],
                &[int(1, IPPROTO_IPV6), int(2, IPV6_TCLASS)],
                &[int(1, IPPROTO_IPV6), int(2, IPV6_RECVTCLASS)],
                &[int(1, IPPROTO_IPV6), int(2, IPV6_MTU_DISCOVER)],
                &[int(1, IPPROTO_UDP), int(2, UDP_GRO)],
            ],
        ),
    ],
    ..KernelNeeds::NOTHING
};
