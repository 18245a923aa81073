//! Network interfaces, which are AF_XDP sockets ([`netvale_afxdp`]), as a switch and its workers see them.
//!
//! | module | what it is |
//! |---|---|
//! | [`ingress`], [`egress`] | a queue as the switch sees it |
//! | [`stack`] | host rings: the stack behind an interface |

pub mod egress;
pub mod ingress;
pub mod stack;
