//! A vhost-user front end without a hypervisor: the guest's memory is a file, and the virtqueues are written by hand.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use netvale_mem::notify::Doorbell;
use netvale_vhost::features::PROTOCOL_FEATURES;
use netvale_vhost::proto::message::{VhostMessage, put_region, request};
use netvale_vhost::proto::wire;
use netvale_virtio::features::VERSION_1;
use netvale_virtio::memory::RegionSpec;
use rustix::fs::MemfdFlags;
use rustix::io::{pread, pwrite};

/// Size of the guest's memory in bytes.
pub const SIZE: u64 = 0x10_0000;
/// The address of the guest's memory in the front end's address space.
const USER: u64 = 0x7000_0000;
/// Number of entries of each queue.
pub const COUNT: u16 = 256;
/// Addresses of the descriptor tables of the queue to the guest and of the queue from the guest. Each table fills a
/// page.
pub const QUEUES: [u64; 2] = [0x1_0000, 0x2_0000];
/// Offset of the available ring from the descriptor table: the next page.
const AVAILABLE: u64 = 0x1000;
/// Offset of the used ring from the descriptor table: the page after that.
const USED: u64 = 0x2000;

/// A connected front end. Both queues are enabled and empty.
#[derive(Debug)]
pub struct HostileFrontEnd {
    // The first field, so that the connection is closed before memory and doorbells are dropped.
    socket: UnixStream,
    memory: OwnedFd,
    kicks: Vec<Doorbell>,
    calls: Vec<Doorbell>,
}

impl HostileFrontEnd {
    /// Connects to a device, with `features` in addition to the required features. The two queues share `bells` kick
    /// descriptors and as many call descriptors.
    ///
    /// # Errors
    /// The device closes the connection, or there is no memory for the guest.
    pub fn connect(socket: &Path, features: u64, bells: usize) -> io::Result<HostileFrontEnd> {
        let socket = UnixStream::connect(socket)?;
        socket.set_write_timeout(Some(Duration::from_secs(5)))?;
        let memory = rustix::fs::memfd_create("netvale-guest", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, SIZE)?;
        let made = || (0..bells).map(|_| Doorbell::new()).collect::<Result<Vec<_>, _>>();
        let end = HostileFrontEnd { socket, memory, kicks: made()?, calls: made()? };
        end.negotiate(features)?;
        Ok(end)
    }

    fn negotiate(&self, features: u64) -> io::Result<()> {
        self.say(request::SET_FEATURES, &[VERSION_1 | PROTOCOL_FEATURES | features], None)?;
        self.say(request::SET_OWNER, &[], None)?;
        let mut table = VhostMessage::new(request::SET_MEM_TABLE, 1u64.to_le_bytes().to_vec());
        put_region(&mut table.payload, &RegionSpec { guest: 0, size: SIZE, user: USER, offset: 0 });
        table.fds.push(self.memory.try_clone()?);
        wire::send(self.socket.as_fd(), &table).map_err(io::Error::other)?;
        for (queue, at) in (0u64..).zip(QUEUES) {
            let rings = USER + at;
            let bell = queue as usize % self.kicks.len();
            self.say(request::SET_VRING_NUM, &[queue | u64::from(COUNT) << 32], None)?;
            self.say(request::SET_VRING_BASE, &[queue], None)?;
            self.say(request::SET_VRING_ADDR, &[queue, rings, rings + USED, rings + AVAILABLE, 0], None)?;
            self.say(request::SET_VRING_CALL, &[queue], Some(&self.calls[bell]))?;
            self.say(request::SET_VRING_KICK, &[queue], Some(&self.kicks[bell]))?;
            self.say(request::SET_VRING_ENABLE, &[queue | 1 << 32], None)?;
        }
        Ok(())
    }

    fn say(&self, request: u32, words: &[u64], file: Option<&Doorbell>) -> io::Result<()> {
        let mut message = VhostMessage::new(request, words.iter().flat_map(|word| word.to_le_bytes()).collect());
        if let Some(file) = file {
            message.fds.push(file.as_fd().try_clone_to_owned()?);
        }
        wire::send(self.socket.as_fd(), &message).map_err(io::Error::other)
    }

    /// Returns the file with the guest's memory.
    pub fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// Writes to the guest's memory. A write past the end of a truncated file fails, or extends the file again.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let _ = pwrite(&self.memory, bytes, at);
    }

    /// Writes a descriptor: the address, then `word`, which contains length, flags and next index.
    pub fn describe(&self, at: u64, address: u64, word: u64) {
        self.put(at, &[address.to_le_bytes(), word.to_le_bytes()].concat());
    }

    /// Writes an entry of a queue's available ring.
    pub fn offer(&self, queue: usize, place: u16, head: u16) {
        self.put(QUEUES[queue] + AVAILABLE + 4 + 2 * u64::from(place % COUNT), &head.to_le_bytes());
    }

    /// Sets a queue's available index.
    pub fn set_available(&self, queue: usize, index: u16) {
        self.put(QUEUES[queue] + AVAILABLE + 2, &index.to_le_bytes());
    }

    /// Returns a queue's used index.
    pub fn used(&self, queue: usize) -> u16 {
        let mut index = [0; 2];
        // After a read beyond a truncated file, the value is zero.
        let _ = pread(&self.memory, &mut index, QUEUES[queue] + USED + 2);
        u16::from_le_bytes(index)
    }

    /// Kicks a queue.
    pub fn kick(&self, queue: usize) {
        self.kicks[queue % self.kicks.len()].ring();
    }
}
