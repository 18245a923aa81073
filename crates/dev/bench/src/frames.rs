//! The frames that programs send to one another.

use std::net::SocketAddrV4;

use netvale_wire::MacAddr;
use netvale_wire::build::{Udp, udp4};

use crate::error::{BenchError, Result};

/// The first cache line of a frame, limited to the shortest frame: the bytes that testpmd's forwarding modes touch.
pub const LINE: usize = 60;

/// Returns the locally administered address of a station, i.e. a simulated host; stations have numbers from 0 to
/// 65,535.
pub fn address(station: u16) -> [u8; 6] {
    let [high, low] = station.to_be_bytes();
    [2, 0, 0, 0, high, low]
}

/// Returns a frame between two stations.
pub fn frame(to: u16, from: u16, len: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; (len as usize).max(LINE)];
    bytes[..6].copy_from_slice(&address(to));
    bytes[6..12].copy_from_slice(&address(from));
    // The EtherType for local experiments (IEEE 802, local experimental 1).
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes
}

/// Returns a frame of `len` bytes between two stations, filled by UDP in IPv4, as a packet generator sends it.
pub fn datagram(to: (u16, SocketAddrV4), from: (u16, SocketAddrV4), len: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    let udp = Udp {
        src_mac: MacAddr(address(from.0)),
        dst_mac: MacAddr(address(to.0)),
        src: *from.1.ip(),
        dst: *to.1.ip(),
        src_port: from.1.port(),
        dst_port: to.1.port(),
        ttl: 64,
        payload: &[],
    };
    udp4(&mut bytes, &udp).map_err(|error| BenchError::Usage(error.to_string()))?;
    Ok(bytes)
}
