//! A front end that sends by descriptors that it has written once: it only says again and again that they are
//! available.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use netvale_mem::notify::Doorbell;
use netvale_vhost::features::PROTOCOL_FEATURES;
use netvale_vhost::proto::message::{Message, put_region, request};
use netvale_vhost::proto::wire;
use netvale_virtio::features::VERSION_1;
use netvale_virtio::memory::RegionSpec;
use rustix::fs::MemfdFlags;
use rustix::io::{pread, pwrite};

use super::company::Company;
use super::*;

/// Bytes of the guest's memory; where the front end has it.
const SIZE: u64 = 0x10_0000;
const USER: u64 = 0x7000_0000;
/// Entries of each queue, and where its descriptors, available ring and used ring are, a page each.
const COUNT: u16 = 256;
const QUEUES: [u64; 2] = [0x1_0000, 0x2_0000];
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
/// The frame, and a table of indirect descriptors.
const FRAME: u64 = 0x4_0000;
const TABLE: u64 = 0x5_0000;
/// Entries of that table: as many as the queue has. More would break the rules (virtio 1.2, 2.7.5.3.1).
const INDIRECT: u64 = COUNT as u64;
/// Bytes of the virtio-net header.
const HEADER: u64 = 12;
const NEXT: u64 = 1 << 32;
const IS_INDIRECT: u64 = 4 << 32;
/// VIRTIO_F_INDIRECT_DESC (virtio 1.2, 6).
const INDIRECT_DESC: u64 = 1 << 28;

/// How a frame is described.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// By one descriptor.
    Plain,
    /// By a chain of all the queue's descriptors, a byte each.
    Chain,
    /// By a table of its own, a byte each.
    Indirect,
    /// There are none.
    OnlyKicks,
}

struct Vmm {
    shape: Shape,
    memory: OwnedFd,
    kick: Doorbell,
    available: u16,
    _call: Doorbell,
    _socket: UnixStream,
}

/// A guest whose frames are described so.
pub fn start(daemon: &Daemon, shape: Shape) -> Result<Company> {
    let path = daemon.dir().join("beside.sock");
    let options = PortOptions { name: Some("beside".into()), ..PortOptions::default() };
    daemon.attach(VALE, format!("vhost:{}", path.display()), options)?;
    let socket = UnixStream::connect(&path).map_err(BenchError::io("connecting to a vhost port"))?;
    let memory = rustix::fs::memfd_create("netvale-bench-guest", MemfdFlags::CLOEXEC);
    let memory = memory.map_err(BenchError::io("making a guest's memory"))?;
    rustix::fs::ftruncate(&memory, SIZE).map_err(BenchError::io("making a guest's memory"))?;
    let bell = || Doorbell::new().map_err(BenchError::io("making a doorbell"));
    let mut vmm = Vmm { shape, memory, kick: bell()?, available: 0, _call: bell()?, _socket: socket };
    vmm.fill();
    vmm.negotiate().map_err(|e| failed(&e))?;
    Ok(Box::new(move || {
        vmm.turn();
        Ok(())
    }))
}

impl Vmm {
    fn put(&self, at: u64, bytes: &[u8]) {
        // A file in memory of that size takes it.
        let _ = pwrite(&self.memory, bytes, at);
    }

    fn describe(&self, at: u64, address: u64, word: u64) {
        self.put(at, &[address.to_le_bytes(), word.to_le_bytes()].concat());
    }

    /// Frames to its own address: the switch has nothing to deliver.
    fn fill(&self) {
        self.put(FRAME + HEADER, &frame(BESIDE, BESIDE, 60));
        let (rings, all) = (QUEUES[1], u64::from(COUNT));
        for i in 0..all {
            let next = if i + 1 < all { NEXT | (i + 1) << 48 } else { 0 };
            let (address, word) = match self.shape {
                Shape::Plain | Shape::OnlyKicks => (FRAME, HEADER + 60),
                Shape::Chain => (FRAME + i, 1 | next),
                Shape::Indirect => (TABLE, (16 * INDIRECT) | IS_INDIRECT),
            };
            self.describe(rings + 16 * i, address, word);
            let head = if self.shape == Shape::Chain { 0 } else { i as u16 };
            self.put(rings + AVAILABLE + 4 + 2 * i, &head.to_le_bytes());
        }
        for i in 0..INDIRECT {
            let next = if i + 1 < INDIRECT { NEXT | (i + 1) << 48 } else { 0 };
            self.describe(TABLE + 16 * i, FRAME + i, 1 | next);
        }
    }

    fn say(&self, request: u32, words: &[u64], file: Option<&Doorbell>) -> std::result::Result<(), String> {
        let mut m = Message::new(request, words.iter().flat_map(|word| word.to_le_bytes()).collect());
        if let Some(file) = file {
            m.fds.push(file.as_fd().try_clone_to_owned().map_err(|e| e.to_string())?);
        }
        wire::send(self._socket.as_fd(), &m).map_err(|e| e.to_string())
    }

    fn negotiate(&self) -> std::result::Result<(), String> {
        self.say(request::SET_FEATURES, &[VERSION_1 | PROTOCOL_FEATURES | INDIRECT_DESC], None)?;
        self.say(request::SET_OWNER, &[], None)?;
        let mut table = Message::new(request::SET_MEM_TABLE, 1u64.to_le_bytes().to_vec());
        put_region(&mut table.payload, &RegionSpec { guest: 0, size: SIZE, user: USER, offset: 0 });
        table.fds.push(self.memory.try_clone().map_err(|e| e.to_string())?);
        wire::send(self._socket.as_fd(), &table).map_err(|e| e.to_string())?;
        for (queue, at) in (0u64..).zip(QUEUES) {
            let rings = USER + at;
            self.say(request::SET_VRING_NUM, &[queue | u64::from(COUNT) << 32], None)?;
            self.say(request::SET_VRING_BASE, &[queue], None)?;
            self.say(request::SET_VRING_ADDR, &[queue, rings, rings + USED, rings + AVAILABLE, 0], None)?;
            self.say(request::SET_VRING_CALL, &[queue], Some(&self._call))?;
            self.say(request::SET_VRING_KICK, &[queue], Some(&self.kick))?;
            self.say(request::SET_VRING_ENABLE, &[queue | 1 << 32], None)?;
        }
        Ok(())
    }

    /// Says that all is available again, and kicks.
    fn turn(&mut self) {
        let mut used = [0; 2];
        if self.shape != Shape::OnlyKicks {
            let _ = pread(&self.memory, &mut used, QUEUES[1] + USED + 2);
            self.available = u16::from_le_bytes(used).wrapping_add(COUNT);
            self.put(QUEUES[1] + AVAILABLE + 2, &self.available.to_le_bytes());
        }
        self.kick.ring();
    }
}
