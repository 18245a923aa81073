//! Encodes and decodes messages; decoding refuses unknown and impossible values.

use std::ops::Range;

use zerocopy::little_endian::U32;
use zerocopy::transmute;

use super::wire::{self, MessageHead, PaddedText};
use super::{
    AttachReply, AttachRequest, BadMessage, FLAG_FILE, FLAGS, FilePlacement, MAX_PORT_RINGS, MAX_RINGS, OffsetsRequest,
    PoolSizes, REPLY_LEN, REPLY_MAGIC, REQUEST_LEN, REQUEST_MAGIC, Role,
};

impl AttachRequest {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let PoolSizes { ifs, rings, bufs } = self.pools;
        let offset_bits = self.offsets.map_or(0, |offsets| offsets.bits.saturating_add(1));
        let offsets = self.offsets.unwrap_or(OffsetsRequest { bits: 0, max: 0, initial: 0 });
        let file = self.file.unwrap_or_default();
        transmute!(wire::AttachRequestWire {
            head: MessageHead::new(REQUEST_MAGIC),
            unused_6: 0.into(),
            flags: (self.flags | if self.file.is_some() { FLAG_FILE } else { 0 }).into(),
            tx_rings: self.tx_rings.into(),
            rx_rings: self.rx_rings.into(),
            tx_slots: self.tx_slots.into(),
            rx_slots: self.rx_slots.into(),
            buf_size: self.buf_size.into(),
            extra_bufs: self.extra_bufs.into(),
            hdr_len: self.hdr_len.into(),
            pipes: self.pipes.into(),
            host_tx_rings: self.host_tx_rings.into(),
            host_rx_rings: self.host_rx_rings.into(),
            mem_id: self.mem_id.into(),
            pools: [ifs, rings, bufs].map(|(number, size)| [number.into(), size.into()]),
            note: self.note,
            offset_bits: offset_bits.into(),
            max_offset: offsets.max.into(),
            initial_offset: offsets.initial.into(),
            unused_124: 0.into(),
            name: PaddedText::new(&self.name),
            file_offset: file.offset.into(),
            file_len: file.len.into(),
        })
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`BadMessage`] if the bytes are not a valid request.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let m: wire::AttachRequestWire = wire::read(bytes, REQUEST_MAGIC)?;
        let flags = m.flags.get();
        if flags & !FLAGS != 0 {
            return Err(BadMessage::Field("flags"));
        }
        if !matches!(m.hdr_len.get(), 0 | 10 | 12) {
            return Err(BadMessage::Field("virtio-net header length: 0, 10 or 12"));
        }
        let [ifs, rings, bufs] = m.pools.map(|[number, size]| (number.get(), size.get()));
        let file = FilePlacement { offset: m.file_offset.get(), len: m.file_len.get() };
        let offsets = |bits| OffsetsRequest { bits, max: m.max_offset.get(), initial: m.initial_offset.get() };
        Ok(AttachRequest {
            name: m.name.read()?,
            flags: flags & !FLAG_FILE,
            tx_rings: m.tx_rings.get(),
            rx_rings: m.rx_rings.get(),
            tx_slots: m.tx_slots.get(),
            rx_slots: m.rx_slots.get(),
            buf_size: m.buf_size.get(),
            extra_bufs: m.extra_bufs.get(),
            hdr_len: m.hdr_len.get(),
            pipes: m.pipes.get(),
            host_tx_rings: m.host_tx_rings.get(),
            host_rx_rings: m.host_rx_rings.get(),
            mem_id: m.mem_id.get(),
            pools: PoolSizes { ifs, rings, bufs },
            note: m.note,
            offsets: m.offset_bits.get().checked_sub(1).map(offsets),
            file: (flags & FLAG_FILE != 0).then_some(file),
        })
    }
}

impl AttachReply {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; REPLY_LEN] {
        let bound = |rings: &Range<u32>| [rings.start.into(), (rings.len() as u32).into()];
        transmute!(wire::AttachReplyWire {
            head: MessageHead::new(REPLY_MAGIC),
            role: (self.role as u16).into(),
            status: self.status.into(),
            memsize: self.memsize.into(),
            nifp: self.nifp.into(),
            csb_atok: self.csb_atok.into(),
            csb_ktoa: self.csb_ktoa.into(),
            csb_first: self.csb_first.into(),
            peer_csb_first: self.peer_csb_first.into(),
            ring_pool: self.ring_pool.into(),
            ring_size: self.ring_size.into(),
            buf_pool: self.buf_pool.into(),
            num_bufs: self.num_bufs.into(),
            buf_size: self.buf_size.into(),
            tx_rings: self.tx_rings.into(),
            rx_rings: self.rx_rings.into(),
            tx_slots: self.tx_slots.into(),
            rx_slots: self.rx_slots.into(),
            extra_bufs: self.extra_bufs.into(),
            hdr_len: self.hdr_len.into(),
            mem_id: self.mem_id.into(),
            if_pool: self.if_pool.into(),
            if_size: self.if_size.into(),
            num_ifs: self.num_ifs.into(),
            num_rings: self.num_rings.into(),
            nic_entries: self.nic_entries.into(),
            nic_flags: self.nic_flags.into(),
            nic_ifindex: self.nic_ifindex.into(),
            nic_mtu: self.nic_mtu.into(),
            max_offset: self.max_offset.into(),
            port_flags: self.port_flags.into(),
            file_offset: self.file_offset.into(),
            tx_bound: bound(&self.tx_bound),
            rx_bound: bound(&self.rx_bound),
            note: self.note,
            alone: u32::from(self.alone).into(),
            host_tx_rings: self.host_tx_rings.into(),
            host_rx_rings: self.host_rx_rings.into(),
            text: PaddedText::new(&self.text),
            unused_12: 0.into(),
            unused_68: 0.into(),
            unused_164: [0.into(); 3],
            unused_200: 0.into(),
            unused_228: [0.into(); 2],
            unused_252: 0.into(),
        })
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`BadMessage`] if the bytes are not a valid reply. The client checks offsets against the region's size when it
    /// maps the region.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let m: wire::AttachReplyWire = wire::read(bytes, REPLY_MAGIC)?;
        let role = match m.role.get() {
            0 => Role::Switch,
            1 => Role::Pipe,
            2 => Role::Monitor,
            _ => return Err(BadMessage::Field("role")),
        };
        let tx_rings = m.tx_rings.get();
        let rx_rings = m.rx_rings.get();
        if tx_rings.saturating_add(rx_rings) > MAX_PORT_RINGS {
            return Err(BadMessage::Field("number of rings"));
        }
        let tx_bound = bound(m.tx_bound, tx_rings)?;
        let rx_bound = bound(m.rx_bound, rx_rings)?;
        if tx_bound.len() + rx_bound.len() > MAX_RINGS {
            return Err(BadMessage::Field("number of bound rings"));
        }
        Ok(AttachReply {
            status: m.status.get(),
            text: m.text.read()?,
            role,
            memsize: m.memsize.get(),
            nifp: m.nifp.get(),
            csb_atok: m.csb_atok.get(),
            csb_ktoa: m.csb_ktoa.get(),
            csb_first: m.csb_first.get(),
            peer_csb_first: m.peer_csb_first.get(),
            ring_pool: m.ring_pool.get(),
            ring_size: m.ring_size.get(),
            buf_pool: m.buf_pool.get(),
            num_bufs: m.num_bufs.get(),
            buf_size: m.buf_size.get(),
            tx_rings: m.tx_rings.get(),
            rx_rings: m.rx_rings.get(),
            tx_slots: m.tx_slots.get(),
            rx_slots: m.rx_slots.get(),
            extra_bufs: m.extra_bufs.get(),
            hdr_len: m.hdr_len.get(),
            mem_id: m.mem_id.get(),
            if_pool: m.if_pool.get(),
            if_size: m.if_size.get(),
            num_ifs: m.num_ifs.get(),
            num_rings: m.num_rings.get(),
            nic_entries: m.nic_entries.get(),
            nic_flags: m.nic_flags.get(),
            nic_ifindex: m.nic_ifindex.get(),
            nic_mtu: m.nic_mtu.get(),
            max_offset: m.max_offset.get(),
            port_flags: m.port_flags.get(),
            file_offset: m.file_offset.get(),
            host_tx_rings: m.host_tx_rings.get().min(tx_rings),
            host_rx_rings: m.host_rx_rings.get().min(rx_rings),
            tx_bound,
            rx_bound,
            note: m.note,
            alone: m.alone.get() != 0,
        })
    }
}

/// Returns the range of rings bound to a client, out of `rings`.
fn bound([first, count]: [U32; 2], rings: u32) -> Result<Range<u32>, BadMessage> {
    let first = first.get();
    let end = first.checked_add(count.get()).filter(|&end| end <= rings);
    end.map(|end| first..end).ok_or(BadMessage::Field("bound rings"))
}
