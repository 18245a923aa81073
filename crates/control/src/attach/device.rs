//! Converts the header of a ptnet device into an [`AttachReply`].

use std::mem::offset_of;

use netvale_abi::ptnet::{PtnetHeader, word};

use super::{AttachReply, Role};

macro_rules! at {
    ($field:ident) => {
        word(offset_of!(PtnetHeader, $field))
    };
}

impl AttachReply {
    /// Describes a port with the rings of a ptnet device, seen from inside the virtual machine. `header` is the
    /// device's header page in 32-bit words. The host wrote it, so the caller checks all offsets against the size of
    /// the memory, as in any reply.
    pub fn of_device(header: &[u32]) -> AttachReply {
        let word = |at: usize| header.get(at).copied().unwrap_or(0);
        let wide = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
        AttachReply {
            role: Role::Switch,
            memsize: wide(at!(total)),
            nifp: wide(at!(nifp)),
            csb_atok: wide(at!(csb_atok)),
            csb_ktoa: wide(at!(csb_ktoa)),
            ring_pool: wide(at!(ring_pool)),
            ring_size: word(at!(ring_size)),
            num_rings: word(at!(tx_rings)).saturating_add(word(at!(rx_rings))),
            buf_pool: wide(at!(buf_pool)),
            num_bufs: word(at!(num_bufs)),
            buf_size: word(at!(buf_size)),
            if_pool: wide(at!(if_pool)),
            extra_bufs: word(at!(extra_bufs)),
            tx_rings: word(at!(tx_rings)),
            rx_rings: word(at!(rx_rings)),
            tx_slots: word(at!(tx_slots)),
            rx_slots: word(at!(rx_slots)),
            ..AttachReply::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each field is read at its offset in the header.
    #[test]
    fn each_field_is_read_from_its_place() {
        let header: Vec<u32> = (0..84).collect();
        let reply = AttachReply::of_device(&header);
        assert_eq!((reply.tx_rings, reply.rx_rings, reply.tx_slots, reply.rx_slots), (6, 7, 8, 9));
        assert_eq!((reply.buf_size, reply.num_bufs, reply.csb_atok), (10, 11, 16 | 17 << 32));
        assert_eq!((reply.memsize, reply.nifp, reply.extra_bufs), (28 | 29 << 32, 68 | 69 << 32, 67));
        assert_eq!(AttachReply::of_device(&[]), AttachReply { role: Role::Switch, ..AttachReply::default() });
    }
}
