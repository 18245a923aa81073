//! A virtio-net driver port: the driver on what a transport reaches, and the thread that keeps it up.

use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_port::listener::OpenError;
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::service::{self, Peer, Protocol, Service};
use netvale_port::{Egress, Ingress};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use thiserror::Error;

use super::options::DriverOptions;
use super::path::Path;
use super::ram::MAX_QUEUE;
use super::started::{Running, Started};
use crate::{MAX_PAIRS, Queues};

/// How a driver reaches its device. What is displayed of it is where that is.
pub trait Transport: Display + Send + 'static {
    /// What reaches the device.
    type Connection;
    /// Why there is no device.
    type Error: Display + From<LendError>;

    /// Reaches the device, or says why there is none: then it is tried again.
    ///
    /// # Errors
    /// Nothing is there.
    fn connect(&mut self) -> Result<Self::Connection, Self::Error>;

    /// Starts the device, has it [run](Session::run), and says why that ended.
    ///
    /// # Errors
    /// The device cannot be driven, or broke the rules.
    fn serve(&mut self, connection: Self::Connection, session: &Session<'_>) -> Result<(), Self::Error>;
}

/// Why queues are not the workers'.
#[derive(Debug, Error)]
pub enum LendError {
    /// A queue of the device before it is not handed back.
    #[error("a queue: {0}")]
    InUse(#[from] InUse),
    /// The kernel.
    #[error("{0}")]
    System(#[from] Errno),
}

/// Why there is no port.
#[derive(Debug, Error)]
pub enum DriverError {
    /// Too many queue pairs, or none.
    #[error("{0} queue pairs asked for; a device has 1 to {MAX_PAIRS}")]
    Pairs(u16),
    /// Its queues, or its service.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl DriverError {
    /// The error number that fits.
    pub fn errno(&self) -> Errno {
        match self {
            DriverError::Pairs(_) => Errno::INVAL,
            DriverError::Open(why) => why.errno(),
        }
    }
}

/// What is told of a device, for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct Driven {
    /// The device runs.
    pub running: bool,
    /// Queue pairs.
    pub pairs: usize,
    /// What was agreed upon.
    pub features: u64,
    /// Which way frames take.
    pub path: Option<Path>,
    /// The device says that its link is down.
    pub link_down: bool,
}

/// A port. Dropping it ends the connection and the thread.
pub struct VirtioPort {
    service: Service<Driven>,
}

impl VirtioPort {
    /// Drives what `transport` reaches, now or as soon as something is there.
    ///
    /// # Errors
    /// [`DriverError`] when the number of pairs or the size of the queues is impossible, or the system refuses a descriptor or the thread.
    pub fn new<T: Transport>(transport: T, options: DriverOptions) -> Result<(VirtioPort, Queues), DriverError> {
        if options.pairs == 0 || usize::from(options.pairs) > MAX_PAIRS {
            return Err(DriverError::Pairs(options.pairs));
        }
        let at = transport.to_string();
        let step = |what| OpenError::step(&at, what);
        if !options.size.is_power_of_two() || options.size > MAX_QUEUE || options.size < 8 {
            return Err(step("the size of a queue is a power of two from 8 to 4096")(Errno::INVAL).into());
        }
        let mut pairs = Vec::new();
        let (mut egress, mut ingress) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
        for _ in 0..options.pairs {
            let rx = Arc::new(Seat::woken().map_err(step("make a descriptor to wait on"))?);
            let tx = Arc::<Seat<Started>>::default();
            ingress.push(Box::new(SeatIngress::new(Arc::clone(&rx))));
            egress.push(Arc::new(SeatEgress(Arc::clone(&tx))));
            pairs.push((rx, tx));
        }
        let service = Service::start("netvale-virtio", &at, None, Driver { transport, options, pairs })?;
        Ok((VirtioPort { service }, (egress, ingress)))
    }

    /// Its device, and those before.
    pub fn state(&self) -> service::State<Driven> {
        self.service.state()
    }
}

/// What stays of a queue pair while devices come and go: what is received, and what is transmitted.
type Pair = (Arc<Seat<Started>>, Arc<Seat<Started>>);

/// The control thread's part.
struct Driver<T> {
    transport: T,
    options: DriverOptions,
    pairs: Vec<Pair>,
}

impl<T: Transport> Protocol for Driver<T> {
    type Connection = T::Connection;
    type Detail = Driven;
    const PEER: &'static str = "device";

    fn next(&mut self, _stop: BorrowedFd<'_>) -> Option<Result<T::Connection, String>> {
        Some(self.transport.connect().map_err(|e| e.to_string()))
    }

    fn serve(&mut self, connection: T::Connection, peer: &Peer<Driven>) -> Result<(), String> {
        // What a device rings, two of them a pair.
        let calls = (0..2 * self.pairs.len()).map(|_| Doorbell::shared(peer.fault()));
        let calls = calls.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
        let session = Session { options: self.options, pairs: &self.pairs, calls, peer };
        self.transport.serve(connection, &session).map_err(|e| e.to_string())
    }
}

/// A device's time at the port.
pub struct Session<'a> {
    options: DriverOptions,
    pairs: &'a [Pair],
    calls: Vec<Doorbell>,
    peer: &'a Peer<Driven>,
}

impl Session<'_> {
    /// What is asked for.
    pub fn options(&self) -> DriverOptions {
        self.options
    }

    /// What the device rings, two of them a pair: for what is received, for what is transmitted.
    pub fn calls(&self) -> &[Doorbell] {
        &self.calls
    }

    /// Where workers report what the device did.
    pub fn fault(&self) -> &Fault {
        self.peer.fault()
    }

    /// Readable when the session is to end.
    pub fn ends(&self) -> BorrowedFd<'_> {
        self.peer.ends()
    }

    /// The device says whether its link is up.
    pub fn tell_link(&self, up: bool) {
        self.peer.told().update(|told| told.link_down = !up);
    }

    /// The device works until it, or the port, ends. `news` is called when one of `fds` is readable, with whether it is the second.
    ///
    /// # Errors
    /// What `news` says; a queue cannot be lent.
    pub fn run<E: From<LendError>>(
        &self,
        running: Running,
        fds: [BorrowedFd<'_>; 2],
        news: impl Fn(bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let Running { features, pairs: started, ram: _ram } = running;
        let (pairs, path) = (started.len(), Some(Path::of(features, self.options.vector)));
        let ended = self.lend(started).map_err(E::from).and_then(|()| {
            let told = Driven { running: true, pairs, features, path, link_down: false };
            self.peer.told().update(|was| *was = told);
            wait(fds, self.ends(), news)
        });
        self.take_back();
        ended
    }

    /// Gives the queues to the workers.
    fn lend(&self, started: Vec<(Started, Started)>) -> Result<(), LendError> {
        for ((pair, call), (rx, tx)) in self.pairs.iter().zip(self.calls.iter().step_by(2)).zip(started) {
            pair.0.wake.iter().try_for_each(|wake| wake.add_peer(call))?;
            // The worker posts its receive buffers when it first looks.
            for (seat, queue) in [(&pair.0, rx), (&pair.1, tx)] {
                seat.put(Started { counters: Arc::clone(&seat.counters), ..queue })?;
            }
        }
        Ok(())
    }

    fn take_back(&self) {
        for (pair, call) in self.pairs.iter().zip(self.calls.iter().step_by(2)) {
            pair.0.wake.iter().for_each(|wake| wake.remove(call));
            for seat in [&pair.0, &pair.1] {
                // One that a worker does not hand back keeps its own memory, and there is no next device before it is gone.
                let _ = seat.queue.take();
            }
        }
    }
}

/// Until the device ends, breaks the rules, or the port is to end.
fn wait<E>(
    [one, other]: [BorrowedFd<'_>; 2],
    ends: BorrowedFd<'_>,
    news: impl Fn(bool) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        let mut fds = [one, other, ends].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let _ = poll(&mut fds, None);
        let [one, other, ends] = fds.map(|f| !f.revents().is_empty());
        if ends {
            return Ok(());
        }
        if one || other {
            news(other)?;
        }
    }
}
