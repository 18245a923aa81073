//! Ports for tests of a switch. The test operates both sides of their rings.
#![allow(dead_code)]

use std::sync::Arc;

use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::layout::RegionSizes;
use netvale_mem::notify::Doorbell;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_port::RingCounters;
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_switch::{AttachedPort, ForwardMemory, Forwarder, PassResult, PortId, Switch};
use netvale_wire::Sum;

/// A port, and the application's side of the port's rings.
pub struct TestPort {
    pub id: PortId,
    pub mem: Arc<PortMem>,
    pub forwarder: Forwarder,
    pub tx: AppRing,
    pub rx: AppRing,
    pub sent: Arc<RingCounters>,
    pub received: Arc<RingEgress>,
    /// Doorbell that the receiver rings when it has made room, if the sender asked for that signal.
    pub room: Arc<Doorbell>,
}

/// Parameters of a port to create.
#[derive(Clone, Copy)]
pub struct Make {
    pub slots: u32,
    pub buf_size: u32,
    pub hdr_len: u32,
    pub lossless: bool,
    pub owner: u32,
}

impl Default for Make {
    fn default() -> Self {
        Make { slots: 16, buf_size: 256, hdr_len: 0, lossless: false, owner: 0 }
    }
}

pub fn bell() -> Doorbell {
    Doorbell::new().unwrap()
}

pub fn attach(switch: &Arc<Switch>, name: &str, make: Make) -> TestPort {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: make.slots, rx_slots: make.slots };
    let sizes = RegionSizes::for_port(2, make.slots, make.buf_size, 0, 0);
    let mem = Arc::new(Region::private(sizes).unwrap().port(shape).unwrap());
    let tx = mem.tx[0].clone();
    let rx = mem.rx[0].clone();
    let room = Arc::new(bell());
    let egress = RingEgress::new(Arc::clone(&mem), HostRx::new(rx.clone(), bell()), make.hdr_len, Arc::default());
    let received = Arc::new(egress.with_room_bell(Arc::clone(&room)));
    let port = AttachedPort {
        name: name.into(),
        egresses: vec![received.clone()],
        lossless: make.lossless,
        owner: make.owner,
        ..AttachedPort::default()
    };
    let id = switch.attach(port).unwrap();
    let sent = Arc::<RingCounters>::default();
    let ingress =
        RingIngress::new(Arc::clone(&mem), HostTx::new(tx.clone(), bell()), bell(), make.hdr_len, Arc::clone(&sent));
    let forwarder = Forwarder::new(Arc::clone(switch), id, 0, Box::new(ingress));
    TestPort {
        id,
        mem,
        forwarder,
        tx: AppRing::new(tx, Dir::Tx, bell()),
        rx: AppRing::new(rx, Dir::Rx, room.try_clone().unwrap()),
        sent,
        received,
        room,
    }
}

impl TestPort {
    /// Queues a frame, in as many slots as the frame needs. Returns false if there is no room.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        self.send_with(frame, 0)
    }

    /// Like `send`, with these slot flags.
    pub fn send_with(&mut self, frame: &[u8], flags: u16) -> bool {
        let size = self.tx.mem().buf_size() as usize;
        let pieces: Vec<&[u8]> = if frame.is_empty() { vec![frame] } else { frame.chunks(size).collect() };
        if (self.tx.space() as usize) < pieces.len() {
            return false;
        }
        for (k, piece) in pieces.iter().enumerate() {
            let i = self.tx.at(k as u32);
            let more = if k + 1 < pieces.len() { netvale_abi::slot::NS_MOREFRAG } else { 0 };
            assert!(self.tx.mem().write(self.tx.slot(i).buf_idx, 0, piece));
            self.tx.mem().set_len_flags(i, piece.len() as u16, more | flags);
        }
        self.tx.advance(pieces.len() as u32);
        true
    }

    /// Publishes the queued frames, and forwards frames until none is left.
    pub fn forward(&mut self, work: &mut ForwardMemory) {
        self.tx.sync();
        while let PassResult::Frames(_) = self.forwarder.pass(work) {}
        self.tx.sync();
    }

    /// Takes and returns all frames that the port received since the last call.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        self.rx.sync();
        let mut frames = Vec::new();
        let mut frame = Vec::new();
        for k in 0..self.rx.space() {
            let slot = self.rx.slot(self.rx.at(k));
            let mut piece = vec![0; usize::from(slot.len)];
            assert!(self.rx.mem().read(slot.buf_idx, 0, &mut piece));
            frame.extend(piece);
            if slot.flags & netvale_abi::slot::NS_MOREFRAG == 0 {
                frames.push(std::mem::take(&mut frame));
            }
        }
        assert!(frame.is_empty(), "the last frame is incomplete");
        self.rx.advance(self.rx.space());
        self.rx.sync();
        frames
    }
}

/// A frame of `len` bytes, at least 16, from host `from` to host `to`, with `tag` in bytes 14 and 15.
pub fn frame(to: u8, from: u8, tag: u16, len: usize) -> Vec<u8> {
    let mut f = vec![0; len.max(16)];
    f[..6].copy_from_slice(&mac(to));
    f[6..12].copy_from_slice(&mac(from));
    f[14..16].copy_from_slice(&tag.to_be_bytes());
    f
}

/// MAC address of host `n`; 255 is broadcast.
pub fn mac(n: u8) -> [u8; 6] {
    if n == 255 { [0xff; 6] } else { [2, 0, 0, 0, 0, n] }
}

/// An IGMPv2 message of type `kind` about group 239.1.1.`group`; `None`: about all groups.
pub fn igmp(kind: u8, from: u8, group: Option<u8>) -> Vec<u8> {
    let group = group.map_or([0; 4], |group| [239, 1, 1, group]);
    let to = if group == [0; 4] { [224, 0, 0, 1] } else { group };
    let sum = |bytes: &[u8]| (!Sum::of(bytes).fold()).to_be_bytes();
    let mut message = [[kind, 100, 0, 0], group].concat();
    let folded = sum(&message);
    message[2..4].copy_from_slice(&folded);
    let mut ip = [[0x46, 0xc0, 0, 32], [0, 0, 0, 0], [1, 2, 0, 0], [10, 0, 0, from], to, [0x94, 4, 0, 0]].concat();
    let folded = sum(&ip);
    ip[10..12].copy_from_slice(&folded);
    let addresses = [[1, 0, 0x5e, to[1] & 0x7f, to[2], to[3]], [2, 0, 0, 0, 0, from]].concat();
    [&addresses[..], &[8, 0], &ip, &message].concat()
}
