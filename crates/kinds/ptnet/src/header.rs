//! The header page of a ptnet device, from the host's side.
//!
//! The guest can write the whole page. The host writes its words from its own copy and reads only the guest's command
//! words.

use std::mem::offset_of;
use std::sync::Arc;

use netvale_abi::ptnet::{self, HEADER_BYTES, PtnetHeader, word};
use netvale_mem::words::Words;
use netvale_mem::{Layout, Mapping};

/// The configuration of a device, without offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtnetDeviceConfig {
    /// Number of rings on which the guest sends.
    pub tx_rings: u32,
    /// Number of rings on which the guest receives.
    pub rx_rings: u32,
    /// Slots of each ring.
    pub slots: u32,
    /// Buffer size in bytes; 0 for the default.
    pub buf_size: u32,
    /// Whether the device offers a virtio-net header.
    pub vnet_hdr: bool,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
}

impl PtnetDeviceConfig {
    /// Returns the number of doorbells, which equals the number of interrupt vectors: one per ring, and one for
    /// commands and status.
    pub fn vectors(&self) -> u32 {
        self.tx_rings + self.rx_rings + 1
    }

    /// Returns the offered features.
    pub fn features(&self) -> u32 {
        if self.vnet_hdr { ptnet::FEATURE_VNET_HDR } else { 0 }
    }
}

/// A copy of a guest's command, not checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestCommand {
    /// One of the `COMMAND_` numbers, or an invalid one.
    pub what: u32,
    /// Sequence number of the command, which the answer repeats.
    pub number: u32,
    /// Requested features.
    pub features: u32,
    /// Number of requested extra buffers.
    pub extra_bufs: u32,
}

/// The host's view of the header page.
#[derive(Debug)]
pub struct HeaderPage {
    words: Words,
}

macro_rules! at {
    ($field:ident) => {
        word(offset_of!(PtnetHeader, $field))
    };
}

/// The host's peer number on the ivshmem bus.
pub const HOST_PEER: u32 = 0;

impl HeaderPage {
    /// Returns a view of the page at the start of a device's memory; `None` if the memory is too short.
    pub fn new(map: &Arc<Mapping>) -> Option<HeaderPage> {
        Words::new(map, 0, (HEADER_BYTES / 4) as usize).map(|words| HeaderPage { words })
    }

    /// Writes the description of the device.
    pub fn describe(&self, c: &PtnetDeviceConfig, layout: &Layout) {
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
        // Written last: a header without its magic is invalid.
        w.store(at!(magic) + 1, ptnet::MAGIC[1]);
        w.store(at!(magic), ptnet::MAGIC[0]);
    }

    /// Reads the guest's command, each word once.
    pub fn command(&self) -> GuestCommand {
        // The number is read first: the guest writes it after the other words.
        let number = self.words.load(at!(number));
        let w = |at: usize| self.words.load(at);
        GuestCommand { what: w(at!(command)), number, features: w(at!(wanted)), extra_bufs: w(at!(wanted_bufs)) }
    }

    /// Answers command `number`; `result` is 0 or an error number.
    pub fn answer(&self, number: u32, result: u32) {
        self.words.store(at!(result), result);
        self.words.store(at!(answered), number);
    }

    /// Writes the device's status.
    pub fn set_status(&self, status: u32) {
        self.words.store(at!(status), status);
    }

    /// Writes the offset of the `netmap_if` and the number of extra buffers in its list.
    pub fn set_binding(&self, nifp: u64, extra_bufs: u32) {
        self.words.store_wide(at!(nifp), nifp);
        self.words.store(at!(extra_bufs), extra_bufs);
    }
}

#[cfg(test)]
mod tests {
    use netvale_mem::RegionSizes;

    use super::*;

    fn page() -> (Arc<Mapping>, HeaderPage) {
        let map = Arc::new(Mapping::private(HEADER_BYTES as usize).unwrap());
        let header = HeaderPage::new(&map).unwrap();
        (map, header)
    }

    /// Objective: a guest finds each word at the layout's offset, and a description changes nothing else.
    #[test]
    fn a_guest_finds_each_word_of_the_description() {
        let (map, header) = page();
        let guest = Words::new(&map, 0, (HEADER_BYTES / 4) as usize).unwrap();
        for own in [at!(status), at!(nifp), at!(command), at!(number), at!(wanted), at!(wanted_bufs)] {
            guest.store(own, 0xdead_0000 + own as u32);
        }
        let config = PtnetDeviceConfig {
            tx_rings: 3,
            rx_rings: 5,
            slots: 256,
            buf_size: 0,
            vnet_hdr: true,
            mac: [0x02, 0x11, 0x22, 0x33, 0x44, 0xf5],
            mtu: 9000,
        };
        let layout = Layout::device(RegionSizes::for_port(8, 256, 2048, 0, 0)).unwrap();
        header.describe(&config, &layout);
        let found = |at: usize| guest.load(at);
        assert_eq!([found(at!(magic)), found(at!(magic) + 1)], ptnet::MAGIC);
        assert_eq!((found(at!(version)), found(at!(header_bytes))), (ptnet::VERSION, HEADER_BYTES as u32));
        assert_eq!((found(at!(tx_rings)), found(at!(rx_rings)), found(at!(vectors))), (3, 5, 9));
        assert_eq!((found(at!(tx_slots)), found(at!(rx_slots)), found(at!(mtu))), (256, 256, 9000));
        assert_eq!((found(at!(features)), found(at!(host_peer))), (ptnet::FEATURE_VNET_HDR, HOST_PEER));
        let mac = [found(at!(mac)).to_le_bytes(), found(at!(mac) + 1).to_le_bytes()].concat();
        assert_eq!(mac, [0x02, 0x11, 0x22, 0x33, 0x44, 0xf5, 0, 0]);
        let sizes = layout.sizes;
        assert_eq!(
            (found(at!(buf_size)), found(at!(num_bufs)), found(at!(ring_size))),
            (sizes.bufs.size, sizes.bufs.num, sizes.rings.size)
        );
        let places = [at!(csb_atok), at!(csb_ktoa), at!(ring_pool), at!(buf_pool), at!(if_pool), at!(total)];
        let l = layout;
        let wanted = [l.csb_atok, l.csb_ktoa, l.ring_pool, l.buf_pool, l.if_pool, l.total];
        assert_eq!(places.map(|at| guest.load_wide(at)), wanted);
        for own in [at!(status), at!(nifp), at!(command), at!(number), at!(wanted), at!(wanted_bufs)] {
            assert_eq!(found(own), 0xdead_0000 + own as u32);
        }
    }

    /// Objective: a command is read from the guest's words, whatever their values, and the guest finds the answer by
    /// the command's number.
    #[test]
    fn a_command_is_read_and_its_answer_found() {
        let (map, header) = page();
        let guest = Words::new(&map, 0, (HEADER_BYTES / 4) as usize).unwrap();
        for (at, value) in [(at!(command), 77), (at!(number), u32::MAX), (at!(wanted), 5), (at!(wanted_bufs), 6)] {
            guest.store(at, value);
        }
        let command = header.command();
        assert_eq!(command, GuestCommand { what: 77, number: u32::MAX, features: 5, extra_bufs: 6 });
        header.answer(command.number, 22);
        header.set_status(3);
        header.set_binding(0x1_2345_6789, 4);
        assert_eq!((guest.load(at!(answered)), guest.load(at!(result)), guest.load(at!(status))), (u32::MAX, 22, 3));
        assert_eq!((guest.load_wide(at!(nifp)), guest.load(at!(extra_bufs))), (0x1_2345_6789, 4));
        assert_eq!(header.command(), command);
    }

    /// Objective: memory without room for the page is refused.
    #[test]
    fn memory_too_short_for_the_page_is_refused() {
        assert!(HeaderPage::new(&Arc::new(Mapping::private(64).unwrap())).is_none());
    }
}
