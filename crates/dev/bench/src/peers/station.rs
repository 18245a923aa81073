//! A program with a virtio port at a switch's vhost-user socket. It shares a CPU with the switch, and sleeps whenever
//! there is no work.
//!
//! The program uses netvale's virtio driver. DPDK's driver always polls, and two pollers on one CPU wait for each
//! other's time slices: less than a tenth of the frames would pass.

use netvale_port::{Batch, Egress, FrameRef, Scratch, Source};
use netvale_vhost::frontend::BackEnd;
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;

use crate::prelude::*;

/// Maximum number of frames sent in one call.
const BURST: usize = 64;
/// Number of entries of the queues.
const QUEUE: u16 = 1024;
/// Time for which the thread sleeps if there is no work. The switch needs a millisecond to process half a queue; times
/// from 20 to 500 microseconds make no measurable difference.
const NAP: Duration = Duration::from_micros(100);

/// A program with a virtio port.
pub struct Station {
    egress: Arc<dyn Egress>,
    source: Source,
    batch: Box<Batch>,
    scratch: Scratch,
    wrong: u64,
    // Ends the connection on drop.
    _port: VirtioPort,
}

impl Station {
    /// Connects to a socket.
    pub fn connect(socket: &Path) -> Result<Self> {
        let options = DriverOptions { size: QUEUE, offloads: false, in_order: true, ..DriverOptions::default() };
        let refused = |why: &dyn std::fmt::Display| BenchError::Usage(format!("the virtio port: {why}"));
        let (port, (egress, mut ingress)) =
            VirtioPort::new(BackEnd(socket.to_owned().into()), options).map_err(|error| refused(&error))?;
        let (Some(egress), Some(ingress)) = (egress.into_iter().next(), ingress.pop()) else {
            return Err(refused(&"no queues"));
        };
        Ok(Self {
            egress,
            source: Source::new(ingress),
            batch: Box::default(),
            scratch: Scratch::new(),
            wrong: 0,
            _port: port,
        })
    }

    /// Returns the number of received frames with unexpected content.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Sends `frame` up to `count` times, at most 64. Returns the number of frames that found room; sleeps if some
    /// found none.
    pub fn send(&mut self, frame: &[u8], count: usize) -> u64 {
        let picks = &[0; BURST][..count.min(BURST)];
        let Self { egress, batch, scratch, .. } = self;
        let sent = batch.lend(frame, |batch| egress.deliver(batch, picks, scratch));
        if sent < picks.len() {
            std::thread::sleep(NAP);
        }
        sent as u64
    }

    /// Takes the available frames, and compares them with `expected`. Returns the number of frames; sleeps if there
    /// were none.
    pub fn receive(&mut self, expected: &[u8]) -> u64 {
        let frames = self.source.take(&mut self.batch);
        let mut room = [0; BURST];
        let line = expected.len().min(room.len());
        let is_wrong =
            |frame: FrameRef<'_>| frame.copy_out(0, &mut room[..line]) < line || room[..line] != expected[..line];
        let came = frames.len() as u64;
        let wrong = frames.iter().map(is_wrong).filter(|wrong| *wrong).count();
        self.source.release(&mut self.batch);
        self.wrong += wrong as u64;
        if came == 0 {
            std::thread::sleep(NAP);
        }
        came
    }
}
