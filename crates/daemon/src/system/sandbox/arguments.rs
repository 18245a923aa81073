//! System calls that are allowed with some arguments only.

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, AF_XDP, F_ADD_SEALS, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFD,
    F_GETFL, F_SETFD, IP_MTU_DISCOVER, IP_RECVTOS, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP,
    IPV6_MTU_DISCOVER, IPV6_RECVTCLASS, IPV6_TCLASS, IPV6_UNICAST_HOPS, IPV6_V6ONLY, MFD_ALLOW_SEALING, MFD_CLOEXEC,
    MFD_HUGE_2MB, MFD_HUGETLB, MFD_NOEXEC_SEAL, PACKET_ADD_MEMBERSHIP, PACKET_QDISC_BYPASS, PR_SET_NAME, PROT_EXEC,
    SCHED_OTHER, SO_LINGER, SO_NO_CHECK, SO_RCVBUF, SO_SNDBUF, SOL_PACKET, SOL_SOCKET, SOL_XDP,
};
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// An argument of which the bits of `mask` are those of `value`.
#[derive(Clone, Copy)]
struct Argument {
    index: u8,
    mask: u64,
    value: u64,
}

/// An `int`: of its register, the kernel reads 32 bits.
const fn int(index: u8, value: libc::c_int) -> Argument {
    Argument { index, mask: u32::MAX as u64, value: value.cast_unsigned() as u64 }
}

/// None of these bits.
const fn without(index: u8, bits: u64) -> Argument {
    Argument { index, mask: bits, value: 0 }
}

/// No pointer.
const fn null(index: u8) -> Argument {
    without(index, u64::MAX)
}

/// What C libraries start a thread with: it shares all that threads share, and no namespace is new. musl sets one more
/// bit, which means nothing.
const OF_THREADS: libc::c_int = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID;
const A_THREAD: Argument = Argument { index: 0, mask: !(libc::CLONE_DETACHED as u64), value: OF_THREADS as u64 };

/// A socket of datagrams, with flags of linux/net.h.
const A_DATAGRAM: Argument = Argument {
    index: 1,
    // Of its register, the kernel reads 32 bits.
    mask: !((libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u32) as u64,
    value: libc::SOCK_DGRAM as u64,
};

/// linux/udp.h.
const UDP_GRO: libc::c_int = 104;
/// linux/prctl.h.
const PR_GET_AUXV: libc::c_int = 0x4155_5856;
const MEMFD: u32 = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_HUGETLB | MFD_HUGE_2MB;

/// The calls, and what their arguments must be: all of one line.
const CALLS: &[(i64, &[&[Argument]])] = &[
    (libc::SYS_clone, &[&[A_THREAD]]),
    // Of netlink, questions about interfaces. Packet sockets do not receive: protocol 0.
    (
        libc::SYS_socket,
        &[
            &[int(0, AF_UNIX)],
            &[int(0, AF_NETLINK), int(2, libc::NETLINK_ROUTE)],
            &[int(0, AF_PACKET), int(2, 0)],
            &[int(0, AF_XDP)],
            // Of tunnels: no other than UDP.
            &[int(0, AF_INET), A_DATAGRAM, int(2, IPPROTO_UDP)],
            &[int(0, AF_INET6), A_DATAGRAM, int(2, IPPROTO_UDP)],
        ],
    ),
    // A message that the service manager keeps.
    (libc::SYS_socketpair, &[&[int(0, AF_UNIX)]]),
    (
        libc::SYS_fcntl,
        &[
            &[int(1, F_DUPFD_CLOEXEC)],
            &[int(1, F_GETFD)],
            // Descriptors that the service manager kept.
            &[int(1, F_SETFD)],
            &[int(1, F_GETFL)],
            &[int(1, F_ADD_SEALS)],
            &[int(1, F_GET_SEALS)],
        ],
    ),
    (libc::SYS_memfd_create, &[&[without(1, !(MEMFD as u64))]]),
    (
        libc::SYS_setsockopt,
        &[
            &[int(1, SOL_SOCKET), int(2, SO_LINGER)],
            &[int(1, SOL_PACKET), int(2, PACKET_ADD_MEMBERSHIP)],
            &[int(1, SOL_PACKET), int(2, PACKET_QDISC_BYPASS)],
            &[int(1, SOL_XDP)],
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
    // Memory is never executed that was not at the start.
    (libc::SYS_mmap, &[&[without(2, PROT_EXEC as u64)]]),
    (libc::SYS_mprotect, &[&[without(2, PROT_EXEC as u64)]]),
    // Names of threads; what the kernel told the process at its start.
    (libc::SYS_prctl, &[&[int(0, PR_SET_NAME)], &[int(0, PR_GET_AUXV)]]),
    // Its own limits, to read.
    (libc::SYS_prlimit64, &[&[int(0, 0), null(2)]]),
    // The calling thread; and only back from the workers' priority.
    (libc::SYS_sched_setaffinity, &[&[int(0, 0)]]),
    (libc::SYS_sched_setscheduler, &[&[int(0, 0), int(1, SCHED_OTHER)]]),
];

/// The rules of the process `own`.
pub(super) fn rules(own: u32) -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let fixed = CALLS.iter().map(|(call, lines)| Ok((*call, one_of(lines.iter().copied())?)));
    let mut rules = fixed.collect::<Result<Vec<_>, BackendError>>()?;
    rules.push((libc::SYS_tgkill, one_of([&[int(0, own.cast_signed())][..]])?));
    rules.push((libc::SYS_bpf, with_one_of(netvale_afxdp::bpf::COMMANDS, 0)?));
    rules.push((libc::SYS_ioctl, with_one_of(ioctls(), 1)?));
    Ok(rules)
}

/// Requests of TAPs, interfaces, vfio and ptnet devices; and eventfds are made nonblocking.
fn ioctls() -> impl Iterator<Item = u32> {
    let requests =
        netvale_tap::IOCTLS.into_iter().chain(netvale_afxdp::iface::IOCTLS).chain(netvale_virtio_pci::IOCTLS);
    requests.chain(netvale_guest::passthrough::IOCTLS).chain([libc::FIONBIO as u32])
}

/// The `int` with this index has one of the values.
fn with_one_of(values: impl IntoIterator<Item = u32>, index: u8) -> Result<Vec<SeccompRule>, BackendError> {
    let lines: Vec<_> = values.into_iter().map(|value| [int(index, value.cast_signed())]).collect();
    one_of(lines.iter().map(<[_; 1]>::as_slice))
}

fn one_of<'a>(lines: impl IntoIterator<Item = &'a [Argument]>) -> Result<Vec<SeccompRule>, BackendError> {
    let condition = |argument: &Argument| {
        let masked = SeccompCmpOp::MaskedEq(argument.mask);
        SeccompCondition::new(argument.index, SeccompCmpArgLen::Qword, masked, argument.value)
    };
    let rule = |line: &[Argument]| SeccompRule::new(line.iter().map(condition).collect::<Result<_, _>>()?);
    lines.into_iter().map(rule).collect()
}
