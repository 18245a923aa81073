//! An interface with netvale's XDP program on it, and its queues with sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::Mapping;
use rustix::io::Errno;
use thiserror::Error;

use crate::bpf::{XdpMode, XdpProgram, program_name};
use crate::iface::Interface;
use crate::socket::{BindResult, BufferLayout, QueueAddress, XdpSocket, open};

mod continued;
mod sending;
mod tags;

pub use continued::NicState;
pub use sending::SendClaim;
use sending::Senders;
pub use tags::LostTags;
use tags::{TagsLeft, VethEnd};

/// How long to retry binding to a busy queue that another program may be using.
const FREED_WITHIN: Duration = Duration::from_millis(500);
/// How long to retry binding to a busy queue if this process has just closed a socket on this interface: on a busy
/// machine, the kernel takes longer to free the queue.
const OWN_FREED_WITHIN: Duration = Duration::from_secs(5);

/// An error opening an interface or one of its queues.
#[derive(Debug, Error)]
pub enum NicError {
    /// There is no such interface.
    #[error("interface {0} does not exist: 'ip link' shows the interfaces")]
    NoInterface(String),
    /// The process lacks a privilege.
    #[error(
        "{name}: no permission to {what}: this requires CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, or a daemon that runs \
         as root"
    )]
    Permission {
        /// Name of the interface.
        name: String,
        /// The step that was refused.
        what: &'static str,
    },
    /// The interface has another XDP program.
    #[error(
        "{name} already has an XDP program, {program}: remove it with 'ip link set dev {name} xdp off', or end the \
         process that attached it"
    )]
    Program {
        /// Name of the interface.
        name: String,
        /// Name and ID of that program.
        program: String,
    },
    /// The driver removes VLAN tags from frames and cannot be configured otherwise.
    #[error("{name}: the driver removes VLAN tags ('ethtool -k': rx-vlan-offload), and cannot keep them: {source}")]
    Tags {
        /// Name of the interface.
        name: String,
        /// The kernel's error.
        source: Errno,
    },
    /// The interface has no such queue.
    #[error("queue {queue} of {name} does not exist: {name} has {queues}, numbered from 0 ('ethtool -l {name}')")]
    NoQueue {
        /// Name of the interface.
        name: String,
        /// Number of the interface's queues.
        queues: u32,
        /// Index of the requested queue.
        queue: u32,
    },
    /// Another program uses the queue.
    #[error("queue {queue} of {name} is in use: open another one, or stop the program that uses it")]
    QueueTaken {
        /// Name of the interface.
        name: String,
        /// Index of the queue.
        queue: u32,
    },
    /// The buffers are too small for AF_XDP.
    #[error("buffers of {0} bytes are too small for AF_XDP: choose 2048 bytes or more, e.g. 2112")]
    Buffers(u32),
    /// The interface's frames do not fit into the buffers.
    #[error("{name} has an MTU of {mtu}, but buffers hold at most {longest} bytes: lower it, or use larger buffers")]
    Mtu {
        /// Name of the interface.
        name: String,
        /// The interface's MTU in bytes.
        mtu: u32,
        /// Maximum length of a frame in bytes.
        longest: u32,
    },
    /// A step failed for a reason that no other variant describes.
    #[error("{name}: cannot {what}: {source}{}", hint(*.source))]
    Step {
        /// Name of the interface.
        name: String,
        /// The step that failed.
        what: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

/// Returns a hint about an errno, to append to the error message; empty if there is none.
fn hint(source: Errno) -> &'static str {
    match source {
        Errno::NOBUFS | Errno::NOMEM => " (the kernel locks memory for frames: raise 'ulimit -l', or use fewer slots)",
        Errno::AFNOSUPPORT => " (this kernel has no AF_XDP: CONFIG_XDP_SOCKETS)",
        Errno::NOSYS => " (this kernel has no bpf(2): CONFIG_BPF_SYSCALL)",
        _ => "",
    }
}

impl NicError {
    /// Returns the errno that comes closest to the error.
    pub fn errno(&self) -> Errno {
        match self {
            NicError::NoInterface(_) => Errno::NXIO,
            NicError::Permission { .. } => Errno::PERM,
            NicError::Program { .. } | NicError::QueueTaken { .. } => Errno::BUSY,
            NicError::NoQueue { .. } => Errno::NXIO,
            NicError::Buffers(_) => Errno::INVAL,
            NicError::Mtu { .. } => Errno::MSGSIZE,
            NicError::Step { source, .. } | NicError::Tags { source, .. } => *source,
        }
    }
}

/// An interface with netvale's XDP program on it. When the last `Arc` is dropped, the program is detached and the
/// interface's settings are restored.
#[derive(Debug)]
pub struct Nic {
    interface: Interface,
    program: XdpProgram,
    promiscuous: OwnedFd,
    tags: Option<TagsLeft>,
    /// The reason why VLAN tags of received frames are lost; `None` if they are kept.
    lost_tags: Option<LostTags>,
    taken: Mutex<Vec<u32>>,
    /// When a queue was last freed; `None` if no queue was freed.
    freed: Mutex<Option<Instant>>,
    senders: Mutex<Senders>,
}

/// A claim to a queue for one socket. Dropping the claim passes the queue's frames to the stack again and frees the
/// queue. Drop it before, or together with, the socket's [`XdpSender`](crate::socket::XdpSender) and
/// [`XdpReceiver`](crate::socket::XdpReceiver).
#[derive(Debug)]
pub struct NicQueue {
    nic: Arc<Nic>,
    number: u32,
    buffers: BufferLayout,
}

/// A queue and the socket opened for it.
pub struct OpenNicQueue {
    /// The socket of the queue.
    pub socket: Arc<XdpSocket>,
    /// The queue.
    pub queue: Arc<NicQueue>,
}

impl OpenNicQueue {
    /// Redirects the queue's frames to the socket.
    ///
    /// # Errors
    /// [`NicError`] if the kernel refuses.
    pub fn receive(&self) -> Result<(), NicError> {
        let nic = &self.queue.nic;
        let set = nic.program.set(self.queue.number, self.socket.as_fd());
        set.map_err(|source| refused(&nic.interface, "direct frames to the socket", source))
    }

    /// Passes the queue's frames to the stack again.
    pub fn ignore(&self) {
        self.queue.nic.program.clear(self.queue.number);
    }

    /// Binds the socket to the queue. The socket's rings must be mapped already.
    ///
    /// # Errors
    /// [`NicError`] if the kernel refuses, or the interface's frames do not fit into the buffers.
    pub fn bind(&self) -> Result<BindResult, NicError> {
        let nic = &self.queue.nic;
        let Interface { name, mtu, .. } = &nic.interface;
        bind_within(nic.frees_within(), &self.socket, self.queue.address(), name, *mtu, self.queue.buffers)
    }
}

/// Binds a socket to a queue that the daemon has assigned to this program. `name` and `mtu` are the interface's name
/// and MTU. The interface's frames must fit into `buffers`.
///
/// # Errors
/// [`NicError`] if the kernel refuses, or the interface's frames do not fit into the buffers.
pub fn bind(
    socket: &XdpSocket,
    address: QueueAddress,
    name: &str,
    mtu: u32,
    buffers: BufferLayout,
) -> Result<BindResult, NicError> {
    bind_within(OWN_FREED_WITHIN, socket, address, name, mtu, buffers)
}

fn bind_within(
    limit: Duration,
    socket: &XdpSocket,
    address: QueueAddress,
    name: &str,
    mtu: u32,
    buffers: BufferLayout,
) -> Result<BindResult, NicError> {
    let name = || name.to_owned();
    let got = bind_once_free(limit, socket, address).map_err(|source| match source {
        Errno::BUSY => NicError::QueueTaken { name: name(), queue: address.queue },
        source => NicError::Step { name: name(), what: "bind to the queue", source },
    })?;
    // The MTU includes neither the Ethernet header (14 bytes) nor a VLAN tag (4 bytes).
    let longest = buffers.longest();
    if !got.multi_buffer && mtu + 18 > longest {
        return Err(NicError::Mtu { name: name(), mtu, longest });
    }
    Ok(got)
}

/// Binds a socket, and retries for up to `limit` while the queue is in use. After the last socket on a queue is closed,
/// the kernel frees the queue later, in deferred work (`xp_put_pool`).
fn bind_once_free(limit: Duration, socket: &XdpSocket, address: QueueAddress) -> Result<BindResult, Errno> {
    let until = Instant::now() + limit;
    loop {
        match socket.bind(address) {
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            bound => return bound,
        }
    }
}

impl Nic {
    /// Attaches the XDP program to the interface `name`, makes the interface promiscuous, and configures its driver to
    /// leave VLAN tags in frames.
    ///
    /// # Errors
    /// [`NicError`] if a step fails; the earlier steps are then undone.
    pub fn open(name: &str) -> Result<Arc<Nic>, NicError> {
        let none = |_| NicError::NoInterface(name.to_owned());
        let interface = Interface::find(name).map_err(none)?;
        let are_beside = tags::are_beside(&interface);
        let mut tags = TagsLeft::ask(&interface)?;
        let program = XdpProgram::attach(interface.index, interface.queues, are_beside)
            .map_err(|(what, source)| refused(&interface, what, source))?;
        let mut lost_tags = LostTags::above_others(&interface, program.mode());
        if are_beside && !program.puts_tags_back() {
            match VethEnd::ask(&interface) {
                VethEnd::Never => {}
                VethEnd::Told(told) => tags = Some(told),
                VethEnd::Elsewhere => lost_tags = Some(LostTags::FarEnd),
            }
        }
        let promiscuous =
            interface.promiscuous().map_err(|source| refused(&interface, "receive all frames", source))?;
        let taken = Mutex::default();
        let freed = Mutex::default();
        let senders = Mutex::default();
        Ok(Arc::new(Nic { interface, program, promiscuous, tags, lost_tags, taken, freed, senders }))
    }

    /// Returns how long to retry binding to a busy queue.
    fn frees_within(&self) -> Duration {
        let freed = *self.freed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = freed.is_some_and(|at| at.elapsed() < OWN_FREED_WITHIN);
        if is_recent { OWN_FREED_WITHIN } else { FREED_WITHIN }
    }

    /// The interface's properties when it was opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The reason why VLAN tags of received frames are lost; `None` if they are kept.
    pub fn lost_tags(&self) -> Option<LostTags> {
        self.lost_tags
    }

    /// The mode in which the XDP program runs.
    pub fn mode(&self) -> XdpMode {
        self.program.mode()
    }

    /// Opens a socket for queue `number`, with `entries` entries in each ring and its frames in the `buffers` of
    /// `memory`. Bind the socket once its rings are mapped. Until [`OpenNicQueue::receive`], the queue's frames go to
    /// the stack.
    ///
    /// # Errors
    /// [`NicError`] if the queue does not exist or is in use, the buffers are too small, or the kernel refuses.
    pub fn queue(
        self: &Arc<Self>,
        number: u32,
        entries: u32,
        memory: &Arc<Mapping>,
        buffers: BufferLayout,
    ) -> Result<OpenNicQueue, NicError> {
        let name = || self.interface.name.clone();
        let queues = self.interface.queues;
        if number >= queues {
            return Err(NicError::NoQueue { name: name(), queues, queue: number });
        }
        if buffers.chunk().is_none() {
            return Err(NicError::Buffers(buffers.stride));
        }
        let queue = Arc::new(self.take(number, buffers)?);
        let opened = open(memory, &buffers, entries);
        let socket = opened.map_err(|(what, source)| refused(&self.interface, what, source))?;
        Ok(OpenNicQueue { socket, queue })
    }

    fn take(self: &Arc<Self>, number: u32, buffers: BufferLayout) -> Result<NicQueue, NicError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains(&number) {
            return Err(NicError::QueueTaken { name: self.interface.name.clone(), queue: number });
        }
        taken.push(number);
        Ok(NicQueue { nic: Arc::clone(self), number, buffers })
    }
}

/// Converts an errno to the most specific error.
fn refused(interface: &Interface, what: &'static str, source: Errno) -> NicError {
    let name = interface.name.clone();
    let there = matches!(source, Errno::BUSY | Errno::EXIST).then(|| interface.program()).flatten();
    if let Some(id) = there {
        let program = match program_name(id).filter(|name| !name.is_empty()) {
            Some(known) => format!("\"{known}\" (number {id})"),
            None => format!("number {id}"),
        };
        return NicError::Program { name, program };
    }
    match source {
        Errno::PERM | Errno::ACCESS => NicError::Permission { name, what },
        source => NicError::Step { name, what, source },
    }
}

impl NicQueue {
    /// The interface and index of the queue, to which the socket is bound.
    pub fn address(&self) -> QueueAddress {
        QueueAddress { ifindex: self.nic.interface.index, queue: self.number }
    }
}

impl Drop for NicQueue {
    fn drop(&mut self) {
        self.nic.program.clear(self.number);
        self.nic.taken.lock().unwrap_or_else(PoisonError::into_inner).retain(|&n| n != self.number);
        *self.nic.freed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}
