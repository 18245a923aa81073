//! Rings that programs map: what they consist of, who holds them, what their holders are told.
//!
//! | module | what it is |
//! |---|---|
//! | [`switched`] | rings between a program and a switch |
//! | [`local`] | those of a port that programs open, and who holds them |
//! | [`pipe`] | the two ends of a pipe |
//! | [`nic`] | rings of a network interface that a program has open |
//! | [`guest`] | rings of the ptnet device of the virtual machine that we run in |
//! | [`holders`] | the connections that hold a ring |
//! | `offsets` | netmap's offsets option on rings |
//! | `sizes` | how many rings and slots a port has, and what its region takes |
//! | [`reply`], `status` | what is told of them: to their client, by `netvale show` |

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
