//! Attackers that act as hypervisors and guests.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use netvale::BareGuest;
use netvale_abi::ptnet::{COMMAND_START, COMMAND_STOP};
use netvale_e1000::driver::remote::SimulatedGuest as Card;
use netvale_e1000::driver::{CardDriverOptions as CardOptions, CardRegisters};
use netvale_mem::words::Words;
use netvale_port::{Egress, Scratch};
use netvale_vhost::frontend::BackEnd;
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;
use rustix::fs::FallocateFlags;

use super::{Attacker, pause, text};
use crate::burst;

/// Time limit for a port to serve the next peer. A port pauses after a peer that broke the rules.
const PATIENCE: Duration = Duration::from_secs(5);

/// Repeats an attempt until it succeeds or the time limit is over.
pub fn patiently<T>(mut attempt: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(_) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            done => return done,
        }
    }
}

/// Sends frames to the broadcast address at full speed until the time is up.
fn flood(a: &mut Attacker, egress: &dyn Egress) {
    let mut scratch = Scratch::new();
    while a.goes_on() {
        let frame = a.frame();
        if burst::deliver(egress, &frame, 32, &mut scratch) > 0 {
            a.is_up();
        }
        pause();
    }
}

/// Floods through a virtio driver, with split or packed queues.
pub fn floods_vhost(a: &mut Attacker) -> Result<(), String> {
    let options = DriverOptions { packed: a.rng.one_in(2), offloads: false, ..DriverOptions::default() };
    let (port, (egress, mut ingress)) = VirtioPort::new(BackEnd(a.socket.clone().into()), options).map_err(text)?;
    ingress.iter_mut().for_each(|ingress| ingress.disarm());
    let egress = egress.into_iter().next().ok_or("no queue")?;
    flood(a, &*egress);
    drop(port);
    Ok(())
}

/// Sends bytes that are not messages to the device's socket.
pub fn noise(a: &mut Attacker) -> Result<(), String> {
    while a.goes_on() {
        let mut stream = UnixStream::connect(&a.socket).map_err(text)?;
        stream.set_write_timeout(Some(Duration::from_millis(20))).map_err(text)?;
        for _ in 0..a.rng.below(10) {
            // Half of the time, a valid message header precedes the random bytes: a small number, flags of version 1, a
            // length.
            let len = a.rng.index(200);
            let mut bytes = a.rng.bytes(12 + len);
            if a.rng.one_in(2) {
                bytes[..4].copy_from_slice(&(a.rng.below(45) as u32).to_le_bytes());
                bytes[4..8].copy_from_slice(&1u32.to_le_bytes());
                bytes[8..12].copy_from_slice(&(len as u32).to_le_bytes());
            }
            if stream.write_all(&bytes).is_err() {
                break;
            }
        }
        a.is_up();
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Floods from a guest on a ptnet port.
pub fn floods_ptnet(a: &mut Attacker) -> Result<(), String> {
    let mut port = patiently(|| netvale::Port::as_guest(&a.socket, 0).map_err(text))?;
    while a.goes_on() {
        let frame = a.frame();
        while port.tx()[0].send(&frame) {}
        port.tx()[0].sync();
        a.is_up();
        pause();
    }
    Ok(())
}

/// Writes random words anywhere into the device's memory.
pub fn scribbles_ptnet(a: &mut Attacker) -> Result<(), String> {
    let guest = patiently(|| BareGuest::connect(&a.socket).map_err(text))?;
    guest.command(COMMAND_START, 0, 0).map_err(text)?;
    let count = guest.memory().len() / 4;
    let words = Words::new(guest.memory(), 0, count).ok_or("no words")?;
    while a.goes_on() {
        for _ in 0..64 {
            let at = if a.rng.one_in(4) { a.rng.index(count) } else { a.rng.index(count.min(8192)) };
            words.store(at, a.rng.word() as u32 & if a.rng.one_in(2) { 0x1ff } else { u32::MAX });
        }
        guest.doorbells().iter().for_each(|bell| bell.ring());
        a.is_up();
        pause();
    }
    Ok(())
}

/// Starts and stops its device's rings alternately.
pub fn restarts_ptnet(a: &mut Attacker) -> Result<(), String> {
    while a.goes_on() {
        let guest = patiently(|| BareGuest::connect(&a.socket).map_err(text))?;
        for _ in 0..a.rng.below(20) {
            let command = if a.rng.one_in(2) { COMMAND_START } else { COMMAND_STOP };
            let _refused = guest.command(command, 0, a.rng.below(4) as u32).map_err(text)?;
            a.is_up();
        }
    }
    Ok(())
}

fn card(a: &mut Attacker) -> Result<Card, String> {
    let options = CardOptions { slots: 64, csb: a.rng.one_in(2), combine: 0 };
    patiently(|| Card::new(&a.socket, options).map_err(text))
}

/// Floods from a guest with an e1000.
pub fn floods_e1000(a: &mut Attacker) -> Result<(), String> {
    let guest = card(a)?;
    flood(a, &guest.egress);
    Ok(())
}

/// Writes random values into random registers, during traffic.
pub fn scribbles_e1000(a: &mut Attacker) -> Result<(), String> {
    let guest = card(a)?;
    let mut scratch = Scratch::new();
    while a.goes_on() {
        let frame = a.frame();
        burst::deliver(&guest.egress, &frame, 8, &mut scratch);
        for _ in 0..16 {
            // Device, interrupts, receive and transmit control, both rings, receive addresses: 16 registers from each
            // offset.
            let at = [0, 0xc0, 0x100, 0x400, 0x2800, 0x3800, 0x5400][a.rng.index(7)] + 4 * a.rng.below(16) as u32;
            guest.remote.write(at, a.rng.word() as u32 & if a.rng.one_in(2) { 0xff } else { u32::MAX });
        }
        a.is_up();
        pause();
    }
    Ok(())
}

/// Removes pages of the guest's memory, during traffic.
pub fn punches_e1000(a: &mut Attacker) -> Result<(), String> {
    let guest = card(a)?;
    let mut scratch = Scratch::new();
    let pages = guest.ram.mapping().len() as u64 / 4096;
    while a.goes_on() {
        let frame = a.frame();
        burst::deliver(&guest.egress, &frame, 8, &mut scratch);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let at = 4096 * a.rng.below(pages);
        rustix::fs::fallocate(guest.ram.as_fd(), how, at, 4096).map_err(text)?;
        a.is_up();
        pause();
    }
    Ok(())
}
