//! Attackers that are programs with ports.

use std::time::Duration;

use netvale::{Port, TxRing};
use netvale_abi::slot::NS_MOREFRAG;
use netvale_harness::attacks::bells::block;
use netvale_mem::words::Words;
use rustix::fs::FallocateFlags;

use super::{Attacker, own_bells, pause, ring_all, text};
use crate::kinds;

/// Number of frames, or of writes to memory, in a row.
const BURST: u32 = 32;

fn flood(a: &mut Attacker, tx: &mut TxRing) {
    let frame = a.frame();
    for _ in 0..BURST {
        if !tx.send(&frame) {
            break;
        }
    }
    tx.sync();
}

/// Broadcasts at full speed, and reads occasionally.
pub fn floods(a: &mut Attacker) -> Result<(), String> {
    let mut port = a.open(&a.own_port()).map_err(text)?;
    while a.goes_on() {
        flood(a, &mut port.tx()[0]);
        a.is_up();
        if a.rng.one_in(8) {
            drain(&mut port);
        }
        pause();
    }
    Ok(())
}

fn drain(port: &mut Port) {
    for ring in port.rx() {
        let _ = ring.sync();
        let there = ring.space();
        ring.advance(there);
        let _ = ring.sync();
    }
}

/// Never reads, so that senders are held back for as long as permitted.
pub fn never_reads(a: &mut Attacker) -> Result<(), String> {
    let options =
        netvale::Options { run_dir: Some(a.dir.clone()), slots: 16, lossless: true, ..netvale::Options::default() };
    let mut port = Port::open_with(&a.own_port(), &options).map_err(text)?;
    while a.goes_on() {
        // From this frame the switch learns an address of the port, so that it delivers frames to the port.
        let frame = a.frame();
        port.tx()[0].send(&frame);
        port.tx()[0].sync();
        a.is_up();
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Opens and closes ports.
pub fn opens_and_closes(a: &mut Attacker) -> Result<(), String> {
    while a.goes_on() {
        let mut port = a.open(&a.own_port()).map_err(text)?;
        flood(a, &mut port.tx()[0]);
        a.is_up();
    }
    Ok(())
}

/// Writes random words anywhere into the memory region of its port.
pub fn scribbles(a: &mut Attacker) -> Result<(), String> {
    let port = a.open(&a.own_port()).map_err(text)?;
    let count = port.mapping().len() / 4;
    let words = Words::new(port.mapping(), 0, count).ok_or("no words")?;
    let bells = own_bells().map_err(text)?;
    while a.goes_on() {
        for _ in 0..BURST {
            // Three of four writes go to rings and status blocks.
            let at = if a.rng.one_in(4) { a.rng.index(count) } else { a.rng.index(count.min(4096)) };
            let small = a.rng.below(70) as u32;
            words.store(at, if a.rng.one_in(2) { small } else { a.rng.word() as u32 });
        }
        ring_all(&bells);
        a.is_up();
        pause();
    }
    Ok(())
}

/// Sends a frame that never ends: each slot announces another slot (`NS_MOREFRAG`).
pub fn unfinished(a: &mut Attacker) -> Result<(), String> {
    let mut port = a.open(&a.own_port()).map_err(text)?;
    let ring = &mut port.tx()[0];
    while a.goes_on() {
        let at = ring.at(0);
        if ring.space() > 1 {
            ring.set_len(at, 60, NS_MOREFRAG);
            ring.advance(1);
        }
        ring.sync();
        a.is_up();
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Makes the worker block when it wakes the program.
pub fn blocks(a: &mut Attacker) -> Result<(), String> {
    let mut port = a.open(&a.own_port()).map_err(text)?;
    while a.goes_on() {
        port.rx()[0].arm();
        block(port.rx()[0].wake_fd()).map_err(text)?;
        a.is_up();
        flood(a, &mut port.tx()[0]);
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Rings the worker's doorbell without sending frames.
pub fn rings(a: &mut Attacker) -> Result<(), String> {
    let _port = a.open(&a.own_port()).map_err(text)?;
    let bells = own_bells().map_err(text)?;
    while a.goes_on() {
        ring_all(&bells);
        a.is_up();
    }
    Ok(())
}

/// Floods a pipe at one end, and empties the pipe at the other end.
pub fn pipes(a: &mut Attacker) -> Result<(), String> {
    let end = |a: &Attacker, way: char| a.open(&format!("netmap:{}{way}1", a.name)).map_err(text);
    let mut from = end(a, '{')?;
    let mut to = end(a, '}')?;
    while a.goes_on() {
        flood(a, &mut from.tx()[0]);
        drain(&mut to);
        a.is_up();
        pause();
    }
    Ok(())
}

/// Truncates the file of its port's memory region while frames are in it.
pub fn cuts_short(a: &mut Attacker) -> Result<(), String> {
    spoils(a, |a, file| {
        let rest = a.rng.below(3) * 4096;
        rustix::fs::ftruncate(file, rest)
    })
}

/// Removes pages from the file of its port's memory region while frames are in it.
pub fn punches_holes(a: &mut Attacker) -> Result<(), String> {
    spoils(a, |a, file| {
        let at = a.rng.below(512) * 4096;
        rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, 16 * 4096)
    })
}

type SpoilFn = fn(&mut Attacker, &std::os::fd::OwnedFd) -> rustix::io::Result<()>;

fn spoils(a: &mut Attacker, spoil: SpoilFn) -> Result<(), String> {
    while a.goes_on() {
        let file = kinds::memory().map_err(text)?;
        let (_line, mut attached) = kinds::bring(&a.dir, &a.own_port(), &file).map_err(text)?;
        let tx = attached.tx.first_mut().ok_or("no ring")?;
        for _ in 0..4 {
            flood(a, tx);
            pause();
        }
        // From here on, an access to the memory may end this process by SIGBUS.
        a.is_up();
        spoil(a, &file).map_err(text)?;
        pause();
    }
    Ok(())
}
