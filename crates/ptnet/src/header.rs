//! The header page of a ptnet device, from the host's side.
//!
//! The guest can write all of it. The host writes what it says from its own copy and reads the guest's command words only.

use std::mem::offset_of;
use std::sync::Arc;

use netvale_abi::ptnet::{self, HEADER_BYTES, PtnetHeader, word};
use netvale_mem::words::Words;
use netvale_mem::{Layout, Mapping};

/// What the device says of itself, apart from where things lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rings the guest sends on.
    pub tx_rings: u32,
    /// Rings the guest receives on.
    pub rx_rings: u32,
    /// Slots of each ring.
    pub slots: u32,
    /// Bytes a buffer; 0 for the usual.
    pub buf_size: u32,
    /// Whether a virtio-net header is offered.
    pub vnet_hdr: bool,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// MTU, bytes.
    pub mtu: u32,
}

impl Config {
    /// Doorbells and interrupt vectors: one a ring, and one for commands and news.
    pub fn vectors(&self) -> u32 {
        self.tx_rings + self.rx_rings + 1
    }

    /// Features offered.
    pub fn features(&self) -> u32 {
        if self.vnet_hdr { ptnet::FEATURE_VNET_HDR } else { 0 }
    }
}

/// A command of the guest's, as it stood at one moment. All of it is the guest's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// One of the `COMMAND_` numbers, or nonsense.
    pub what: u32,
    /// Its number.
    pub number: u32,
    /// Features wanted.
    pub features: u32,
    /// Extra buffers wanted.
    pub extra_bufs: u32,
}

/// The page.
#[derive(Debug)]
pub struct Header {
    words: Words,
}

macro_rules! at {
    ($field:ident) => {
        word(offset_of!(PtnetHeader, $field))
    };
}

/// The host's peer number on the ivshmem bus.
pub const HOST_PEER: u32 = 0;

impl Header {
    /// Views the page at the start of a device's memory.
    pub fn new(map: &Arc<Mapping>) -> Option<Header> {
        Words::new(map, 0, (HEADER_BYTES / 4) as usize).map(|words| Header { words })
    }

    /// Writes what the device is.
    pub fn describe(&self, c: &Config, layout: &Layout) {
        let w = &self.words;
        let mac = c.mac.map(u32::from);
        let fields = [
            (at!(version), ptnet::VERSION),
            (at!(header_bytes), HEADER_BYTES as u32),
            (at!(features), c.features()),
            (at!(vectors), c.vectors()),
            (at!(tx_rings), c.tx_rings),
            (at!(rx_rings), c.rx_rings),
            (at!(tx_slots), c.slots),
            (at!(rx_slots), c.slots),
            (at!(buf_size), layout.sizes.bufs.size),
            (at!(num_bufs), layout.sizes.bufs.num),
            (at!(mac), mac[0] | mac[1] << 8 | mac[2] << 16 | mac[3] << 24),
            (at!(mac) + 1, mac[4] | mac[5] << 8),
            (at!(mtu), c.mtu),
            (at!(host_peer), HOST_PEER),
            (at!(ring_size), layout.sizes.rings.size),
        ];
        fields.into_iter().for_each(|(at, value)| w.store(at, value));
        let wide = [
            (at!(csb_atok), layout.csb_atok),
            (at!(csb_ktoa), layout.csb_ktoa),
            (at!(ring_pool), layout.ring_pool),
            (at!(buf_pool), layout.buf_pool),
            (at!(if_pool), layout.if_pool),
            (at!(total), layout.total),
        ];
        wide.into_iter().for_each(|(at, value)| w.store_wide(at, value));
        // Last: a header without its magic is none.
        w.store(at!(magic) + 1, ptnet::MAGIC[1]);
        w.store(at!(magic), ptnet::MAGIC[0]);
    }

    /// The guest's command, each word read once.
    pub fn command(&self) -> Command {
        // The number first: what belongs to it was written before it.
        let number = self.words.load(at!(number));
        let w = |at: usize| self.words.load(at);
        Command { what: w(at!(command)), number, features: w(at!(wanted)), extra_bufs: w(at!(wanted_bufs)) }
    }

    /// Answers it.
    pub fn answer(&self, number: u32, result: u32) {
        self.words.store(at!(result), result);
        self.words.store(at!(answered), number);
    }

    /// Tells how the device is.
    pub fn set_status(&self, status: u32) {
        self.words.store(at!(status), status);
    }

    /// Tells where the `netmap_if` is, and how many extra buffers it lists.
    pub fn set_binding(&self, nifp: u64, extra_bufs: u32) {
        self.words.store_wide(at!(nifp), nifp);
        self.words.store(at!(extra_bufs), extra_bufs);
    }
}
