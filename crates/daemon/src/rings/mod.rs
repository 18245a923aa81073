//! Rings that programs map: their parts, their holders, the replies to their holders.
//!
//! | module | what it is |
//! |---|---|
//! | [`switched`] | rings between a program and a switch |
//! | [`local`] | rings of a port that programs open, and their holders |
//! | [`pipe`] | the two ends of a pipe |
//! | [`nic`] | rings of a network interface that a program has open |
//! | [`guest`] | rings of the ptnet device of the virtual machine that the daemon runs in |
//! | [`continued`] | what a successor needs of them |
//! | [`holders`] | the connections that hold a ring |
//! | `offsets` | netmap's offsets option on rings |
//! | `sizes` | the numbers of rings and slots of a port, and the size of its region |
//! | [`reply`], `status` | their description: for their client, for `netvale show` |

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
