//! A vhost-user front end that writes its descriptors only once, and then makes them available again and again.

use netvale_harness::attacks::front_end::{COUNT, HostileFrontEnd, QUEUES};

use super::company::Company;
use super::*;

/// Guest address of the frame.
const FRAME: u64 = 0x4_0000;
/// Guest address of the table of indirect descriptors.
const TABLE: u64 = 0x5_0000;
/// Entries of the table of indirect descriptors: as many as the queue has descriptors, because a longer table is not
/// allowed (virtio 1.2, 2.7.5.3.1).
const INDIRECT: u64 = COUNT as u64;
/// Bytes of the virtio-net header.
const HEADER: u64 = 12;
/// The flag VIRTQ_DESC_F_NEXT, at its place in the second word of a descriptor.
const NEXT: u64 = 1 << 32;
const IS_INDIRECT: u64 = 4 << 32;
/// VIRTIO_F_INDIRECT_DESC (virtio 1.2, 6).
const INDIRECT_DESC: u64 = 1 << 28;
/// Index of the queue with frames from the guest.
const FROM: usize = 1;

/// How a frame's descriptors are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One descriptor.
    Plain,
    /// A chain of all the queue's descriptors, each of one byte.
    Chain,
    /// A table of indirect descriptors, each of one byte.
    Indirect,
    /// No frames, only kicks.
    OnlyKicks,
}

/// Starts a guest that sends frames with descriptors of the given shape.
pub fn start(daemon: &Daemon, shape: Shape) -> Result<Company> {
    let path = daemon.dir().join("beside.sock");
    let options = PortOptions { name: Some("beside".into()), ..PortOptions::default() };
    daemon.attach(VALE, format!("vhost:{}", path.display()), options)?;
    let end =
        HostileFrontEnd::connect(&path, INDIRECT_DESC, 1).map_err(BenchError::io("connecting to a vhost port"))?;
    fill(&end, shape);
    Ok(Box::new(move || {
        if shape != Shape::OnlyKicks {
            end.set_available(FROM, end.used(FROM).wrapping_add(COUNT));
        }
        end.kick(FROM);
        Ok(())
    }))
}

/// Writes frames to the sender's own address, so that the switch delivers none.
fn fill(end: &HostileFrontEnd, shape: Shape) {
    let next = |i: u64, all: u64| if i + 1 < all { NEXT | (i + 1) << 48 } else { 0 };
    end.put(FRAME + HEADER, &frame(BESIDE, BESIDE, 60));
    for i in 0..COUNT {
        let at = u64::from(i);
        let (address, word) = match shape {
            Shape::Plain | Shape::OnlyKicks => (FRAME, HEADER + 60),
            Shape::Chain => (FRAME + at, 1 | next(at, COUNT.into())),
            Shape::Indirect => (TABLE, (16 * INDIRECT) | IS_INDIRECT),
        };
        end.describe(QUEUES[FROM] + 16 * at, address, word);
        end.offer(FROM, i, if shape == Shape::Chain { 0 } else { i });
    }
    for i in 0..INDIRECT {
        end.describe(TABLE + 16 * i, FRAME + i, 1 | next(i, INDIRECT));
    }
}
