//! A front end written for these tests: one pair of queues of eight descriptors, in 64 KiB of memory.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use netvale_mem::notify::Doorbell;
use netvale_vhost::features::{LOG_ALL, PROTOCOL_FEATURES};
use netvale_vhost::proto::message::{VhostMessage, protocol, put_region, request};
use netvale_vhost::proto::wire::{self, ReceiveResult};
use netvale_virtio::features::VERSION_1;
use netvale_virtio::memory::RegionSpec;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use serde_json::json;

use super::engine::{Peer, State, say, socket_in, traffic};
use super::ptnet::attach;
use crate::common::{Daemon, until};

const SIZE: u64 = 0x1_0000;
const USER: u64 = 0x7000_0000;
/// Number of descriptors of a queue.
const COUNT: u16 = 8;
/// For each queue, the offset of its descriptors in the memory; its available ring and its used ring follow, at
/// intervals of 256 bytes.
const RINGS: [u64; 2] = [0x1000, 0x2000];
/// For each queue, the offset of its buffers in the memory.
const BUFFERS: [u64; 2] = [0x4000, 0x8000];
const BUFFER: u64 = 0x800;
/// Length in bytes of the header that precedes each frame.
const HEADER: usize = 12;
const WRITABLE: u64 = 2 << 32;
const PROTOCOL: u64 =
    protocol::CONFIG | protocol::INFLIGHT_SHMFD | protocol::LOG_SHMFD | protocol::STATUS | protocol::RESET_DEVICE;

/// A virtual machine monitor that connects to the daemon, or listens for it.
pub struct Vmm<const LISTENS: bool> {
    socket: UnixStream,
    memory: OwnedFd,
    kicks: [Doorbell; 2],
    calls: [Doorbell; 2],
    /// The file that records the descriptors in flight, and the payload of the message that describes this file.
    inflight: Option<(OwnedFd, Vec<u8>)>,
    /// For each queue, the number of descriptors that the front end has made available so far.
    available: [u16; 2],
    /// For each queue, the number of used descriptors that the front end has seen.
    used: [u16; 2],
}

/// A front end's steps in their usual order, and deviations from that order.
impl<const LISTENS: bool> Peer for Vmm<LISTENS> {
    const NAME: &'static str = if LISTENS { "vhost-client" } else { "vhost" };
    const SERVED: &'static str = "buffers posted";
    const STATES: &'static [State<Self>] = &[
        ("connected", "", |_| ()),
        ("half a header sent", "connected", |p| say(&p.socket, &[1, 0, 0, 0, 1])),
        ("half a message sent", "connected", |p| {
            say(&p.socket, &VhostMessage::new(request::SET_FEATURES, vec![0; 8]).bytes()[..15])
        }),
        ("features asked", "connected", |p| p.say(request::GET_FEATURES, &[])),
        ("features got", "features asked", |p| p.hear()),
        ("features set", "features got", |p| p.say(request::SET_FEATURES, &[VERSION_1 | PROTOCOL_FEATURES])),
        ("protocol features set", "features set", |p| p.say(request::SET_PROTOCOL_FEATURES, &[PROTOCOL])),
        ("owner set", "protocol features set", |p| p.say(request::SET_OWNER, &[])),
        ("configuration asked", "owner set", |p| p.say(request::GET_CONFIG, &[12 << 32, 0, 0])),
        ("configuration read", "configuration asked", |p| p.hear()),
        ("a memory table without its file", "owner set", |p| p.say(request::SET_MEM_TABLE, &p.table())),
        ("half a memory table", "owner set", Self::half_a_table),
        ("memory table set", "owner set", |p| p.say_with(request::SET_MEM_TABLE, &p.table(), &p.memory)),
        ("the same file added", "memory table set", |p| {
            p.say_with(request::ADD_MEM_REG, &[0, SIZE, SIZE, USER + SIZE, 0], &p.memory)
        }),
        ("in-flight record asked", "memory table set", |p| p.say(request::GET_INFLIGHT_FD, &[0, 0, 2 | 8 << 16])),
        ("in-flight record got", "in-flight record asked", |p| p.inflight = Some(p.hear_file())),
        ("in-flight record set", "in-flight record got", Self::set_inflight),
        ("log set before the rings", "memory table set", Self::set_log),
        ("sizes set", "memory table set", |p| {
            p.both(|p, q| p.say(request::SET_VRING_NUM, &[q | u64::from(COUNT) << 32]))
        }),
        ("bases set", "sizes set", |p| p.both(|p, q| p.say(request::SET_VRING_BASE, &[q]))),
        ("addresses set", "bases set", |p| p.both(Self::set_addresses)),
        ("calls set", "addresses set", |p| {
            p.both(|p, q| p.say_with(request::SET_VRING_CALL, &[q], &p.calls[q as usize]))
        }),
        ("errors set", "calls set", |p| p.both(|p, q| p.say_with(request::SET_VRING_ERR, &[q], &p.calls[q as usize]))),
        ("kick without call", "addresses set", |p| p.both(Self::set_kick)),
        ("kicks set", "calls set", |p| p.both(Self::set_kick)),
        ("one queue enabled", "kicks set", |p| p.say(request::SET_VRING_ENABLE, &[1 | 1 << 32])),
        ("enabled", "kicks set", |p| p.both(|p, q| p.say(request::SET_VRING_ENABLE, &[q | 1 << 32]))),
        ("disabled", "enabled", |p| p.both(|p, q| p.say(request::SET_VRING_ENABLE, &[q]))),
        ("buffers posted", "enabled", |p| (0..COUNT).for_each(|i| p.post(i))),
        ("traffic under way", "buffers posted", Self::flood),
        ("traffic with a record", "in-flight record set", Self::start_and_flood),
        ("log set", "traffic under way", Self::set_log),
        ("log wanted", "log set", |p| p.say(request::SET_FEATURES, &[VERSION_1 | PROTOCOL_FEATURES | LOG_ALL])),
        ("traffic into the log", "log wanted", Self::flood),
        ("announced", "traffic under way", |p| p.say(request::SEND_RARP, &[0x0900_0000_0002])),
        ("memory table set under traffic", "traffic under way", |p| {
            p.say_with(request::SET_MEM_TABLE, &p.table(), &p.memory)
        }),
        ("memory cut short", "traffic under way", |p| ftruncate(&p.memory, 0).unwrap()),
        ("place asked", "traffic under way", |p| p.both(|p, q| p.say(request::GET_VRING_BASE, &[q]))),
        ("stopped", "place asked", |p| (0..2).for_each(|_| p.hear())),
        ("started again", "stopped", |p| p.both(Self::set_kick)),
        ("reset", "traffic under way", |p| p.say(request::RESET_DEVICE, &[])),
        ("status set to zero", "traffic under way", |p| p.say(request::SET_STATUS, &[0])),
        ("an unknown request", "traffic under way", |p| p.say(99, &[])),
    ];

    fn attach(d: &Daemon) {
        attach(d, "vhost", Self::NAME, json!({"client": LISTENS}));
    }

    fn new(dir: &Path) -> Self {
        let path = socket_in(dir, Self::NAME);
        let socket = if LISTENS { accept(path) } else { UnixStream::connect(path).unwrap() };
        let memory = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, SIZE).unwrap();
        let bells = || [(); 2].map(|()| Doorbell::new().unwrap());
        let (available, used) = Default::default();
        Vmm { socket, memory, kicks: bells(), calls: bells(), inflight: None, available, used }
    }

    fn send(&mut self, frame: &[u8]) {
        until("room to send", || self.available[1].wrapping_sub(self.number(1, 0x202)) < COUNT);
        let at = BUFFERS[1] + u64::from(self.available[1] % COUNT) * BUFFER;
        self.put(at, &[&[0; HEADER], frame].concat());
        self.give(1, self.available[1] % COUNT, (HEADER + frame.len()) as u64);
        self.kicks[1].ring();
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while self.used[0] != self.number(0, 0x202) {
            let entry = 0x204 + 8 * u64::from(self.used[0] % COUNT);
            let id = self.number(0, entry);
            let len = usize::from(self.number(0, entry + 4));
            let mut bytes = vec![0; len];
            pread(&self.memory, &mut bytes, BUFFERS[0] + u64::from(id) * BUFFER).unwrap();
            frames.push(bytes.split_off(HEADER));
            self.used[0] = self.used[0].wrapping_add(1);
            self.post(id);
        }
        frames
    }
}

/// Listens at that path, replacing a former listener, and accepts a connection.
fn accept(path: PathBuf) -> UnixStream {
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(path).unwrap().accept().unwrap().0
}

impl<const LISTENS: bool> Vmm<LISTENS> {
    fn message(request: u32, words: &[u64]) -> VhostMessage {
        VhostMessage::new(request, words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// Sends a request. Ignores errors, because the daemon may already have closed the connection.
    fn say(&self, request: u32, words: &[u64]) {
        let _ = wire::send(self.socket.as_fd(), &Self::message(request, words));
    }

    fn say_with(&self, request: u32, words: &[u64], file: impl AsFd) {
        let mut m = Self::message(request, words);
        m.fds.push(file.as_fd().try_clone_to_owned().unwrap());
        let _ = wire::send(self.socket.as_fd(), &m);
    }

    fn receive(&self) -> VhostMessage {
        match wire::receive(self.socket.as_fd(), Doorbell::new().unwrap().as_fd()) {
            Ok(ReceiveResult::Message(m)) => m,
            other => panic!("no answer: {other:?}"),
        }
    }

    fn hear(&mut self) {
        self.receive();
    }

    fn hear_file(&self) -> (OwnedFd, Vec<u8>) {
        let mut m = self.receive();
        (m.fds.pop().unwrap(), m.payload)
    }

    fn both(&mut self, step: impl Fn(&mut Self, u64)) {
        (0..2).for_each(|queue| step(self, queue));
    }

    fn table(&self) -> Vec<u64> {
        let mut payload = 1u64.to_le_bytes().to_vec();
        put_region(&mut payload, &RegionSpec { guest: 0, size: SIZE, user: USER, offset: 0 });
        payload.chunks(8).map(|eight| u64::from_le_bytes(*eight.first_chunk().unwrap())).collect()
    }

    /// Sends the first bytes of a memory table, and the file with them, but omits the other bytes.
    fn half_a_table(&mut self) {
        let whole = Self::message(request::SET_MEM_TABLE, &self.table());
        let flags = rustix::net::SendFlags::empty();
        netvale_fdio::send(&self.socket, &whole.bytes()[..30], &[&self.memory], flags).unwrap();
    }

    fn set_inflight(&mut self) {
        let (file, payload) = self.inflight.as_ref().unwrap();
        let mut m = VhostMessage::new(request::SET_INFLIGHT_FD, payload.clone());
        m.fds.push(file.try_clone().unwrap());
        wire::send(self.socket.as_fd(), &m).unwrap();
    }

    fn set_log(&mut self) {
        let log = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&log, 8).unwrap();
        self.say_with(request::SET_LOG_BASE, &[8, 0], log);
        self.hear();
    }

    fn set_addresses(&mut self, queue: u64) {
        let at = USER + RINGS[queue as usize];
        self.say(request::SET_VRING_ADDR, &[queue, at, at + 0x200, at + 0x100, 0]);
    }

    fn set_kick(&mut self, queue: u64) {
        self.say_with(request::SET_VRING_KICK, &[queue], &self.kicks[queue as usize]);
    }

    fn start_and_flood(&mut self) {
        for (state, _, step) in Self::STATES {
            if ["sizes set", "bases set", "addresses set", "calls set", "kicks set", "enabled", "buffers posted"]
                .contains(state)
            {
                step(self);
            }
        }
        self.flood();
    }

    /// Sends 50 frames, which is more than the queue has room for. Frames may be lost.
    fn flood(&mut self) {
        (0..50).for_each(|i| self.send(&traffic(i)));
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        assert_eq!(pwrite(&self.memory, bytes, at), Ok(bytes.len()));
    }

    /// Reads 16 bits at offset `at` of a queue's rings.
    fn number(&self, queue: usize, at: u64) -> u16 {
        let mut bytes = [0; 2];
        assert_eq!(pread(&self.memory, &mut bytes, RINGS[queue] + at), Ok(2));
        u16::from_le_bytes(bytes)
    }

    fn post(&mut self, id: u16) {
        self.give(0, id, BUFFER | WRITABLE);
    }

    /// Makes descriptor `id` of a queue available; `word` contains the descriptor's length, flags and next index.
    fn give(&mut self, queue: usize, id: u16, word: u64) {
        let rings = RINGS[queue];
        let place = self.available[queue] % COUNT;
        let descriptor = [BUFFERS[queue] + u64::from(id) * BUFFER, word];
        self.put(rings + 16 * u64::from(id), &descriptor.map(u64::to_le_bytes).concat());
        self.put(rings + 0x104 + 2 * u64::from(place), &id.to_le_bytes());
        self.available[queue] = self.available[queue].wrapping_add(1);
        self.put(rings + 0x102, &self.available[queue].to_le_bytes());
    }
}
