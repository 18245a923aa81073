//! `netmap:IF`: network interfaces, as ports of a switch and opened by programs.
//!
//! | module | what it is |
//! |---|---|
//! | [`attach`] | an interface's queues, and the stack behind it, as ports of a switch |
//! | `queue` | a queue on a switch |
//! | [`open`] | rings of an interface for a program |
//! | [`kernel`] | what an interface needs of the kernel |
//! | `hold` | rings that several programs have open |
//! | `stack` | the stand-in for an interface's stack, which moves frames between it and host rings |
//! | [`continued`] | interfaces, and rings of theirs, that another process had |
//! | [`facts`] | the facts of interfaces for netmap's control requests |
//! | [`names`] | the rings that a specification means |

pub mod attach;
pub mod continued;
pub mod facts;
mod hold;
pub mod kernel;
pub mod names;
pub mod open;
mod queue;
pub(crate) mod stack;
