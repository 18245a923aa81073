//! Peers that vanish in each state of each protocol, in each way. Each protocol is a table of its states; [`engine`]
//! walks it.

mod engine;
mod machines;
mod programs;
mod ptnet;
mod vhost;

use engine::{asked, vanish, walk};
use machines::{Card, Line, Published};
use programs::{Asking, Program};
use ptnet::Ivshmem;
use vhost::Vmm;

/// Objective: a front end that vanishes leaves the port ready for the next one, and nothing behind.
#[test]
fn front_ends() {
    walk::<Vmm<false>>();
}

/// Objective: the same if the front end listens, and the daemon connects.
#[test]
fn front_ends_that_listen() {
    walk::<Vmm<true>>();
}

/// Objective: the same for a hypervisor at a ptnet port.
#[test]
fn ptnet_by_ivshmem() {
    walk::<Ivshmem>();
}

/// Objective: the same for netmap's published devices, in the states of vfio-user and of a driver.
#[test]
fn ptnet_by_vfio_user() {
    walk::<Line<false>>();
    walk::<Published>();
}

/// Objective: the same for an e1000.
#[test]
fn e1000_by_vfio_user() {
    walk::<Line<true>>();
    walk::<Card>();
}

/// Objective: the same for programs that open ports.
#[test]
fn programs_with_ports() {
    walk::<Program>();
}

/// Objective: the same for clients of the control socket.
#[test]
fn clients_of_control() {
    walk::<Asking>();
}

/// The process that vanishes.
#[test]
#[ignore = "started by the other tests"]
fn role_of_a_victim() {
    let Some(asked) = asked() else { return };
    vanish::<Vmm<false>>(&asked);
    vanish::<Vmm<true>>(&asked);
    vanish::<Ivshmem>(&asked);
    vanish::<Line<false>>(&asked);
    vanish::<Published>(&asked);
    vanish::<Line<true>>(&asked);
    vanish::<Card>(&asked);
    vanish::<Program>(&asked);
    vanish::<Asking>(&asked);
}
