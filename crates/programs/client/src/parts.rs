//! The parts that rings are built from.

use netvale_control::attach::AttachReply;
use netvale_mem::notify::Doorbell;
use netvale_mem::view::Places;

use crate::error::Error;

/// The places of a reply's rings in its region.
pub(crate) fn places(reply: &AttachReply) -> Places {
    Places {
        csb_atok: reply.csb_atok,
        csb_ktoa: reply.csb_ktoa,
        ring_pool: reply.ring_pool,
        ring_size: reply.ring_size,
        buf_pool: reply.buf_pool,
        num_bufs: reply.num_bufs,
        buf_size: reply.buf_size,
    }
}

/// Makes a ring's doorbell.
pub(crate) fn bell() -> Result<Doorbell, Error> {
    Doorbell::new().map_err(Error::system("make an eventfd"))
}
