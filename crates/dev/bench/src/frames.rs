//! The frames that programs send to one another.

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
