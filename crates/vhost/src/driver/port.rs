//! A virtio-net driver port: a connection to a vhost-user back end or a device on the bus, the driver on it, and the thread that keeps it up.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use netvale_mem::lent::{InUse, Lent};
use netvale_mem::notify::Doorbell;
use netvale_port::door::socket;
use netvale_port::{Egress, Ingress};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use super::BadDevice;
use super::egress::VirtioEgress;
use super::frontend::{Frontend, NoDevice, Running, Started, Wish};
use super::ingress::VirtioIngress;
use super::path::Path;
use super::pci::PciDevice;
use super::ram::MAX_QUEUE;
use crate::port::{Queues, VhostError};
use crate::proto::device::MAX_PAIRS;

/// What there is to drive.
#[derive(Clone, Debug)]
pub enum Target {
    /// The vhost-user back end at this socket.
    Socket(PathBuf),
    /// The PCI function at this address.
    Pci(String),
}

impl From<PathBuf> for Target {
    fn from(path: PathBuf) -> Self {
        Target::Socket(path)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Socket(path) => path.display().fmt(f),
            Target::Pci(address) => address.fmt(f),
        }
    }
}

/// How long to wait before the next try.
const RETRY: Duration = Duration::from_millis(200);

/// How workers tell the control thread of a device that breaks the rules.
pub type Trouble = netvale_port::trouble::Trouble<BadDevice>;

/// What the port is doing, for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct VirtioState {
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
    /// Why there is no device, or why the last one was given up.
    pub last_error: Option<String>,
}

struct Shared {
    state: Mutex<VirtioState>,
    stop: Doorbell,
    trouble: Trouble,
}

/// A port. Dropping it ends the connection and the thread.
pub struct VirtioPort {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl VirtioPort {
    /// Connects to the back end at a socket, now or as soon as there is one; or takes a device on the bus, which has to be there.
    ///
    /// # Errors
    /// [`VhostError`].
    pub fn new(target: impl Into<Target>, wish: Wish) -> Result<(VirtioPort, Queues), VhostError> {
        let target = target.into();
        if wish.pairs == 0 || usize::from(wish.pairs) > MAX_PAIRS {
            return Err(VhostError::Pairs(wish.pairs));
        }
        let step = |what| {
            let path = PathBuf::from(target.to_string());
            move |source| VhostError::Step { path, what, source }
        };
        if !wish.size.is_power_of_two() || wish.size > MAX_QUEUE || wish.size < 8 {
            return Err(step("the size of a queue is a power of two from 8 to 4096")(Errno::INVAL));
        }
        if let Target::Pci(address) = &target {
            // What is wrong with it is best said at once.
            PciDevice::open(address).map_err(VhostError::Device)?;
        }
        let bell = || Doorbell::new().map_err(step("make an eventfd"));
        let trouble = Trouble::new().map_err(step("make an eventfd"))?;
        let shared = Arc::new(Shared { state: Mutex::default(), stop: bell()?, trouble: trouble.clone() });
        let (mut queues, mut calls) = (Vec::new(), Vec::new());
        let (mut egress, mut ingress) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
        for _ in 0..wish.pairs {
            let (rx, tx) = (Arc::<Lent<_>>::default(), Arc::<Lent<_>>::default());
            let call = bell()?;
            let copy = call.try_clone().map_err(|e| {
                step("copy an eventfd")(e.raw_os_error().map_or(Errno::MFILE, Errno::from_raw_os_error))
            })?;
            ingress.push(Box::new(VirtioIngress::new(Arc::clone(&rx), trouble.clone(), copy, Arc::default())));
            egress.push(Arc::new(VirtioEgress::new(Arc::clone(&tx), trouble.clone(), Arc::default())));
            queues.push([rx, tx]);
            calls.extend([call, bell()?]);
        }
        let driver = Driver { shared: Arc::clone(&shared), target: target.clone(), wish, queues, calls };
        let thread = std::thread::Builder::new().name("netvale-virtio".into()).spawn(move || driver.run());
        let thread = thread
            .map_err(|e| step("start a thread")(e.raw_os_error().map_or(Errno::AGAIN, Errno::from_raw_os_error)))?;
        Ok((VirtioPort { shared, thread: Some(thread) }, (egress, ingress)))
    }

    /// What it is doing.
    pub fn state(&self) -> VirtioState {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for VirtioPort {
    fn drop(&mut self) {
        self.shared.stop.ring();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the runtime.
            let _ = thread.join();
        }
    }
}

/// The control thread.
struct Driver {
    shared: Arc<Shared>,
    target: Target,
    wish: Wish,
    /// Of each pair: what is received, what is sent; there is something while the device runs.
    queues: Vec<[Arc<Lent<Started>>; 2]>,
    calls: Vec<Doorbell>,
}

impl Driver {
    fn run(&self) {
        loop {
            let why = match self.once() {
                Ok(()) | Err(NoDevice::Stopped) => return,
                Err(why) => why.to_string(),
            };
            let mut state = self.state();
            if state.running || state.last_error.as_ref() != Some(&why) {
                tracing::info!(device = %self.target, why, "no device");
            }
            *state = VirtioState { last_error: Some(why), ..VirtioState::default() };
            drop(state);
            if self.nap(RETRY) {
                return;
            }
        }
    }

    /// One device from its beginning to its end.
    fn once(&self) -> Result<(), NoDevice> {
        match &self.target {
            Target::Socket(path) => self.back_end(path),
            Target::Pci(address) => self.on_bus(address),
        }
    }

    fn back_end(&self, path: &std::path::Path) -> Result<(), NoDevice> {
        let address = SocketAddrUnix::new(path).map_err(NoDevice::System)?;
        let connection = socket().map_err(NoDevice::System)?;
        rustix::net::connect(&connection, &address).map_err(NoDevice::System)?;
        let ends = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(NoDevice::System)?;
        for (fd, data) in [(self.shared.stop.as_fd(), 0), (self.shared.trouble.as_fd(), 1)] {
            let flags = epoll::EventFlags::IN;
            epoll::add(&ends, fd, epoll::EventData::new_u64(data), flags).map_err(NoDevice::System)?;
        }
        let running = Frontend::new(connection.as_fd(), ends.as_fd()).start(self.wish, &self.calls)?;
        // Nothing is expected from the back end: whatever comes is the end of it, or the end of rules.
        self.run_device(running, [connection.as_fd(), connection.as_fd()], |_| Err(NoDevice::Closed))
    }

    fn on_bus(&self, address: &str) -> Result<(), NoDevice> {
        let bell = || Doorbell::new().map_err(NoDevice::System);
        let (changed, wanted) = (bell()?, bell()?);
        let (running, registers) = PciDevice::open(address)?.start(self.wish, &self.calls, (&changed, &wanted))?;
        changed.ring();
        self.run_device(running, [changed.as_fd(), wanted.as_fd()], |back| {
            changed.drain();
            if back {
                return Err(NoDevice::WantedBack);
            }
            if registers.needs_reset() {
                return Err(NoDevice::NeedsReset);
            }
            self.state().link_down = !registers.link();
            Ok(())
        })
    }

    fn state(&self) -> MutexGuard<'_, VirtioState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device works until it, or the port, ends. `news` is called when one of `fds` is readable, with whether it is the second.
    fn run_device(
        &self,
        running: Running,
        fds: [BorrowedFd<'_>; 2],
        news: impl Fn(bool) -> Result<(), NoDevice>,
    ) -> Result<(), NoDevice> {
        tracing::info!(device = %self.target, "device runs");
        let (pairs, features) = (running.pairs.len(), running.features);
        let path = Some(Path::of(features, self.wish.vector));
        *self.state() = VirtioState { running: true, pairs, features, path, ..VirtioState::default() };
        let (pairs, _kept) = running.split();
        let ended = self.lend(pairs).map_err(NoDevice::from).and_then(|()| self.wait(fds, news));
        for queue in self.queues.iter().flatten() {
            // One that a worker does not hand back keeps its own memory, and there is no next device before it is gone.
            let _ = queue.take();
        }
        ended
    }

    /// Gives the queues to the workers.
    fn lend(&self, pairs: Vec<(Started, Started)>) -> Result<(), InUse> {
        for ([rx, tx], (rx_started, tx_started)) in self.queues.iter().zip(pairs) {
            rx.put(rx_started)?;
            tx.put(tx_started)?;
        }
        // Each worker posts its receive buffers when it first looks.
        self.calls.iter().step_by(2).for_each(Doorbell::ring);
        Ok(())
    }

    /// Until the device ends, breaks the rules, or the port is to end.
    fn wait(
        &self,
        [one, other]: [BorrowedFd<'_>; 2],
        news: impl Fn(bool) -> Result<(), NoDevice>,
    ) -> Result<(), NoDevice> {
        loop {
            let mut fds = [one, other, self.shared.stop.as_fd(), self.shared.trouble.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut fds, None);
            let [one, other, stop, trouble] = fds.map(|f| !f.revents().is_empty());
            if stop {
                return Ok(());
            }
            if trouble {
                return Err(self.shared.trouble.take().map_or(NoDevice::Closed, NoDevice::Bad));
            }
            if one || other {
                news(other)?;
            }
        }
    }

    /// Sleeps. Returns whether the port is to end.
    fn nap(&self, time: Duration) -> bool {
        let limit = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
        let mut one = [PollFd::from_borrowed_fd(self.shared.stop.as_fd(), PollFlags::IN)];
        matches!(poll(&mut one, Some(&limit)), Ok(n) if n > 0)
    }
}
