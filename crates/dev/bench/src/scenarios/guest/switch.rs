//! The switch that guests are on, and what else is there.

use super::interface::{Interface, TAP, mac};
use super::*;

/// A daemon with the guests' ports, the host's TAP, the sink, and a port to send from.
pub struct Switch {
    /// The daemon.
    pub daemon: Rc<Daemon>,
    _sink: Port,
}

impl Switch {
    /// A switch in a namespace.
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
        Ok(Switch { daemon, _sink: sink })
    }

    /// A guest's port. Returns QEMU's arguments for it.
    pub fn attach(&self, interface: Interface, number: u8) -> Result<Vec<String>> {
        let socket = self.daemon.dir().join(format!("guest{number}.sock")).display().to_string();
        let (kind, options) = interface.port(number);
        self.daemon.attach(VALE, format!("{kind}:{socket}"), options)?;
        Ok(interface.devices(&socket, number))
    }

    /// Frames that came from the first guest, or were sent to it, and doorbells or register accesses.
    pub fn counters(&self) -> Result<[u64; 3]> {
        let stats = self.daemon.stats()?;
        let port = stats.ports.iter().find(|port| port.name == "vale0:guest2");
        Ok(port.map_or([0; 3], |port| [port.sent().frames, port.got().frames, port.kicks_received]))
    }

    /// A port that sends datagrams to the first guest as fast as the switch takes them.
    pub fn generator(&self, bytes: usize) -> Result<impl FnMut() -> Result<()> + Send + use<>> {
        let mut port = self.daemon.open("vale0:generator", 256)?;
        let frame = datagram(bytes);
        Ok(move || {
            let ring = port.tx().first_mut().ok_or_else(|| BenchError::Usage("a port without a ring".into()))?;
            while ring.send(&frame) {}
            ring.sync();
            let waited = port.wait(Interest::Tx, Some(std::time::Duration::from_millis(10)));
            waited.map(drop).map_err(|e| failed(&e))
        })
    }
}

/// A datagram to the first guest's discard port, with all its headers.
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
