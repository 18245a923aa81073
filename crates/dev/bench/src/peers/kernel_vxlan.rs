//! The kernel's bridge and VXLAN device on two hosts: the peer of switches with tunnels.
//!
//! Frames are sent and received by packet sockets on veth pairs that lead into the bridges; TCP runs between namespaces
//! that such pairs connect to the bridges.

use crate::frames::frame;
use crate::peers::across::{OneWay, stream};
use crate::peers::iperf;
use crate::peers::underlay::{self, Underlay, VNI, vtep};
use crate::prelude::*;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role, batch};

/// Returns the peer: the kernel's bridge and VXLAN device on two hosts.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "kernel-vxlan",
        "Linux bridge and VXLAN device on two hosts; AF_PACKET at veths, one way, or one stream of TCP";
        &[NETWORKS, TWO], |case| case.scenario == "vxlan" && case.unit != Unit::Nanos, start;
    }
}

fn start(case: &Case, cores: Cores) -> Result<Session> {
    if case.unit == Unit::Gbps {
        need(&[iperf::NEEDS], 2)?;
    }
    let underlay = Underlay::new(case, cores)?;
    (0..2).try_for_each(|host| bridge(&underlay, host))?;
    let session = if case.unit == Unit::Gbps {
        stream(Vec::new(), [attached(&underlay, 0)?, attached(&underlay, 1)?], cores)
    } else {
        one_way(case, cores, &underlay)
    };
    Ok(session?.keeping(underlay))
}

/// Creates a bridge with a VXLAN device to the other host.
fn bridge(underlay: &Underlay, host: usize) -> Result<()> {
    let namespace = &underlay.hosts[host];
    let local = vtep(host);
    let remote = vtep(1 - host);
    namespace.ip("link add br0 type bridge mcast_snooping 0")?;
    namespace.ip(&format!("link add vx0 type vxlan id {VNI} local {local} remote {remote} dstport 4789"))?;
    namespace.ip("link set vx0 master br0 up")?;
    namespace.ip("link set br0 up")
}

/// Creates a namespace with a veth pair into the bridge.
fn attached(underlay: &Underlay, host: usize) -> Result<Netns> {
    let namespace = Netns::new()?;
    let hub = &underlay.hosts[host];
    hub.ip(&format!("link add v0 type veth peer name eth0 netns {}", namespace.path()))?;
    hub.ip(&format!("link set v0 mtu {} master br0 up", underlay::MTU))?;
    underlay::set_up_station(&namespace, host, "eth0")?;
    Ok(namespace)
}

fn one_way(case: &Case, cores: Cores, underlay: &Underlay) -> Result<Session> {
    let [near, far] = &underlay.hosts;
    [near, far].into_iter().try_for_each(veth_pair)?;
    let mut sender = near.inside(|| PacketSocket::open("p0", Role::Send))?;
    let mut receiver = far.inside(|| {
        // A frame teaches bridges and VXLAN devices where the receiver is.
        PacketSocket::open("p0", Role::Send)?.send(&frame(0, 1, case.frame_bytes), 1)?;
        PacketSocket::open("p0", Role::Receive)
    })?;
    let bytes = frame(1, 0, case.frame_bytes);
    let batch = batch(case);
    let one_way = OneWay {
        who: "the kernel's VXLAN device",
        hosts: Vec::new(),
        sender: move || sender.send(&bytes, batch),
        receiver: move |_: &mut u64| receiver.receive(MAX_BATCH),
    };
    one_way.session(case, cores, true, false)
}

/// Creates a veth pair from the bridge to an application.
fn veth_pair(host: &Netns) -> Result<()> {
    host.ip("link add p0 type veth peer name b0")?;
    host.ip("link set b0 master br0 up")?;
    host.ip("link set p0 up")
}
