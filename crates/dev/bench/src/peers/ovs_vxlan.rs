//! Open vSwitch with DPDK on two hosts, each with a VXLAN port (native tunnelling in the userspace datapath): the peer
//! of switches with tunnels.
//!
//! As for netvale and the kernel, all of a host runs on its single CPU: the switch's forwarding thread, which may sleep
//! while there are no frames, and a program that sleeps as well. The underlay's veth is DPDK's net_af_xdp device, the
//! fastest that OVS supports there.

use crate::frames::frame;
use crate::peers::across::{OneWay, stream};
use crate::peers::iperf;
use crate::peers::open_vswitch::{NEEDS, SWITCH_PAGES, Switch};
use crate::peers::station::Station;
use crate::peers::testpmd::{self, Place};
use crate::peers::underlay::{self, ETHTOOL, INTERFACE, Underlay, VNI, vtep};
use crate::prelude::*;
use crate::sys::rawsock::batch;

/// Time limit for the first frame, including connecting and learning addresses.
const FIRST_FRAME: Duration = Duration::from_secs(15);
/// Settings of a switch. A forwarding thread that never sleeps makes the programs on its CPU wait. If it may sleep for
/// up to 200 µs (`pmd-maxsleep`), the rate is 1.5 times as high.
const SETTINGS: [&str; 2] = ["other_config:smc-enable=true", "other_config:pmd-maxsleep=200"];

/// The contender's name in errors.
const WHO: &str = "OVS's VXLAN port";

/// Returns the peer: Open vSwitch with a VXLAN port on two hosts.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "ovs-dpdk-vxlan",
        "OVS-DPDK with a VXLAN port on two hosts, AF_XDP below; frames one way between virtio ports, or one stream of \
            TCP";
        &[testpmd::NEEDS, NEEDS, NETWORKS], |case| case.scenario == "vxlan" && case.unit != Unit::Nanos, start;
    }
}

fn start(case: &Case, cores: Cores) -> Result<Session> {
    if case.unit == Unit::Gbps {
        need(&[iperf::NEEDS], 2)?;
        need(ETHTOOL, 2)?;
    }
    let underlay = Underlay::new(case, cores)?;
    let place = Place::new(0, 2 * SWITCH_PAGES)?;
    let switch = |host: usize, name: &str, core: usize| {
        let inside = Some(&underlay.hosts[host]);
        let switch = Switch::start(&place, name, inside, Some(Cores(core, core)), &SETTINGS)?;
        join(&switch, &underlay, host).map(|()| Rc::new(switch))
    };
    let switches = [switch(0, "near", cores.0)?, switch(1, "far", cores.1)?];
    let hosts: Parts = vec![switches[0].clone(), switches[1].clone()];
    let session = if case.unit == Unit::Gbps {
        let station = |host: usize| attached(&underlay.hosts[host], &switches[host], host);
        stream(hosts, [station(0)?, station(1)?], cores)
    } else {
        one_way(case, cores, &switches, hosts)
    };
    Ok(session?.keeping(underlay).keeping(place))
}

/// Returns the MAC address of the bridge that contains a host's underlay interface.
fn bridge_address(host: usize) -> String {
    format!("02:00:00:00:0f:0{}", host + 1)
}

/// Returns the settings of a port that is DPDK's `index`-th AF_XDP device. Busy polling is off, because busy polling is
/// slower here.
fn af_xdp(index: usize, interface: &str) -> String {
    let device = format!("net_af_xdp{index},iface={interface},start_queue=0,queue_count=1,busy_budget=0");
    format!("type=dpdk options:dpdk-devargs={device}")
}

/// Adds the host's underlay interface to a switch, and a bridge with a tunnel to the other host.
fn join(switch: &Switch, underlay: &Underlay, host: usize) -> Result<()> {
    let local = vtep(host);
    let remote = vtep(1 - host);
    let address = bridge_address(host);
    let device = af_xdp(0, INTERFACE);
    switch.set(&format!(
        "add-br phy -- set bridge phy datapath_type=netdev other_config:hwaddr=\"{address}\" \
         -- add-port phy wire -- set Interface wire {device} \
         -- add-br br0 -- set bridge br0 datapath_type=netdev \
         -- add-port br0 vx -- set Interface vx type=vxlan \
         options:local_ip={local} options:remote_ip={remote} options:key={VNI}"
    ))?;
    let namespace = &underlay.hosts[host];
    namespace.ip(&format!("addr del {local}/24 dev {INTERFACE}"))?;
    namespace.set_up("phy", &format!("{local}/24"))?;
    switch.ask(&format!("tnl/neigh/set phy {remote} {}", bridge_address(1 - host))).map(drop)
}

/// Creates a namespace with a veth pair to a host's switch. OVS neither fills in checksums nor segments for a tunnel,
/// so the namespace's network stack does both.
fn attached(hub: &Netns, switch: &Switch, host: usize) -> Result<Netns> {
    let namespace = Netns::new()?;
    hub.ip(&format!("link add v0 type veth peer name eth0 netns {}", namespace.path()))?;
    hub.ip(&format!("link set v0 mtu {} up", underlay::MTU))?;
    child::run(namespace.command("ethtool").args(["-K", "eth0", "tx", "off"]))?;
    underlay::set_up_station(&namespace, host, "eth0")?;
    switch.set(&format!("add-port br0 v0 -- set Interface v0 {}", af_xdp(1, "v0")))?;
    Ok(namespace)
}

/// Frames in one direction, from a virtio port on one host's switch to a virtio port on the other host's switch.
fn one_way(case: &Case, cores: Cores, [near, far]: &[Rc<Switch>; 2], hosts: Parts) -> Result<Session> {
    let connect = |switch: &Switch| {
        switch.set("add-port br0 v0 -- set Interface v0 type=dpdkvhostuser")?;
        Station::connect(&switch.socket("v0")?)
    };
    let mut sender = connect(near)?;
    let mut receiver = connect(far)?;
    settle(case, &mut sender, &mut receiver)?;
    let bytes = frame(1, 0, case.frame_bytes);
    let batch = batch(case);
    let expected = bytes.clone();
    let one_way = OneWay {
        who: WHO,
        hosts,
        sender: move || Ok(sender.send(&bytes, batch)),
        receiver: move |wrong: &mut u64| {
            let came = receiver.receive(&expected);
            *wrong = receiver.wrong();
            Ok(came)
        },
    };
    one_way.session(case, cores, true, true)
}

/// Waits until each switch has learned the address of the other host's program, and frames arrive.
fn settle(case: &Case, sender: &mut Station, receiver: &mut Station) -> Result<()> {
    let there = frame(1, 0, case.frame_bytes);
    let back = frame(0, 1, case.frame_bytes);
    let arrived = interrupt::poll_until(FIRST_FRAME, || {
        receiver.send(&back, 1);
        sender.send(&there, 1);
        let arrived = [sender.receive(&back), receiver.receive(&there)];
        Ok((!arrived.contains(&0)).then_some(()))
    })?;
    arrived.ok_or_else(|| BenchError::NoTraffic(WHO.into()))
}
