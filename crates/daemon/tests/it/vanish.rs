//! Peers that vanish in each state of each protocol, in each possible way. For each protocol there is a table of
//! states; [`engine`] enters each state of the table.

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

/// Objective: a front end that vanishes leaves no resources behind, and leaves the port ready for the next front end.
#[test]
fn vanished_front_ends_leave_nothing_behind() {
    walk::<Vmm<false>>();
}

/// Objective: a front end that listens for the daemon and vanishes leaves no resources behind, and leaves the port
/// ready for the next front end.
#[test]
fn front_ends_that_listen() {
    walk::<Vmm<true>>();
}

/// Objective: a hypervisor that vanishes from a ptnet port leaves nothing behind.
#[test]
fn vanished_ivshmem_hypervisors_leave_nothing_behind() {
    walk::<Ivshmem>();
}

/// Objective: a hypervisor that vanishes from netmap's published devices, in any state of vfio-user and of a driver,
/// leaves nothing behind.
#[test]
fn ptnet_by_vfio_user() {
    walk::<Line<false>>();
    walk::<Published>();
}

/// Objective: a hypervisor that vanishes from an e1000 leaves nothing behind.
#[test]
fn e1000_by_vfio_user() {
    walk::<Line<true>>();
    walk::<Card>();
}

/// Objective: programs that vanish from a port leave nothing behind.
#[test]
fn vanished_programs_leave_nothing_behind() {
    walk::<Program>();
}

/// Objective: clients of the control socket that vanish leave nothing behind.
#[test]
fn vanished_control_clients_leave_nothing_behind() {
    walk::<Asking>();
}

/// Runs the peer that vanishes, in a separate process.
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
