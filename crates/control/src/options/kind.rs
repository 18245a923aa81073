//! Kinds of ports as types, for [`OptionsOf`](super::OptionsOf).

/// Rings that local programs open.
#[derive(Clone, Copy, Debug)]
pub enum Local {}

/// A TAP device.
#[derive(Clone, Copy, Debug)]
pub enum Tap {}

/// A vhost-user device.
#[derive(Clone, Copy, Debug)]
pub enum Vhost {}

/// A virtio-net driver on a socket.
#[derive(Clone, Copy, Debug)]
pub enum Virtio {}

/// A virtio-net driver on the bus.
#[derive(Clone, Copy, Debug)]
pub enum VirtioPci {}

/// A ptnet device.
#[derive(Clone, Copy, Debug)]
pub enum Ptnet {}

/// An Intel 82540EM.
#[derive(Clone, Copy, Debug)]
pub enum E1000 {}

/// A driver of one on the bus.
#[derive(Clone, Copy, Debug)]
pub enum E1000Pci {}

/// A network interface.
#[derive(Clone, Copy, Debug)]
pub enum Netmap {}

/// A capture file that is replayed.
#[derive(Clone, Copy, Debug)]
pub enum Replay {}

/// A capture file that is only written.
#[derive(Clone, Copy, Debug)]
pub enum Capture {}

/// A sink, which counts what it is sent.
#[derive(Clone, Copy, Debug)]
pub enum Null {}

/// What sends every frame back.
#[derive(Clone, Copy, Debug)]
pub enum Echo {}
