//! The kinds of ports that a container can get, with a file for each kind.
//!
//! | module | what it is |
//! |---|---|
//! | [`tap`] | an interface of the container |
//! | [`vhost`] | a vhost-user socket, for a container that is a virtual machine |

pub mod tap;
pub mod vhost;
