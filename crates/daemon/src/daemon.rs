//! The daemon's state: its registries, and [`PortBackend`], the trait that each kind of port implements.

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
use crate::registry::changes::UnsavedChanges;
use crate::registry::events::{NewEvent, Subscriptions};
use crate::registry::evictions::Evictions;
use crate::registry::exchanges::Exchanges;
use crate::registry::groups::RateGroups;
use crate::registry::guests::Guests;
use crate::registry::interfaces::Interfaces;
use crate::registry::looks::Looks;
use crate::registry::mirrors::Mirrors;
use crate::registry::persistent::PersistentPorts;
use crate::registry::pipes::Pipes;
use crate::registry::ports::{PortRecord, PortRegistry};
use crate::registry::refusals::Refusals;
use crate::registry::regions::{COMMON_REGION, Regions};
use crate::registry::snoops::Snoops;
use crate::registry::switches::Switches;
use crate::registry::traces::Traces;
use crate::registry::tunnels::Tunnels;
use crate::registry::watches::Watches;
use crate::registry::workers::Workers;
use crate::rings::local::LocalRings;
use crate::rings::switched::PortRings;
use crate::stalls::WatchedThread;
use crate::system::freed::FreedMemory;
use crate::system::sandbox::Reach;

/// The daemon's state. Each registry guards its own map; functions of `ports` and `api` work on several registries.
pub struct Daemon {
    pub config: Config,
    /// Forwarding threads.
    pub workers: Workers,
    pub switches: Switches,
    /// Memory regions that programs map.
    pub regions: Regions,
    /// Ports, by full name.
    pub ports: PortRegistry<dyn PortBackend>,
    /// Persistent ports, attached to a switch or not.
    pub persistent: PersistentPorts,
    /// Pipes between programs.
    pub pipes: Pipes,
    pub interfaces: Interfaces,
    /// Groups of ports that share a rate.
    pub groups: RateGroups,
    /// Multicast groups of switches that snoop.
    pub snoops: Snoops,
    /// UDP sockets of tunnels, and the connections that watch tunnels.
    pub tunnels: Tunnels,
    /// Listeners and directories through which peers reach socket ports.
    pub exchanges: Exchanges,
    /// Traces of frames.
    pub traces: Traces,
    /// ptnet devices of the virtual machine that the daemon runs in.
    pub guests: Guests,
    /// For each monitor, the port that it watches.
    pub watches: Watches,
    /// Rings into which programs copy frames that bypass the daemon, so that monitors get these frames.
    pub(crate) mirrors: Mirrors,
    /// Detects stalls of the main thread, which serves all requests.
    pub watched: Arc<WatchedThread>,
    /// Number of refused requests of each user.
    pub refusals: Refusals,
    /// Programs that lost their port.
    pub(crate) evictions: Evictions,
    /// Subscribers to events.
    pub events: Subscriptions,
    /// State of ports at the last poll. The next poll compares the ports with this state, to report changes as events.
    pub looks: Looks,
    /// Capture files: files that are being written, and users' finished files.
    pub(crate) captures: Captures,
    /// Memory of removed ports that is not yet returned to the kernel.
    pub(crate) freed: FreedMemory,
    /// In a successor, guards that keep the threads of restored ports paused until the successor takes over.
    pub(crate) held: Vec<Box<dyn Any>>,
    /// Doorbell that port threads ring after they have changed state that the service manager keeps.
    pub(crate) news: Arc<Doorbell>,
    /// Number of the connection on which a successor awaits the hand-over; `None` if there is no successor.
    pub(crate) successor: Option<u64>,
    /// Changes that are not yet saved with the service manager.
    pub(crate) changes: UnsavedChanges,
    /// The items that the service manager keeps; `None` without a service manager.
    pub(crate) store: Option<Store>,
    /// Folders that the sandboxed daemon can access.
    pub(crate) reach: Reach,
}

impl Daemon {
    /// Creates a daemon without ports.
    ///
    /// # Errors
    /// Fails if a worker cannot be started, or no descriptor is left.
    pub fn new(config: Config) -> std::io::Result<Daemon> {
        let faults = netvale_mem::fault::news()?;
        Ok(Daemon {
            workers: Workers::start(&config.cpu_of_each(), config.polling(), &Fault::told_by(&faults))?,
            switches: Switches::new(config.switch.settings(), config.switch.ageing()),
            regions: Regions::new(std::sync::Arc::clone(&faults)),
            ports: PortRegistry::default(),
            persistent: PersistentPorts::default(),
            pipes: Pipes::default(),
            interfaces: Interfaces::default(),
            groups: RateGroups::default(),
            snoops: Snoops::new()?,
            tunnels: Tunnels::new()?,
            exchanges: Exchanges::new()?,
            traces: Traces::default(),
            guests: Guests::default(),
            watches: Watches::default(),
            mirrors: Mirrors::default(),
            watched: WatchedThread::new("the main thread".into()),
            refusals: Refusals::default(),
            evictions: Evictions::new(faults),
            events: Subscriptions::default(),
            looks: Looks::default(),
            captures: Captures::default(),
            freed: FreedMemory::default(),
            held: Vec::new(),
            news: Arc::new(Doorbell::new()?),
            successor: None,
            changes: UnsavedChanges { everything: true, ..UnsavedChanges::default() },
            store: None,
            reach: Reach::everything(),
            config,
        })
    }

    /// Counts and logs a refused request or connection, and reports it as an event. `why` may contain text from the
    /// caller.
    pub(crate) fn note_refusal(&mut self, caller: Caller, why: &str) {
        self.refusals.note(caller, why);
        self.events.tell(NewEvent::to(EventName::RequestRefused, caller.uid).by(caller).why(why));
    }

    /// Removes a detached port from the service manager's state. If this is omitted, the port's device and socket
    /// remain in use, and the next port of that name inherits them.
    pub(crate) fn forget_kept_port(&mut self, full: &str) {
        self.store.iter_mut().for_each(|store| store.forget(&port_key(full)));
        self.forget_kept();
    }

    /// Removes unused shared state (interfaces, regions identified by user) from the service manager's state.
    pub(crate) fn forget_kept(&mut self) {
        let Daemon { store: Some(store), interfaces, regions, .. } = self else { return };
        store.forget_gone(INTERFACE, |name| interfaces.known(name).is_none());
        let is_used = |uid: &str| uid.parse().is_ok_and(|uid| regions.known_common(uid).is_some());
        store.forget_gone(&regions_key(COMMON_REGION), |uid| !is_used(uid));
    }

    /// Returns the function with which port threads report a change to the main thread.
    pub(crate) fn on_news(&self) -> impl Fn() + Send + Sync + use<> {
        let news = Arc::clone(&self.news);
        move || news.ring()
    }
}

/// Connection state of a port that serves one peer at a time, e.g. the driver of one virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPeers {
    /// Whether a peer is connected.
    pub connected: bool,
    /// Number of connections so far.
    pub connections: u64,
    /// Reason why the last peer was disconnected; `None` if the peer closed the connection.
    pub last_error: Option<String>,
}

impl<D> From<service::ServiceState<D>> for PortPeers {
    fn from(state: service::ServiceState<D>) -> PortPeers {
        let service::ServiceState { connected, connections, last_error, .. } = state;
        PortPeers { connected, connections, last_error }
    }
}

/// A port of the daemon.
pub type DaemonPort = PortRecord<dyn PortBackend>;

/// Kick counts of one ring: kicks sent; kicks suppressed because the peer had not set `need_kick`; kicks received.
pub type Kicks = (u64, u64, u64);

/// The backend of a port. Each kind of port implements this trait in a file in `ports/`. A method's default
/// implementation is for the kinds to which the method does not apply.
pub trait PortBackend: Any {
    /// Returns the kind, as `netvale list` shows it.
    fn kind(&self) -> PortKind;

    /// Returns the rings that programs open, and the holders of these rings; `None` for kinds without such rings.
    fn programs(&self) -> Option<&LocalRings> {
        None
    }

    /// Like [`PortBackend::programs`], mutable.
    fn programs_mut(&mut self) -> Option<&mut LocalRings> {
        None
    }

    /// Adds details specific to this kind of port to the answers of `list` and `show`.
    fn describe(&self, _info: &mut PortInfo) {}

    /// Adds addresses that the port itself, not the switch, has learned to `entries`, for a listing of the switch's
    /// forwarding table; `id` and `full` identify the port.
    fn add_addresses(&self, _switch: &Switch, _id: PortId, _full: &str, _entries: &mut Vec<TableEntry>) {}

    /// Returns the memory of the port in bytes, which counts towards its owner's quota. Regions of the registry are
    /// counted separately.
    fn memory(&self) -> u64 {
        0
    }

    /// Returns notes for `netvale show`.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Polls the state of the device behind the port, for kinds that are not notified of changes. Returns the reason if
    /// the device no longer exists, otherwise `None`.
    fn look(&self) -> Option<String> {
        None
    }

    /// Returns the reason if the device behind the port no longer exists, otherwise `None`. The daemon removes the port
    /// in this case.
    fn gone(&self) -> Option<String> {
        None
    }

    /// Returns the fault state of the port's peer, for kinds without rings that programs open; `None` for kinds without
    /// a fault state.
    fn fault(&self) -> Option<&Fault> {
        None
    }

    /// Returns the connection state, for kinds that serve one peer at a time; `None` for other kinds.
    fn peers(&self) -> Option<PortPeers> {
        None
    }

    /// If this port was created together with another port, and is removed with it, returns the full name of that other
    /// port; `None` if this port was attached on its own.
    fn comes_with(&self) -> Option<&str> {
        None
    }

    /// Returns the link state: whether the peer's driver runs, or the interface has a carrier. `None` for kinds without
    /// a link state.
    fn link(&self) -> Option<bool> {
        None
    }

    /// Whether the kernel reports changes of the link state, so that the link needs no polls between two reports.
    fn is_link_reported(&self) -> bool {
        false
    }

    /// Whether the port can receive frames. A port without a peer cannot, nor can a port whose interface is known to be
    /// down.
    fn may_be_received(&self) -> bool {
        self.peers().is_none_or(|peers| peers.connected)
    }

    /// Returns access to a netmap ring's indices, for kinds whose rings are opened by a guest instead of by programs;
    /// `None` for other kinds.
    fn ring_side(&self, _dir: Direction, _ring: usize) -> Option<RingSide> {
        None
    }

    /// Returns the kick counts of a ring that is not a netmap ring.
    fn ring_kicks(&self, _dir: Direction, _ring: usize) -> Kicks {
        (0, 0, 0)
    }

    /// Returns the kicks that all rings together have sent and received, for kinds without counts per ring; `None` for
    /// other kinds.
    fn kicks(&self) -> Option<(u64, u64)> {
        None
    }

    /// Returns the name of the port's network interface; `None` if this kind of port has no interface.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// Returns the number of queues of a port that netmap would attach through its bridge wrapper (bwrap): an
    /// interface, or a persistent port that is attached to a second switch. `None` for other ports.
    fn wrapped_queues(&self) -> Option<u32> {
        None
    }

    /// Sets the MTU of the attached port; `None` restores the default.
    ///
    /// # Errors
    /// [`Refusal`] if the kind does not support a change of the MTU.
    fn set_mtu(&self, _mtu: Option<u32>) -> Result<(), Refusal> {
        let text = format!("the MTU of an attached {} port cannot change; attach the port again", self.kind());
        refuse(Errno::OPNOTSUPP, text)
    }

    /// Sets the length of the virtio-net header that precedes each frame. Returns whether that length is now in effect.
    fn set_header(&self, _len: u32) -> bool {
        false
    }

    /// Requests that the port's threads pause; [`PortBackend::save_parked`] waits until the threads have paused. The
    /// request is withdrawn if the result is dropped before that call.
    fn ask_to_pause(&self) -> Vec<AskedToPause> {
        Vec::new()
    }

    /// Saves the port's state for the service manager, in case this process is killed. Nothing is paused. The next
    /// process reads the ring positions from shared memory. If the result is `None`, the next process attaches the port
    /// anew.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    fn save(&self) -> std::io::Result<Option<State>> {
        Ok(None)
    }

    /// Saves the exact state while the workers are parked, and pauses the port's own threads. `None` has the same
    /// meaning as for [`PortBackend::save`].
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors, or if a thread does not pause.
    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        Ok(self.save()?.map(ParkedPort::from))
    }

    /// Adds counters that are specific to this kind of port.
    fn count(&self, _port: &mut PortDetails) {}

    /// Frees the port's remaining resources. Must be called after the port has left its switch and its tasks have left
    /// their workers.
    fn stop(self: Box<Self>, _daemon: &mut Daemon, _full: &str) {}
}

impl dyn PortBackend {
    /// Returns the backend if its type is `T`, otherwise `None`.
    pub fn get<T: PortBackend>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

impl DaemonPort {
    /// Returns the port's rings; `None` if programs cannot open the port.
    pub fn rings(&self) -> Option<&PortRings> {
        self.behind.programs().map(|local| &local.rings)
    }

    /// Whether programs can open the port, but no program has opened it.
    pub fn is_idle(&self) -> bool {
        self.behind.programs().is_some_and(LocalRings::is_unheld)
    }

    /// Returns the length in bytes of the virtio-net header that precedes each frame in the port's netmap rings; 0 for
    /// a port without netmap rings. A monitor of a device's port therefore gets frames with pending offloads, but
    /// without the header that describes them.
    pub fn hdr_len(&self) -> u32 {
        self.rings().map_or(0, |rings| rings.hdr_len.get())
    }
}
