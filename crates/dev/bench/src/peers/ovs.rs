//! OVS-DPDK as a learning switch (action NORMAL) between two vhost-user ports: the peer of a VALE switch.
//!
//! The switch's forwarding thread runs on the second CPU. On the first CPU, one testpmd with two virtio-user ports
//! sends each frame back through the switch (in `mac` mode, so that the switch sees the addresses that it has learned).
//! The figure is the sum of both directions. Database, sockets and logs are in a folder of their own, and the daemon
//! runs in a network namespace of its own, so that the system's Open vSwitch stays untouched and the TAPs that OVS
//! makes (`ovs-netdev`, `br0`) are removed with the namespace.

use crate::peers::dpdk::session;
use crate::peers::open_vswitch::{NEEDS, SWITCH_PAGES, Switch};
use crate::peers::testpmd::{self, Arguments, Place, Testpmd};
use crate::prelude::*;

/// Locally administered addresses of the two virtio-user ports.
const ADDRESSES: [&str; 2] = ["02:00:00:00:0a:01", "02:00:00:00:0a:02"];
/// The best burst of the ports' application. 32, 64 and 256 differ by 3 %; the switch itself works in bursts of 32.
const BEST_BURST: u32 = 64;

/// Returns the peers, by the kind of virtqueue between switch and testpmd. For guests, each kind is a case of its own.
pub fn peers() -> Vec<Contender> {
    let is_guests = |case: &Case, in_order| case.scenario == "guests" && in_order == (case.variant == "in-order");
    contenders! {
        "ovs-dpdk",
        "OVS-DPDK L2 switch, two vhost-user ports, split in-order (best with short frames); both directions";
        &[testpmd::NEEDS, NEEDS],
        move |case| case.is_across_a_switch() || is_guests(case, true) || case.is_crowded("switch"),
        |case, cores| start("ovs-dpdk", case, cores, true);
        "ovs-dpdk-mergeable", "OVS-DPDK L2 switch, two vhost-user ports, split mergeable; both directions";
        &[testpmd::NEEDS, NEEDS], move |case| case.is_across_a_switch() || is_guests(case, false),
        |case, cores| start("ovs-dpdk-mergeable", case, cores, false);
    }
}

fn start(who: &'static str, case: &Case, cores: Cores, in_order: bool) -> Result<Session> {
    let place = Place::new(1, SWITCH_PAGES)?;
    let is_pinned = case.foreign.is_none();
    let switch = Rc::new(switch(case, is_pinned.then_some(cores), &place)?);
    let sockets = [switch.socket("v0")?, switch.socket("v1")?].map(|path| path.display().to_string());
    let process = ports(case, cores.0, &sockets, &place, in_order)?;
    if !is_pinned {
        process.pids().into_iter().try_for_each(pin::release)?;
    }
    process.command("start tx_first 16")?;
    let words = if is_pinned {
        format!("switch on CPU {}, application of both ports on CPU {}", cores.1, cores.0)
    } else {
        "switch pinned by OVS itself, application of both ports polls, not pinned".into()
    };
    let session = session(who, case, place, words, &process, vec![switch])?;
    Ok(session.fact("peer_burst", case.burst(BEST_BURST)))
}

/// Starts the testpmd process that has both ports, connected to the switch's sockets.
pub fn ports(case: &Case, core: usize, sockets: &[String; 2], place: &Place, in_order: bool) -> Result<Rc<Testpmd>> {
    let in_order = u8::from(in_order);
    let device = |index: usize, address: &str| {
        let path = &sockets[index];
        format!("net_virtio_user{index},path={path},mac={address},mrg_rxbuf=1,in_order={in_order}")
    };
    let [first, second] = ADDRESSES;
    let arguments = Arguments {
        burst: case.burst(BEST_BURST),
        more: vec![format!("--eth-peer=0,{second}"), format!("--eth-peer=1,{first}")],
        ..Arguments::new("ports", case, &[core], &[device(0, first), device(1, second)], "mac")
    };
    Testpmd::start(&arguments, place, &[])
}

/// Starts a learning switch with both ports, secured if the case requires it.
fn switch(case: &Case, cores: Option<Cores>, place: &Place) -> Result<Switch> {
    let switch = Switch::start(place, "switch", None, cores, &[])?;
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

/// Puts both ports into a VLAN, and makes the switch accept from each port only frames with the port's own source
/// address.
fn secure(switch: &Switch) -> Result<()> {
    switch.set("set port v0 tag=10 -- set port v1 tag=10")?;
    switch.add_flow("priority=0,actions=drop")?;
    let [first, second] = ADDRESSES;
    switch.add_flow(&format!("priority=10,in_port=v0,dl_src={first},actions=normal"))?;
    switch.add_flow(&format!("priority=10,in_port=v1,dl_src={second},actions=normal"))
}
