//! Encodes and decodes messages; decoding refuses unknown and impossible values.

use std::ops::Range;

use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, transmute};

use super::wire::{self, MessageHead, PaddedText};
use super::{
    AttachReply, AttachRequest, BadMessage, FLAG_FILE, FLAGS, FilePlacement, MAX_PORT_RINGS, MAX_RINGS, OffsetsRequest,
    PoolSizes, REPLY_LEN, REPLY_MAGIC, REQUEST_LEN, REQUEST_MAGIC, Role,
};

/// Copies those fields between a message and its wire format that have the same meaning in both.
macro_rules! plain_numbers {
    ($message:ident as $wire:ident: $($field:ident)+) => {
        impl wire::$wire {
            fn put(&mut self, message: &$message) {
                $( self.$field = message.$field.into(); )+
            }

            fn take(&self, message: &mut $message) {
                $( message.$field = self.$field.get(); )+
            }
        }
    };
}

plain_numbers! {
    AttachRequest as AttachRequestWire:
    tx_rings rx_rings tx_slots rx_slots buf_size extra_bufs hdr_len pipes host_tx_rings
    host_rx_rings mem_id
}

plain_numbers! {
    AttachReply as AttachReplyWire:
    status memsize nifp csb_atok csb_ktoa csb_first peer_csb_first ring_pool ring_size buf_pool
    num_bufs buf_size tx_rings rx_rings tx_slots rx_slots extra_bufs hdr_len mem_id if_pool if_size
    num_ifs num_rings nic_entries nic_flags nic_ifindex nic_mtu max_offset port_flags file_offset
}

impl AttachRequest {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let PoolSizes { ifs, rings, bufs } = self.pools;
        let offset_bits = self.offsets.map_or(0, |offsets| offsets.bits.saturating_add(1));
        let offsets = self.offsets.unwrap_or(OffsetsRequest { bits: 0, max: 0, initial: 0 });
        let file = self.file.unwrap_or_default();
        let mut wire = wire::AttachRequestWire {
            head: MessageHead::new(REQUEST_MAGIC),
            flags: (self.flags | if self.file.is_some() { FLAG_FILE } else { 0 }).into(),
            pools: [ifs, rings, bufs].map(|(number, size)| [number.into(), size.into()]),
            note: self.note,
            offset_bits: offset_bits.into(),
            max_offset: offsets.max.into(),
            initial_offset: offsets.initial.into(),
            name: PaddedText::new(&self.name),
            file_offset: file.offset.into(),
            file_len: file.len.into(),
            ..FromZeros::new_zeroed()
        };
        wire.put(self);
        transmute!(wire)
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
            return Err(BadMessage::Field("virtio-net header length: expected 0, 10 or 12"));
        }
        let [ifs, rings, bufs] = m.pools.map(|[number, size]| (number.get(), size.get()));
        let file = FilePlacement { offset: m.file_offset.get(), len: m.file_len.get() };
        let offsets = |bits| OffsetsRequest { bits, max: m.max_offset.get(), initial: m.initial_offset.get() };
        let mut request = AttachRequest {
            name: m.name.read()?,
            flags: flags & !FLAG_FILE,
            pools: PoolSizes { ifs, rings, bufs },
            note: m.note,
            offsets: m.offset_bits.get().checked_sub(1).map(offsets),
            file: (flags & FLAG_FILE != 0).then_some(file),
            ..AttachRequest::default()
        };
        m.take(&mut request);
        Ok(request)
    }
}

impl AttachReply {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; REPLY_LEN] {
        let bound = |rings: &Range<u32>| [rings.start.into(), (rings.len() as u32).into()];
        let mut wire = wire::AttachReplyWire {
            head: MessageHead::new(REPLY_MAGIC),
            role: (self.role as u16).into(),
            tx_bound: bound(&self.tx_bound),
            rx_bound: bound(&self.rx_bound),
            note: self.note,
            alone: u32::from(self.alone).into(),
            host_tx_rings: self.host_tx_rings.into(),
            host_rx_rings: self.host_rx_rings.into(),
            text: PaddedText::new(&self.text),
            ..FromZeros::new_zeroed()
        };
        wire.put(self);
        transmute!(wire)
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
        let mut reply = AttachReply {
            text: m.text.read()?,
            role,
            host_tx_rings: m.host_tx_rings.get().min(tx_rings),
            host_rx_rings: m.host_rx_rings.get().min(rx_rings),
            tx_bound,
            rx_bound,
            note: m.note,
            alone: m.alone.get() != 0,
            ..AttachReply::default()
        };
        m.take(&mut reply);
        Ok(reply)
    }
}

/// Checks the first index and the number of rings bound to a client against the port's number of rings, and returns
/// them as a range.
fn bound([first, count]: [U32; 2], rings: u32) -> Result<Range<u32>, BadMessage> {
    let first = first.get();
    let end = first.checked_add(count.get()).filter(|&end| end <= rings);
    end.map(|end| first..end).ok_or(BadMessage::Field("bound rings"))
}
