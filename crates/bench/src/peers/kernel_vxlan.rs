//! The kernel's bridge and VXLAN device on two hosts: the peer of switches with tunnels.
//!
//! Frames come from and go to packet sockets at veths into the bridges; TCP runs between namespaces at such veths.

use std::time::Duration;

use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::error::{Result, Skip};
use crate::peers::across::{OneWay, Stream};
use crate::peers::frames::{self, frame};
use crate::peers::iperf;
use crate::peers::underlay::{self, Underlay, VNI, vtep};
use crate::pin;
use crate::sys::netns::Netns;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role};
use crate::sys::threads::{Job, run_pinned};

/// The peer.
#[derive(Clone, Copy, Debug)]
pub struct KernelVxlan;

impl Contender for KernelVxlan {
    fn name(&self) -> &str {
        "kernel-vxlan"
    }

    fn about(&self) -> &str {
        "Linux bridge and VXLAN device on two hosts; AF_PACKET at veths, one way, or one stream of TCP"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == "vxlan" && case.unit != Unit::Nanos
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        underlay::available()?;
        pin::need(2, &env.cores)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        if case.unit == Unit::Gbps {
            iperf::available(env)?;
        }
        let underlay = Underlay::new(case, cores)?;
        (0..2).try_for_each(|host| bridge(&underlay, host))?;
        if case.unit == Unit::Gbps {
            let stations = [attached(&underlay, 0)?, attached(&underlay, 1)?];
            return Ok(Box::new(Stream::start(underlay, stations, cores)?));
        }
        Ok(Box::new(Frames::start(case, cores, underlay)?))
    }
}

/// A bridge with a VXLAN device to the other host.
fn bridge(underlay: &Underlay, host: usize) -> Result<()> {
    let (namespace, local, remote) = (&underlay.hosts[host], vtep(host), vtep(1 - host));
    namespace.ip("link add br0 type bridge mcast_snooping 0")?;
    namespace.ip(&format!("link add vx0 type vxlan id {VNI} local {local} remote {remote} dstport 4789"))?;
    namespace.ip("link set vx0 master br0 up")?;
    namespace.ip("link set br0 up")
}

/// A namespace with a veth into the bridge.
fn attached(underlay: &Underlay, host: usize) -> Result<Netns> {
    let namespace = Netns::new()?;
    let hub = &underlay.hosts[host];
    hub.ip(&format!("link add v0 type veth peer name eth0 netns {}", namespace.path()))?;
    hub.ip(&format!("link set v0 mtu {} master br0 up", underlay::MTU))?;
    underlay::set_up_station(&namespace, host, "eth0")?;
    Ok(namespace)
}

struct Frames {
    case: Case,
    cores: (usize, usize),
    sender: PacketSocket,
    receiver: PacketSocket,
    _underlay: Underlay,
}

impl Frames {
    fn start(case: &Case, cores: (usize, usize), underlay: Underlay) -> Result<Self> {
        let [near, far] = &underlay.hosts;
        [near, far].into_iter().try_for_each(veth_pair)?;
        let sender = near.inside(|| PacketSocket::open("p0", Role::Send))?;
        let receiver = far.inside(|| {
            // Bridges and VXLAN devices learn where it is.
            PacketSocket::open("p0", Role::Send)?.send(&frame(1, 0, case.frame_bytes), 1)?;
            PacketSocket::open("p0", Role::Receive)
        })?;
        Ok(Self { case: case.clone(), cores, sender, receiver, _underlay: underlay })
    }
}

/// From the bridge to an application.
fn veth_pair(host: &Netns) -> Result<()> {
    host.ip("link add p0 type veth peer name b0")?;
    host.ip("link set b0 master br0 up")?;
    host.ip("link set p0 up")
}

impl Session for Frames {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let (bytes, batch) = (frame(0, 1, self.case.frame_bytes), frames::batch(&self.case));
        let (sender, receiver) = (&mut self.sender, &mut self.receiver);
        let jobs = vec![
            Job::new(self.cores.0, move || sender.send(&bytes, batch)),
            Job::new(self.cores.1, move || receiver.receive(MAX_BATCH)),
        ];
        let (done, beside) = run_pinned(jobs, window)?;
        let one_way = OneWay::of(&done, beside, "the kernel's VXLAN device", 0)?;
        Ok(Sample::new(frames::in_unit(&self.case, one_way.received), one_way.beside))
    }

    fn cores(&self) -> String {
        OneWay::cores(self.cores)
    }

    fn touched(&self) -> bool {
        true
    }
}
