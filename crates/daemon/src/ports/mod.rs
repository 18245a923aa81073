//! The kinds of ports: each creates a port from its options, describes it and removes it. A kind is a file (or a
//! folder) here; an attachable kind also has a row in [`KINDS`].
//!
//! | module | the port |
//! |---|---|
//! | [`local`] | switch rings that programs open |
//! | [`persistent`], [`joint`] | a persistent port, on a switch or not; its port on a second switch |
//! | [`monitor`] | copies of another port's frames |
//! | [`pipe`] | an end of a pipe between two programs, without a switch |
//! | [`bare`] | rings that are connected to nothing |
//! | [`tap`], [`brought_tap`] | an interface of the host's stack; one created by a client |
//! | [`pcap`] | capture files |
//! | [`nic`] | a network interface |
//! | [`guest`] | a ptnet device, as the network interface inside a virtual machine |
//! | [`vhost`], [`virtio`] | a virtio-net device; a driver for one |
//! | [`ptnet`], [`passthrough`] | a ptnet device on a switch; on a pipe's end or an interface instead |
//! | [`e1000`], [`e1000_pci`] | an Intel 82540EM; a driver for one |
//! | [`vxlan`], [`tunnel`] | a tunnel to other hosts |
//! | [`socket`] | peers at sockets: QEMU's, VDE's, User-Mode Linux', libkrun's |
//! | [`handed`] | not a port: queues that let only a user's own worker access that user's memory |
//! | [`null`], [`echo`] | nothing: every frame is discarded, or returned, for measurements and tests |
//!
//! Shared parts: [`plug`] attaches a port to its switch and detaches it, [`policies`] applies its policies, [`private`]
//! picks the VLAN of a private port, [`links`] delays and limits a port's frames, [`multicast`] snoops for a switch,
//! [`memory`] and [`brought`] provide a port's region, `site` determines the place and access of a device's socket,
//! [`attachment`] is a connection's hold on a port, [`faults`] evicts misbehaving programs, [`looking`] polls for
//! events, `notes` has texts that several kinds share, [`kind`] defines a kind and its requests, [`continuation`]
//! restores ports from another process.

pub mod attachment;
pub mod bare;
pub mod brought;
pub mod brought_tap;
pub mod continuation;
pub mod e1000;
pub mod e1000_pci;
pub mod echo;
pub mod faults;
pub mod guest;
pub mod handed;
pub mod joint;
pub mod kind;
pub mod links;
pub mod local;
pub mod looking;
pub mod memory;
pub mod monitor;
pub mod multicast;
pub mod nic;
mod notes;
pub mod null;
pub mod passthrough;
pub mod pcap;
pub mod persistent;
pub mod pipe;
pub mod plug;
pub mod policies;
pub mod private;
pub mod ptnet;
mod site;
pub mod socket;
pub mod tap;
pub mod tunnel;
pub mod vhost;
pub mod virtio;
pub mod vxlan;

use std::collections::BTreeSet;

use netvale_abi::nmreq::NR_REG_ALL_NIC;
use netvale_control::attach::AttachRequest;
use netvale_control::types::KindRequest;
use netvale_control::{Reply, RpcError};
use netvale_portspec::{AttachSpec, Base, PortSpec};
use rustix::io::Errno;

use self::attachment::{Attachment, OpenedPort};
use self::kind::{AdmittedRequest, AttachKind, NamedRings};
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::handover::items::{HoldItem, PortItem};
use crate::refusal::Refusal;
use crate::registry::ports::SwitchPort;
use crate::rings::local::LocalRings;
use crate::rings::offsets;
use crate::system::sandbox::KernelNeeds;

/// The kinds that can be attached to a switch.
pub const KINDS: &[AttachKind] = &[
    AttachKind::new("", local::attach),
    AttachKind::new("tap", tap::attach).with_kernel(&[&tap::KERNEL]),
    AttachKind::new("vhost", vhost::attach),
    AttachKind::new("virtio", virtio::attach),
    AttachKind::new("virtio-pci", virtio::attach_pci).with_kernel(&[&virtio::KERNEL]),
    AttachKind::new("ptnet", ptnet::attach),
    AttachKind::new("e1000", e1000::attach),
    AttachKind::new("e1000-pci", e1000_pci::attach).with_kernel(&[&virtio::KERNEL]),
    AttachKind::new("netmap", nic::attach::attach).with_begin_anew(nic::attach::begin_anew).with_kernel(&[
        &tap::KERNEL,
        &nic::kernel::KERNEL,
        &guest::KERNEL,
    ]),
    AttachKind::new("pcap", pcap::attach),
    AttachKind::new("vxlan", vxlan::attach)
        .with_kernel(&[&tunnel::kernel::KERNEL])
        .with_methods(&tunnel::methods::METHODS),
    AttachKind::new("stream", socket::attach::stream).with_kernel(&[&socket::kernel::KERNEL]),
    AttachKind::new("dgram", socket::attach::dgram).with_kernel(&[&socket::kernel::KERNEL]),
    AttachKind::new("seqpacket", socket::attach::seqpacket).with_kernel(&[&socket::kernel::KERNEL]),
    AttachKind::new("unixgram", socket::attach::unixgram).with_kernel(&[&socket::kernel::KERNEL]),
    AttachKind::new("vde", socket::attach::vde)
        .with_kernel(&[&socket::kernel::KERNEL])
        .with_methods(&socket::methods::METHODS),
    AttachKind::new("null", null::attach),
    AttachKind::new("echo", echo::attach),
];

/// Returns the kernel needs of all kinds.
pub fn kernel_needs() -> Vec<&'static KernelNeeds> {
    KINDS.iter().flat_map(|kind| kind.kernel).copied().collect()
}

/// Returns the kind of a specification, by its prefix.
fn kind_of(spec: &AttachSpec) -> Option<&'static AttachKind> {
    KINDS.iter().find(|kind| kind.prefix == spec.prefix())
}

/// Answers a request specific to one kind.
///
/// # Errors
/// The error of the kind, or an internal error if no kind answers.
pub fn answer(d: &mut Daemon, request: &KindRequest, caller: Caller) -> Result<Reply, RpcError> {
    let methods = KINDS.iter().filter_map(|kind| kind.methods);
    let mut answers = methods.filter_map(|methods| (methods.answer)(d, request, caller));
    answers.next().unwrap_or_else(|| Err(Refusal::internal("no kind of port answers the request").into()))
}

/// Returns the pending notifications of all kinds, each with the number of the connection and the text.
pub fn due(d: &mut Daemon) -> Vec<(u64, String)> {
    KINDS.iter().filter_map(|kind| kind.methods).flat_map(|methods| (methods.due)(d)).collect()
}

/// Attaches a port, which remains until it is detached.
///
/// # Errors
/// [`Refusal`] if the port cannot be created, or its switch is full.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let kind = kind_of(asked.spec)
        .ok_or_else(|| Refusal::new(Errno::OPNOTSUPP, "this daemon does not support this kind of port"))?;
    (kind.attach)(d, asked)
}

/// Returns the name of a persistent port without a switch: of the port with this record or, if that port joins a
/// persistent port to a second switch, of the joined port. `None` for other ports.
pub fn lasting_name(d: &Daemon, full: &str, record: &DaemonPort) -> Option<String> {
    let joined = joint::of(record).map(|joint| joint.port.as_str());
    joined.or_else(|| d.persistent.at(full)).map(str::to_owned)
}

/// Restores the port that joins a persistent port to its second switch, with the policies that it had on that switch.
///
/// # Errors
/// [`Refusal`] if the port or the switch does not exist.
pub fn join_again(d: &mut Daemon, item: &PortItem) -> Result<(), Refusal> {
    let (switch, port) = item.on.as_ref().ok_or_else(|| Refusal::internal("a joining port is not on a switch"))?;
    let rings = NamedRings { mode: NR_REG_ALL_NIC, ring: 0 };
    let at = SwitchPort::new(switch, port);
    persistent::attach(d, &at, 0, rings, item.owner.into())?;
    policies::put(d, &at.full(), &item.policies)?;
    if let Some(record) = d.ports.get_mut(&at.full()) {
        record.policies_are_set = item.policies_are_set;
    }
    Ok(())
}

/// Restores a connection's hold on a port.
///
/// # Errors
/// [`Refusal`] if the port does not exist.
pub fn continue_hold(d: &mut Daemon, item: HoldItem, caller: Caller) -> Result<Box<dyn Attachment>, Refusal> {
    match item {
        HoldItem::Rings { port, rings, binding } => Ok(Box::new(local::continue_hold(d, port, rings, binding)?)),
        HoldItem::Monitor { port, rings, binding } => monitor::continue_hold(d, port, rings, binding),
        HoldItem::Interface { client, binding } => nic::open::continue_hold(d, client, binding),
        HoldItem::Bare { rings, binding } => bare::continue_hold(d, rings, binding, caller),
        HoldItem::PipeEnd { pipe, end, binding } => pipe::continue_hold(d, pipe, end, binding),
    }
}

/// Releases the holds of connections other than `clients`, and removes non-persistent ports that no connection holds
/// after that.
pub fn release_all_but(d: &mut Daemon, clients: &BTreeSet<u64>) {
    let gone = |local: &LocalRings| local.clients().filter(|client| !clients.contains(client)).collect::<Vec<_>>();
    let of = |(name, record): (&str, &DaemonPort)| Some((name.to_owned(), gone(record.behind.programs()?)));
    let held: Vec<_> = d.ports.iter().filter_map(of).filter(|(_, gone)| !gone.is_empty()).collect();
    for (name, gone) in held {
        if let Some(local) = d.ports.get_mut(&name).and_then(|record| record.behind.programs_mut()) {
            gone.into_iter().for_each(|client| local.let_go(client));
        }
        local::drop_if_unused(d, &name, "its program has closed the port");
    }
    pipe::release_all_but(d, clients);
    nic::open::release_all_but(d, clients);
}

/// Detaches a port from its switch. A persistent VALE port remains, but is on no switch; other ports are removed.
///
/// # Errors
/// [`Refusal`] if the port does not exist.
pub fn detach(d: &mut Daemon, full: &str, why: &str) -> Result<(), Refusal> {
    if persistent::detach(d, full, why) {
        return Ok(());
    }
    plug::unplug(d, full, why)?;
    d.persistent.remove_at(full);
    Ok(())
}

/// Opens a port for a program: a port of a switch, a pipe's end, an interface, or a monitor of one of these.
///
/// # Errors
/// [`Refusal`] with netmap's errno.
pub fn open(d: &mut Daemon, request: &AttachRequest, spec: &PortSpec, caller: Caller) -> Result<OpenedPort, Refusal> {
    if spec.flags.monitor.is_some() {
        return monitor::open(d, request, spec, caller);
    }
    if spec.name.pipe().is_some() {
        return pipe::open(d, request, spec, caller);
    }
    match spec.name.base() {
        Base::Vale { switch, port } => local::open(d, request, spec, &SwitchPort::new(switch, port), caller),
        Base::Netmap { ifname } if d.persistent.contains(ifname.as_str()) => {
            persistent::open(d, request, spec, ifname.as_str(), caller)
        }
        Base::Netmap { ifname } => open_interface(d, request, spec, ifname.as_str(), caller),
    }
}

fn open_interface(
    d: &mut Daemon,
    request: &AttachRequest,
    spec: &PortSpec,
    ifname: &str,
    caller: Caller,
) -> Result<OpenedPort, Refusal> {
    let opened = match netvale_guest::passthrough::device_of(ifname) {
        Some(device) => guest::open(d, request, spec, ifname, &device, caller)?,
        None => {
            let opened = nic::open::open(d, request, spec, ifname, caller)?;
            monitor::watch_too(d, ifname, caller.client);
            opened
        }
    };
    if request.offsets.is_some() {
        opened.2.close(d, caller.client);
        // The kernel chooses the offset of a frame in its buffer.
        return offsets::unsupported(&format!("interface {ifname}"));
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use netvale_portspec::AttachSpec;

    use super::KINDS;

    /// Objective: each kind of port that a name can denote has exactly one row.
    #[test]
    fn a_row_for_each_kind() {
        let rows: Vec<&str> = KINDS.iter().map(|kind| kind.prefix).collect();
        assert_eq!(rows, AttachSpec::PREFIXES);
    }
}
