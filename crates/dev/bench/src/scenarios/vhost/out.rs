//! One guest's UDP datagrams leave the host: by a TAP into the kernel's network stack, or by an interface, the end of a
//! veth pair.
//!
//! ```text
//!   guest ─► vhost port ─► host ─► TAP: counted
//!                            └───► p1 ══ p0: counted
//! ```
//!
//! The guest is a testpmd that sends the datagrams of a capture file in a loop. It has the first core, and the host the
//! second one. The kernel's work for a frame of a TAP or veth is the host's.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::outside::{self, HostSite};
use super::*;
use netvale_wire::build::UDP4_PAYLOAD;

use crate::frames::{UdpStation, address, datagram};

const NEEDS: Needs = &[testpmd::NEEDS, NETWORKS];
const LENGTHS: Variant = Variant { frame_bytes: &[64, 1500], ..Variant::TWO_PORTS };
/// Station number of the host's interface that receives the datagrams; its MAC address is derived from the number.
const HERE: u16 = 0x0c02;
/// Station of the guest.
const GUEST: u16 = 0x0c01;
/// Columns of /proc/net/dev, counted from the interface's name: received bytes and frames.
const RX_BYTES: usize = 0;
const RX_PACKETS: usize = 1;
/// Number of datagrams in the capture file: a multiple of the burst.
const DATAGRAMS: usize = 256;

/// The scenario, by the way out.
pub const SCENARIO: Scenario = Scenario {
    name: "tap-udp",
    about: "one guest's UDP datagrams out of the host: by a TAP, or by an interface (veth, AF_XDP)",
    variants: variants![LENGTHS => "to-tap", "to-tap gro", "to-af-xdp"],
    needs: NEEDS,
    start: |case, cores| {
        start(case, cores, |site| {
            let gro = PortOptions { gro: case.variant.ends_with(" gro"), ..PortOptions::default() };
            outside::switch(site, if is_tap(case) { "tap:out" } else { "netmap:p1" }, gro)
        })
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
    case.variant.starts_with("to-tap")
}

fn start(case: &Case, cores: Cores, host: impl FnOnce(&HostSite<'_>) -> Result<Rc<dyn Part>>) -> Result<Session> {
    let place = Place::new(2, 0)?;
    let namespace = if is_tap(case) { Netns::silent()? } else { Netns::with_wire()? };
    let socket = place.file("vhost.sock");
    let site = HostSite { case, cores, namespace: &namespace, place: &place, socket: &socket };
    let host = host(&site)?;
    let counted = if is_tap(case) { "out" } else { "p0" };
    let [a, b, c, d, e, f] = address(HERE);
    namespace.ip(&format!("link set {counted} address {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))?;
    namespace.ip(&format!("link set {counted} up"))?;
    let guest = guest(&site)?;
    let words = format!("guest on CPU {}, host on CPU {}", cores.0, cores.1);
    let seen = namespace.again()?;
    let frame_bytes = u64::from(case.frame_bytes);
    let count = move || {
        let frames = seen.counter(counted, RX_PACKETS)?;
        Ok((datagrams(seen.counter(counted, RX_BYTES)?, frames, frame_bytes), Instant::now()))
    };
    let set = ProcessSet { who: "the way out", is_strict: false, settle: SETTLE, parts: vec![host, guest] };
    Ok(set.session(case, words, true, count)?.keeping(place).keeping(namespace))
}

/// Returns the number of datagrams in `frames` frames of `bytes` bytes in all, in which datagrams of one length may
/// have been merged: each frame has headers once, and each datagram its payload.
fn datagrams(bytes: u64, frames: u64, frame_bytes: u64) -> u64 {
    let headers = UDP4_PAYLOAD as u64;
    bytes.saturating_sub(frames * headers) / frame_bytes.saturating_sub(headers).max(1)
}

/// Starts the guest, which sends UDP datagrams of one flow with checksums, as a network stack does.
fn guest(site: &HostSite<'_>) -> Result<Rc<dyn Part>> {
    let end = |station, host| UdpStation { station, at: SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, host), 9) };
    let frame = datagram(&end(HERE, 2), &end(GUEST, 1), site.case.frame_bytes)?;
    let file = site.place.file("datagrams.pcap");
    std::fs::write(&file, capture(&frame)).map_err(BenchError::io("writing the datagrams"))?;
    let (flags, eal) = DriverPath::of(site.case).dpdk();
    let vdevs = [
        format!("net_pcap0,rx_pcap={file},infinite_rx=1"),
        format!("net_virtio_user0,path={},{flags},queue_size=1024", site.socket),
    ];
    let arguments = Arguments { eal, ..Arguments::new("guest", site.case, &[site.cores.0], &vdevs, "io") };
    Ok(Testpmd::start(&arguments, site.place, &["start"])?)
}

/// Returns a capture file (pcap) with copies of a frame.
fn capture(frame: &[u8]) -> Vec<u8> {
    let word = |value: u32| value.to_ne_bytes();
    // Magic number, version 2.4, time zone and accuracy, maximum length, link type (Ethernet).
    let mut file =
        [word(0xa1b2_c3d4), word(if cfg!(target_endian = "big") { 0x0002_0004 } else { 0x0004_0002 })].concat();
    file.extend([word(0), word(0), word(65_535), word(1)].concat());
    let len = word(frame.len() as u32);
    let record = [&[0; 8][..], &len, &len, frame].concat();
    file.extend(record.repeat(DATAGRAMS));
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_in_merged_frames_are_counted() {
        assert_eq!(datagrams(10 * 1500, 10, 1500), 10);
        assert_eq!(datagrams(42 + 10 * 1458, 1, 1500), 10);
        assert_eq!(datagrams(0, 0, 42), 0);
    }
}
