//! Ends of flows, which send and receive numbered payloads through their kind of port.

use std::any::Any;
use std::net::UdpSocket;
use std::time::Duration;

use netvale::{Port, RxRing, TxRing};
use netvale_e1000::driver::remote::SimulatedGuest as Card;
use netvale_port::{Batch, Ingress, Scratch, Source};

use crate::burst;
use crate::frames::LONGEST;

/// An end of flows: a port or socket that sends and receives payloads. A failed operation (no room, no peer) is
/// ignored, because the flow retries.
pub trait PairEnd: Send {
    /// Queues a payload for the next flush. Returns whether there was room.
    fn send(&mut self, payload: &[u8]) -> bool;

    /// Sends queued payloads, and reclaims used buffers.
    fn flush(&mut self) {}

    /// Passes all received payloads to `each`.
    fn receive(&mut self, each: &mut dyn FnMut(&[u8]));

    /// Waits up to `limit` for a payload.
    fn wait(&mut self, limit: Duration) {
        std::thread::sleep(limit);
    }
}

/// How a payload is wrapped in a frame.
#[derive(Clone, Debug)]
pub enum Wrap {
    /// The payload follows this Ethernet header.
    Ethernet([u8; 14]),
    /// The payload is in a UDP datagram that follows this Ethernet header.
    Datagram([u8; 14]),
}

/// The EtherType for local experiments (IEEE 802).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
/// The EtherType of IPv4.
const IPV4: [u8; 2] = [8, 0];
/// Length of the IPv4 and UDP headers in bytes.
const IP_UDP: usize = 28;
/// Address and port of the host's stack in the flow through a TAP.
pub const STACK: ([u8; 4], u16) = ([10, 77, 0, 1], 9001);
/// Address and port of the program on the switch in the flow through a TAP; see [`STACK`].
pub const BEHIND: ([u8; 4], u16) = ([10, 77, 0, 2], 9002);

/// Returns the Ethernet address of station `n`.
pub fn station(n: u8) -> [u8; 6] {
    [2, 0x5a, 0, 0, 0, n]
}

impl Wrap {
    /// Wraps payloads in Ethernet frames from one address to another.
    pub fn ethernet(to: [u8; 6], from: [u8; 6]) -> Wrap {
        Wrap::Ethernet(header(to, from, EXPERIMENT))
    }

    /// Wraps payloads in UDP datagrams from [`BEHIND`] to [`STACK`], in Ethernet frames from one address to another.
    pub fn datagram(to: [u8; 6], from: [u8; 6]) -> Wrap {
        Wrap::Datagram(header(to, from, IPV4))
    }

    fn frame(&self, payload: &[u8]) -> Vec<u8> {
        match self {
            Wrap::Ethernet(header) => [header, payload].concat(),
            Wrap::Datagram(header) => [header, &ip_udp(payload.len())[..], payload].concat(),
        }
    }

    fn payload<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        let at = match self {
            Wrap::Ethernet(header) => header.len(),
            Wrap::Datagram(header) => header.len() + IP_UDP,
        };
        frame.get(at..).unwrap_or_default()
    }
}

fn header(to: [u8; 6], from: [u8; 6], kind: [u8; 2]) -> [u8; 14] {
    let mut header = [0; 14];
    header[..6].copy_from_slice(&to);
    header[6..12].copy_from_slice(&from);
    header[12..].copy_from_slice(&kind);
    header
}

/// Returns the headers of a datagram, without a UDP checksum.
fn ip_udp(payload: usize) -> [u8; IP_UDP] {
    let mut bytes = [0; IP_UDP];
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&((IP_UDP + payload) as u16).to_be_bytes());
    bytes[8..10].copy_from_slice(&[64, 17]);
    bytes[12..16].copy_from_slice(&BEHIND.0);
    bytes[16..20].copy_from_slice(&STACK.0);
    let sum: u32 = bytes[..20].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    bytes[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    bytes[20..22].copy_from_slice(&BEHIND.1.to_be_bytes());
    bytes[22..24].copy_from_slice(&STACK.1.to_be_bytes());
    bytes[24..26].copy_from_slice(&((8 + payload) as u16).to_be_bytes());
    bytes
}

/// An end that uses the rings of any port.
pub struct RingsEnd {
    tx: Option<TxRing>,
    rx: Option<RxRing>,
    wrap: Wrap,
    room: Vec<u8>,
    /// A frame that is sent in each turn, besides the payloads; `None`: only the payloads are sent.
    announced: Option<Vec<u8>>,
    _keep: Box<dyn Any + Send>,
}

impl RingsEnd {
    /// Creates an end that uses the first rings of a port.
    pub fn of(mut port: Port, wrap: Wrap) -> Box<dyn PairEnd> {
        let (tx, rx) = port.take_rings();
        RingsEnd::among(tx, rx, wrap, Box::new(port))
    }

    /// Creates an end that uses the first of these rings. `keep` owns everything that must exist as long as the end.
    pub fn among(tx: Vec<TxRing>, rx: Vec<RxRing>, wrap: Wrap, keep: Box<dyn Any + Send>) -> Box<dyn PairEnd> {
        let tx = tx.into_iter().next();
        let rx = rx.into_iter().next();
        Box::new(RingsEnd { tx, rx, wrap, room: vec![0; 2 * LONGEST], announced: None, _keep: keep })
    }

    /// Creates an end that uses the first rings of a port, and also sends `frame` in each turn.
    pub fn announcing(mut port: Port, wrap: Wrap, frame: Vec<u8>) -> Box<dyn PairEnd> {
        let (tx, rx) = port.take_rings();
        let rings = RingsEnd {
            tx: tx.into_iter().next(),
            rx: rx.into_iter().next(),
            wrap,
            room: vec![0; 2 * LONGEST],
            announced: Some(frame),
            _keep: Box::new(port),
        };
        Box::new(rings)
    }
}

impl PairEnd for RingsEnd {
    fn send(&mut self, payload: &[u8]) -> bool {
        let frame = self.wrap.frame(payload);
        self.tx.as_mut().is_some_and(|tx| tx.send(&frame))
    }

    fn flush(&mut self) {
        if let Some(tx) = &mut self.tx {
            // If there is no room, the frame is skipped, because no receiver counts it.
            let _ = self.announced.as_ref().map(|frame| tx.send(frame));
            tx.sync();
        }
    }

    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) {
        let Some(rx) = &mut self.rx else { return };
        let _ = rx.sync();
        while let Some(len) = rx.recv(&mut self.room) {
            each(self.wrap.payload(&self.room[..len]));
        }
        let _ = rx.sync();
    }

    fn wait(&mut self, limit: Duration) {
        match &mut self.rx {
            Some(rx) => _ = rx.wait(Duration::ZERO, limit),
            None => std::thread::sleep(limit),
        }
    }
}

/// A socket of the host's stack.
pub struct SocketEnd(pub UdpSocket);

impl PairEnd for SocketEnd {
    fn send(&mut self, payload: &[u8]) -> bool {
        self.0.send(payload).is_ok()
    }

    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) {
        let mut room = [0; 2 * LONGEST];
        while let Ok(len) = self.0.recv(&mut room) {
            each(&room[..len]);
        }
    }
}

/// An end that is a guest with an e1000.
pub struct CardEnd {
    source: Source,
    spare: Box<Batch>,
    egress: Box<dyn netvale_port::Egress>,
    scratch: Scratch,
    wrap: Wrap,
    _keep: Box<dyn Any + Send>,
}

impl CardEnd {
    /// Creates an end that drives the card of a guest.
    pub fn of(guest: Card, wrap: Wrap) -> Box<dyn PairEnd> {
        let Card { egress, mut ingress, remote, ram, fault, .. } = guest;
        ingress.disarm();
        Box::new(CardEnd {
            source: Source::new(Box::new(ingress)),
            spare: Box::default(),
            egress: Box::new(egress),
            scratch: Scratch::new(),
            wrap,
            _keep: Box::new((remote, ram, fault)),
        })
    }
}

impl PairEnd for CardEnd {
    fn send(&mut self, payload: &[u8]) -> bool {
        burst::deliver(&*self.egress, &self.wrap.frame(payload), 1, &mut self.scratch) == 1
    }

    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) {
        let mut room = [0; 2 * LONGEST];
        for frame in self.source.take(&mut self.spare).iter() {
            let len = frame.copy_out(0, &mut room);
            each(self.wrap.payload(&room[..len]));
        }
        self.source.release(&mut self.spare);
    }
}
