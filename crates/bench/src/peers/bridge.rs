//! The Linux bridge between two veth pairs or two TAP devices: the kernel's switch, as a peer of VALE.
//!
//! Everything lives in a network namespace of its own. One thread a port: each sends whole batches (AF_PACKET past the
//! queueing discipline, or one write a frame on a TAP, which knows no batches) and takes what arrives. The figure is
//! what both receive.

use std::time::Duration;

use crate::case::Case;
use crate::contender::{Contender, Env, Sample, Session};
use crate::error::{Result, Skip};
use crate::peers::frames::{self, frame};
use crate::peers::packets::Packets;
use crate::sys::netns::Netns;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role};
use crate::sys::tapdev::TapDevice;
use crate::sys::threads::{Job, run_pinned, total_rate};
use crate::{crowd, pin, sys};

/// The peer, by the kind of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bridge {
    /// veth pairs.
    Veth,
    /// TAP devices.
    Tap,
}

impl Contender for Bridge {
    fn name(&self) -> &str {
        match self {
            Self::Veth => "linux-bridge-veth",
            Self::Tap => "linux-bridge-tap",
        }
    }

    fn about(&self) -> &str {
        match self {
            Self::Veth => "Linux bridge between two veth pairs, AF_PACKET at their far ends; both directions",
            Self::Tap => "Linux bridge between two TAP devices, read and written directly; both directions",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        case.is_across_a_switch() || (*self == Self::Veth && case.is_crowded("switch"))
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        sys::need_root("network namespaces")?;
        sys::need_program("ip", "iproute2")?;
        pin::need(2, &env.cores)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        let namespace = Netns::new()?;
        namespace.ip("link add br0 type bridge mcast_snooping 0")?;
        if case.foreign.is_some() {
            (0..2).try_for_each(|own| veth_pair(&namespace, own))?;
            namespace.ip("link set br0 up")?;
            return crowd::beside(case, Box::new(Packets::start(case, namespace)?));
        }
        let ports = match self {
            Self::Veth => [veth_port(&namespace, 0, cores.0)?, veth_port(&namespace, 1, cores.1)?],
            Self::Tap => [tap_port(&namespace, 0, cores.0)?, tap_port(&namespace, 1, cores.1)?],
        };
        namespace.ip("link set br0 up")?;
        Ok(Box::new(Bridged { name: self.name().to_owned(), case: case.clone(), cores, ports, _namespace: namespace }))
    }
}

/// One port's application.
struct Port {
    core: usize,
    own: usize,
    end: End,
}

enum End {
    Packet { sender: PacketSocket, receiver: PacketSocket },
    Tap { device: TapDevice, room: Vec<u8> },
}

/// From the bridge to an application.
fn veth_pair(namespace: &Netns, own: usize) -> Result<()> {
    frames::silence_ipv6(namespace)?;
    namespace.ip(&format!("link add p{own} type veth peer name b{own}"))?;
    namespace.ip(&format!("link set b{own} master br0"))?;
    namespace.ip(&format!("link set b{own} up"))?;
    namespace.ip(&format!("link set p{own} up"))
}

fn veth_port(namespace: &Netns, own: usize, core: usize) -> Result<Port> {
    veth_pair(namespace, own)?;
    let name = format!("p{own}");
    let end = namespace.inside(|| {
        let sender = PacketSocket::open(&name, Role::Send)?;
        Ok(End::Packet { sender, receiver: PacketSocket::open(&name, Role::Receive)? })
    })?;
    Ok(Port { core, own, end })
}

fn tap_port(namespace: &Netns, own: usize, core: usize) -> Result<Port> {
    frames::silence_ipv6(namespace)?;
    let name = format!("t{own}");
    let device = namespace.inside(|| TapDevice::create(&name))?;
    namespace.ip(&format!("link set {name} master br0"))?;
    namespace.ip(&format!("link set {name} up"))?;
    Ok(Port { core, own, end: End::Tap { device, room: vec![0; 2048] } })
}

impl Port {
    /// Sends a batch and takes a batch; returns what came.
    fn round(&mut self, frame: &[u8], batch: usize) -> Result<u64> {
        match &mut self.end {
            End::Packet { sender, receiver } => {
                sender.send(frame, batch)?;
                receiver.receive(MAX_BATCH)
            }
            End::Tap { device, room } => {
                let mut came = 0;
                for _ in 0..batch {
                    device.send(frame)?;
                }
                while came < MAX_BATCH as u64 && device.receive(room)? {
                    came += 1;
                }
                Ok(came)
            }
        }
    }
}

struct Bridged {
    name: String,
    case: Case,
    cores: (usize, usize),
    ports: [Port; 2],
    _namespace: Netns,
}

impl Session for Bridged {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let batch = frames::batch(&self.case);
        let length = self.case.frame_bytes;
        let jobs = self.ports.iter_mut().map(|port| {
            let bytes = frame(port.own, 1 - port.own, length);
            Job::new(port.core, move || port.round(&bytes, batch))
        });
        let (done, beside) = run_pinned(jobs.collect(), window)?;
        let rate = total_rate(&self.name, &done)?;
        Ok(Sample::new(frames::in_unit(&self.case, rate), beside))
    }

    fn cores(&self) -> String {
        format!("one port's sender and receiver on {}, the other's on {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        true
    }
}
