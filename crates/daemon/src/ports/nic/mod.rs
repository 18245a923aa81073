//! `netmap:IF`: network interfaces, as ports of a switch and opened by programs.
//!
//! | module | what it is |
//! |---|---|
//! | [`attach`] | an interface's queues, and the stack behind it, as ports of a switch |
//! | [`open`] | rings of an interface for a program |
//! | `stack` | what stands in the place of an interface's stack, and moves frames between it and host rings |
//! | [`facts`] | what netmap's control requests are told of interfaces |
//! | [`names`] | which rings a specification means |

pub mod attach;
pub mod facts;
pub mod names;
pub mod open;
pub(crate) mod stack;
