//! One guest's UDP datagrams leave the host: by a TAP into the kernel's network stack, or by an interface, the end of a
//! veth pair.
//!
//! ```text
//!   guest ─► vhost port ─► host ─► TAP: counted
//!                            └───► p1 ══ p0: counted
//! ```
//!
//! The guest, DPDK's `txonly`, has the first core, and the host the second one. The kernel's work for a frame of a TAP
//! or veth is the host's.

use super::outside::{self, HostSite};
use super::*;

const NEEDS: Needs = &[testpmd::NEEDS, NETWORKS];
const LENGTHS: Variant = Variant { frame_bytes: &[64, 1500], ..Variant::TWO_PORTS };
/// The Ethernet address to which testpmd sends from its first port, and the interface's.
const STATION: &str = "02:00:00:00:00:00";
/// The variant by a TAP; the other one is by the veth pair.
const TAP: &str = "to-tap";
/// The column of received frames in /proc/net/dev.
const RX_PACKETS: usize = 1;

/// The scenario, by the way out.
pub const SCENARIO: Scenario = Scenario {
    name: "tap-udp",
    about: "one guest's UDP datagrams out of the host: by a TAP, or by an interface (veth, AF_XDP)",
    variants: variants![LENGTHS => TAP, "to-af-xdp"],
    needs: NEEDS,
    start: |case, cores| {
        start(case, cores, |site| outside::switch(site, if is_tap(case) { "tap:out" } else { "netmap:p1" }))
    },
};

/// Returns the peers: the same with DPDK between the guest and the way out.
pub fn peers() -> Vec<Contender> {
    let has = |case: &Case| SCENARIO.has(case);
    let has_interface = |case: &Case| SCENARIO.has(case) && !is_tap(case);
    contenders! {
        "dpdk-out", "testpmd (io) between net_vhost and net_tap, or net_af_xdp on the interface"; NEEDS, has,
        |case, cores| start(case, cores, |site| {
            outside::forwarder(site, if is_tap(case) { "net_tap0,iface=out" } else { outside::AF_XDP })
        });
        "dpdk-out-packet", "testpmd (io) between net_vhost and net_af_packet on the interface"; NEEDS, has_interface,
        |case, cores| start(case, cores, |site| outside::forwarder(site, "net_af_packet0,iface=p1"));
    }
}

fn is_tap(case: &Case) -> bool {
    case.variant == TAP
}

fn start(case: &Case, cores: Cores, host: impl FnOnce(&HostSite<'_>) -> Result<Rc<dyn Part>>) -> Result<Session> {
    let place = Place::new(2, 0)?;
    let namespace = Netns::new()?;
    namespace.silence_ipv6()?;
    if !is_tap(case) {
        namespace.veth("p0", "p1")?;
    }
    let socket = place.file("vhost.sock");
    let site = HostSite { case, cores, namespace: &namespace, place: &place, socket: &socket };
    let host = host(&site)?;
    let counted = if is_tap(case) { "out" } else { "p0" };
    namespace.ip(&format!("link set {counted} address {STATION}"))?;
    namespace.ip(&format!("link set {counted} up"))?;
    let guest = End::driver(case, &socket, "txonly", cores.0, &place)?.part();
    let words = format!("guest on CPU {}, host on CPU {}", cores.0, cores.1);
    let seen = namespace.again()?;
    let count = move || Ok((seen.counter(counted, RX_PACKETS)?, Instant::now()));
    let set = ProcessSet { who: "the way out", is_strict: false, settle: SETTLE, parts: vec![host, guest] };
    Ok(set.session(case, words, true, count)?.keeping(place).keeping(namespace))
}
