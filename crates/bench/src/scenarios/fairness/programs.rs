//! Programs with a port beside the bystander's.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale::{Options, Port};
use netvale_harness::attacks::bells;

use super::super::own::{Daemon, failed};
use super::super::traffic::{SLOTS, address, frame};
use super::company::{Company, as_stranger};
use super::{BESIDE, NOBODY, RECEIVER, announce};
use crate::error::{BenchError, Result};

/// How often a slow receiver reads a frame.
const SLOW: Duration = Duration::from_millis(400);
/// How often somebody who lost its port opens it again.
pub const AGAIN: Duration = Duration::from_millis(5);
/// The name of its port.
pub const NAME: &str = "vale0:beside";

/// Sends all that there is room for in each turn. Its slots are filled beforehand.
struct Flood {
    port: Port,
    /// Who gets it, and reads it, if somebody does.
    partner: Option<Port>,
    /// The number of the station that the next frame is from, if each is from another.
    next_station: Option<u16>,
}

impl Flood {
    fn new(daemon: &Daemon, to: [u8; 6]) -> Result<Flood> {
        let mut port = daemon.open(NAME, SLOTS)?;
        announce(&mut port, BESIDE)?;
        Ok(Flood::by(port, to))
    }

    fn by(mut port: Port, to: [u8; 6]) -> Flood {
        let ring = &mut port.tx()[0];
        let mut bytes = frame(NOBODY, BESIDE, 60);
        bytes[..6].copy_from_slice(&to);
        for slot in 0..ring.num_slots() {
            ring.mem().write(ring.slot(slot).buf_idx, 0, &bytes);
        }
        Flood { port, partner: None, next_station: None }
    }
}

impl Company for Flood {
    fn turn(&mut self) -> Result<()> {
        let ring = &mut self.port.tx()[0];
        ring.sync();
        let room = ring.space();
        for k in 0..room {
            let slot = ring.at(k);
            if let Some(station) = &mut self.next_station {
                *station = station.wrapping_add(1);
                ring.mem().write(ring.slot(slot).buf_idx, 6, &[&[2, 9], &address(*station)[2..]].concat());
            }
            ring.set_len(slot, 60, 0);
        }
        ring.advance(room);
        ring.sync();
        for ring in self.partner.iter_mut().flat_map(Port::rx).chain(self.port.rx()) {
            drain(ring);
        }
        Ok(())
    }
}

/// Takes all that came.
pub fn drain(ring: &mut netvale::RxRing) {
    let _ = ring.sync();
    let there = ring.space();
    ring.advance(there);
    let _ = ring.sync();
}

/// To a partner, as fast as it goes.
pub fn to_a_partner(daemon: &Daemon) -> Result<Box<dyn Company>> {
    let mut partner = daemon.open("vale0:partner", SLOTS)?;
    announce(&mut partner, BESIDE + 1)?;
    let flood = Flood::new(daemon, address(BESIDE + 1))?;
    Ok(Box::new(Flood { partner: Some(partner), ..flood }))
}

/// To the one to whom the bystander sends.
pub fn to_the_receiver(daemon: &Daemon) -> Result<Box<dyn Company>> {
    Ok(Box::new(Flood::new(daemon, address(RECEIVER))?))
}

/// Broadcasts.
pub fn to_everybody(daemon: &Daemon) -> Result<Box<dyn Company>> {
    Ok(Box::new(Flood::new(daemon, [0xff; 6])?))
}

/// To an address that the switch does not know.
pub fn to_nobody(daemon: &Daemon) -> Result<Box<dyn Company>> {
    Ok(Box::new(Flood::new(daemon, address(NOBODY))?))
}

/// To an address that the switch knows, from another one each time.
pub fn from_many(daemon: &Daemon) -> Result<Box<dyn Company>> {
    let flood = Flood::new(daemon, address(BESIDE))?;
    Ok(Box::new(Flood { next_station: Some(0), ..flood }))
}

/// A receiver, to whom the bystander sends as well.
struct Receiver {
    port: Port,
    /// The time between two frames that it reads; `None` if it reads all there are.
    every: Option<Duration>,
    last: Instant,
}

impl Receiver {
    fn open(daemon: &Daemon, lossless: bool, every: Option<Duration>) -> Result<Box<dyn Company>> {
        let port = open(daemon.dir(), lossless)?;
        Ok(Box::new(Receiver { port, every, last: Instant::now() }))
    }
}

fn open(dir: &Path, lossless: bool) -> Result<Port> {
    let options = Options { run_dir: Some(dir.into()), slots: SLOTS, lossless, ..Options::default() };
    open_as(NAME, BESIDE, &options)
}

/// Another user's port, which the switch knows.
pub fn open_as(name: &str, station: u16, options: &Options) -> Result<Port> {
    let mut port = as_stranger(|| Port::open_with(name, options)).map_err(|e| failed(&e))?;
    announce(&mut port, station)?;
    Ok(port)
}

/// Another user who sends to that address.
pub fn stranger_to(daemon: &Daemon, to: [u8; 6]) -> Result<Box<dyn Company>> {
    Ok(Box::new(Flood::by(open(daemon.dir(), false)?, to)))
}

impl Company for Receiver {
    fn turn(&mut self) -> Result<()> {
        let ring = &mut self.port.rx()[0];
        match self.every {
            None => drain(ring),
            Some(every) if self.last.elapsed() > every => {
                let _ = ring.sync();
                ring.advance(ring.space().min(1));
                let _ = ring.sync();
                self.last = Instant::now();
            }
            Some(_) => {}
        }
        Ok(())
    }
}

/// Reads all that comes.
pub fn reads(daemon: &Daemon) -> Result<Box<dyn Company>> {
    Receiver::open(daemon, false, None)
}

/// Its ring is full.
pub fn never_reads(daemon: &Daemon) -> Result<Box<dyn Company>> {
    Receiver::open(daemon, false, Some(Duration::MAX))
}

/// The same, and senders are to wait for it.
pub fn lossless_never_reads(daemon: &Daemon) -> Result<Box<dyn Company>> {
    Receiver::open(daemon, true, Some(Duration::MAX))
}

/// Reads so seldom that it never counts as stalled.
pub fn lossless_slow(daemon: &Daemon) -> Result<Box<dyn Company>> {
    Receiver::open(daemon, true, Some(SLOW))
}

/// Makes the worker that wakes it wait. When it has lost its port, it opens it again.
struct Blocker {
    dir: PathBuf,
    port: Option<Port>,
    opened: Instant,
}

/// Has a wake-up that blocks.
pub fn blocks(daemon: &Daemon) -> Result<Box<dyn Company>> {
    Ok(Box::new(Blocker { dir: daemon.dir().into(), port: None, opened: Instant::now() }))
}

impl Company for Blocker {
    fn turn(&mut self) -> Result<()> {
        if self.opened.elapsed() < AGAIN {
            return Ok(());
        }
        self.opened = Instant::now();
        // Closed before it is opened again.
        self.port = None;
        // The daemon may not have noticed yet that it is closed.
        let Ok(mut port) = open(&self.dir, false) else { return Ok(()) };
        port.rx()[0].arm();
        bells::block(port.rx()[0].wake_fd()).map_err(BenchError::io("filling a descriptor"))?;
        self.port = Some(port);
        Ok(())
    }
}
