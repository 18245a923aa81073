//! Programs with a port beside the bystander's.

use netvale::TxRing;
use netvale_harness::attacks::bells;

use super::company::{Company, as_stranger};
use super::*;

/// How often somebody who lost its port opens it again.
pub const AGAIN: Duration = Duration::from_millis(5);
/// The name of its port.
pub const NAME: &str = "vale0:beside";

/// A port whose slots are filled with frames to that address.
fn filled(mut port: Port, to: [u8; 6]) -> Port {
    let ring = &mut port.tx()[0];
    let mut bytes = frame(NOBODY, BESIDE, 60);
    bytes[..6].copy_from_slice(&to);
    for slot in 0..ring.num_slots() {
        ring.mem().write(ring.slot(slot).buf_idx, 0, &bytes);
    }
    port
}

/// Sends all that there is room for in each turn; `each` may change a frame that is filled in beforehand. The partner
/// reads what it gets, if there is one.
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

/// Its port, which the switch knows.
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

/// Takes all that came.
pub fn drain(ring: &mut netvale::RxRing) {
    let _ = ring.sync();
    let there = ring.space();
    ring.advance(there);
    let _ = ring.sync();
}

/// To a partner, as fast as it goes.
pub fn to_a_partner(daemon: &Daemon) -> Result<Company> {
    let mut partner = daemon.port("partner")?;
    announce(&mut partner, BESIDE + 1)?;
    floods(own(daemon)?, address(BESIDE + 1), Some(partner), |_, _| ())
}

/// To that address.
pub fn floods_to(daemon: &Daemon, to: [u8; 6]) -> Result<Company> {
    floods(own(daemon)?, to, None, |_, _| ())
}

/// To an address that the switch knows, from another one each time.
pub fn from_many(daemon: &Daemon) -> Result<Company> {
    let mut station = 0u16;
    floods(own(daemon)?, address(BESIDE), None, move |ring, slot| {
        station = station.wrapping_add(1);
        ring.mem().write(ring.slot(slot).buf_idx, 6, &[&[2, 9], &address(station)[2..]].concat());
    })
}

/// Another user who sends to that address.
pub fn stranger_to(daemon: &Daemon, to: [u8; 6]) -> Result<Company> {
    floods(open(daemon.dir(), false)?, to, None, |_, _| ())
}

/// A port that the bystander sends to as well, which reads a frame so often; all there are, if it does not say.
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

/// Another user's port, which the switch knows.
pub fn open_as(name: &str, station: u16, options: &Options) -> Result<Port> {
    let mut port = as_stranger(|| Port::open_with(name, options)).map_err(|e| failed(&e))?;
    announce(&mut port, station)?;
    Ok(port)
}

/// Makes the worker that wakes it wait: its wake-up blocks. When it has lost its port, it opens it again.
pub fn blocks(daemon: &Daemon) -> Result<Company> {
    let dir = daemon.dir().to_owned();
    let mut port = None;
    let mut opened = Instant::now();
    Ok(Box::new(move || {
        if opened.elapsed() < AGAIN {
            return Ok(());
        }
        opened = Instant::now();
        // Closed before it is opened again.
        drop(port.take());
        // The daemon may not have noticed yet that it is closed.
        let Ok(mut new) = open(&dir, false) else { return Ok(()) };
        new.rx()[0].arm();
        bells::block(new.rx()[0].wake_fd()).map_err(BenchError::io("filling a descriptor"))?;
        port = Some(new);
        Ok(())
    }))
}
