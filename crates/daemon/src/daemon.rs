//! The daemon's state: its registries, and the interface of a port's backend.

use std::any::Any;
use std::sync::Arc;

use netvale_control::types::{Direction, EventName, PortDetails, PortInfo, PortKind, TableEntry};
use netvale_fdio::state::State;
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::RingSide;
use netvale_port::service::{self, AskedToPause};
use netvale_switch::{PortId, Switch};
use rustix::io::Errno;

use crate::caller::Caller;
use crate::config::Config;
use crate::handover::items::{INTERFACE, ParkedPort, port_key, regions_key};
use crate::handover::store::Store;
use crate::refusal::{Refusal, refuse};
use crate::registry::captures::Captures;
use crate::registry::changes::Changes;
use crate::registry::events::{Events, Happened};
use crate::registry::evictions::Evictions;
use crate::registry::groups::Groups;
use crate::registry::guests::Guests;
use crate::registry::interfaces::Interfaces;
use crate::registry::looks::Looks;
use crate::registry::mirrors::Mirrors;
use crate::registry::persistent::PersistentPorts;
use crate::registry::pipes::Pipes;
use crate::registry::ports::{PortRecord, Ports};
use crate::registry::refusals::Refusals;
use crate::registry::regions::{COMMON_REGION, Regions};
use crate::registry::snoops::Snoops;
use crate::registry::switches::Switches;
use crate::registry::traces::Traces;
use crate::registry::tunnels::Tunnels;
use crate::registry::watches::Watches;
use crate::registry::workers::Workers;
use crate::rings::local::LocalPort;
use crate::rings::switched::Rings;
use crate::stalls::Watched;
use crate::system::freed::FreedMemory;
use crate::system::sandbox::Reach;

/// The daemon's state. Each registry guards its own map; operations across several are functions of `ports` or `api`.
pub struct Daemon {
    /// The configuration.
    pub config: Config,
    /// Forwarding threads.
    pub workers: Workers,
    /// The switches.
    pub switches: Switches,
    /// Memory regions that programs map.
    pub regions: Regions,
    /// Ports, by full name.
    pub ports: Ports<dyn Attached>,
    /// Persistent ports, on a switch or off it.
    pub persistent: PersistentPorts,
    /// Pipes between programs.
    pub pipes: Pipes,
    /// Network interfaces.
    pub interfaces: Interfaces,
    /// Groups of ports that share a rate.
    pub groups: Groups,
    /// Multicast groups of switches that snoop.
    pub snoops: Snoops,
    /// UDP sockets of tunnels, and their watchers.
    pub tunnels: Tunnels,
    /// Traces of frames.
    pub traces: Traces,
    /// ptnet devices of the virtual machine that the daemon runs in.
    pub guests: Guests,
    /// Watched ports of each monitor.
    pub watches: Watches,
    /// Copies for monitors of frames that bypass the daemon.
    pub(crate) mirrors: Mirrors,
    /// Progress of the main thread, which serves all requests.
    pub watched: Arc<Watched>,
    /// Number of refused requests of each user.
    pub refusals: Refusals,
    /// Programs whose port was taken away.
    pub(crate) evictions: Evictions,
    /// Subscribers to events.
    pub events: Events,
    /// Last polled state, for events.
    pub looks: Looks,
    /// Capture files being written.
    pub(crate) captures: Captures,
    /// Memory of removed ports, to be given back to the kernel.
    pub(crate) freed: FreedMemory,
    /// Paused threads of the predecessor's ports, until this process takes over.
    pub(crate) held: Vec<Box<dyn Any>>,
    /// Rung by port threads when state changes that the service manager keeps.
    pub(crate) news: Arc<Doorbell>,
    /// Connection of the successor that awaits the hand-over.
    pub(crate) successor: Option<u64>,
    /// Pending changes to the state that the service manager keeps.
    pub(crate) changes: Changes,
    /// State kept by the service manager, if there is one.
    pub(crate) store: Option<Store>,
    /// Folders that the sandbox can reach.
    pub(crate) reach: Reach,
}

impl Daemon {
    /// Creates a daemon without ports.
    ///
    /// # Errors
    /// Fails if a worker cannot be started.
    pub fn new(config: Config) -> std::io::Result<Daemon> {
        let faults = netvale_mem::fault::news()?;
        Ok(Daemon {
            workers: Workers::start(&config.cpu_of_each(), config.polling(), &Fault::told_by(&faults))?,
            switches: Switches::new(config.switch.settings(), config.switch.ageing()),
            regions: Regions::new(std::sync::Arc::clone(&faults)),
            ports: Ports::default(),
            persistent: PersistentPorts::default(),
            pipes: Pipes::default(),
            interfaces: Interfaces::default(),
            groups: Groups::default(),
            snoops: Snoops::new()?,
            tunnels: Tunnels::new()?,
            traces: Traces::default(),
            guests: Guests::default(),
            watches: Watches::default(),
            mirrors: Mirrors::default(),
            watched: Watched::new("the main thread".into()),
            refusals: Refusals::default(),
            evictions: Evictions::new(faults),
            events: Events::default(),
            looks: Looks::default(),
            captures: Captures::default(),
            freed: FreedMemory::default(),
            held: Vec::new(),
            news: Arc::new(Doorbell::new()?),
            successor: None,
            changes: Changes { everything: true, ..Changes::default() },
            store: None,
            reach: Reach::everything(),
            config,
        })
    }

    /// Counts and logs a refused request or connection, and reports it as an event; `why` may quote the caller.
    pub(crate) fn note_refusal(&mut self, caller: Caller, why: &str) {
        self.refusals.note(caller, why);
        self.events.tell(Happened::to(EventName::RequestRefused, caller.uid).by(caller).why(why));
    }

    /// Removes a port that is gone from the service manager's state. Otherwise its device and socket stay taken, and
    /// the next port of that name would inherit them.
    pub(crate) fn forget_kept_port(&mut self, full: &str) {
        self.store.iter_mut().for_each(|store| store.forget(&port_key(full)));
        self.forget_kept();
    }

    /// Does the same for shared state: interfaces, and regions identified by their user.
    pub(crate) fn forget_kept(&mut self) {
        let Daemon { store: Some(store), interfaces, regions, .. } = self else { return };
        store.forget_gone(INTERFACE, |name| interfaces.known(name).is_none());
        let is_used = |uid: &str| uid.parse().is_ok_and(|uid| regions.known_common(uid).is_some());
        store.forget_gone(&regions_key(COMMON_REGION), |uid| !is_used(uid));
    }

    /// Returns the callback by which port threads report a change to the main thread.
    pub(crate) fn on_news(&self) -> impl Fn() + Send + Sync + use<> {
        let news = Arc::clone(&self.news);
        move || news.ring()
    }
}

/// Peers of a port that serves one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Whether a peer is connected.
    pub connected: bool,
    /// Number of connections so far.
    pub connections: u64,
    /// Why the last peer was disconnected; `None` if it just left.
    pub last_error: Option<String>,
}

impl<D> From<service::State<D>> for Peers {
    fn from(state: service::State<D>) -> Peers {
        let service::State { connected, connections, last_error, .. } = state;
        Peers { connected, connections, last_error }
    }
}

/// A port of the daemon.
pub type Record = PortRecord<dyn Attached>;

/// Kick counts of one ring: sent, suppressed because the peer asked for none, received.
pub type Kicks = (u64, u64, u64);

/// The backend of a port. Each kind implements this in its file in `ports/`; a method that a kind does not override
/// does not apply to it.
pub trait Attached: Any {
    /// Returns the kind, as `netvale list` shows it.
    fn kind(&self) -> PortKind;

    /// Returns the rings that programs open, with their holders.
    fn programs(&self) -> Option<&LocalPort> {
        None
    }

    /// Like [`Attached::programs`], mutable.
    fn programs_mut(&mut self) -> Option<&mut LocalPort> {
        None
    }

    /// Adds details of this kind to `list` and `show`.
    fn describe(&self, _info: &mut PortInfo) {}

    /// Adds the addresses that this kind knows to its switch's table; `id` and `full` name the port.
    fn add_addresses(&self, _switch: &Switch, _id: PortId, _full: &str, _entries: &mut Vec<TableEntry>) {}

    /// Memory for each of its peers in bytes, without regions of the registry.
    fn memory(&self) -> u64 {
        0
    }

    /// Notes for `netvale show`.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Polls the state of its backend where no notification exists. Returns the reason if the backend is gone.
    fn look(&self) -> Option<String> {
        None
    }

    /// Returns why its backend is gone; the port is then removed, too.
    fn gone(&self) -> Option<String> {
        None
    }

    /// Reports faults of its peer, for kinds without rings that programs open.
    fn fault(&self) -> Option<&Fault> {
        None
    }

    /// Returns its peers, for kinds that serve one at a time.
    fn peers(&self) -> Option<Peers> {
        None
    }

    /// Link state, for kinds that have one: the peer's driver runs, the interface has a carrier.
    fn link(&self) -> Option<bool> {
        None
    }

    /// Whether frames can be received: false while no peer is connected, or while the interface is known to be down.
    fn may_be_received(&self) -> bool {
        self.peers().is_none_or(|peers| peers.connected)
    }

    /// Returns a ring with its indices, for ports whose rings are not opened by programs.
    fn ring_side(&self, _dir: Direction, _ring: usize) -> Option<RingSide> {
        None
    }

    /// Kick counts of a ring that is not a netmap ring.
    fn ring_kicks(&self, _dir: Direction, _ring: usize) -> Kicks {
        (0, 0, 0)
    }

    /// Kicks sent and received by all rings together, for kinds without counts per ring.
    fn kicks(&self) -> Option<(u64, u64)> {
        None
    }

    /// Returns the network interface of this port.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// Number of queues, for ports in a netmap bridge wrapper: an interface, a persistent port on its second switch.
    fn wrapped_queues(&self) -> Option<u32> {
        None
    }

    /// Sets the MTU during operation; `None` restores the default.
    ///
    /// # Errors
    /// [`Refusal`] if the kind does not support it.
    fn set_mtu(&self, _mtu: Option<u32>) -> Result<(), Refusal> {
        let text = format!("the MTU of a {} port cannot be set while frames pass: attach it again", self.kind());
        refuse(Errno::OPNOTSUPP, text)
    }

    /// Sets the length of the virtio-net header before each frame. Returns whether that length is now in effect.
    fn set_header(&self, _len: u32) -> bool {
        false
    }

    /// Asks the port's threads to pause; [`Attached::save_parked`] waits for that. Dropping the result withdraws the
    /// request, unless that wait is over.
    fn ask_to_pause(&self) -> Vec<AskedToPause> {
        Vec::new()
    }

    /// Saves the port's state without pausing: the service manager keeps it in case this process is killed. The new
    /// process reads the ring positions from shared memory. `None`: the port starts anew.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    fn save(&self) -> std::io::Result<Option<State>> {
        Ok(None)
    }

    /// Saves the exact state while the workers are parked; pauses the port's own threads.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors, or if a thread does not pause.
    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        Ok(self.save()?.map(ParkedPort::from))
    }

    /// Adds counters specific to this kind.
    fn count(&self, _port: &mut PortDetails) {}

    /// Frees the port's other resources. By then the port is off its switch and its tasks are off their workers.
    fn stop(self: Box<Self>, _daemon: &mut Daemon, _full: &str) {}
}

impl dyn Attached {
    /// Returns the backend if its type is `T`.
    pub fn get<T: Attached>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

impl Record {
    /// Returns the port's rings, if programs can open them.
    pub fn rings(&self) -> Option<&Rings> {
        self.behind.programs().map(|local| &local.rings)
    }

    /// Whether programs can open the port, and none does.
    pub fn is_idle(&self) -> bool {
        self.behind.programs().is_some_and(LocalPort::is_unheld)
    }

    /// Length in bytes of the virtio-net header before each frame. Monitors see a device's frames whole, with their
    /// pending offloads.
    pub fn hdr_len(&self) -> u32 {
        self.rings().map_or(0, |rings| rings.hdr_len.get())
    }
}
