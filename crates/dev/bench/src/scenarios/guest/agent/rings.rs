//! Netmap programs in the guest, on its interface's own rings: a sender and a receiver.

use netvale_control::types::Mac;

use super::*;
use crate::scenarios::guest::interface::mac;

/// The kernel's ARP table.
const STATIONS: &str = "/proc/net/arp";
/// Time limit for the host's ARP reply.
const ANSWERED: Duration = Duration::from_secs(2);

/// Length of a virtio-net header in bytes.
pub const HEADER: u32 = 12;
/// Maximum number of frames per sync.
const BATCH: u32 = 256;
/// Time limit for the first frame, within which the sender opens its rings.
const FIRST: Duration = Duration::from_secs(5);
/// EtherTypes of frames from programs: 0x88b5 and IPv4. Frames of other types come from kernels, and do not start the
/// count.
const KINDS: [[u8; 2]; 2] = [[0x88, 0xb5], [8, 0]];
/// Maximum wait for frames or room, after which the program checks the time.
const PATIENCE: Duration = Duration::from_millis(20);

fn refused(why: &dyn std::fmt::Display) -> BenchError {
    BenchError::Usage(format!("netmap:eth0: {why}"))
}

/// Opens the interface's rings, with virtio-net headers of `hdr_len` bytes.
fn open(hdr_len: u32) -> Result<Port> {
    let options = Options { hdr_len, ..Options::default() };
    Port::open_with("netmap:eth0", &options).map_err(|e| refused(&e))
}

/// Returns `frame` with a header of `hdr_len` zero bytes before it.
fn with_header(hdr_len: u32, frame: Vec<u8>) -> Vec<u8> {
    [vec![0; hdr_len as usize], frame].concat()
}

/// Returns the Ethernet address of a station from the kernel's ARP table; `None` if the table does not have it.
fn ethernet_address(table: &str, station: &str) -> Option<[u8; 6]> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(station))?;
    let bytes = line.split_whitespace().nth(3)?.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    // A station that has not replied yet has the address zero.
    bytes.collect::<Option<Vec<_>>>()?.try_into().ok().filter(|address| *address != [0; 6])
}

/// Returns a station's Ethernet address. Only the host's address is requested by ARP: a guest's stack does not answer
/// while a netmap program has its interface.
fn station(to: &str) -> Result<[u8; 6]> {
    match to {
        SINK => Ok(SINK_MAC),
        HOST => host_address(),
        _ => Ok(mac(PEER)),
    }
}

/// Returns the host's Ethernet address. The kernel must request it again after each netmap program that had the
/// interface.
fn host_address() -> Result<[u8; 6]> {
    let asking = socket((HOST, DISCARD))?;
    let end = Instant::now() + ANSWERED;
    loop {
        // The kernel requests an address when it has a packet to send.
        let _ = asking.send(&[]);
        let table = std::fs::read_to_string(STATIONS).map_err(BenchError::io(format!("reading {STATIONS}")))?;
        match ethernet_address(&table, HOST) {
            Some(address) => return Ok(address),
            None if Instant::now() < end => std::thread::sleep(PAUSE),
            None => return Err(refused(&format!("{STATIONS} has no entry for {HOST}"))),
        }
    }
}

/// Sends frames of `bytes` bytes to a station, each copied into its slot's buffer. Returns the number of frames.
pub fn send(bytes: usize, hdr_len: u32, to: &str, window: Duration) -> Result<Done> {
    let frame = with_header(hdr_len, raw_frame(station(to)?, mac(GUEST), bytes));
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

/// Waits for at most [`FIRST`] until the first frame from a program arrives.
fn await_first(port: &mut Port, hdr_len: u32) -> Result<()> {
    let end = Instant::now() + FIRST;
    let mut frame = [0; 2048];
    let kind = hdr_len as usize + 12;
    while Instant::now() < end {
        let ring = port.rx().first_mut().ok_or_else(|| refused(&"no ring"))?;
        let _ = ring.sync();
        match ring.recv(&mut frame) {
            Some(_) if KINDS.iter().any(|known| frame[kind..kind + 2] == *known) => break,
            Some(_) => {}
            None => _ = port.wait(Interest::Rx, Some(PATIENCE)).map_err(|e| refused(&e))?,
        }
    }
    Ok(())
}

/// Receives frames, reading their slots but no bytes. Returns the number of frames after the first frame from a
/// program.
pub fn take(hdr_len: u32, window: Duration) -> Result<Done> {
    let own = std::fs::read_to_string("/sys/class/net/eth0/address").map_err(BenchError::io("reading the address"))?;
    let own: Mac = own.trim().parse().map_err(|_| BenchError::unreadable("the kernel", "the address", &own))?;
    let mut port = open(hdr_len)?;
    // The switch learns this guest's address from this frame.
    let hello = with_header(hdr_len, raw_frame(SINK_MAC, own.0, 60));
    port.tx().first_mut().ok_or_else(|| refused(&"no ring"))?.send(&hello);
    port.sync();
    println!("taking");
    await_first(&mut port, hdr_len)?;
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

    /// Objective: a station's address is found in the kernel's table; no address is found for a station that is not in
    /// the table or has not replied.
    #[test]
    fn addresses() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.1.0.1         0x1         0x2         02:00:00:00:00:0a     *        eth0\n\
                     10.1.0.3         0x1         0x0         00:00:00:00:00:00     *        eth0\n";
        assert_eq!(ethernet_address(table, "10.1.0.1"), Some([2, 0, 0, 0, 0, 10]));
        for unknown in ["10.1.0.2", "10.1.0.3"] {
            assert_eq!(ethernet_address(table, unknown), None, "{unknown}");
        }
    }
}
