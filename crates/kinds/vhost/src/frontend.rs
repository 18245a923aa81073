//! The front end's side: netvale drives a back end's device as a guest would. netvale negotiates features with the back
//! end, and passes memory and rings to it.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::folder::UserPath;
use netvale_port::listener::{is_unix, try_connect};
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::{LendError, PortSession, Transport};
use netvale_virtio::driver::ram::{DriverRam, QueueRam};
use netvale_virtio::driver::started::{Kick, RunningQueue, RunningVirtioDevice, pair_up};
use netvale_virtio::driver::{DriverFeatures, DriverQueue, addresses};
use netvale_virtio::features::VERSION_1;
use rustix::io::Errno;
use rustix::net::SocketType;
use thiserror::Error;

use crate::features::PROTOCOL_FEATURES;
use crate::proto::message::{FrontEndViolation, VhostMessage, protocol, put_region, request};
use crate::proto::wire::{ReceiveResult, receive, send};

/// The reason why a back end's device cannot be started, or why its session ended.
#[derive(Debug, Error)]
pub enum NoBackEnd {
    /// The back end violated the protocol, or the connection failed.
    #[error("the exchange with the back end failed: {0}")]
    Refused(#[from] FrontEndViolation),
    /// The device's queues could not be handed to the worker threads.
    #[error(transparent)]
    Lend(#[from] LendError),
    /// The back end hung up.
    #[error("the back end hung up")]
    Closed,
    /// The port is being stopped.
    #[error("stopped")]
    Stopped,
    /// The device lacks a feature that the driver needs.
    #[error("the back end lacks {0}")]
    MissingFeature(&'static str),
    /// The answer belongs to another request.
    #[error("the back end answered request {got}: expected an answer to {asked}")]
    Answer {
        /// The request that was sent.
        asked: u32,
        /// The request to which the answer belongs.
        got: u32,
    },
    /// The back end acknowledged the request with an error.
    #[error("the back end refused request {0}")]
    Rejected(u32),
    /// A system call failed.
    #[error("{0}")]
    System(Errno),
}

/// The back end that listens at a socket.
pub struct BackEnd(pub UserPath);

impl fmt::Display for BackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.path().display().fmt(f)
    }
}

impl Transport for BackEnd {
    type Connection = OwnedFd;
    type Error = NoBackEnd;

    fn connect(&mut self) -> Result<OwnedFd, NoBackEnd> {
        try_connect(&self.0).map_err(NoBackEnd::System)
    }

    fn restore(&mut self, by: OwnedFd) -> Option<OwnedFd> {
        is_unix(&by, SocketType::STREAM).then_some(by)
    }

    fn serve(&mut self, connection: OwnedFd, session: &PortSession<'_>) -> Result<(), NoBackEnd> {
        let socket = connection.as_fd();
        // A back end sends only answers: if the socket is readable while no answer is due, the back end has hung up or
        // violates the protocol.
        let news = |_| Err(NoBackEnd::Closed);
        if let Some(lent) = session.restored() {
            return session.go_on(lent, [socket, socket], Some(socket), news);
        }
        let started = Frontend::new(socket, session.ends(), session.fault()).start(session.options(), session.calls());
        match started.and_then(|running| session.run(running, [socket, socket], Some(socket), news)) {
            Err(NoBackEnd::Stopped) => Ok(()),
            ended => ended,
        }
    }
}

/// The connection to a back end.
pub struct Frontend<'a> {
    socket: BorrowedFd<'a>,
    stop: BorrowedFd<'a>,
    fault: &'a Fault,
    protocol: u64,
}

impl<'a> Frontend<'a> {
    /// Creates the front end of a connection, without sending anything. Any wait ends once `stop` is readable. Workers
    /// report the back end's violations to `fault`.
    pub fn new(socket: BorrowedFd<'a>, stop: BorrowedFd<'a>, fault: &'a Fault) -> Self {
        Frontend { socket, stop, fault, protocol: 0 }
    }

    fn tell(&self, mut m: VhostMessage) -> Result<(), NoBackEnd> {
        let acked = self.protocol & protocol::REPLY_ACK != 0;
        let asked = m.request;
        if acked {
            m = m.with_ack();
        }
        send(self.socket, &m)?;
        match acked.then(|| self.hear(asked)).transpose()? {
            Some(answer) if answer.u64()? != 0 => Err(NoBackEnd::Rejected(asked)),
            _ => Ok(()),
        }
    }

    fn hear(&self, asked: u32) -> Result<VhostMessage, NoBackEnd> {
        match receive(self.socket, self.stop)? {
            ReceiveResult::Message(m) if m.is_reply() && m.request == asked => Ok(m),
            ReceiveResult::Message(m) => Err(NoBackEnd::Answer { asked, got: m.request }),
            ReceiveResult::Closed => Err(NoBackEnd::Closed),
            ReceiveResult::Stopped => Err(NoBackEnd::Stopped),
        }
    }

    fn ask(&self, request: u32) -> Result<u64, NoBackEnd> {
        send(self.socket, &VhostMessage::of_words(request, &[]))?;
        Ok(self.hear(request)?.u64()?)
    }

    fn tell_number(&self, request: u32, n: u64) -> Result<(), NoBackEnd> {
        self.tell(VhostMessage::of_words(request, &[n]))
    }

    /// Negotiates features and starts all queues. `calls` are the eventfds with which the device notifies the driver:
    /// two per queue pair, the first for the receive queue, the second for the transmit queue.
    ///
    /// # Errors
    /// [`NoBackEnd`] if the back end refuses or violates the protocol.
    pub fn start(&mut self, options: DriverOptions, calls: &[Doorbell]) -> Result<RunningVirtioDevice, NoBackEnd> {
        let (features, pairs) = self.negotiate(options)?;
        let (ram, queues) = DriverRam::new(&vec![options.size; 2 * usize::from(pairs)]).map_err(NoBackEnd::System)?;
        ram.mapping().blame(self.fault);
        let mut payload = vec![1, 0, 0, 0, 0, 0, 0, 0];
        put_region(&mut payload, &ram.spec());
        let mut table = VhostMessage::new(request::SET_MEM_TABLE, payload);
        table.fds.push(ram.file().map_err(NoBackEnd::System)?);
        self.tell(table)?;
        let mut started = Vec::new();
        for (i, (queue, call)) in queues.into_iter().zip(calls).enumerate() {
            started.push(self.start_queue(i as u32, queue, call, features, options)?);
        }
        for i in 0..started.len() as u64 {
            self.tell_number(request::SET_VRING_ENABLE, i | 1 << 32)?;
        }
        Ok(RunningVirtioDevice { features, pairs: pair_up(started), ram })
    }

    fn negotiate(&mut self, options: DriverOptions) -> Result<(u64, u16), NoBackEnd> {
        let offered = self.ask(request::GET_FEATURES)?;
        if offered & PROTOCOL_FEATURES == 0 {
            return Err(NoBackEnd::MissingFeature("protocol features"));
        }
        if offered & VERSION_1 == 0 {
            return Err(NoBackEnd::MissingFeature("virtio 1.0"));
        }
        let wanted = protocol::MQ | protocol::REPLY_ACK;
        let ours = self.ask(request::GET_PROTOCOL_FEATURES)? & wanted;
        self.tell_number(request::SET_PROTOCOL_FEATURES, ours)?;
        self.protocol = ours;
        self.tell(VhostMessage::of_words(request::SET_OWNER, &[]))?;
        let most = if ours & protocol::MQ != 0 { self.ask(request::GET_QUEUE_NUM)? } else { 1 };
        let features = offered & (options.features() | PROTOCOL_FEATURES);
        self.tell_number(request::SET_FEATURES, features)?;
        Ok((features, options.pairs.min(u16::try_from(most).unwrap_or(u16::MAX)).max(1)))
    }

    fn start_queue(
        &self,
        i: u32,
        ram: QueueRam,
        call: &Doorbell,
        features: u64,
        options: DriverOptions,
    ) -> Result<RunningQueue, NoBackEnd> {
        let index = u64::from(i);
        let agreed = DriverFeatures::of(features, options);
        let queue = DriverQueue::new(&ram, agreed);
        let kick = Doorbell::shared(self.fault).map_err(NoBackEnd::System)?;
        self.tell_number(request::SET_VRING_NUM, index | u64::from(ram.size()) << 32)?;
        // Packed rings begin with both wrap counters set.
        let base = if agreed.queue.packed { 0x8000_8000u64 } else { 0 };
        self.tell_number(request::SET_VRING_BASE, index | base << 32)?;
        let at = addresses(&ram);
        let words = [index, at.desc, at.used, at.avail, 0];
        self.tell(VhostMessage::of_words(request::SET_VRING_ADDR, &words))?;
        self.tell_fd(request::SET_VRING_CALL, index, call.as_fd())?;
        self.tell_fd(request::SET_VRING_KICK, index, kick.as_fd())?;
        Ok(RunningQueue::new(queue, ram, Kick::Bell(Arc::new(kick)), features, self.fault))
    }

    fn tell_fd(&self, request: u32, index: u64, fd: BorrowedFd<'_>) -> Result<(), NoBackEnd> {
        let mut m = VhostMessage::of_words(request, &[index]);
        let copy: OwnedFd = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(NoBackEnd::System)?;
        m.fds.push(copy);
        self.tell(m)
    }
}

#[cfg(test)]
mod tests {
    use netvale_mem::fault::LOST;

    use super::*;
    use crate::port::{VhostMode, VhostOptions, VhostPort};

    /// Objective: the loss of memory that the driver shares sets the fault of the back end's connection.
    #[test]
    fn losses_are_blamed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options =
            VhostOptions { site: path.clone().into(), mode: VhostMode::Server, pairs: 1, mac: [2; 6], mtu: 1500 };
        let (_port, _queues) = VhostPort::new(&options).unwrap();
        let socket = try_connect(&path.into()).unwrap();
        let stop = Doorbell::new().unwrap();
        let fault = Fault::new().unwrap();
        let calls = [(); 2].map(|()| Doorbell::new().unwrap());
        let running =
            Frontend::new(socket.as_fd(), stop.as_fd(), &fault).start(DriverOptions::default(), &calls).unwrap();
        running.ram.mapping().lose();
        assert_eq!(fault.reason().as_deref(), Some(LOST));
    }
}
