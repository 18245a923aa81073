//! A front end controlled message by message, and a device for it.
#![allow(dead_code, reason = "each test program uses a part")]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use netvale_vhost::port::{VhostMode, VhostOptions, VhostPort};
use netvale_vhost::proto::message::{VhostMessage, put_region, request};
use netvale_vhost::proto::wire::{ReceiveResult, receive, send};
use netvale_virtio::features::VERSION_1;
use netvale_virtio::memory::RegionSpec;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::common::End;

pub const SIZE: u64 = 0x1_0000;
pub const USER: u64 = 0x7000_0000;

pub struct Rig {
    pub device: VhostPort,
    pub end: End,
    pub path: PathBuf,
    _dir: tempfile::TempDir,
}

pub fn rig() -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (device, end) = open(&path);
    Rig { device, end, path, _dir: dir }
}

/// Creates a device with one pair that listens at `path`.
pub fn open(path: &Path) -> (VhostPort, End) {
    let options =
        VhostOptions { site: path.to_path_buf().into(), mode: VhostMode::Server, pairs: 1, mac: [2; 6], mtu: 1500 };
    let (device, queues) = VhostPort::new(&options).unwrap();
    (device, End::first(queues))
}

/// A front end controlled message by message.
pub struct Raw(pub UnixStream);

impl Raw {
    pub fn new(path: &Path) -> Raw {
        Raw(UnixStream::connect(path).unwrap())
    }

    pub fn say(&self, request: u32, payload: Vec<u8>, fds: Vec<OwnedFd>) {
        let mut m = VhostMessage::new(request, payload);
        m.fds = fds;
        // The device may have disconnected already.
        let _ = send(self.0.as_fd(), &m);
    }

    pub fn number(&self, request: u32, n: u64) {
        self.say(request, n.to_le_bytes().to_vec(), Vec::new());
    }

    pub fn memory(&self, regions: &[RegionSpec], fds: Vec<OwnedFd>) {
        let mut payload = (regions.len() as u64).to_le_bytes().to_vec();
        regions.iter().for_each(|r| put_region(&mut payload, r));
        self.say(request::SET_MEM_TABLE, payload, fds);
    }

    /// Returns the next answer from the device.
    pub fn hear(&self) -> VhostMessage {
        let never = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        match receive(self.0.as_fd(), never.as_fd()) {
            Ok(ReceiveResult::Message(m)) => m,
            other => panic!("no answer: {other:?}"),
        }
    }

    /// Waits until all messages have been executed.
    pub fn sync(&self) {
        self.number(request::GET_FEATURES, 0);
        self.hear();
    }

    /// Sends the location of a queue's rings: descriptors, available ring, used ring, 256 bytes each.
    pub fn addresses(&self, queue: u64, at: u64, flags: u64) {
        let words = [queue | flags << 32, USER + at, USER + at + 0x200, USER + at + 0x100, 0];
        self.say(request::SET_VRING_ADDR, words.iter().flat_map(|w| w.to_le_bytes()).collect(), Vec::new());
    }

    /// Starts a queue whose rings are at offset `at` in the memory.
    pub fn start(&self, queue: u64, at: u64) {
        self.number(request::SET_VRING_NUM, queue | 8 << 32);
        self.addresses(queue, at, 0);
        let kick = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        self.say(request::SET_VRING_KICK, queue.to_le_bytes().to_vec(), vec![kick]);
    }

    /// Sends an eventfd for queue 0. `request` selects its use: kick, call or error.
    pub fn bell(&self, request: u32, fd: OwnedFd) {
        self.say(request, 0u64.to_le_bytes().to_vec(), vec![fd]);
    }
}

/// Connects a front end and starts its transmit queue, which contains one frame of 60 bytes. Returns the front end and
/// the guest's memory.
pub fn started(path: &Path) -> (Raw, OwnedFd) {
    let raw = Raw::new(path);
    let memory = file();
    raw.number(request::SET_FEATURES, VERSION_1);
    raw.memory(&[whole()], vec![memory.try_clone().unwrap()]);
    put(&memory, 0x1000, &[0x4000, 72]);
    put(&memory, 0x1100, &[1 << 16]);
    raw.start(1, 0x1000);
    raw.sync();
    (raw, memory)
}

pub fn file() -> OwnedFd {
    let fd = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, SIZE).unwrap();
    fd
}

pub fn whole() -> RegionSpec {
    RegionSpec { guest: 0, size: SIZE, user: USER, offset: 0 }
}

/// Writes 64-bit words to the memory.
pub fn put(memory: &OwnedFd, at: u64, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(rustix::io::pwrite(memory, &bytes, at), Ok(bytes.len()));
}
