//! A switch embedded in a program, without a daemon: one thread forwards frames from the first of two ports to the
//! second port.

use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RegionSizes};
use netvale_mem::notify::Doorbell;
use netvale_mem::{PortShape, Region};
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_switch::{AttachedPort, ForwardMemory, Forwarder, PassResult, Switch};

const SLOTS: u32 = 256;

/// Creates a port of the switch. Returns the forwarder of its tx ring, and the application's side of both rings.
fn port(switch: &Arc<Switch>, name: &str) -> Result<(Forwarder, AppRing, AppRing), Box<dyn std::error::Error>> {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: SLOTS, rx_slots: SLOTS };
    let mem = Region::private(RegionSizes::for_port(2, SLOTS, DEFAULT_BUF_SIZE, 0, 0))?.port(shape).map(Arc::new)?;
    let tx = mem.tx[0].clone();
    let rx = mem.rx[0].clone();
    let egress =
        Arc::new(RingEgress::new(Arc::clone(&mem), HostRx::new(rx.clone(), Doorbell::new()?), 0, Arc::default()));
    let id = switch.attach(AttachedPort {
        name: name.into(),
        egresses: vec![egress],
        lossless: false,
        ..AttachedPort::default()
    })?;
    let ingress = RingIngress::new(mem, HostTx::new(tx.clone(), Doorbell::new()?), Doorbell::new()?, 0, Arc::default());
    ingress.quiet();
    let forwarder = Forwarder::new(Arc::clone(switch), id, 0, Box::new(ingress));
    Ok((forwarder, AppRing::new(tx, Dir::Tx, Doorbell::new()?), AppRing::new(rx, Dir::Rx, Doorbell::new()?)))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let switch = Switch::new("vale0");
    let (mut forward_a, mut a_tx, _a_rx) = port(&switch, "a")?;
    let (_forward_b, _b_tx, mut b_rx) = port(&switch, "b")?;
    let mut work = ForwardMemory::default();
    let mut frame = [0u8; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa]);
    switch.fdb().learn(0x0b00_0000_0002, 1);
    for i in 0..SLOTS {
        a_tx.mem().write(a_tx.slot(i).buf_idx, 0, &frame);
    }
    let mut received = 0u64;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        for _ in 0..64 {
            let n = a_tx.space().min(128);
            for k in 0..n {
                a_tx.mem().set_len_flags(a_tx.at(k), frame.len() as u16, 0);
            }
            a_tx.advance(n);
            a_tx.sync();
            while let PassResult::Frames(_) = forward_a.pass(&mut work) {}
            b_rx.sync();
            received += u64::from(b_rx.space());
            b_rx.advance(b_rx.space());
        }
    }
    println!("{:.1} Mpps in one thread", received as f64 / start.elapsed().as_secs_f64() / 1e6);
    Ok(())
}
