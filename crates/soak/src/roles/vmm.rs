//! A front end whose memory is a file that it can cut short, and that writes whatever it likes into its virtqueues.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use netvale_mem::notify::Doorbell;
use netvale_vhost::features::PROTOCOL_FEATURES;
use netvale_vhost::proto::message::{Message, put_region, request};
use netvale_vhost::proto::wire;
use netvale_virtio::features::VERSION_1;
use netvale_virtio::memory::RegionSpec;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::pwrite;

use super::machines::patiently;
use super::{Attacker, pause, text};

/// Bytes of the guest's memory; where the front end has it.
const SIZE: u64 = 0x10_0000;
const USER: u64 = 0x7000_0000;
/// Entries of each queue, and where its descriptors, available ring and used ring are, a page each.
const COUNT: u16 = 256;
const QUEUES: [u64; 2] = [0x1_0000, 0x2_0000];
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;

struct Vmm {
    // Closed first.
    _socket: UnixStream,
    memory: OwnedFd,
    kicks: [Doorbell; 2],
    _calls: [Doorbell; 2],
    available: [u16; 2],
}

impl Vmm {
    fn new(a: &Attacker) -> Result<Vmm, String> {
        let socket = patiently(|| UnixStream::connect(&a.socket).map_err(text))?;
        socket.set_write_timeout(Some(Duration::from_secs(5))).map_err(text)?;
        let memory = rustix::fs::memfd_create("soak-guest", MemfdFlags::CLOEXEC).map_err(text)?;
        rustix::fs::ftruncate(&memory, SIZE).map_err(text)?;
        let bell = || Doorbell::new().map_err(text);
        let (kicks, calls) = ([bell()?, bell()?], [bell()?, bell()?]);
        let say = |request: u32, words: &[u64], file: Option<&dyn AsFd>| -> Result<(), String> {
            let mut m = Message::new(request, words.iter().flat_map(|word| word.to_le_bytes()).collect());
            if let Some(file) = file {
                m.fds.push(file.as_fd().try_clone_to_owned().map_err(text)?);
            }
            wire::send(socket.as_fd(), &m).map_err(text)
        };
        say(request::SET_FEATURES, &[VERSION_1 | PROTOCOL_FEATURES], None)?;
        say(request::SET_OWNER, &[], None)?;
        let mut table = Message::new(request::SET_MEM_TABLE, 1u64.to_le_bytes().to_vec());
        put_region(&mut table.payload, &RegionSpec { guest: 0, size: SIZE, user: USER, offset: 0 });
        table.fds.push(memory.try_clone().map_err(text)?);
        wire::send(socket.as_fd(), &table).map_err(text)?;
        for (queue, at) in (0u64..).zip(QUEUES) {
            let (index, rings) = (queue as usize, USER + at);
            say(request::SET_VRING_NUM, &[queue | u64::from(COUNT) << 32], None)?;
            say(request::SET_VRING_BASE, &[queue], None)?;
            say(request::SET_VRING_ADDR, &[queue, rings, rings + USED, rings + AVAILABLE, 0], None)?;
            say(request::SET_VRING_CALL, &[queue], Some(&calls[index].as_fd()))?;
            say(request::SET_VRING_KICK, &[queue], Some(&kicks[index].as_fd()))?;
            say(request::SET_VRING_ENABLE, &[queue | 1 << 32], None)?;
        }
        Ok(Vmm { _socket: socket, memory, kicks, _calls: calls, available: [0; 2] })
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        // Memory that was cut short takes nothing, or grows again.
        let _ = pwrite(&self.memory, bytes, at);
    }

    /// Descriptors of which most could be right, chained in any way, and more of them available.
    fn offer(&mut self, a: &mut Attacker, nonsense: bool) {
        for (queue, rings) in QUEUES.into_iter().enumerate() {
            for _ in 0..8 {
                let id = a.rng.below(u64::from(COUNT));
                let (address, len) = (a.rng.below(SIZE + 0x1000), a.rng.below(0x3000));
                // NEXT, WRITE, INDIRECT.
                let usual = if queue == 0 { 2 } else { 0 };
                let flags = if nonsense { a.rng.below(8) } else { usual };
                let next = a.rng.below(u64::from(COUNT) + 4);
                let word = len | flags << 32 | next << 48;
                self.put(rings + 16 * id, &[address.to_le_bytes(), word.to_le_bytes()].concat());
                let place = u64::from(self.available[queue] % COUNT);
                self.put(rings + AVAILABLE + 4 + 2 * place, &(id as u16).to_le_bytes());
                self.available[queue] = self.available[queue].wrapping_add(1);
            }
            if nonsense && a.rng.one_in(200) {
                self.available[queue] = a.rng.word() as u16;
            }
            self.put(rings + AVAILABLE + 2, &self.available[queue].to_le_bytes());
            self.kicks[queue].ring();
        }
    }
}

fn play(
    a: &mut Attacker,
    nonsense: bool,
    spoil: fn(&mut Attacker, &Vmm) -> rustix::io::Result<()>,
) -> Result<(), String> {
    while a.goes_on() {
        let mut vmm = Vmm::new(a)?;
        for _ in 0..1 + a.rng.below(200) {
            vmm.offer(a, nonsense);
            a.is_up();
            pause();
            if a.rng.one_in(20) {
                spoil(a, &vmm).map_err(text)?;
            }
            if !a.goes_on() {
                break;
            }
        }
    }
    Ok(())
}

/// Chains without end, lengths without memory, and kicks.
pub fn scribbles(a: &mut Attacker) -> Result<(), String> {
    play(a, true, |_, _| Ok(()))
}

/// The memory's file becomes shorter, and long again.
pub fn cuts_short(a: &mut Attacker) -> Result<(), String> {
    play(a, false, |a, vmm| rustix::fs::ftruncate(&vmm.memory, 4096 * a.rng.below(SIZE / 4096)))
}

/// The memory's file loses pages.
pub fn punches_holes(a: &mut Attacker) -> Result<(), String> {
    play(a, false, |a, vmm| {
        let (how, at) = (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096 * a.rng.below(SIZE / 4096));
        rustix::fs::fallocate(&vmm.memory, how, at, 4096)
    })
}
