//! The frames that programs send to one another.

use std::net::SocketAddrV4;

use netvale_wire::MacAddr;
use netvale_wire::build::{Udp, udp4};

use crate::error::{BenchError, Result};

/// Length of a frame's first cache line, but at most the length of the shortest frame: the bytes that testpmd's
/// forwarding modes touch.
pub const LINE: usize = 60;

/// Returns the locally administered address of a station, i.e. of a simulated host. Stations have numbers from 0 to
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
    // This EtherType is reserved for local experiments (IEEE 802, local experimental 1).
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes
}

/// One end of a UDP flow: the number of its station, and its IP address and port.
pub struct UdpStation {
    /// The station's number.
    pub station: u16,
    /// The IP address and the port.
    pub at: SocketAddrV4,
}

/// Returns a frame of `len` bytes between two stations. It contains a UDP datagram in IPv4, as frames of a packet
/// generator do.
pub fn datagram(to: &UdpStation, from: &UdpStation, len: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    let udp = Udp {
        src_mac: MacAddr(address(from.station)),
        dst_mac: MacAddr(address(to.station)),
        src: *from.at.ip(),
        dst: *to.at.ip(),
        src_port: from.at.port(),
        dst_port: to.at.port(),
        ttl: 64,
        payload: &[],
    };
    udp4(&mut bytes, &udp).map_err(|error| BenchError::Usage(error.to_string()))?;
    Ok(bytes)
}
