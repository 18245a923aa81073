//! ptnet: a virtual machine's network card whose device model is the netmap ring itself.
//!
//! The guest maps a region of its own (rings, buffers, status blocks) and works like any application: it fills slots,
//! publishes `head`, and rings a doorbell if the worker has armed it. Nothing is converted or emulated on the way.
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
//! | [`backend`] | the other side of a guest's rings |
//! | [`pipe`] | a pipe with a guest at one end |
//! | [`seats`] | queues of the switch that stay while guests come and go |
//! | [`instance`] | one guest's device: memory, doorbells, start and stop |
//! | [`ivshmem`] | the server's side of QEMU's ivshmem protocol |
//! | [`machine`] | the memory of a virtual machine, which both published devices share |
//! | [`published`] | the devices that netmap published, over vfio-user |
//! | [`vfio`] | the sockets of the published devices |
//! | [`port`] | a port: its socket, thread and seats |
//! | [`guest`] | the state of a port's virtual machine, for display |

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
