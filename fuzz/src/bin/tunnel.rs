//! Passes arbitrary datagrams from a known VTEP to a tunnel, both single datagrams and datagrams that the kernel has
//! merged (GRO), and arbitrary frames into the tunnel.
//!
//! Input: for each datagram or frame, a byte that selects its kind, and its parameters.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use netvale_fuzz::{FuzzInput, RingReceiver, fuzz_target};
use netvale_port::{Batch, Egress, Source};
use netvale_vxlan::endpoint::SendOptions;
use netvale_vxlan::neighbors::TunnelNeighbor;
use netvale_vxlan::tunnel::{GivenAddress, TunnelChange};
use netvale_vxlan::{Endpoint, Tunnel, TunnelEgress, TunnelIngress, TunnelOptions, header};
use netvale_wire::{MacAddr, checksum::pseudo};

const VNI: u32 = 7;
const OTHER: u32 = 8;
const PORT: u16 = 4789;
/// Maximum number of datagrams and frames of an input.
const MOST: usize = 16;
/// `UDP_SEGMENT` of linux/udp.h.
const UDP_SEGMENT: libc::c_int = 103;

struct TunnelEnd {
    source: Source<TunnelIngress>,
    egress: TunnelEgress,
}

struct FuzzedTunnel {
    ends: [TunnelEnd; 2],
    peer: UdpSocket,
    to: SocketAddr,
    receiver: RingReceiver,
}

fn end(endpoint: &Arc<Endpoint>, vni: u32, remote: IpAddr) -> Option<TunnelEnd> {
    let options = TunnelOptions {
        vni,
        remotes: vec![remote],
        // One of the two tunnels does not learn addresses, and answers ARP requests and neighbour solicitations itself.
        learning: vni != VNI,
        any_peer: false,
        ageing: 300,
        send: SendOptions::default(),
        mtu: Some(1450),
        key: [3, 5],
    };
    let tunnel = Tunnel::new(Arc::clone(endpoint), options).ok()?;
    let mac = MacAddr([2, 0, 0, 0, 0, 2]).to_word();
    let neighbor = |ip: &str| TunnelNeighbor { ip: ip.parse().expect("an address"), mac, router: vni == VNI };
    let change = TunnelChange {
        addresses: (vec![GivenAddress { mac, vtep: remote, sticky: false, sequence: 0 }], Vec::new()),
        neighbors: (["10.0.0.2", "fd00::2"].map(neighbor).to_vec(), Vec::new()),
        ..TunnelChange::default()
    };
    tunnel.change(&change).ok()?;
    let source = Source::new(Box::new(TunnelIngress::new(Arc::clone(&tunnel))));
    Some(TunnelEnd { source, egress: TunnelEgress::new(tunnel) })
}

fn fuzzed() -> Option<FuzzedTunnel> {
    // The addresses are derived from the PID, since several fuzzers may run at the same time.
    let [a, b, ..] = std::process::id().to_le_bytes();
    let [local, remote] = [1, 2].map(|n| IpAddr::from([127, 1 | a, b, n]));
    let endpoint = Arc::new(Endpoint::new(local, PORT).ok()?);
    let ends = [end(&endpoint, VNI, remote)?, end(&endpoint, OTHER, remote)?];
    let peer = UdpSocket::bind((remote, PORT)).ok()?;
    peer.set_nonblocking(true).ok()?;
    Some(FuzzedTunnel { ends, peer, to: SocketAddr::new(local, PORT), receiver: RingReceiver::new()? })
}

thread_local! {
    static FUZZED: std::cell::RefCell<FuzzedTunnel> =
        std::cell::RefCell::new(fuzzed().expect("sockets of the loopback interface"));
}

/// Returns a TCP or UDP frame over IPv4 whose checksum covers only the pseudo header. The input may corrupt the frame.
fn half_done(input: &mut FuzzInput<'_>) -> Vec<u8> {
    let kind = input.byte();
    let len = input.half() % 9000;
    let at = input.byte();
    let spoil = input.byte();
    let (protocol, header, checksum) = if kind & 1 == 0 { (6, 20, 16) } else { (17, 8, 6) };
    let l4 = header + usize::from(len);
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + l4 as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.resize(34 + l4, 0x50);
    let half = pseudo([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol, l4 as u16).map_or(0, |sum| sum.fold());
    frame[34 + checksum..36 + checksum].copy_from_slice(&half.to_be_bytes());
    spoilt(frame, at, spoil)
}

/// Returns an ARP request or a neighbour solicitation. The input may corrupt the message.
fn request(input: &mut FuzzInput<'_>) -> Vec<u8> {
    let v6 = input.byte() & 1 != 0;
    let at = input.byte();
    let spoil = input.byte();
    let mut frame = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255, 0xfd]);
        frame.extend([0; 14]);
        frame.push(1);
        frame.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 2, 135, 0, 0, 0, 0, 0, 0, 0, 0xfd]);
        frame.extend([0; 14]);
        frame.extend([2, 1, 1, 2, 0, 0, 0, 0, 1]);
    } else {
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    }
    spoilt(frame, at, spoil)
}

fn spoilt(mut frame: Vec<u8>, at: u8, spoil: u8) -> Vec<u8> {
    if let Some(byte) = frame.get_mut(usize::from(at)) {
        *byte ^= spoil;
    }
    frame
}

fn frame(kind: u8, input: &mut FuzzInput<'_>) -> Vec<u8> {
    match kind & 3 {
        0 => input.bytes().to_vec(),
        1 => half_done(input),
        2 => request(input),
        _ => [&half_done(input)[..], input.bytes()].concat(),
    }
}

impl FuzzedTunnel {
    fn datagram(&self, kind: u8, input: &mut FuzzInput<'_>) {
        let frame = frame(kind, input);
        let vni = [VNI, VNI, OTHER, 9][usize::from(kind >> 2 & 3)];
        let bytes = if kind & 0x10 == 0 { [&header::encode(vni)[..], &frame].concat() } else { frame };
        // If the size is not 0, the kernel segments the message, and merges the segments again on the loopback
        // interface.
        let each = if kind & 0x20 == 0 { 0 } else { libc::c_int::from(input.half() % 1400) };
        // SAFETY: `each` is an int that outlives the call, and the given length is its size.
        unsafe { libc::setsockopt(self.peer.as_raw_fd(), libc::SOL_UDP, UDP_SEGMENT, (&raw const each).cast(), 4) };
        let _ = self.peer.send_to(&bytes, self.to);
    }

    fn send(&mut self, kind: u8, input: &mut FuzzInput<'_>) {
        let frame = frame(kind, input);
        if !frame.is_empty() {
            let end = &self.ends[usize::from(kind >> 2 & 1)];
            let taken = Batch::new().lend(&frame, |batch| end.egress.deliver(batch, &[0], &mut self.receiver.scratch));
            assert_eq!(taken, 1);
        }
    }

    /// Takes the frames that have arrived, and delivers them to the ring.
    fn receive(&mut self) {
        let mut spare = Box::new(Batch::new());
        // The tunnels share a socket, and each tunnel passes on the datagrams that it has read for the other tunnel.
        // Therefore, each tunnel is asked twice.
        for end in [0, 1, 0, 1] {
            let source = &mut self.ends[end].source;
            loop {
                let batch = source.take(&mut spare);
                assert!(batch.iter().all(|one| (14..=65_507).contains(&one.len())));
                self.receiver.deliver(batch);
                let is_last = batch.is_empty();
                source.release(&mut spare);
                if is_last {
                    break;
                }
            }
            source.woken();
        }
    }
}

fuzz_target!(|data: &[u8]| {
    FUZZED.with_borrow_mut(|fuzzed| {
        let mut input = FuzzInput(data);
        input.steps(MOST, |input| match input.byte() {
            kind if kind & 0x80 == 0 => fuzzed.datagram(kind, input),
            kind => fuzzed.send(kind, input),
        });
        fuzzed.receive();
        let mut rest = [0; 64];
        while fuzzed.peer.recv(&mut rest).is_ok() {}
    });
});
