//! Programs with a port beside the bystander's ports.

use netvale::TxRing;
use netvale_harness::attacks::bells;

use super::company::{Company, as_stranger};
use super::*;

/// Interval at which a program that lost its port opens it again.
pub const AGAIN: Duration = Duration::from_millis(5);
/// The name of the program's port.
pub const NAME: &str = "vale0:beside";

/// Fills the slots of a port with frames to the address `to`.
fn filled(mut port: Port, to: [u8; 6]) -> Port {
    let ring = &mut port.tx()[0];
    let mut bytes = frame(NOBODY, BESIDE, 60);
    bytes[..6].copy_from_slice(&to);
    for slot in 0..ring.num_slots() {
        ring.mem().write(ring.slot(slot).buf_idx, 0, &bytes);
    }
    port
}

/// Creates a program that fills its ring with frames to the address `to` in each turn. `each` may change a frame before
/// it is sent. If there is a `partner`, the program also takes all frames that arrive at this port.
fn floods(
    port: Port,
    to: [u8; 6],
    mut partner: Option<Port>,
    mut each: impl FnMut(&TxRing, u32) + Send + 'static,
) -> Result<Company> {
    let mut port = filled(port, to);
    Ok(Box::new(move || {
        flood(&mut port, &mut each);
        partner.iter_mut().flat_map(Port::rx).chain(port.rx()).for_each(drain);
        Ok(())
    }))
}

/// Opens the program's own port, and makes the switch learn the port's address.
fn own(daemon: &Daemon) -> Result<Port> {
    let mut port = daemon.open(NAME, SLOTS)?;
    announce(&mut port, BESIDE)?;
    Ok(port)
}

fn flood(port: &mut Port, mut each: impl FnMut(&TxRing, u32)) {
    let ring = &mut port.tx()[0];
    ring.sync();
    let room = ring.space();
    for k in 0..room {
        let slot = ring.at(k);
        each(ring, slot);
        ring.set_len(slot, 60, 0);
    }
    ring.advance(room);
    ring.sync();
}

/// Takes all frames that have arrived.
pub fn drain(ring: &mut netvale::RxRing) {
    let _ = ring.sync();
    let there = ring.space();
    ring.advance(there);
    let _ = ring.sync();
}

/// Starts a program that sends to a partner as fast as possible.
pub fn to_a_partner(daemon: &Daemon) -> Result<Company> {
    let mut partner = daemon.port("partner")?;
    announce(&mut partner, BESIDE + 1)?;
    floods(own(daemon)?, address(BESIDE + 1), Some(partner), |_, _| ())
}

/// Starts a program that sends to the address `to`.
pub fn floods_to(daemon: &Daemon, to: [u8; 6]) -> Result<Company> {
    floods(own(daemon)?, to, None, |_, _| ())
}

/// Starts a program that sends to a known address, each time from another source address.
pub fn from_many(daemon: &Daemon) -> Result<Company> {
    let mut station = 0u16;
    floods(own(daemon)?, address(BESIDE), None, move |ring, slot| {
        station = station.wrapping_add(1);
        ring.mem().write(ring.slot(slot).buf_idx, 6, &[&[2, 9], &address(station)[2..]].concat());
    })
}

/// Starts another user's program that sends to the address `to`.
pub fn stranger_to(daemon: &Daemon, to: [u8; 6]) -> Result<Company> {
    floods(open(daemon.dir(), false)?, to, None, |_, _| ())
}

/// Starts a program with a port to which the bystander also sends. The program reads one frame per interval `every`; if
/// `every` is `None`, it reads all frames as they arrive.
pub fn receives(daemon: &Daemon, lossless: bool, every: Option<Duration>) -> Result<Company> {
    let mut port = open(daemon.dir(), lossless)?;
    let mut last = Instant::now();
    Ok(Box::new(move || {
        let ring = &mut port.rx()[0];
        match every {
            None => drain(ring),
            Some(every) if last.elapsed() > every => {
                let _ = ring.sync();
                ring.advance(ring.space().min(1));
                let _ = ring.sync();
                last = Instant::now();
            }
            Some(_) => {}
        }
        Ok(())
    }))
}

fn open(dir: &Path, lossless: bool) -> Result<Port> {
    let options = Options { run_dir: Some(dir.into()), slots: SLOTS, lossless, ..Options::default() };
    open_as(NAME, BESIDE, &options)
}

/// Opens a port as another user, and makes the switch learn the port's address.
pub fn open_as(name: &str, station: u16, options: &Options) -> Result<Port> {
    let mut port = as_stranger(|| Port::open_with(name, options)).map_err(|e| failed(&e))?;
    announce(&mut port, station)?;
    Ok(port)
}

/// Starts a program whose doorbell blocks, so that the worker waits when it wakes the program. After the program has
/// lost its port, it opens the port again.
pub fn blocks(daemon: &Daemon) -> Result<Company> {
    let dir = daemon.dir().to_owned();
    let mut port = None;
    let mut opened = Instant::now();
    Ok(Box::new(move || {
        if opened.elapsed() < AGAIN {
            return Ok(());
        }
        opened = Instant::now();
        // The new port has the same name, so the old port is closed first.
        drop(port.take());
        // The daemon may not have noticed yet that the old port is closed.
        let Ok(mut new) = open(&dir, false) else { return Ok(()) };
        new.rx()[0].arm();
        bells::block(new.rx()[0].wake_fd()).map_err(BenchError::io("filling a descriptor"))?;
        port = Some(new);
        Ok(())
    }))
}
