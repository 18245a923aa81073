//! The PVP test with an external generator: it is at the far end of a wire, a veth pair whose near end is the host's
//! interface.
//!
//! ```text
//!   generator ─► p0 ══ p1 ─► host ─► vhost port ─► guest ─► vhost port ─► host ─► p1 ══ p0: counted
//! ```
//!
//! The host has the second core. Generator and guest are ports of one testpmd on the first core, which serves them in
//! turn, a burst each. Two separate polling programs would each run for long time slices, and fill queues that are not
//! emptied meanwhile.

use super::*;

/// The Ethernet address of the guest.
const GUEST: &str = "02:00:00:00:0b:01";
/// The Ethernet address of the interface from which the generator sends.
const GENERATOR: &str = "02:00:00:00:0b:02";

/// DPDK's device on the host's interface. The kernel's busy polling is off, because it gains nothing on a veth pair.
pub(super) const AF_XDP: &str = "net_af_xdp0,iface=p1,start_queue=0,queue_count=1,busy_budget=0";

const NEEDS: Needs = &[testpmd::NEEDS, NETWORKS];

/// The scenario, by the driver's path. Frames have the addresses of generator and guest, so that a switch learns where
/// both are.
pub const SCENARIO: Scenario = Scenario {
    name: "pvp-outside",
    about: "a generator behind an interface (veth, AF_XDP), switch, vhost port, a guest that forwards (mac), and back",
    variants: variants![SHORT => "mac mergeable", "mac in-order"],
    needs: NEEDS,
    start: |case, cores| start(case, cores, |site| switch(site, "netmap:p1", PortOptions::default())),
};

/// Returns the peers: the same test with DPDK between interface and guest.
pub fn peers() -> Vec<Contender> {
    let is_here = |case: &Case| SCENARIO.has(case);
    contenders! {
        "dpdk-pvp", "testpmd (io) between the interface by net_af_xdp and net_vhost"; NEEDS, is_here,
        |case, cores| start(case, cores, |site| forwarder(site, AF_XDP));
        "dpdk-pvp-packet", "testpmd (io) between the interface by net_af_packet and net_vhost"; NEEDS, is_here,
        |case, cores| start(case, cores, |site| forwarder(site, "net_af_packet0,iface=p1"));
    }
}

/// What a host is built from: the case, its cores, the namespace with the interface `p1`, and the guest's socket.
pub(super) struct HostSite<'a> {
    pub case: &'a Case,
    pub cores: Cores,
    pub namespace: &'a Netns,
    pub place: &'a Place,
    pub socket: &'a str,
}

fn start(case: &Case, cores: Cores, host: impl FnOnce(&HostSite<'_>) -> Result<Rc<dyn Part>>) -> Result<Session> {
    let place = Place::new(2, 0)?;
    let namespace = Netns::with_wire()?;
    namespace.ip(&format!("link set p0 address {GENERATOR}"))?;
    let socket = place.file("vhost.sock");
    let site = HostSite { case, cores, namespace: &namespace, place: &place, socket: &socket };
    let host = host(&site)?;
    // testpmd numbers its ports in the order of its devices: port 1 is the generator's interface, to which the counted
    // frames return.
    let stations = End::Dpdk(stations(&site)?, Some(1));
    let words = format!("generator and guest take turns on CPU {}, host on CPU {}", cores.0, cores.1);
    Ok(settled(case, words, stations, host)?.keeping(place).keeping(namespace))
}

/// Starts a daemon whose switch has the port `out` with these options, and a vhost port.
pub(super) fn switch(site: &HostSite<'_>, out: &str, options: PortOptions) -> Result<Rc<dyn Part>> {
    let allowed = format!("allow_dirs = [{:?}]\n", site.place.path());
    let daemon = Daemon::start(Some(site.namespace), site.cores.1, &allowed)?;
    daemon.attach(VALE, out.to_owned(), options)?;
    daemon.attach(VALE, format!("vhost:{}", site.socket), PortOptions::default())?;
    Ok(daemon)
}

/// Starts testpmd, which forwards between the interface and a vhost device.
pub(super) fn forwarder(site: &HostSite<'_>, interface: &str) -> Result<Rc<dyn Part>> {
    let vdevs = [interface.to_owned(), format!("net_vhost0,iface={}", site.socket)];
    let arguments = Arguments {
        namespace: Some(site.namespace),
        ..Arguments::new("host", site.case, &[site.cores.1], &vdevs, "io")
    };
    Ok(Testpmd::start(&arguments, site.place, &["start"])?)
}

/// Starts generator and guest. The first two ports forward to one another, so that the null port's frames are sent on
/// the interface; the third port, which is left over, sends back what it receives.
fn stations(site: &HostSite<'_>) -> Result<Rc<Testpmd>> {
    let (flags, eal) = DriverPath::of(site.case).dpdk();
    let vdevs = [
        format!("net_null0,size={}", site.case.frame_bytes),
        "net_af_xdp0,iface=p0,start_queue=0,queue_count=1,busy_budget=0".to_owned(),
        format!("net_virtio_user0,path={},mac={GUEST},{flags},queue_size=1024", site.socket),
    ];
    let arguments = Arguments {
        more: vec![format!("--eth-peer=1,{GUEST}"), format!("--eth-peer=2,{GENERATOR}")],
        eal,
        namespace: Some(site.namespace),
        ..Arguments::new("stations", site.case, &[site.cores.0], &vdevs, "mac")
    };
    Testpmd::start(&arguments, site.place, &["start"])
}
