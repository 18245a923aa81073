//! Layouts and doorbells, from which rings are built.

use netvale_control::attach::AttachReply;
use netvale_mem::notify::Doorbell;
use netvale_mem::view::RegionLayout;

use crate::error::Error;

/// Returns the layout of the rings that a reply describes in the port's region.
pub(crate) fn places(reply: &AttachReply) -> RegionLayout {
    RegionLayout {
        csb_atok: reply.csb_atok,
        csb_ktoa: reply.csb_ktoa,
        ring_pool: reply.ring_pool,
        ring_size: reply.ring_size,
        buf_pool: reply.buf_pool,
        num_bufs: reply.num_bufs,
        buf_size: reply.buf_size,
    }
}

/// Creates the doorbell of a ring.
pub(crate) fn bell() -> Result<Doorbell, Error> {
    Doorbell::new().map_err(Error::system("create an eventfd"))
}
