//! Other programs that forward between the two veth pairs: the kernel's bridge, a libpcap program, Open vSwitch.

use super::{Program, Site};
use crate::peers::open_vswitch::{SWITCH_PAGES, Switch};
use crate::peers::testpmd::Place;
use crate::prelude::*;
use crate::scenarios::own::Daemon;
use crate::scenarios::programs::{PCAP_FORWARDER, PcapWay};

/// Starts the kernel's bridge, which works where frames arrive: in the sender's thread.
pub fn kernel(site: &Site<'_>) -> Result<Program> {
    site.namespace.ip("link add br0 type bridge mcast_snooping 0")?;
    for name in ["p1", "p2"] {
        site.namespace.ip(&format!("link set {name} master br0"))?;
    }
    site.namespace.ip("link set br0 up")?;
    Ok(Program::default())
}

/// Starts a libpcap program with the system's libpcap.
pub fn pcap(site: &Site<'_>) -> Result<Program> {
    let way = PcapWay { from: "p1".into(), to: "p2".into(), batch: site.case.batch };
    let inside = Wrapper::Network(site.namespace);
    let worker = Worker::spawn(inside, PCAP_FORWARDER, Some(site.cores.1), &way)?;
    Ok(Program { parts: vec![worker], ..Program::default() })
}

/// Starts the libpcap program of [`pcap`] with netvale's libpcap.
pub fn pcap_on_netvale(site: &Site<'_>) -> Result<Program> {
    let daemon = Daemon::start(Some(site.namespace), site.cores.1, "")?;
    let way = PcapWay { from: "netmap:p1".into(), to: "netmap:p2".into(), batch: site.case.batch };
    let worker = Worker::spawn(Wrapper::Run(daemon.dir()), PCAP_FORWARDER, Some(site.cores.1), &way)?;
    Ok(Program { parts: vec![worker, daemon], ..Program::default() })
}

/// Starts Open vSwitch in user space, on the interfaces' packet sockets.
pub fn open_vswitch(site: &Site<'_>) -> Result<Program> {
    let place = Place::new(0, SWITCH_PAGES)?;
    let core = site.cores.1;
    let switch = Switch::start(&place, "switch", Some(site.namespace), Some(Cores(core, core)), &[])?;
    switch.set("add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 p1 -- add-port br0 p2")?;
    Ok(Program { parts: vec![Rc::new(switch)], place: Some(place), ..Program::default() })
}
