//! The Linux bridge between two veth pairs or two TAP devices: the kernel's switch, as a peer of VALE switches.
//!
//! All interfaces are in a network namespace of their own. Each port has a thread that sends batches and receives what
//! arrives: with AF_PACKET past the queueing discipline, or with a write for each frame on a TAP, which has no batches.
//! The figure is the sum of the rates at which both threads receive.

use crate::frames::frame;
use crate::peers::packets;
use crate::prelude::*;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role, batch};
use crate::sys::tapdev::TapDevice;

/// Returns a peer for each kind of port.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "linux-bridge-veth", "Linux bridge between two veth pairs, AF_PACKET at their far ends; both directions";
        &[NETWORKS, TWO], |case| case.is_across_a_switch() || case.is_crowded("switch"),
        |case, cores| start("linux-bridge-veth", case, cores, End::veth);
        "linux-bridge-tap", "Linux bridge between two TAP devices, read and written directly; both directions";
        &[NETWORKS, TWO], Case::is_across_a_switch, |case, cores| start("linux-bridge-tap", case, cores, End::tap);
    }
}

fn start(who: &'static str, case: &Case, cores: Cores, end: fn(&Netns, usize) -> Result<End>) -> Result<Session> {
    let namespace = Netns::silent()?;
    namespace.ip("link add br0 type bridge mcast_snooping 0")?;
    if case.foreign.is_some() {
        (0..2).try_for_each(|own| veth_pair(&namespace, own))?;
        namespace.ip("link set br0 up")?;
        return packets::start(case, namespace);
    }
    let mut ends = [end(&namespace, 0)?, end(&namespace, 1)?];
    namespace.ip("link set br0 up")?;
    let own = case.clone();
    let batch = batch(case);
    let measuring = move |window| {
        let jobs = (0u16..).zip(ends.iter_mut().zip([cores.0, cores.1])).map(|(index, (end, core))| {
            let bytes = frame(1 - index, index, own.frame_bytes);
            Job::new(core, move || end.round(&bytes, batch))
        });
        let (done, beside) = run_pinned(jobs.collect(), window)?;
        Ok(Sample::new(own.rate(total_rate(who, &done)?), beside))
    };
    let words = format!("one port's sender and receiver on CPU {}, the other's on CPU {}", cores.0, cores.1);
    Ok(Session::new(words, true, measuring).keeping(namespace))
}

/// An application's end of a port.
enum End {
    Packet { sender: PacketSocket, receiver: PacketSocket },
    Tap { device: TapDevice, room: Vec<u8> },
}

/// Creates a veth pair from the bridge to an application.
fn veth_pair(namespace: &Netns, own: usize) -> Result<()> {
    namespace.ip(&format!("link add p{own} type veth peer name b{own}"))?;
    namespace.ip(&format!("link set b{own} master br0"))?;
    namespace.ip(&format!("link set b{own} up"))?;
    namespace.ip(&format!("link set p{own} up"))
}

impl End {
    fn veth(namespace: &Netns, own: usize) -> Result<End> {
        veth_pair(namespace, own)?;
        let name = format!("p{own}");
        namespace.inside(|| {
            let sender = PacketSocket::open(&name, Role::Send)?;
            Ok(End::Packet { sender, receiver: PacketSocket::open(&name, Role::Receive)? })
        })
    }

    fn tap(namespace: &Netns, own: usize) -> Result<End> {
        let name = format!("t{own}");
        let device = namespace.inside(|| TapDevice::create(&name))?;
        namespace.ip(&format!("link set {name} master br0"))?;
        namespace.ip(&format!("link set {name} up"))?;
        Ok(End::Tap { device, room: vec![0; 2048] })
    }

    /// Sends a batch and receives a batch. Returns the number of frames received.
    fn round(&mut self, frame: &[u8], batch: usize) -> Result<u64> {
        match self {
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
