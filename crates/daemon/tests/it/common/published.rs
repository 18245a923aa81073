//! A guest with the ptnet and memory devices that netmap published, which uses the vfio-user client of another
//! implementation, and a driver for these devices.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use netvale_mem::Mapping;
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_mem::notify::Doorbell;
use netvale_mem::words::Words;

use crate::common::until;

/// Offset of the communication status blocks (CSB) in the guest's memory, in bytes.
pub const CSB_AT: u64 = 0x3000;
/// Size of the guest's memory in bytes.
pub const GUEST_BYTES: u64 = 1 << 16;
/// Address of the guest's memory in the guest's address space.
pub const GUEST_AT: u64 = 0x10_0000;

/// Offsets of the ptnet device's registers.
mod reg {
    pub const FEATURES: u64 = 0;
    pub const CONTROL: u64 = 4;
    pub const MAC_LOW: u64 = 8;
    pub const MAC_HIGH: u64 = 12;
    pub const NIFP: u64 = 24;
    pub const TX_RINGS: u64 = 28;
    pub const RX_RINGS: u64 = 32;
    pub const TX_SLOTS: u64 = 36;
    pub const RX_SLOTS: u64 = 40;
    pub const HEADER_LEN: u64 = 44;
    pub const MEMORY_ID: u64 = 48;
    pub const CSB: u64 = 52;
    pub const KICKS: u64 = 128;
}

/// Slot flag: the frame continues in the next slot.
const MORE: u32 = 0x20;
/// Number of 32-bit words of a `netmap_ring` before its slots.
const SLOTS: usize = 64;
/// Index of the first word of the ring offsets in a `netmap_if`.
const OFFSETS: usize = 14;
/// Number of words at the start of a `netmap_if` that are in use; the words between these and the offsets are spare.
const SPARE: usize = 11;

/// Index of the word with the application's `head` in the application's half of a status block, or with the host's
/// `hwcur` in the host's half.
const HEAD: usize = 0;
/// Index of the word with the application's `cur` in the application's half of a status block.
const CUR: usize = 1;
/// Index of the word with the host's `hwtail` in the host's half of a status block.
pub const TAIL: usize = 1;
/// Index of the word that tells whether the application needs interrupts, in the application's half of a status block,
/// or whether the host needs kicks, in the host's half.
const NEED_KICK: usize = 2;

/// Returns the index, in the guest's memory, of a word in the application's half of a ring's status block.
fn atok(ring: usize, word: usize) -> usize {
    CSB_AT as usize / 4 + 16 * ring + word
}

/// Both devices of a port, as seen by the hypervisor.
pub struct Plugged {
    pub client: vfio_user::Client,
    memory: vfio_user::Client,
    /// The guest's memory.
    pub ram: Words,
    /// netmap's memory, a region of the memory device.
    pub netmap: Words,
    vectors: Vec<Doorbell>,
    /// Distance in bytes between the two halves of the status blocks.
    pub apart: u64,
}

/// The values that a driver reads from a device whose rings are stopped: the registers, and the `netmap_if` with its
/// offsets.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture {
    pub registers: Vec<u32>,
    netmap_if: Vec<u32>,
}

fn read(client: &mut vfio_user::Client, at: u64) -> u32 {
    let mut value = [0; 4];
    client.region_read(0, at, &mut value).unwrap();
    u32::from_le_bytes(value)
}

/// Creates the guest's memory, and maps it for the device.
fn guest_memory(client: &mut vfio_user::Client) -> Words {
    let (file, map, _) = sealed_memfd("guest", GUEST_BYTES, PageKind::Ordinary).unwrap();
    client.dma_map(0, GUEST_AT, GUEST_BYTES, file.as_raw_fd()).unwrap();
    Words::new(&Arc::new(map), 0, (GUEST_BYTES / 4) as usize).unwrap()
}

impl Plugged {
    /// Connects to the devices of the port on socket `path`.
    pub fn new(path: &Path) -> Plugged {
        let mut client = vfio_user::Client::new(path).unwrap();
        let mut memory_path = path.as_os_str().to_owned();
        memory_path.push(".mem");
        let mut memory = vfio_user::Client::new(Path::new(&memory_path)).unwrap();
        let ram = guest_memory(&mut client);
        let size = u64::from(read(&mut memory, 0)) | u64::from(read(&mut memory, 4)) << 32;
        assert_eq!(memory.region(1).unwrap().size, size);
        let file = memory.region(1).unwrap().file_offset.as_ref().unwrap().file().try_clone().unwrap();
        let netmap = Arc::new(Mapping::map(file.as_fd(), size as usize).unwrap());
        Plugged {
            ram,
            netmap: Words::new(&netmap, 0, netmap.len() / 4).unwrap(),
            client,
            memory,
            vectors: Vec::new(),
            apart: 4096,
        }
    }

    /// Maps other memory at the same address, as behind an IOMMU. Before that, unmaps the whole address space, in
    /// ranges that match no mapping.
    pub fn remap(&mut self) {
        self.client.dma_unmap(0, 1 << 31).unwrap();
        self.client.dma_unmap(1 << 31, (1 << 63) - (1 << 31)).unwrap();
        self.ram = guest_memory(&mut self.client);
    }

    /// Returns the driver's interrupts, one for each vector.
    pub fn vectors(&self) -> &[Doorbell] {
        &self.vectors
    }

    /// Returns the index, in the guest's memory, of a word in the host's half of a ring's status block.
    pub fn ktoa(&self, ring: usize, word: usize) -> usize {
        atok(ring, word) + self.apart as usize / 4
    }

    pub fn register(&mut self, at: u64) -> u32 {
        read(&mut self.client, at)
    }

    pub fn memory_register(&mut self, at: u64) -> u32 {
        read(&mut self.memory, at)
    }

    pub fn set(&mut self, at: u64, value: u32) {
        self.client.region_write(0, at, &value.to_le_bytes()).unwrap();
    }

    /// Sets the addresses of the status blocks, each with its high half first.
    pub fn set_csb(&mut self, guest_to_host: u64, host_to_guest: u64) {
        let halves = [guest_to_host, host_to_guest].into_iter().flat_map(|a| [(a >> 32) as u32, a as u32]);
        for (i, half) in halves.enumerate() {
            self.set(reg::CSB + 4 * i as u64, half);
        }
    }

    pub fn picture(&mut self) -> Picture {
        let which = [reg::NIFP, reg::TX_RINGS, reg::RX_RINGS, reg::TX_SLOTS, reg::RX_SLOTS, reg::MEMORY_ID];
        let registers: Vec<u32> = which.map(|at| self.register(at)).to_vec();
        let nifp = registers[0] as usize / 4;
        let offsets = (registers[1] + registers[2] + 2) as usize;
        // The spare words before the offsets are not read.
        let words = (nifp..nifp + SPARE).chain(nifp + OFFSETS..nifp + OFFSETS + 2 * offsets);
        let netmap_if = words.map(|i| self.netmap.load(i)).collect();
        Picture { registers, netmap_if }
    }

    /// Overwrites `netmap_if`, rings and slots with nonsense.
    pub fn scribble(&mut self) {
        let pool = self.memory_register(88) as usize / 4;
        (0..pool).for_each(|i| self.netmap.store(i, 0x5a5a_0000 | i as u32));
    }

    /// Connects all vectors of the driver to the driver's own descriptors.
    fn interrupts(&mut self, count: u32) {
        self.vectors = (0..count).map(|_| Doorbell::new().unwrap()).collect();
        let fds: Vec<i32> = self.vectors.iter().map(|v| v.as_fd().as_raw_fd()).collect();
        self.client.set_irqs(2, 4 | 1 << 5, 0, count, &fds).unwrap();
    }
}

/// The driver's state of a ring.
#[derive(Clone, Copy, Default)]
struct Kring {
    /// Index of the first word of the ring's `netmap_ring`.
    ring: usize,
    slots: u32,
    head: u32,
    tail: u32,
}

/// A driver that performs the same steps as netmap's driver, in the same order.
pub struct Driver<'a> {
    pub plugged: &'a mut Plugged,
    pub mac: [u8; 6],
    pub header_len: u32,
    /// Header of the last received frame.
    pub last_header: [u8; 12],
    wants_header: bool,
    tx_rings: u32,
    rx_rings: u32,
    nifp: u32,
    /// Offset of buffer 0 in bytes, and the distance between buffers in bytes.
    buffers: (u32, u32),
    krings: Vec<Kring>,
    /// Received frames, by ring.
    came: Vec<VecDeque<Vec<u8>>>,
}

impl<'a> Driver<'a> {
    pub fn probe(plugged: &'a mut Plugged, wants_header: bool) -> Driver<'a> {
        let p = plugged;
        p.set(reg::FEATURES, wants_header.into());
        let _acknowledged = p.register(reg::FEATURES);
        let tx_rings = p.register(reg::TX_RINGS);
        let rx_rings = p.register(reg::RX_RINGS);
        // Clear the two pages of the status blocks.
        (0..2048).for_each(|i| p.ram.store(CSB_AT as usize / 4 + i, 0));
        p.set_csb(GUEST_AT + CSB_AT, GUEST_AT + CSB_AT + p.apart);
        let high = p.register(reg::MAC_HIGH).to_be_bytes();
        let low = p.register(reg::MAC_LOW).to_be_bytes();
        let mac = [high[2], high[3], low[0], low[1], low[2], low[3]];
        p.interrupts(tx_rings + rx_rings);
        let nifp = p.register(reg::NIFP);
        let slots = (p.register(reg::TX_SLOTS), p.register(reg::RX_SLOTS));
        assert!(slots.0 > 0 && slots.1 > 0);
        assert_eq!(p.register(reg::MEMORY_ID), p.memory_register(8), "one memory");
        let mut this = Driver {
            plugged: p,
            mac,
            header_len: 0,
            last_header: [0; 12],
            wants_header,
            tx_rings,
            rx_rings,
            nifp,
            buffers: (0, 0),
            krings: Vec::new(),
            came: Vec::new(),
        };
        this.update_header_len();
        this
    }

    fn update_header_len(&mut self) {
        self.plugged.set(reg::HEADER_LEN, if self.wants_header { 12 } else { 0 });
        self.header_len = self.plugged.register(reg::HEADER_LEN);
    }

    pub fn pairs(&self) -> u32 {
        self.tx_rings.min(self.rx_rings)
    }

    /// Opens the device. No frames may arrive during this call.
    pub fn open(&mut self) {
        self.start();
        for (k, kring) in self.krings.iter().enumerate() {
            let full = if k < self.tx_rings as usize { kring.slots - 1 } else { 0 };
            assert_eq!((kring.tail, self.plugged.ram.load(atok(k, NEED_KICK))), (full, 1));
        }
    }

    pub fn start(&mut self) {
        let p = &mut *self.plugged;
        assert_eq!([reg::TX_RINGS, reg::RX_RINGS].map(|at| p.register(at)), [self.tx_rings, self.rx_rings]);
        let slots = [reg::TX_SLOTS, reg::RX_SLOTS].map(|at| p.register(at));
        self.buffers = (p.memory_register(88), p.memory_register(96));
        // The positions of the rings are read from the `netmap_if`, before any start. Between the tx rings and the rx
        // rings, there is room for one host ring, although the device has none.
        let tx = self.tx_rings as usize;
        let count = tx + self.rx_rings as usize;
        let offset = |i: usize| p.netmap.load_wide(self.nifp as usize / 4 + OFFSETS + 2 * i) as usize;
        let kring = |(k, i): (usize, usize)| Kring {
            ring: (self.nifp as usize + offset(i)) / 4,
            slots: slots[usize::from(k >= tx)],
            ..Kring::default()
        };
        self.krings = (0..tx).chain(tx + 1..count + 1).enumerate().map(kring).collect();
        for (k, kring) in self.krings.iter().enumerate() {
            assert_eq!(p.netmap.load(kring.ring + 2), kring.slots, "no ring at {:x}", kring.ring);
            let buffers = (kring.ring as u64 * 4 + p.netmap.load_wide(kring.ring)) as u32;
            assert_eq!((buffers, p.netmap.load(kring.ring + 3)), self.buffers, "other buffers");
            assert_eq!(p.netmap.load(kring.ring + 4), ((k >= tx) as u32) << 16 | (k % tx) as u32, "another ring");
            p.ram.store(atok(k, NEED_KICK), u32::from(k >= tx));
            p.ram.store(p.ktoa(k, NEED_KICK), 1);
        }
        self.update_header_len();
        self.plugged.set(reg::CONTROL, 1);
        assert_eq!(self.plugged.register(reg::CONTROL), 0, "the rings do not start");
        // Both sides start at the ring positions in the status blocks.
        for (k, kring) in self.krings.iter_mut().enumerate() {
            let p = &self.plugged;
            kring.head = p.ram.load(atok(k, HEAD));
            kring.tail = p.ram.load(p.ktoa(k, TAIL));
            assert_eq!((kring.head, p.ram.load(atok(k, CUR)), p.ram.load(p.ktoa(k, HEAD))), (0, 0, 0));
        }
        self.came = vec![VecDeque::new(); self.rx_rings as usize];
    }

    pub fn close(&mut self) {
        self.plugged.set(reg::CONTROL, 2);
        assert_eq!(self.plugged.register(reg::CONTROL), 0);
    }

    /// Unloads the driver.
    pub fn remove(mut self) {
        self.close();
        self.plugged.set_csb(0, 0);
    }

    fn learn_tail(&mut self, k: usize) {
        self.krings[k].tail = self.plugged.ram.load(self.plugged.ktoa(k, TAIL));
        fence(Ordering::Acquire);
    }

    /// Publishes the new head of ring `k`, and kicks the host if the host needs kicks.
    fn publish(&mut self, k: usize, head: u32) {
        self.krings[k].head = head;
        fence(Ordering::Release);
        self.plugged.ram.store(atok(k, CUR), head);
        fence(Ordering::Release);
        self.plugged.ram.store(atok(k, HEAD), head);
        fence(Ordering::SeqCst);
        if self.plugged.ram.load(self.plugged.ktoa(k, NEED_KICK)) != 0 {
            self.plugged.set(reg::KICKS + 4 * k as u64, 0);
        }
    }

    fn has_room(&mut self, k: usize) -> bool {
        let Kring { slots, head, tail, .. } = self.krings[k];
        // The ring must have room for the longest frame, or be empty.
        (tail + slots - head) % slots >= (65_536 / self.buffers.1 + 2).min(slots - 1)
    }

    /// Waits until the ring has room; if necessary, waits for the interrupt that reports room.
    fn wait_for_room(&mut self, k: usize) {
        if self.has_room(k) {
            return;
        }
        self.learn_tail(k);
        until("room to send", || {
            self.plugged.ram.store(atok(k, NEED_KICK), 1);
            fence(Ordering::SeqCst);
            self.learn_tail(k);
            if self.has_room(k) {
                self.plugged.ram.store(atok(k, NEED_KICK), 0);
                return true;
            }
            until("an interrupt", || self.plugged.vectors[k].drain());
            false
        });
    }

    /// Returns the index, in netmap's memory, of the first word of a slot's buffer.
    fn buffer(&self, ring: usize, slot: u32) -> usize {
        let index = self.plugged.netmap.load(ring + SLOTS + 4 * slot as usize);
        (self.buffers.0 + index * self.buffers.1) as usize / 4
    }

    /// Returns the first word of the buffer in the first slot of ring `k`.
    pub fn first_word(&self, k: usize) -> u32 {
        self.plugged.netmap.load(self.buffer(self.krings[k].ring, 0))
    }

    /// Sends a frame. If headers are in use, an empty header precedes the frame.
    pub fn send(&mut self, queue: u32, frame: &[u8]) {
        let k = queue as usize;
        self.wait_for_room(k);
        let Kring { ring, slots, mut head, .. } = self.krings[k];
        let bytes = [&[0; 12][..self.header_len as usize], frame].concat();
        let mut pieces = bytes.chunks(self.buffers.1 as usize).peekable();
        while let Some(piece) = pieces.next() {
            let buffer = self.buffer(ring, head);
            for (i, four) in piece.chunks(4).enumerate() {
                let mut word = [0; 4];
                word[..four.len()].copy_from_slice(four);
                self.plugged.netmap.store(buffer + i, u32::from_le_bytes(word));
            }
            let flags = if pieces.peek().is_some() { MORE } else { 0 };
            self.plugged.netmap.store(ring + SLOTS + 4 * head as usize + 1, piece.len() as u32 | flags << 16);
            head = (head + 1) % slots;
        }
        self.publish(k, head);
    }

    /// Handles the interrupt of a receiving ring: takes all frames, and after that requests the next interrupt.
    fn interrupted(&mut self, queue: usize) {
        let k = self.tx_rings as usize + queue;
        loop {
            if self.krings[k].head == self.krings[k].tail {
                self.learn_tail(k);
            }
            if self.krings[k].head == self.krings[k].tail {
                self.plugged.ram.store(atok(k, NEED_KICK), 1);
                fence(Ordering::SeqCst);
                self.learn_tail(k);
                if self.krings[k].head == self.krings[k].tail {
                    return;
                }
                self.plugged.ram.store(atok(k, NEED_KICK), 0);
            }
            let Kring { ring, slots, mut head, .. } = self.krings[k];
            let mut bytes = Vec::new();
            loop {
                let buffer = self.buffer(ring, head);
                let word = self.plugged.netmap.load(ring + SLOTS + 4 * head as usize + 1);
                let len = (word & 0xffff) as usize;
                let words = (0..len.div_ceil(4)).flat_map(|i| self.plugged.netmap.load(buffer + i).to_le_bytes());
                bytes.extend(words.take(len));
                head = (head + 1) % slots;
                if word >> 16 & MORE == 0 {
                    break;
                }
            }
            self.came[queue].push_back(bytes);
            self.publish(k, head);
        }
    }

    /// Receives the next frame from any queue, without its header.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        until("a frame", || {
            for queue in 0..self.came.len() {
                let vector = self.tx_rings as usize + queue;
                if self.came[queue].is_empty() && self.plugged.vectors[vector].drain() {
                    self.interrupted(queue);
                }
            }
            let came = self.came.iter_mut().find_map(std::collections::VecDeque::pop_front);
            bytes = came.unwrap_or_default();
            !bytes.is_empty()
        });
        let header: Vec<u8> = bytes.drain(..self.header_len as usize).collect();
        self.last_header[..header.len()].copy_from_slice(&header);
        bytes
    }
}
