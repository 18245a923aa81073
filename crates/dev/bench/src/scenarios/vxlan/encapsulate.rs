//! The cost of encapsulation without the system call: batches pass the tunnel's egress, in turn with batches of the
//! same messages that are prepared once and sent repeatedly. The difference is the encapsulation.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use netvale_port::{BATCH, Egress, Scratch};
use netvale_vxlan::endpoint::SendOptions;
use netvale_vxlan::{Endpoint, Tunnel, TunnelEgress, TunnelOptions, header};

use super::*;
use crate::frames::{UdpStation, datagram};
use crate::peers::underlay::VNI;
use crate::scenarios::embedded::word;
use crate::stats::median;
use crate::sys::prepared::{Prepared, sink, source};

/// Number of batches that are not measured, after each change between tunnel and prepared messages.
const SETTLE: u32 = 4;
/// Number of measured batches, which take about half a millisecond.
const ROUNDS: u32 = 32;
/// The station to which the frames are addressed.
const STATION: u16 = 0;

/// The tunnel's egress, the same messages prepared in advance, and the socket to which both are sent, which is never
/// read.
pub struct TunnelLane {
    egress: TunnelEgress,
    prepared: Prepared,
    socket: UdpSocket,
    picks: Vec<u16>,
    scratch: Scratch,
    _sink: UdpSocket,
}

impl TunnelLane {
    /// Creates a tunnel over the loopback interface.
    pub fn start(batch: u32, frame_bytes: u32) -> Result<Self> {
        let sink = sink(ip(2))?;
        let to = sink.local_addr().map_err(BenchError::io("getting a socket's address"))?;
        let count = (batch as usize).clamp(1, BATCH);
        let end = |station, host| UdpStation { station, at: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 1234) };
        let bytes = datagram(&end(STATION, 2), &end(FIRST_SENDER, 1), frame_bytes)?;
        Ok(Self {
            egress: TunnelEgress::new(tunnel(ip(1), to)?),
            prepared: Prepared::new(header::encode(VNI), &bytes, count, to)?,
            socket: source(ip(1))?,
            picks: (0..count as u16).collect(),
            scratch: Scratch::new(),
            _sink: sink,
        })
    }

    /// Delivers a batch to the tunnel. Returns the number of frames sent.
    pub fn deliver(&mut self) -> u64 {
        let before = self.egress.counters().frames();
        self.egress.deliver(self.prepared.batch(), &self.picks, &mut self.scratch);
        self.egress.counters().frames() - before
    }

    /// Returns the nanoseconds per frame through the tunnel.
    fn tunnel(&mut self) -> f64 {
        let Self { egress, prepared, picks, scratch, .. } = self;
        let batch = prepared.batch();
        let mut rounds = |count| (0..count).for_each(|_| _ = egress.deliver(batch, picks, scratch));
        rounds(SETTLE);
        let begun = Instant::now();
        rounds(ROUNDS);
        a_frame(begun, picks.len())
    }

    /// Returns the nanoseconds per frame of the system call alone.
    fn call(&mut self) -> Result<f64> {
        (0..SETTLE).try_for_each(|_| self.prepared.send(&self.socket))?;
        let begun = Instant::now();
        (0..ROUNDS).try_for_each(|_| self.prepared.send(&self.socket))?;
        Ok(a_frame(begun, self.picks.len()))
    }
}

fn a_frame(begun: Instant, batch: usize) -> f64 {
    begun.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / batch.max(1) as f64
}

/// Returns an address of the loopback interface that only this process uses.
fn ip(host: u8) -> IpAddr {
    let [a, b, ..] = std::process::id().to_le_bytes();
    IpAddr::from([127, 1 | a, b, host])
}

fn tunnel(local: IpAddr, to: SocketAddr) -> Result<Arc<Tunnel>> {
    let endpoint = Endpoint::new(local, to.port()).map_err(|error| failed(&error))?;
    let options = TunnelOptions {
        vni: VNI,
        remotes: vec![to.ip()],
        learning: true,
        any_peer: false,
        ageing: 300,
        send: SendOptions::default(),
        mtu: None,
        key: [1, 2],
    };
    let tunnel = Tunnel::new(Arc::new(endpoint), options).map_err(|error| failed(&error))?;
    tunnel.learn_all(&[(word(STATION), to.ip())]);
    Ok(tunnel)
}

/// Measures a tunnel over the loopback interface to a socket that is never read: the cost of encapsulation without the
/// system call.
pub fn start(case: &Case, cores: Cores) -> Result<Session> {
    let mut lane = TunnelLane::start(case.batch, case.frame_bytes)?;
    let frames = u64::from(2 * ROUNDS) * u64::from(case.batch);
    let measuring = move |window| {
        let mut calls = Vec::new();
        let mut on_top = Vec::new();
        let round = || {
            let call = lane.call()?;
            let whole = lane.tunnel();
            calls.push(call);
            on_top.push(whole - call);
            Ok(frames)
        };
        let (_, beside) = run_pinned(vec![Job::new(cores.0, round)], window)?;
        let dropped = lane.egress.counters().all_drops().map(|(_, frames)| frames).sum::<u64>();
        if dropped > 0 {
            return Err(failed(&format!("the tunnel dropped {dropped} frames")));
        }
        let middle = |values: &[f64]| median(values).ok_or_else(|| BenchError::NoTraffic("netvale's tunnel".into()));
        let call = middle(&calls)?;
        Ok(Sample::new(middle(&on_top)?, beside).fact("system_call_ns", format!("{call:.1}")))
    };
    Ok(Session::new(format!("one thread on CPU {}", cores.0), true, measuring))
}
