//! The state of the daemon: its registries, and the interface of the thing behind a port.

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
use crate::registry::exchanges::Exchanges;
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

/// The state of the daemon. Each registry is responsible for its own map; a function of `ports` or `api` does what
/// takes several of them.
pub struct Daemon {
    /// The configuration.
    pub config: Config,
    /// The worker threads.
    pub workers: Workers,
    /// The switches.
    pub switches: Switches,
    /// Memory that programs map.
    pub regions: Regions,
    /// Ports, by full name.
    pub ports: Ports<dyn Attached>,
    /// Persistent ports, on a switch or not.
    pub persistent: PersistentPorts,
    /// Pipes between programs.
    pub pipes: Pipes,
    /// Network interfaces.
    pub interfaces: Interfaces,
    /// Groups of ports that share a rate.
    pub groups: Groups,
    /// Multicast groups of switches that snoop.
    pub snoops: Snoops,
    /// Sockets of tunnels, and who watches those.
    pub tunnels: Tunnels,
    /// What peers of socket ports connect through.
    pub exchanges: Exchanges,
    /// Traces of frames.
    pub traces: Traces,
    /// ptnet devices of the virtual machine that the daemon runs in.
    pub guests: Guests,
    /// What each monitor watches.
    pub watches: Watches,
    /// Copies for monitors of the frames that pass without the daemon.
    pub(crate) mirrors: Mirrors,
    /// The thread that serves all requests.
    pub watched: Arc<Watched>,
    /// How many requests of each user were refused.
    pub refusals: Refusals,
    /// Programs that lost their port.
    pub(crate) evictions: Evictions,
    /// Who is told of what happens.
    pub events: Events,
    /// What of it was found by looking.
    pub looks: Looks,
    /// Capture files that are being written.
    pub(crate) captures: Captures,
    /// What ports left behind that are gone.
    pub(crate) freed: FreedMemory,
    /// Threads of a predecessor's ports that wait until this process goes on in its place.
    pub(crate) held: Vec<Box<dyn Any>>,
    /// Rung by threads of ports when something changed that the service manager keeps.
    pub(crate) news: Arc<Doorbell>,
    /// The connection of a successor that is to get everything.
    pub(crate) successor: Option<u64>,
    /// What may have changed that the service manager keeps.
    pub(crate) changes: Changes,
    /// What it keeps, if there is one.
    pub(crate) store: Option<Store>,
    /// The folders that the sandbox was entered with.
    pub(crate) reach: Reach,
}

impl Daemon {
    /// Creates a daemon without ports.
    ///
    /// # Errors
    /// Fails when a worker cannot be started.
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
            exchanges: Exchanges::new()?,
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

    /// Counts a request or connection that was refused, writes it into the log, and tells it; `why` may repeat words of
    /// the caller's.
    pub(crate) fn note_refusal(&mut self, caller: Caller, why: &str) {
        self.refusals.note(caller, why);
        self.events.tell(Happened::to(EventName::RequestRefused, caller.uid).by(caller).why(why));
    }

    /// Has the service manager drop what is of a port that is gone. Nobody else can have its device or socket before, and
    /// the next port of that name would be taken for it.
    pub(crate) fn forget_kept_port(&mut self, full: &str) {
        self.store.iter_mut().for_each(|store| store.forget(&port_key(full)));
        self.forget_kept();
    }

    /// The same of what ports share: interfaces, and memory that is known by its user.
    pub(crate) fn forget_kept(&mut self) {
        let Daemon { store: Some(store), interfaces, regions, .. } = self else { return };
        store.forget_gone(INTERFACE, |name| interfaces.known(name).is_none());
        let is_used = |uid: &str| uid.parse().is_ok_and(|uid| regions.known_common(uid).is_some());
        store.forget_gone(&regions_key(COMMON_REGION), |uid| !is_used(uid));
    }

    /// What threads of ports call when something changed that the main thread has to look at.
    pub(crate) fn on_news(&self) -> impl Fn() + Send + Sync + use<> {
        let news = Arc::clone(&self.news);
        move || news.ring()
    }
}

/// The peers of a port that serves one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Whether one is connected.
    pub connected: bool,
    /// How many there were.
    pub connections: u64,
    /// Why the last one is not, unless it just left.
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

/// Kick counts of one ring: sent, saved because nobody asked for them, and received.
pub type Kicks = (u64, u64, u64);

/// The thing behind a port. Each kind of port implements this in its file in `ports/`; a method that a kind does not
/// override does not apply to it.
pub trait Attached: Any {
    /// The kind, as `netvale list` shows it.
    fn kind(&self) -> PortKind;

    /// The rings that programs open, and their holders.
    fn programs(&self) -> Option<&LocalPort> {
        None
    }

    /// Like [`Attached::programs`], for changing the holders.
    fn programs_mut(&mut self) -> Option<&mut LocalPort> {
        None
    }

    /// Adds the details of this kind to `list` and `show`.
    fn describe(&self, _info: &mut PortInfo) {}

    /// Adds the addresses that this kind knows to the table of its switch, where it is the port `id` of that full name.
    fn add_addresses(&self, _switch: &Switch, _id: PortId, _full: &str, _entries: &mut Vec<TableEntry>) {}

    /// Bytes of memory that it has for each of its peers, besides regions of the registry.
    fn memory(&self) -> u64 {
        0
    }

    /// Sentences for `netvale show`.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Looks whether what is behind it is still there, where nobody tells. Why not, if it is not.
    fn look(&self) -> Option<String> {
        None
    }

    /// Why what is behind it is no more: it then goes, too.
    fn gone(&self) -> Option<String> {
        None
    }

    /// What its peer is reported by, for kinds without rings that programs open.
    fn fault(&self) -> Option<&Fault> {
        None
    }

    /// Its peers, for kinds that serve one at a time.
    fn peers(&self) -> Option<Peers> {
        None
    }

    /// The full name of the port that it came with, if it was not attached itself, and goes when that one goes.
    fn comes_with(&self) -> Option<&str> {
        None
    }

    /// Whether its link is up, for kinds that have one: its peer's driver runs, its interface has a carrier.
    fn link(&self) -> Option<bool> {
        None
    }

    /// Whether somebody may receive: not while no peer is connected, or while its interface is known to be down.
    fn may_be_received(&self) -> bool {
        self.peers().is_none_or(|peers| peers.connected)
    }

    /// A ring of a port that others than programs have, for its indices.
    fn ring_side(&self, _dir: Direction, _ring: usize) -> Option<RingSide> {
        None
    }

    /// Kick counts of a ring that is not netmap's.
    fn ring_kicks(&self, _dir: Direction, _ring: usize) -> Kicks {
        (0, 0, 0)
    }

    /// Kicks sent and received by all rings together, for kinds that do not count them per ring.
    fn kicks(&self) -> Option<(u64, u64)> {
        None
    }

    /// The network interface behind this port.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// Number of queues, for ports that netmap puts a bridge wrapper around: an interface, a persistent port on its
    /// second switch.
    fn wrapped_queues(&self) -> Option<u32> {
        None
    }

    /// Sets the MTU while frames pass; `None` is the default.
    ///
    /// # Errors
    /// [`Refusal`] where that is not possible.
    fn set_mtu(&self, _mtu: Option<u32>) -> Result<(), Refusal> {
        let text = format!("the MTU of a {} port cannot be set while frames pass: attach it again", self.kind());
        refuse(Errno::OPNOTSUPP, text)
    }

    /// Sets the length of the virtio-net header before each frame. Returns whether the header has that length now.
    fn set_header(&self, _len: u32) -> bool {
        false
    }

    /// Asks the threads of its own to pause, which [`Attached::save_parked`] then waits for. They go on when the result
    /// is dropped, unless they were.
    fn ask_to_pause(&self) -> Vec<AskedToPause> {
        Vec::new()
    }

    /// What another process needs to go on with the port, at any time, without pausing anything: the service manager
    /// keeps it for the case that this one is killed. Where its rings stopped, the other one has to find in shared
    /// memory. `None`: the port begins anew there.
    ///
    /// # Errors
    /// When the daemon is out of descriptors.
    fn save(&self) -> std::io::Result<Option<State>> {
        Ok(None)
    }

    /// The same while the workers are parked, exactly where the port stops: threads of its own pause.
    ///
    /// # Errors
    /// When the daemon is out of descriptors, or a thread does not pause.
    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        Ok(self.save()?.map(ParkedPort::from))
    }

    /// Adds to its counters what there is of its kind alone.
    fn count(&self, _port: &mut PortDetails) {}

    /// Frees what else was made for the port. The port is off its switch by then, and its tasks are off their workers.
    fn stop(self: Box<Self>, _daemon: &mut Daemon, _full: &str) {}
}

impl dyn Attached {
    /// The thing behind the port, if it is of type `T`.
    pub fn get<T: Attached>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

impl Record {
    /// The port's rings, if programs can open them.
    pub fn rings(&self) -> Option<&Rings> {
        self.behind.programs().map(|local| &local.rings)
    }

    /// Whether programs can open the port, and none has it open.
    pub fn is_idle(&self) -> bool {
        self.behind.programs().is_some_and(LocalPort::is_unheld)
    }

    /// Bytes of virtio-net header before each frame. Monitors see a device's frames whole, with their pending offloads.
    pub fn hdr_len(&self) -> u32 {
        self.rings().map_or(0, |rings| rings.hdr_len.get())
    }
}
