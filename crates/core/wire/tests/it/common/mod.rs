//! Helpers of this crate's tests: frames that etherparse builds, and the number of cases.
#![allow(dead_code, reason = "each test binary uses a part")]

use etherparse::{PacketBuilder, TcpOptionElement};
use netvale_wire::vnet::{self, VnetHdr};
use netvale_wire::{GsoKind, Layers};
use proptest::prelude::ProptestConfig;

/// Returns the configuration of property tests: `PROPTEST_CASES` cases, but few under Miri, which is slow, and, under
/// Miri, no file of failures, which Miri cannot write.
pub fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => usual.cases,
        None if cfg!(miri) => 4,
        None => 512,
    };
    ProptestConfig { cases, failure_persistence: None, ..usual }
}

pub const SRC4: [u8; 4] = [10, 0, 0, 1];
pub const DST4: [u8; 4] = [10, 0, 0, 2];
pub const SRC6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const DST6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
/// The TCP sequence number of every frame, which wraps around within a long frame.
pub const SEQ: u32 = 0xffff_f000;

pub const KINDS: [GsoKind; 4] = [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp4, GsoKind::Udp6];

/// Returns a frame of `kind` with all TCP flags that segmentation handles, and TCP options.
pub fn frame(kind: GsoKind, vlan: bool, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ip = match (vlan, kind.is_v4()) {
        (false, true) => ethernet.ipv4(SRC4, DST4, 64),
        (false, false) => ethernet.ipv6(SRC6, DST6, 64),
        (true, true) => ethernet.single_vlan(7.try_into().unwrap()).ipv4(SRC4, DST4, 64),
        (true, false) => ethernet.single_vlan(7.try_into().unwrap()).ipv6(SRC6, DST6, 64),
    };
    let mut frame = Vec::new();
    if kind.is_tcp() {
        let options = [TcpOptionElement::Timestamp(1, 2)];
        let tcp = ip.tcp(1000, 2000, SEQ, 512).ack(77).fin().psh().cwr().options(&options).unwrap();
        tcp.write(&mut frame, payload).unwrap();
    } else {
        ip.udp(1000, 2000).write(&mut frame, payload).unwrap();
    }
    frame
}

/// Returns the virtio-net header of a valid frame of `kind` that requests segments with `gso_size` bytes of payload.
pub fn gso_header(kind: GsoKind, frame: &[u8], gso_size: u16) -> VnetHdr {
    VnetHdr {
        flags: vnet::F_NEEDS_CSUM,
        gso_type: kind.gso_type(),
        gso_size,
        csum_start: Layers::parse(frame).unwrap().ip.unwrap().l4 as u16,
        csum_offset: kind.csum_offset(),
        ..VnetHdr::default()
    }
}
