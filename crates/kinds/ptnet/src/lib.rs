//! ptnet: a virtual machine's network card whose device model is the netmap ring itself.
//!
//! The guest maps a region of its own (rings, buffers, status blocks) and is an application like any other: it fills
//! slots, publishes `head`, rings a doorbell if the worker asked for it. Nothing is converted or emulated on the way.
//!
//! ```text
//!  guest driver ── slots, CSB ──┐                       ┌── worker: RingIngress / RingEgress
//!                               ├── the region (memfd) ─┤
//!  QEMU's ivshmem-doorbell ─────┘                       └── [`instance`]: commands in the header page
//!        doorbell (ioeventfd) ──────────▶ eventfd ──▶ worker
//!        MSI-X vector (irqfd) ◀────────── eventfd ◀── worker
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`header`] | the header page: the device's description, the guest's commands |
//! | [`backend`] | what a guest's rings are connected to |
//! | [`pipe`] | a pipe whose one end is a guest |
//! | [`seats`] | queues of the switch whose rings come and go with the guest |
//! | [`instance`] | one guest's device: memory, doorbells, start and stop |
//! | [`ivshmem`] | the server's side of QEMU's ivshmem protocol |
//! | [`machine`] | the memory that both published devices of a virtual machine show |
//! | [`published`] | the devices that netmap published, by vfio-user |
//! | [`vfio`] | their sockets |
//! | [`port`] | a port: a socket, a thread, seats |
//! | [`guest`] | the state that a port shows of its virtual machine |

pub mod backend;
pub mod guest;
pub mod header;
pub mod instance;
pub mod ivshmem;
pub mod machine;
pub mod pipe;
pub mod port;
pub mod published;
pub mod seats;
pub mod vfio;
