//! The bytes of the attach messages: each number is named once, with its place.

use std::ops::Range;

use super::fields::{Reader, Writer};
use super::{
    AttachReply, AttachRequest, BadMessage, FLAG_FILE, FLAGS, FileAsked, MAX_PORT_RINGS, MAX_RINGS, OffsetsAsked,
    REPLY_LEN, REPLY_MAGIC, REQUEST_LEN, REQUEST_MAGIC, Role,
};

/// Field places in an [`AttachRequest`], beside those of [`AttachRequest::numbers`].
mod request {
    use super::Range;
    pub const FLAGS: Range<usize> = 8..12;
    pub const NOTE: Range<usize> = 68..100;
    /// 0: no offsets; else one more than their bits.
    pub const OFFSET_BITS: Range<usize> = 112..116;
    pub const MAX_OFFSET: Range<usize> = 116..120;
    pub const INITIAL_OFFSET: Range<usize> = 120..124;
    pub const NAME: Range<usize> = 128..256;
    pub const FILE_OFFSET: Range<usize> = 256..264;
    pub const FILE_LEN: Range<usize> = 264..272;
}

/// Field places in an [`AttachReply`], beside those of [`AttachReply::numbers`] and [`AttachReply::places`].
mod reply {
    use super::Range;
    pub const ROLE: Range<usize> = 6..8;
    pub const STATUS: Range<usize> = 8..12;
    pub const TX_FIRST: Range<usize> = 116..120;
    pub const TX_BOUND: Range<usize> = 120..124;
    pub const RX_FIRST: Range<usize> = 124..128;
    pub const RX_BOUND: Range<usize> = 128..132;
    pub const NOTE: Range<usize> = 132..164;
    pub const ALONE: Range<usize> = 196..200;
    pub const TEXT: Range<usize> = 256..512;
}

impl AttachRequest {
    /// 32-bit numbers for which every value is valid, with their offsets.
    fn numbers(&mut self) -> [(usize, &mut u32); 17] {
        [
            (12, &mut self.tx_rings),
            (16, &mut self.rx_rings),
            (20, &mut self.tx_slots),
            (24, &mut self.rx_slots),
            (28, &mut self.buf_size),
            (32, &mut self.extra_bufs),
            (36, &mut self.hdr_len),
            (40, &mut self.pipes),
            (44, &mut self.pools.ifs.0),
            (48, &mut self.pools.ifs.1),
            (52, &mut self.pools.rings.0),
            (56, &mut self.pools.rings.1),
            (60, &mut self.pools.bufs.0),
            (64, &mut self.pools.bufs.1),
            (100, &mut self.host_tx_rings),
            (104, &mut self.host_rx_rings),
            (108, &mut self.mem_id),
        ]
    }

    /// The message.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut m = [0; REQUEST_LEN];
        let mut w = Writer(&mut m);
        w.head(REQUEST_MAGIC);
        w.u32(request::FLAGS, self.flags);
        for (at, number) in self.clone().numbers() {
            w.u32(at..at + 4, *number);
        }
        w.put(request::NOTE, &self.note);
        if let Some(o) = &self.offsets {
            w.u32(request::OFFSET_BITS, o.bits.saturating_add(1));
            w.u32(request::MAX_OFFSET, o.max);
            w.u32(request::INITIAL_OFFSET, o.initial);
        }
        if let Some(file) = &self.file {
            w.u32(request::FLAGS, self.flags | FLAG_FILE);
            w.u64(request::FILE_OFFSET, file.offset);
            w.u64(request::FILE_LEN, file.len);
        }
        w.text(request::NAME, &self.name);
        m
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let r = Reader(bytes);
        r.head(REQUEST_LEN, REQUEST_MAGIC)?;
        let flags = r.u32(request::FLAGS);
        if flags & !FLAGS != 0 {
            return Err(BadMessage::Field("flags"));
        }
        let mut m = AttachRequest { flags: flags & !FLAG_FILE, note: r.bytes(request::NOTE), ..Self::default() };
        m.numbers().into_iter().for_each(|(at, number)| *number = r.u32(at..at + 4));
        if !matches!(m.hdr_len, 0 | 10 | 12) {
            return Err(BadMessage::Field("virtio-net header length: 0, 10 or 12"));
        }
        m.name = r.text(request::NAME)?;
        let file = || FileAsked { offset: r.u64(request::FILE_OFFSET), len: r.u64(request::FILE_LEN) };
        m.file = (flags & FLAG_FILE != 0).then(file);
        m.offsets = r.u32(request::OFFSET_BITS).checked_sub(1).map(|bits| OffsetsAsked {
            bits,
            max: r.u32(request::MAX_OFFSET),
            initial: r.u32(request::INITIAL_OFFSET),
        });
        Ok(m)
    }
}

impl AttachReply {
    /// 32-bit numbers for which every value is valid, with their offsets.
    fn numbers(&mut self) -> [(usize, &mut u32); 23] {
        [
            (48, &mut self.csb_first),
            (52, &mut self.peer_csb_first),
            (64, &mut self.ring_size),
            (80, &mut self.num_bufs),
            (84, &mut self.buf_size),
            (88, &mut self.tx_rings),
            (92, &mut self.rx_rings),
            (96, &mut self.tx_slots),
            (100, &mut self.rx_slots),
            (104, &mut self.extra_bufs),
            (108, &mut self.hdr_len),
            (112, &mut self.mem_id),
            (184, &mut self.if_size),
            (188, &mut self.num_ifs),
            (192, &mut self.num_rings),
            (204, &mut self.nic_entries),
            (208, &mut self.nic_flags),
            (212, &mut self.nic_ifindex),
            (216, &mut self.nic_mtu),
            (220, &mut self.max_offset),
            (224, &mut self.port_flags),
            (236, &mut self.host_tx_rings),
            (240, &mut self.host_rx_rings),
        ]
    }

    /// Those of 64 bits.
    fn places(&mut self) -> [(usize, &mut u64); 8] {
        [
            (16, &mut self.memsize),
            (24, &mut self.nifp),
            (32, &mut self.csb_atok),
            (40, &mut self.csb_ktoa),
            (56, &mut self.ring_pool),
            (72, &mut self.buf_pool),
            (176, &mut self.if_pool),
            (244, &mut self.file_offset),
        ]
    }

    /// The message.
    pub fn encode(&self) -> [u8; REPLY_LEN] {
        let (mut m, mut said) = ([0; REPLY_LEN], self.clone());
        let mut w = Writer(&mut m);
        w.head(REPLY_MAGIC);
        w.put(reply::ROLE, &(self.role as u16).to_le_bytes());
        w.put(reply::STATUS, &self.status.to_le_bytes());
        said.places().into_iter().for_each(|(at, place)| w.u64(at..at + 8, *place));
        said.numbers().into_iter().for_each(|(at, number)| w.u32(at..at + 4, *number));
        for (first, count, bound) in
            [(reply::TX_FIRST, reply::TX_BOUND, &self.tx_bound), (reply::RX_FIRST, reply::RX_BOUND, &self.rx_bound)]
        {
            w.u32(first, bound.start);
            w.u32(count, bound.len() as u32);
        }
        w.u32(reply::ALONE, self.alone.into());
        w.put(reply::NOTE, &self.note);
        w.text(reply::TEXT, &self.text);
        m
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`BadMessage`]. Offsets are checked where the region is mapped, against its size.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let r = Reader(bytes);
        r.head(REPLY_LEN, REPLY_MAGIC)?;
        let role = match r.u16(reply::ROLE) {
            0 => Role::Switch,
            1 => Role::Pipe,
            2 => Role::Monitor,
            _ => return Err(BadMessage::Field("role")),
        };
        let (status, alone) = (r.u32(reply::STATUS) as i32, r.u32(reply::ALONE) != 0);
        let mut m = AttachReply { status, role, alone, note: r.bytes(reply::NOTE), ..Self::default() };
        m.places().into_iter().for_each(|(at, place)| *place = r.u64(at..at + 8));
        m.numbers().into_iter().for_each(|(at, number)| *number = r.u32(at..at + 4));
        if m.tx_rings.saturating_add(m.rx_rings) > MAX_PORT_RINGS {
            return Err(BadMessage::Field("number of rings"));
        }
        let bound = |first, count, rings| {
            let first = r.u32(first);
            let end = first.checked_add(r.u32(count)).filter(|&end| end <= rings);
            end.map(|end| first..end).ok_or(BadMessage::Field("bound rings"))
        };
        m.tx_bound = bound(reply::TX_FIRST, reply::TX_BOUND, m.tx_rings)?;
        m.rx_bound = bound(reply::RX_FIRST, reply::RX_BOUND, m.rx_rings)?;
        if m.tx_bound.len() + m.rx_bound.len() > MAX_RINGS {
            return Err(BadMessage::Field("number of bound rings"));
        }
        (m.host_tx_rings, m.host_rx_rings) = (m.host_tx_rings.min(m.tx_rings), m.host_rx_rings.min(m.rx_rings));
        m.text = r.text(reply::TEXT)?;
        Ok(m)
    }
}
