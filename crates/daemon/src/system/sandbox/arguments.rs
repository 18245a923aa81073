//! System calls that every daemon may make with restricted arguments, and the rules that result from these calls and
//! from the needs of kinds of ports.

use libc::{
    AF_NETLINK, AF_UNIX, F_ADD_SEALS, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFD, F_GETFL, F_SETFD, MFD_ALLOW_SEALING,
    MFD_CLOEXEC, MFD_HUGE_2MB, MFD_HUGETLB, MFD_NOEXEC_SEAL, PR_SET_NAME, PROT_EXEC, SCHED_OTHER, SO_LINGER,
    SOL_SOCKET,
};
use netvale_confine::calls::{Argument, CallList, Calls, int, null, without};

use super::needs::KernelNeeds;

/// Flags with which C libraries start a thread: everything is shared, and there is no new namespace. musl sets another
/// bit, which has no effect.
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

/// This constant is from linux/prctl.h.
const PR_GET_AUXV: libc::c_int = 0x4155_5856;
/// Permitted flags of `memfd_create`.
const MEMFD: u32 = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_HUGETLB | MFD_HUGE_2MB;

/// The calls, each with alternative lists of arguments. A call is permitted if all arguments of one list match.
const CALLS: &[Calls] = &[
    (libc::SYS_clone, &[&[A_THREAD]]),
    // Netlink sockets are permitted only for queries about interfaces.
    (libc::SYS_socket, &[&[int(0, AF_UNIX)], &[int(0, AF_NETLINK), int(2, libc::NETLINK_ROUTE)]]),
    // These are for items in the service manager's store. Each item is a socket whose queue contains a message.
    (libc::SYS_socketpair, &[&[int(0, AF_UNIX)]]),
    (
        libc::SYS_fcntl,
        &[
            &[int(1, F_DUPFD_CLOEXEC)],
            &[int(1, F_GETFD)],
            // These are for descriptors from the service manager's store.
            &[int(1, F_SETFD)],
            &[int(1, F_GETFL)],
            &[int(1, F_ADD_SEALS)],
            &[int(1, F_GET_SEALS)],
        ],
    ),
    (libc::SYS_memfd_create, &[&[without(1, !(MEMFD as u64))]]),
    (libc::SYS_setsockopt, &[&[int(1, SOL_SOCKET), int(2, SO_LINGER)]]),
    // This makes eventfds nonblocking.
    (libc::SYS_ioctl, &[&[int(1, libc::FIONBIO as libc::c_int)]]),
    // All memory protections are permitted, except executable memory.
    (libc::SYS_mmap, &[&[without(2, PROT_EXEC as u64)]]),
    (libc::SYS_mprotect, &[&[without(2, PROT_EXEC as u64)]]),
    // These set thread names, and read the auxiliary vector.
    (libc::SYS_prctl, &[&[int(0, PR_SET_NAME)], &[int(0, PR_GET_AUXV)]]),
    // The process may only read its own limits.
    (libc::SYS_prlimit64, &[&[int(0, 0), null(2)]]),
    // A thread may only set its own CPUs, and return to ordinary scheduling.
    (libc::SYS_sched_setaffinity, &[&[int(0, 0)]]),
    (libc::SYS_sched_setscheduler, &[&[int(0, 0), int(1, SCHED_OTHER)]]),
];

/// Returns the list of calls for the process `own`, including the needs of kinds of ports.
pub(super) fn list(own: u32, kinds: &[&KernelNeeds]) -> CallList {
    let mut list = CallList::default();
    list.add(CALLS);
    kinds.iter().for_each(|kind| list.add(kind.calls));
    list.add_line(libc::SYS_tgkill, &[int(0, own.cast_signed())]);
    for (call, index, values) in kinds.iter().flat_map(|kind| kind.values) {
        values.iter().for_each(|value| list.add_line(*call, &[int(*index, value.cast_signed())]));
    }
    list
}
