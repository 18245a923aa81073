//! Rings that programs map: their parts, holders, and the replies to programs that open them.
//!
//! | module | contents |
//! |---|---|
//! | [`switched`] | rings between a program and a switch |
//! | [`local`] | rings of a port that programs open, and their holders |
//! | [`pipe`] | both ends of a pipe |
//! | [`nic`] | rings of a network interface opened by a program |
//! | [`guest`] | rings of the ptnet device of the virtual machine that the daemon runs in |
//! | [`continued`] | the saved state of rings, for a successor |
//! | [`holders`] | the connections that hold a ring |
//! | `offsets` | netmap's offsets option on rings |
//! | `sizes` | a port's numbers of rings and slots, and the size of its region |
//! | [`reply`], `status` | descriptions of rings for their client, and for `netvale show` |

pub mod continued;
pub mod guest;
pub mod holders;
pub mod local;
pub mod nic;
pub(crate) mod offsets;
pub mod pipe;
pub mod reply;
pub(crate) mod sizes;
pub(crate) mod status;
pub mod switched;
