//! OVS-DPDK, learning switch (action NORMAL) between two vhost-user ports: the peer of a VALE switch.
//!
//! The switch's forwarding thread has the second CPU; on the first, one testpmd with two virtio-user ports sends each
//! frame back through the switch (`mac` mode, so that the switch sees the addresses it has learned). The figure is both
//! directions together. Database, sockets and logs lie in a folder of our own, and the daemon runs in a network
//! namespace of its own, so that the system's Open vSwitch is not touched and the taps OVS makes (`ovs-netdev`, `br0`)
//! vanish with it.

use crate::case::Case;
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::peers::dpdk::{DpdkSession, burst};
use crate::peers::open_vswitch::{self, SWITCH_PAGES, Switch};
use crate::peers::testpmd::{Place, Setup, Testpmd};
use crate::{crowd, pin};

/// Locally administered addresses of the two virtio-user ports.
const ADDRESSES: [&str; 2] = ["02:00:00:00:0a:01", "02:00:00:00:0a:02"];
/// The best burst of the ports' application; the switch itself works in bursts of 32. 32, 64 and 256 differ by 3 %.
const BEST_BURST: u32 = 64;

/// The peer, by the kind of virtqueue between switch and testpmd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ovs {
    /// Split ring, mergeable buffers.
    Mergeable,
    /// Split ring, mergeable buffers, in order.
    InOrder,
}

impl Contender for Ovs {
    fn name(&self) -> &str {
        match self {
            Self::Mergeable => "ovs-dpdk-mergeable",
            Self::InOrder => "ovs-dpdk",
        }
    }

    fn about(&self) -> &str {
        match self {
            Self::Mergeable => "OVS-DPDK L2 switch, two vhost-user ports, split mergeable; both directions",
            Self::InOrder => {
                "OVS-DPDK L2 switch, two vhost-user ports, split in-order (best with short frames); both directions"
            }
        }
    }

    fn fits(&self, case: &Case) -> bool {
        // Between guests, each kind has cases of its own.
        let guests = if case.variant == "in-order" { Self::InOrder } else { Self::Mergeable };
        let crowded = *self == Self::InOrder && case.is_crowded("switch");
        case.is_across_a_switch() || (case.scenario == "guests" && *self == guests) || crowded
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        open_vswitch::available(env)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (ports_core, switch_core) = env.two_cores()?;
        let place = Place::new(1, SWITCH_PAGES)?;
        let pinned = case.foreign.is_none();
        let switch = switch(case, pinned.then_some((ports_core, switch_core)), &place)?;
        let sockets = [socket(&switch, "v0")?, socket(&switch, "v1")?];
        let mut process = self.ports(case, ports_core, &sockets, &place)?;
        if !pinned {
            pin::release(process.pid())?;
        }
        process.command("start tx_first 16")?;
        let session = DpdkSession {
            processes: vec![process],
            others: vec![Box::new(switch)],
            keep: Box::new(place),
            name: self.name().to_owned(),
            unit: case.unit,
            frame_bytes: case.frame_bytes,
            cores: if pinned {
                format!("switch {switch_core}, both ports' application {ports_core}")
            } else {
                "switch pinned by OVS itself, both ports' application polls, not pinned".into()
            },
            touched: true,
            context: vec![("peer_burst".into(), burst(case, BEST_BURST).to_string())],
        };
        crowd::beside(case, Box::new(session.settled()?))
    }
}

impl Ovs {
    /// The application with both ports, at the sockets of the switch's.
    pub(crate) fn ports(self, case: &Case, core: usize, sockets: &[String; 2], place: &Place) -> Result<Testpmd> {
        let in_order = u8::from(self == Self::InOrder);
        let device = |index: usize, address: &str| {
            let path = &sockets[index];
            format!("net_virtio_user{index},path={path},mac={address},mrg_rxbuf=1,in_order={in_order}")
        };
        let [first, second] = ADDRESSES;
        let setup = Setup {
            name: "ports",
            cores: &[core],
            vdevs: &[device(0, first), device(1, second)],
            single_file: true,
            forward: "mac",
            frame_bytes: case.frame_bytes,
            burst: burst(case, BEST_BURST),
            more: &[format!("--eth-peer=0,{second}"), format!("--eth-peer=1,{first}")],
            eal: &[],
        };
        Testpmd::start(&setup, place)
    }
}

/// A learning switch with both ports, secured if the case says so.
fn switch(case: &Case, cores: Option<(usize, usize)>, place: &Place) -> Result<Switch> {
    let switch = Switch::start(&open_vswitch::Setup { name: "switch", namespace: None, cores, more: &[] }, place)?;
    switch.set(
        "add-br br0 -- set bridge br0 datapath_type=netdev \
         -- add-port br0 v0 -- set Interface v0 type=dpdkvhostuser \
         -- add-port br0 v1 -- set Interface v1 type=dpdkvhostuser",
    )?;
    if case.is_secured() {
        secure(&switch)?;
    }
    Ok(switch)
}

fn socket(switch: &Switch, port: &str) -> Result<String> {
    switch.socket(port).map(|path| path.display().to_string())
}

/// Puts both ports into a VLAN, and takes frames from each from its own address only.
fn secure(switch: &Switch) -> Result<()> {
    switch.set("set port v0 tag=10 -- set port v1 tag=10")?;
    switch.add_flow("priority=0,actions=drop")?;
    let [first, second] = ADDRESSES;
    switch.add_flow(&format!("priority=10,in_port=v0,dl_src={first},actions=normal"))?;
    switch.add_flow(&format!("priority=10,in_port=v1,dl_src={second},actions=normal"))
}
