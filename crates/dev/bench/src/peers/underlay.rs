//! Two hosts with a network between them: namespaces joined by a veth pair. Their stations are further namespaces or
//! packet sockets.
//!
//! Over a veth pair, the sender's CPU does the receiving kernel's work, too. Here the receiving host's CPU does it
//! (RPS), as it would for a network card. The exception are datagrams that arrive separately ([`CUT`]): with RPS,
//! nothing would slow the sender down, and the receiving CPU would only drop frames. AF_XDP sockets on a veth pair are
//! always filled by the sender's CPU.

use crate::prelude::*;

/// Maximum length of a packet that fits into a tunnel over an MTU of 1,500 bytes.
pub const MTU: u32 = 1450;
/// The VNI of the tunnels.
pub const VNI: u32 = 100;
/// The underlay's interface on each host.
pub const INTERFACE: &str = "underlay";

/// What is needed to set an interface's offloads.
pub const ETHTOOL: Needs = &[&[Need::Program("ethtool", "ethtool")]];

/// Variant in which messages of several datagrams are segmented before they reach the interface, as for a card without
/// that offload.
pub const CUT: &str = "frames-cut";

/// The sending and the receiving host, with the network between them.
pub struct Underlay {
    /// The sending and the receiving host.
    pub hosts: [Netns; 2],
}

impl Underlay {
    /// Creates both hosts; the kernel's work for each host is done on that host's core.
    pub fn new(case: &Case, cores: Cores) -> Result<Self> {
        let hosts = [Netns::silent()?, Netns::silent()?];
        let [near, far] = &hosts;
        near.ip(&format!("link add {INTERFACE} type veth peer name {INTERFACE} netns {}", far.path()))?;
        for (host, (index, core)) in hosts.iter().zip([(0, cores.0), (1, cores.1)]) {
            host.set_up(INTERFACE, &format!("{}/24", vtep(index)))?;
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

/// Returns the address of host 0 or 1.
pub fn vtep(host: usize) -> String {
    format!("10.9.0.{}", host + 1)
}

/// Returns the address of the station behind host 0 or 1.
pub fn station(host: usize) -> String {
    format!("10.77.0.{}", host + 1)
}

/// Sets the address of interface `name` of a station behind host 0 or 1, and the tunnel's MTU.
pub fn set_up_station(namespace: &Netns, host: usize, name: &str) -> Result<()> {
    namespace.ip(&format!("addr add {}/24 dev {name}", station(host)))?;
    namespace.ip(&format!("link set {name} mtu {MTU} up"))
}

/// Makes `core` process what arrives at a host.
fn steer(host: &Netns, core: usize) -> Result<()> {
    let mask = format!("{:x}", 1u64 << (core % 64));
    // The existing mount of /sys shows the interfaces of the system's namespace, so /sys is mounted again.
    let script = format!("mount -t sysfs sysfs /sys && echo {mask} >/sys/class/net/{INTERFACE}/queues/rx-0/rps_cpus");
    child::run(host.command("unshare").args(["--mount", "sh", "-c", &script])).map(drop)
}
