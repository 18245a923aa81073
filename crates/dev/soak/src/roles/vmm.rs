//! An attacker that acts as a vhost-user front end. Its memory is a file that it can truncate, and it writes arbitrary
//! values into its virtqueues.

use netvale_harness::attacks::front_end::{COUNT, HostileFrontEnd, QUEUES, SIZE};
use rustix::fs::FallocateFlags;

use super::machines::patiently;
use super::{Attacker, pause, text};

/// Writes eight descriptors to each queue, makes them available, and kicks. If `nonsense` is true, the descriptors'
/// flags are random, so that chains may be endless, and the available index jumps now and then.
fn offer(end: &HostileFrontEnd, available: &mut [u16; 2], a: &mut Attacker, nonsense: bool) {
    for (queue, rings) in QUEUES.into_iter().enumerate() {
        for _ in 0..8 {
            let id = a.rng.below(u64::from(COUNT));
            let address = a.rng.below(SIZE + 0x1000);
            let len = a.rng.below(0x3000);
            // Flags: NEXT (1), WRITE (2), INDIRECT (4). Only buffers of the queue to the guest are writable.
            let usual = if queue == 0 { 2 } else { 0 };
            let flags = if nonsense { a.rng.below(8) } else { usual };
            let next = a.rng.below(u64::from(COUNT) + 4);
            end.describe(rings + 16 * id, address, len | flags << 32 | next << 48);
            end.offer(queue, available[queue], id as u16);
            available[queue] = available[queue].wrapping_add(1);
        }
        if nonsense && a.rng.one_in(200) {
            available[queue] = a.rng.word() as u16;
        }
        end.set_available(queue, available[queue]);
        end.kick(queue);
    }
}

fn play(
    a: &mut Attacker,
    nonsense: bool,
    spoil: fn(&mut Attacker, &HostileFrontEnd) -> rustix::io::Result<()>,
) -> Result<(), String> {
    while a.goes_on() {
        let end = patiently(|| HostileFrontEnd::connect(&a.socket, 0, 2).map_err(text))?;
        let mut available = [0; 2];
        for _ in 0..1 + a.rng.below(200) {
            offer(&end, &mut available, a, nonsense);
            a.is_up();
            pause();
            if a.rng.one_in(20) {
                spoil(a, &end).map_err(text)?;
            }
            if !a.goes_on() {
                break;
            }
        }
    }
    Ok(())
}

/// Offers endless chains and lengths beyond the guest's memory, and kicks.
pub fn scribbles(a: &mut Attacker) -> Result<(), String> {
    play(a, true, |_, _| Ok(()))
}

/// Truncates the memory's file, and extends it again.
pub fn cuts_short(a: &mut Attacker) -> Result<(), String> {
    play(a, false, |a, end| rustix::fs::ftruncate(end.memory(), 4096 * a.rng.below(SIZE / 4096)))
}

/// Removes pages of the memory's file.
pub fn punches_holes(a: &mut Attacker) -> Result<(), String> {
    play(a, false, |a, end| {
        let at = 4096 * a.rng.below(SIZE / 4096);
        rustix::fs::fallocate(end.memory(), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, 4096)
    })
}
