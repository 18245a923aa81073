//! A virtio-net driver port: a connection to a vhost-user back end or a device on the bus, the driver on it, and the thread that keeps it up.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::listener::{OpenError, try_connect};
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::service::{self, Peering, Protocol, Service};
use netvale_port::{Egress, Ingress};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::frontend::{Frontend, NoDevice, Running, Started, Wish};
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
    /// Connects to the back end at a socket, now or as soon as there is one; or takes a device on the bus, which has to be there.
    ///
    /// # Errors
    /// [`VhostError`].
    pub fn new(target: impl Into<Target>, wish: Wish) -> Result<(VirtioPort, Queues), VhostError> {
        let target = target.into();
        if wish.pairs == 0 || usize::from(wish.pairs) > MAX_PAIRS {
            return Err(VhostError::Pairs(wish.pairs));
        }
        let step = |what| OpenError::step(target.to_string(), what);
        if !wish.size.is_power_of_two() || wish.size > MAX_QUEUE || wish.size < 8 {
            return Err(step("the size of a queue is a power of two from 8 to 4096")(Errno::INVAL).into());
        }
        if let Target::Pci(address) = &target {
            // What is wrong with it is best said at once.
            PciDevice::open(address).map_err(VhostError::Device)?;
        }
        let mut pairs = Vec::new();
        let (mut egress, mut ingress) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
        for _ in 0..wish.pairs {
            let rx = Arc::new(Seat::woken().map_err(step("make a descriptor to wait on"))?);
            let tx = Arc::<Seat<Started>>::default();
            ingress.push(Box::new(SeatIngress::new(Arc::clone(&rx))));
            egress.push(Arc::new(SeatEgress(Arc::clone(&tx))));
            pairs.push((rx, tx));
        }
        let driver = Driver { target: target.clone(), wish, pairs };
        let service = Service::start("netvale-virtio", &target, None, driver)?;
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
struct Driver {
    target: Target,
    wish: Wish,
    pairs: Vec<Pair>,
}

impl Protocol for Driver {
    /// None: a device on the bus.
    type Connection = Option<OwnedFd>;
    type Detail = Driven;
    const PEER: &'static str = "device";

    fn next(&mut self, _stop: BorrowedFd<'_>) -> Option<Result<Option<OwnedFd>, String>> {
        Some(match &self.target {
            Target::Socket(path) => try_connect(path).map(Some).map_err(|e| e.to_string()),
            Target::Pci(_) => Ok(None),
        })
    }

    fn serve(&mut self, connection: Option<OwnedFd>, peering: &Peering<Driven>) -> Result<(), String> {
        let ended = match (connection, &self.target) {
            (Some(connection), _) => self.back_end(connection.as_fd(), peering),
            (None, Target::Pci(address)) => self.on_bus(address, peering),
            (None, Target::Socket(_)) => Err(NoDevice::Closed),
        };
        match ended {
            Ok(()) | Err(NoDevice::Stopped) => Ok(()),
            Err(why) => Err(why.to_string()),
        }
    }
}

impl Driver {
    /// What a device rings, two of them a pair.
    fn calls(&self, fault: &Fault) -> Result<Vec<Doorbell>, NoDevice> {
        (0..2 * self.pairs.len()).map(|_| Doorbell::shared(fault).map_err(NoDevice::System)).collect()
    }

    fn back_end(&self, connection: BorrowedFd<'_>, peering: &Peering<Driven>) -> Result<(), NoDevice> {
        let calls = self.calls(peering.fault())?;
        let running = Frontend::new(connection, peering.ends(), peering.fault()).start(self.wish, &calls)?;
        // Nothing is expected from the back end: whatever comes is the end of it, or the end of rules.
        self.run_device(running, &calls, peering, [connection, connection], |_| Err(NoDevice::Closed))
    }

    fn on_bus(&self, address: &str, peering: &Peering<Driven>) -> Result<(), NoDevice> {
        let (calls, bell) = (self.calls(peering.fault())?, || Doorbell::new().map_err(NoDevice::System));
        let (changed, wanted) = (bell()?, bell()?);
        let device = PciDevice::open(address)?;
        let (running, registers) = device.start(self.wish, &calls, (&changed, &wanted), peering.fault())?;
        changed.ring();
        self.run_device(running, &calls, peering, [changed.as_fd(), wanted.as_fd()], |back| {
            changed.drain();
            if back {
                return Err(NoDevice::WantedBack);
            }
            if registers.needs_reset() {
                return Err(NoDevice::NeedsReset);
            }
            let link_down = !registers.link();
            peering.told().update(|told| told.link_down = link_down);
            Ok(())
        })
    }

    /// The device works until it, or the port, ends. `news` is called when one of `fds` is readable, with whether it is the second.
    fn run_device(
        &self,
        running: Running,
        calls: &[Doorbell],
        peering: &Peering<Driven>,
        fds: [BorrowedFd<'_>; 2],
        news: impl Fn(bool) -> Result<(), NoDevice>,
    ) -> Result<(), NoDevice> {
        let Running { features, pairs: started, kept: _kept } = running;
        let (pairs, path) = (started.len(), Some(Path::of(features, self.wish.vector)));
        let ended = self.lend(started, calls).and_then(|()| {
            peering.told().update(|told| *told = Driven { running: true, pairs, features, path, link_down: false });
            wait(fds, peering.ends(), news)
        });
        self.take_back(calls);
        ended
    }

    /// Gives the queues to the workers.
    fn lend(&self, started: Vec<(Started, Started)>, calls: &[Doorbell]) -> Result<(), NoDevice> {
        for ((pair, call), (rx, tx)) in self.pairs.iter().zip(calls.iter().step_by(2)).zip(started) {
            pair.0.wake.iter().try_for_each(|wake| wake.add_peer(call)).map_err(NoDevice::System)?;
            // The worker posts its receive buffers when it first looks.
            for (seat, queue) in [(&pair.0, rx), (&pair.1, tx)] {
                seat.put(Started { counters: Arc::clone(&seat.counters), ..queue })?;
            }
        }
        Ok(())
    }

    fn take_back(&self, calls: &[Doorbell]) {
        for (pair, call) in self.pairs.iter().zip(calls.iter().step_by(2)) {
            pair.0.wake.iter().for_each(|wake| wake.remove(call));
            for seat in [&pair.0, &pair.1] {
                // One that a worker does not hand back keeps its own memory, and there is no next device before it is gone.
                let _ = seat.queue.take();
            }
        }
    }
}

/// Until the device ends, breaks the rules, or the port is to end.
fn wait(
    [one, other]: [BorrowedFd<'_>; 2],
    ends: BorrowedFd<'_>,
    news: impl Fn(bool) -> Result<(), NoDevice>,
) -> Result<(), NoDevice> {
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
