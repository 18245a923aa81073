//! The switch to which guests are connected, and its other ports.

use super::interface::{Interface, TAP, bridged_tap, mac, port_name};
use super::*;

/// The second guest's switch, if each guest has a switch of its own.
const OTHER: &str = "vale1";

/// A daemon with either one switch, which has the guests' ports, the host's TAP, the sink and a port to send from, or
/// one switch for each guest, to which a TAP on the kernel's bridge is attached as well.
pub struct Switch {
    /// The daemon.
    pub daemon: Rc<Daemon>,
    /// The sink's port; `None` if there is a bridge.
    sink: Option<Port>,
}

impl Switch {
    /// Starts a switch in a namespace.
    pub fn start(hub: &Netns, core: usize) -> Result<Switch> {
        let daemon = Daemon::start(Some(hub), core, "")?;
        daemon.attach(VALE, format!("tap:{TAP}"), PortOptions::default())?;
        host_end(hub, TAP)?;
        let mut sink = daemon.open("vale0:sink", 256)?;
        let hello = super::raw_frame(SINK_MAC, SINK_MAC, 60);
        if let Some(ring) = sink.tx().first_mut() {
            ring.send(&hello);
            ring.sync();
        }
        daemon.wait_for_frames(1)?;
        Ok(Switch { daemon, sink: Some(sink) })
    }

    /// Starts a switch for each guest.
    pub fn start_bridged(hub: &Netns, core: usize) -> Result<Switch> {
        let daemon = Daemon::start(Some(hub), core, "")?;
        for number in [GUEST, PEER] {
            let tap = bridged_tap(number);
            daemon.attach(switch_of(number), format!("tap:{tap}"), PortOptions::default())?;
            onto_bridge(hub, &tap)?;
        }
        Ok(Switch { daemon, sink: None })
    }

    /// Attaches a guest's port. Returns QEMU's arguments for it.
    pub fn attach(&self, interface: Interface, number: u8) -> Result<Vec<String>> {
        let socket = self.daemon.dir().join(format!("guest{number}.sock")).display().to_string();
        let switch = if self.sink.is_some() { VALE } else { switch_of(number) };
        if let Some((port, options)) = interface.port(&socket, number) {
            self.daemon.attach(switch, port, options)?;
        }
        Ok(interface.devices(&socket, number))
    }

    /// Returns the numbers of frames from the first guest, of frames to this guest, and of its doorbells or register
    /// accesses.
    pub fn counters(&self) -> Result<[u64; 3]> {
        let [doorbells, sent, got] = self.daemon.port_counts(&port_name(GUEST))?;
        Ok([sent, got, doorbells])
    }

    /// Returns a function that sends datagrams to the first guest as fast as the switch accepts them.
    pub fn generator(&self, bytes: usize) -> Result<impl FnMut() -> Result<()> + Send + use<>> {
        let mut port = self.daemon.open("vale0:generator", 256)?;
        let frame = datagram(bytes);
        Ok(move || {
            let ring = port.tx().first_mut().ok_or_else(|| BenchError::Usage("the port has no ring".into()))?;
            while ring.send(&frame) {}
            ring.sync();
            let waited = port.wait(Interest::Tx, Some(std::time::Duration::from_millis(10)));
            waited.map(drop).map_err(|e| failed(&e))
        })
    }
}

/// Returns the switch of a guest, if each guest has a switch of its own.
fn switch_of(number: u8) -> &'static str {
    if number == GUEST { VALE } else { OTHER }
}

/// Returns a datagram to the first guest's discard port, with all headers.
fn datagram(bytes: usize) -> Vec<u8> {
    let bytes = bytes.max(60);
    let ip_len = (bytes - 14) as u16;
    let udp_len = (bytes - 34) as u16;
    let mut frame = [&mac(GUEST)[..], &SINK_MAC, &[8, 0, 0x45, 0]].concat();
    frame.extend(ip_len.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 9, 10, 1, 0, GUEST]);
    let sum = frame[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
    let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&folded.to_be_bytes());
    frame.extend([0, 9]);
    frame.extend(DISCARD.to_be_bytes());
    frame.extend(udp_len.to_be_bytes());
    frame.resize(bytes, 0);
    frame
}
