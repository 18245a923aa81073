//! Open vSwitch with DPDK on two hosts, with a VXLAN port each (native tunnelling in the userspace datapath): the peer
//! of switches with tunnels.
//!
//! All of a host runs on its one CPU, as netvale's and the kernel's does: the switch's forwarding thread, which may
//! sleep for want of frames, and a program that sleeps, too. The underlay's veth belongs to DPDK's net_af_xdp, the
//! fastest of what OVS can put there.

use std::time::Duration;

use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::error::{BenchError, Result, Skip};
use crate::interrupt;
use crate::peers::across::{OneWay, Stream};
use crate::peers::dpdk::Part;
use crate::peers::frames::{self, frame};
use crate::peers::iperf;
use crate::peers::open_vswitch::{self, SWITCH_PAGES, Setup, Switch};
use crate::peers::station::Station;
use crate::peers::testpmd::Place;
use crate::peers::underlay::{self, INTERFACE, Underlay, VNI, vtep};
use crate::sys;
use crate::sys::netns::Netns;
use crate::sys::threads::{Job, run_pinned_with};

/// The longest wait for the first frame, connecting and learning addresses included.
const FIRST_FRAME: Duration = Duration::from_secs(15);
/// Settings of a switch. A forwarding thread that never sleeps leaves the programs on its CPU waiting: with sleeps of
/// up to this many microseconds it moves half as many frames again.
const SETTINGS: [&str; 2] = ["other_config:smc-enable=true", "other_config:pmd-maxsleep=200"];

/// What frames go through.
const WHO: &str = "OVS's VXLAN port";

/// The peer.
#[derive(Clone, Copy, Debug)]
pub struct OvsVxlan;

impl Contender for OvsVxlan {
    fn name(&self) -> &str {
        "ovs-dpdk-vxlan"
    }

    fn about(&self) -> &str {
        "OVS-DPDK with a VXLAN port on two hosts, AF_XDP below; frames one way between virtio ports, or one stream of TCP"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == "vxlan" && case.unit != Unit::Nanos
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        open_vswitch::available(env)?;
        underlay::available()
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        if case.unit != Unit::Gbps {
            return Ok(Box::new(Frames::start(case, cores, Hosts::start(case, cores)?)?));
        }
        iperf::available(env)?;
        sys::need_program("ethtool", "ethtool")?;
        let hosts = Hosts::start(case, cores)?;
        let stations = [attached(&hosts, 0)?, attached(&hosts, 1)?];
        Ok(Box::new(Stream::start(hosts, stations, cores)?))
    }
}

/// Two switches with a tunnel between them.
struct Hosts {
    // Dropped in this order.
    switches: [Switch; 2],
    underlay: Underlay,
    _place: Place,
}

impl Hosts {
    fn start(case: &Case, cores: (usize, usize)) -> Result<Self> {
        let (underlay, place) = (Underlay::new(case, cores)?, Place::new(0, 2 * SWITCH_PAGES)?);
        let start = |host: usize, name: &str, core: usize| {
            let namespace = Some(&underlay.hosts[host]);
            let setup = Setup { name, namespace, cores: Some((core, core)), more: &SETTINGS };
            let switch = Switch::start(&setup, &place)?;
            join(&switch, &underlay, host).map(|()| switch)
        };
        let switches = [start(0, "near", cores.0)?, start(1, "far", cores.1)?];
        Ok(Self { switches, underlay, _place: place })
    }
}

impl Part for Hosts {
    fn pids(&self) -> Vec<u32> {
        self.switches.iter().flat_map(Part::pids).collect()
    }

    fn freeze(&self) -> Result<()> {
        self.switches.iter().try_for_each(Part::freeze)
    }

    fn thaw(&self) -> Result<()> {
        self.switches.iter().try_for_each(Part::thaw)
    }
}

/// The address of the bridge that has a host's underlay.
fn bridge_address(host: usize) -> String {
    format!("02:00:00:00:0f:0{}", host + 1)
}

/// The settings of a port that is DPDK's `index`-th AF_XDP device. Without busy polling, which is slower here.
fn af_xdp(index: usize, interface: &str) -> String {
    let device = format!("net_af_xdp{index},iface={interface},start_queue=0,queue_count=1,busy_budget=0");
    format!("type=dpdk options:dpdk-devargs={device}")
}

/// Gives a switch its host's interface of the underlay, and a bridge with a tunnel.
fn join(switch: &Switch, underlay: &Underlay, host: usize) -> Result<()> {
    let (local, remote, address) = (vtep(host), vtep(1 - host), bridge_address(host));
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
    namespace.ip(&format!("addr add {local}/24 dev phy"))?;
    namespace.ip("link set phy up")?;
    switch.ask(&format!("tnl/neigh/set phy {remote} {}", bridge_address(1 - host))).map(drop)
}

/// A namespace with a veth into a host's switch. OVS does not finish checksums, nor cut segments for a tunnel: the
/// namespace has to.
fn attached(hosts: &Hosts, host: usize) -> Result<Netns> {
    let (namespace, hub) = (Netns::new()?, &hosts.underlay.hosts[host]);
    hub.ip(&format!("link add v0 type veth peer name eth0 netns {}", namespace.path()))?;
    hub.ip(&format!("link set v0 mtu {} up", underlay::MTU))?;
    sys::child::run(namespace.command("ethtool").args(["-K", "eth0", "tx", "off"]))?;
    underlay::set_up_station(&namespace, host, "eth0")?;
    hosts.switches[host].set(&format!("add-port br0 v0 -- set Interface v0 {}", af_xdp(1, "v0")))?;
    Ok(namespace)
}

/// Frames one way, from a virtio port of one host's switch to one of the other's.
struct Frames {
    case: Case,
    cores: (usize, usize),
    sender: Station,
    receiver: Station,
    lost_percent: f64,
    hosts: Hosts,
}

impl Frames {
    fn start(case: &Case, cores: (usize, usize), hosts: Hosts) -> Result<Self> {
        let connect = |switch: &Switch| {
            switch.set("add-port br0 v0 -- set Interface v0 type=dpdkvhostuser")?;
            Station::connect(&switch.socket("v0")?)
        };
        let [near, far] = &hosts.switches;
        let (sender, receiver) = (connect(near)?, connect(far)?);
        let mut this = Self { case: case.clone(), cores, sender, receiver, lost_percent: 0.0, hosts };
        this.settle()?;
        this.pause()?;
        Ok(this)
    }

    /// Waits until both switches know where the other one's program is, and frames arrive.
    fn settle(&mut self) -> Result<()> {
        let (there, back) = (frame(0, 1, self.case.frame_bytes), frame(1, 0, self.case.frame_bytes));
        let arrived = interrupt::poll_until(FIRST_FRAME, || {
            self.receiver.send(&back, 1);
            self.sender.send(&there, 1);
            let arrived = [self.sender.receive(&back), self.receiver.receive(&there)];
            Ok((!arrived.contains(&0)).then_some(()))
        })?;
        arrived.ok_or_else(|| BenchError::NoTraffic(WHO.into()))
    }
}

impl Session for Frames {
    fn resume(&mut self) -> Result<()> {
        self.hosts.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.hosts.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let (bytes, batch) = (frame(0, 1, self.case.frame_bytes), frames::batch(&self.case));
        let (sender, receiver, bytes) = (&mut self.sender, &mut self.receiver, &bytes);
        let jobs = vec![
            Job::new(self.cores.0, move || Ok(sender.send(bytes, batch))),
            Job::new(self.cores.1, move || Ok(receiver.receive(bytes))),
        ];
        let (done, beside) = run_pinned_with(jobs, window, &self.hosts.pids(), &[])?;
        let one_way = OneWay::of(&done, beside, WHO, self.receiver.wrong())?;
        self.lost_percent = one_way.lost_percent;
        Ok(Sample::new(self.case.rate(one_way.received), one_way.beside))
    }

    fn cores(&self) -> String {
        OneWay::cores(self.cores)
    }

    fn touched(&self) -> bool {
        true
    }

    fn processes(&self) -> Vec<u32> {
        self.hosts.pids()
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![("lost_percent".into(), format!("{:.2}", self.lost_percent))]
    }
}
