//! Netmap programs in the guest, on its interface's own rings: one that sends, one that receives.

use netvale_control::types::Mac;

use super::*;
use crate::scenarios::guest::interface::mac;

/// The kernel's table of stations.
const STATIONS: &str = "/proc/net/arp";

/// Bytes of a virtio-net header.
pub const HEADER: u32 = 12;
/// Frames a sync.
const BATCH: u32 = 256;
/// The longest wait for frames or for room, after which the program looks whether its time is up.
const PATIENCE: Duration = Duration::from_millis(20);

fn refused(why: &dyn std::fmt::Display) -> BenchError {
    BenchError::Usage(format!("netmap:eth0: {why}"))
}

/// The interface's rings, with that many bytes of header before each frame.
fn open(hdr_len: u32) -> Result<Port> {
    let options = Options { hdr_len, ..Options::default() };
    Port::open_with("netmap:eth0", &options).map_err(|e| refused(&e))
}

/// A frame with an empty header.
fn with_header(hdr_len: u32, frame: Vec<u8>) -> Vec<u8> {
    [vec![0; hdr_len as usize], frame].concat()
}

/// The Ethernet address of a station that the kernel's table has.
fn ethernet_address(table: &str, station: &str) -> Option<[u8; 6]> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(station))?;
    let bytes = line.split_whitespace().nth(3)?.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    bytes.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// Frames to a station that was talked to before: first line written.
pub fn send(bytes: usize, hdr_len: u32, to: &str, window: Duration) -> Result<Done> {
    let table = std::fs::read_to_string(STATIONS).map_err(BenchError::io(format!("reading {STATIONS}")))?;
    let station = ethernet_address(&table, to).ok_or_else(|| refused(&format!("{STATIONS} has no {to}")))?;
    let frame = with_header(hdr_len, raw_frame(station, mac(GUEST), bytes));
    let mut port = open(hdr_len)?;
    during(window, || {
        if port.tx().iter().all(|ring| ring.space() == 0) {
            port.wait(Interest::Tx, Some(PATIENCE)).map_err(|e| refused(&e))?;
        }
        let ring = port.tx().first_mut().ok_or_else(|| refused(&"no ring"))?;
        let sent = (0..BATCH).take_while(|_| ring.send(&frame)).count() as u64;
        ring.sync();
        Ok(sent)
    })
}

/// Frames that come: slots only.
pub fn take(hdr_len: u32, window: Duration) -> Result<Done> {
    let own = std::fs::read_to_string("/sys/class/net/eth0/address").map_err(BenchError::io("reading the address"))?;
    let own: Mac = own.trim().parse().map_err(|_| BenchError::unreadable("the kernel", "the address", &own))?;
    let mut port = open(hdr_len)?;
    // The switch learns, or remembers, where this guest is.
    let hello = with_header(hdr_len, raw_frame(SINK_MAC, own.0, 60));
    port.tx().first_mut().ok_or_else(|| refused(&"no ring"))?.send(&hello);
    port.sync();
    println!("taking");
    during(window, || {
        let ring = port.rx().first_mut().ok_or_else(|| refused(&"no ring"))?;
        let _ = ring.sync();
        let came = ring.space();
        ring.advance(came);
        if came == 0 {
            port.wait(Interest::Rx, Some(PATIENCE)).map_err(|e| refused(&e))?;
        }
        Ok(came.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a station's address is found in the kernel's table, and no other one's.
    #[test]
    fn addresses() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.1.0.1         0x1         0x2         02:00:00:00:00:0a     *        eth0\n";
        assert_eq!(ethernet_address(table, "10.1.0.1"), Some([2, 0, 0, 0, 0, 10]));
        assert_eq!(ethernet_address(table, "10.1.0.2"), None);
    }
}
