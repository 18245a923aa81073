//! What a container gets: a port of one kind, with a file for each kind.
//!
//! | module | what it is |
//! |---|---|
//! | [`tap`] | an interface of the container |
//! | [`vhost`] | a vhost-user socket, for a container that is a virtual machine |

pub mod tap;
pub mod vhost;
