//! A container's attachment: a port of one kind, each in a file here.
//!
//! | module | what it is |
//! |---|---|
//! | [`tap`] | an interface of the container |
//! | [`vhost`] | a vhost-user socket, for a container that is a virtual machine |

pub mod tap;
pub mod vhost;
