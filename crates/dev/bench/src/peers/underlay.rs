//! Two hosts with a network between them: namespaces joined by a veth, whose stations are further namespaces or packet
//! sockets.
//!
//! Over a veth, the sender's CPU does the receiving kernel's work, too. Here the receiving host's CPU does its own
//! (RPS), as it would for a card of its own. Not so where each datagram comes alone ([`CUT`]): nothing would hold the
//! sender back, and the receiving CPU would do nothing but drop. AF_XDP sockets on a veth are filled by the sender's
//! CPU in either case.

use crate::prelude::*;

/// The longest packet that fits into a tunnel over 1,500 bytes.
pub const MTU: u32 = 1450;
/// The network of the tunnels.
pub const VNI: u32 = 100;
/// The underlay's interface of each host.
pub const INTERFACE: &str = "underlay";

/// What it takes to set up an interface's offloads.
pub const ETHTOOL: Needs = &[&[Need::Program("ethtool", "ethtool")]];

/// The variant in which messages of several datagrams are cut before they reach the interface, as for a card that
/// cannot do it.
pub const CUT: &str = "frames-cut";

/// Both hosts.
pub struct Underlay {
    /// The one that sends, and the one that receives.
    pub hosts: [Netns; 2],
}

impl Underlay {
    /// Makes them; each does the kernel's work on one of the cores.
    pub fn new(case: &Case, cores: Cores) -> Result<Self> {
        let hosts = [Netns::new()?, Netns::new()?];
        let [near, far] = &hosts;
        hosts.iter().try_for_each(Netns::silence_ipv6)?;
        near.ip(&format!("link add {INTERFACE} type veth peer name {INTERFACE} netns {}", far.path()))?;
        for (host, (index, core)) in hosts.iter().zip([(0, cores.0), (1, cores.1)]) {
            host.ip(&format!("addr add {}/24 dev {INTERFACE}", vtep(index)))?;
            host.ip(&format!("link set {INTERFACE} up"))?;
            if case.variant == CUT {
                need(ETHTOOL, 2)?;
                child::run(host.command("ethtool").args(["-K", INTERFACE, "tx-udp-segmentation", "off"]))?;
            } else {
                steer(host, core)?;
            }
        }
        Ok(Self { hosts })
    }
}

/// The address of host 0 or 1.
pub fn vtep(host: usize) -> String {
    format!("10.9.0.{}", host + 1)
}

/// The address of the station behind host 0 or 1.
pub fn station(host: usize) -> String {
    format!("10.77.0.{}", host + 1)
}

/// Gives interface `name` of a station behind host 0 or 1 its address, and the tunnel's MTU.
pub fn set_up_station(namespace: &Netns, host: usize, name: &str) -> Result<()> {
    namespace.ip(&format!("addr add {}/24 dev {name}", station(host)))?;
    namespace.ip(&format!("link set {name} mtu {MTU} up"))
}

/// Has `core` take what comes to a host.
fn steer(host: &Netns, core: usize) -> Result<()> {
    let mask = format!("{:x}", 1u64 << (core % 64));
    // The system's /sys shows the system's interfaces.
    let script = format!("mount -t sysfs sysfs /sys && echo {mask} >/sys/class/net/{INTERFACE}/queues/rx-0/rps_cpus");
    child::run(host.command("unshare").args(["--mount", "sh", "-c", &script])).map(drop)
}
