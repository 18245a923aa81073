//! `netmap:IF`: network interfaces, as ports on a switch and opened by programs.
//!
//! | module | contents |
//! |---|---|
//! | [`attach`] | an interface's queues, and its host stack, as ports on a switch |
//! | `queue` | a queue on a switch |
//! | [`open`] | rings of an interface for a program |
//! | [`kernel`] | system calls and files that the sandbox permits for interfaces |
//! | `hold` | rings opened by several programs |
//! | `stack` | the TAP that replaces an interface's host stack, and the tasks that forward between it and host rings |
//! | [`continued`] | hand-over of interfaces and of their open rings |
//! | [`facts`] | properties of interfaces for netmap's control requests |
//! | [`names`] | the rings in a specification |

pub mod attach;
pub mod continued;
pub mod facts;
mod hold;
pub mod kernel;
pub mod names;
pub mod open;
mod queue;
pub(crate) mod stack;
