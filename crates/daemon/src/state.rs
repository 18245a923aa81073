//! What the daemon knows: switches, ports, pipes, regions, and which worker owns which ingress.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use netvale_control::types::PortOptions;
use netvale_mem::Region;
use netvale_mem::layout::RegionSizes;
use netvale_mem::mapping::Pages;
use netvale_pcapport::CaptureStatus;
use netvale_port::gro::GroEgress;
use netvale_port::{Egress, Ingress, RingCounters};
use netvale_ptnet::keep::Kept;
use netvale_ptnet::port::PtnetPort;
use netvale_switch::{Fdb, Forwarder, Port, PortId, Switch};
use rustix::io::Errno;

use crate::brought::FilePlace;
use crate::config::Config;
use crate::devices::Device;
use crate::evict::Evictions;
use crate::holders::Holders;
use crate::mirrors::Mirrors;
use crate::monitors::{Watched, Watching};
use crate::nics::Nics;
use crate::passed::PassedPort;
use crate::persistent::NewIf;
use crate::pipes::Pipe;
use crate::refusal::Refusal;
use crate::rings::Rings;
use crate::worker::{Job, TaskId, Worker};

/// How long to wait for a worker. One that takes longer serves ports that are worth more.
const PATIENCE: Duration = Duration::from_millis(100);
/// Most switches.
pub const MAX_SWITCHES: usize = 64;
/// Number of the region that a user's network interfaces share, as in netmap.
pub const COMMON_REGION: u32 = 1;

/// Who asks: a connection and the credentials the kernel vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The connection.
    pub client: u64,
    /// User.
    pub uid: u32,
    /// Process.
    pub pid: i32,
}

/// What a port is.
pub enum Kind {
    /// Rings that local processes open.
    Local(LocalPort),
    /// A copy of another port's traffic, for one local process.
    Monitor(LocalPort),
    /// A device of its own: TAP, capture files.
    Device(Box<Device>),
}

/// Rings and who holds them.
pub struct LocalPort {
    /// Memory and both sides' ends.
    pub rings: Rings,
    /// Which client holds each tx ring.
    pub tx_held: Vec<Holders>,
    /// Which client holds each rx ring.
    pub rx_held: Vec<Holders>,
}

/// A task of a port: where it is done.
pub struct Placed {
    /// The task.
    pub id: TaskId,
    /// Its worker.
    pub worker: usize,
}

/// A port of the daemon.
pub struct PortRecord {
    /// Its switch; none if it is passed through.
    pub switch: Option<Arc<Switch>>,
    /// Its number there; a monitor has none.
    pub id: Option<PortId>,
    /// What it is.
    pub kind: Kind,
    /// Of a monitor: what it watches.
    pub(crate) watching: Option<Watching>,
    /// User it belongs to and process that made it.
    pub owner: Caller,
    /// Stays when nobody holds its rings.
    pub persistent: bool,
    /// Holds senders back.
    pub lossless: bool,
    /// Its workers are kept awake.
    pub polled: bool,
    /// Where its ingresses are.
    pub placed: Vec<Placed>,
    /// Counters of its ingresses.
    pub ingress: Vec<Arc<RingCounters>>,
    /// Counters of its egresses.
    pub egress: Vec<Arc<RingCounters>>,
}

impl PortRecord {
    /// A persistent one on no switch, whose frames nobody moves yet.
    pub(crate) fn new(kind: Kind, owner: Caller) -> PortRecord {
        PortRecord {
            switch: None,
            id: None,
            kind,
            watching: None,
            owner,
            persistent: true,
            lossless: false,
            polled: false,
            placed: Vec::new(),
            ingress: Vec::new(),
            egress: Vec::new(),
        }
    }
}

struct RegionEntry {
    id: u32,
    uid: u32,
    region: Weak<Region>,
    /// It lies in a file of the user's.
    file: Option<FilePlace>,
}

/// Everything the daemon knows.
pub struct State {
    /// What it runs with.
    pub config: Config,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// By name.
    pub switches: BTreeMap<String, Arc<Switch>>,
    /// By full name, e.g. `vale0:a`.
    pub ports: BTreeMap<String, PortRecord>,
    /// By name without the end, e.g. `netmap:p{1`.
    pub pipes: BTreeMap<String, Pipe>,
    /// Persistent VALE ports made by netmap's NEWIF, by name.
    pub newifs: BTreeMap<String, NewIf>,
    /// Network interfaces.
    pub nics: Nics,
    /// ptnet devices of the virtual machine that we run in, by interface.
    pub passed: BTreeMap<String, Weak<PassedPort>>,
    /// Descriptors that the service manager kept for us, until their ports are attached.
    pub(crate) kept: Kept,
    /// Rings for copies beside those of ports that are watched.
    pub(crate) mirrors: Mirrors,
    /// Readable when a program's fault was reported.
    pub(crate) news: Arc<OwnedFd>,
    /// Clients whose port was taken away: their connections are to be closed.
    pub evicted: Vec<u64>,
    /// Why the last ones were.
    pub(crate) evictions: Evictions,
    /// Captures that may still be written, also after their ports are gone.
    pub(crate) captures: Vec<Arc<CaptureStatus>>,
    regions: Vec<RegionEntry>,
    next_forwarder: TaskId,
    next_region: u32,
    next_tick: Instant,
}

impl State {
    /// A daemon without ports.
    ///
    /// # Errors
    /// When a worker cannot be started.
    pub fn new(config: Config) -> std::io::Result<State> {
        let start = |(i, &cpu): (usize, &Option<usize>)| Worker::start(i, cpu, config.polling);
        let workers = config.workers.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        Ok(State {
            workers,
            switches: BTreeMap::new(),
            ports: BTreeMap::new(),
            pipes: BTreeMap::new(),
            newifs: BTreeMap::new(),
            nics: Nics::default(),
            passed: BTreeMap::new(),
            kept: crate::keep::found(),
            mirrors: Mirrors::default(),
            news: netvale_mem::fault::news()?,
            evicted: Vec::new(),
            evictions: Evictions::default(),
            captures: Vec::new(),
            regions: Vec::new(),
            next_forwarder: 1,
            next_region: COMMON_REGION + 1,
            next_tick: Instant::now() + Fdb::tick_length(config.ageing),
            config,
        })
    }

    /// The switch of that name; made when it is not there.
    ///
    /// # Errors
    /// [`Refusal`] when there are too many.
    pub fn switch(&mut self, name: &str) -> Result<Arc<Switch>, Refusal> {
        if let Some(s) = self.switches.get(name) {
            return Ok(Arc::clone(s));
        }
        if self.switches.len() >= MAX_SWITCHES {
            return Err(Refusal::new(
                Errno::NOSPC,
                format!("there are {MAX_SWITCHES} switches, the most there can be"),
            ));
        }
        let switch = Switch::with_table_size(name, self.config.table_entries);
        self.switches.insert(name.to_owned(), Arc::clone(&switch));
        Ok(switch)
    }

    /// A new region of `uid`'s, and its number.
    ///
    /// # Errors
    /// [`Refusal`] when there is no memory.
    pub fn new_region(&mut self, sizes: RegionSizes, pages: Pages, uid: u32) -> Result<(Arc<Region>, u32), Refusal> {
        self.regions.retain(|r| r.region.strong_count() > 0);
        let id = self.new_region_id();
        let region = Region::shared(&format!("netvale-{id}"), sizes, pages)?;
        self.keep_region(id, uid, &region, None);
        Ok((region, id))
    }

    pub(crate) fn keep_region(&mut self, id: u32, uid: u32, region: &Arc<Region>, file: Option<FilePlace>) {
        region.mapping().blame(&self.new_fault());
        self.regions.push(RegionEntry { id, uid, region: Arc::downgrade(region), file });
    }

    /// The regions in files: place, user, region, number.
    pub(crate) fn brought_regions(&mut self) -> Vec<(FilePlace, u32, Arc<Region>, u32)> {
        self.regions.retain(|r| r.region.strong_count() > 0);
        let found = |r: &RegionEntry| Some((r.file?, r.uid, r.region.upgrade()?, r.id));
        self.regions.iter().filter_map(found).collect()
    }

    /// Whether a region is that user's.
    pub(crate) fn is_owner(&self, id: u32, uid: u32) -> bool {
        self.regions.iter().any(|r| (r.id, r.uid) == (id, uid) && r.region.strong_count() > 0)
    }

    /// A number that no region has.
    pub(crate) fn new_region_id(&mut self) -> u32 {
        let id = self.next_region;
        self.next_region = id.checked_add(1).unwrap_or(COMMON_REGION + 1);
        id
    }

    /// The region with that number, if `uid` may use it.
    ///
    /// # Errors
    /// [`Refusal`]: `EINVAL` when there is none, `EACCES` when it is somebody else's.
    pub fn region(&mut self, id: u32, uid: u32) -> Result<Arc<Region>, Refusal> {
        if id == COMMON_REGION {
            return self.common_region(uid, RegionSizes::COMMON);
        }
        let none =
            || Refusal::new(Errno::INVAL, format!("there is no memory region {id}: 'netvale show PORT' names regions"));
        let entry = self.regions.iter().find(|r| r.id == id).ok_or_else(none)?;
        // Whose memory lies in another user's file is at that user's mercy.
        if (uid != 0 || entry.file.is_some()) && uid != entry.uid {
            return Err(Refusal::new(Errno::ACCESS, format!("memory region {id} belongs to another user")));
        }
        entry.region.upgrade().ok_or_else(none)
    }

    /// Region 1 of a user: the one that network interfaces share; made, of that size, when it is first used.
    ///
    /// # Errors
    /// [`Refusal`] when there is no memory.
    pub(crate) fn common_region(&mut self, uid: u32, sizes: RegionSizes) -> Result<Arc<Region>, Refusal> {
        if let Some(region) = self.known_common_region(uid) {
            return Ok(region);
        }
        self.regions.retain(|r| r.region.strong_count() > 0);
        let region = Region::shared(&format!("netvale-{COMMON_REGION}"), sizes, Pages::Ordinary)?;
        self.keep_region(COMMON_REGION, uid, &region, None);
        Ok(region)
    }

    /// Region 1 of a user, if it is in use.
    pub(crate) fn known_common_region(&self, uid: u32) -> Option<Arc<Region>> {
        self.regions.iter().find_map(|r| if r.id == COMMON_REGION && r.uid == uid { r.region.upgrade() } else { None })
    }

    /// Puts a port on its switch and its ingresses on workers.
    ///
    /// # Errors
    /// [`Refusal`] when the name is taken or the switch is full.
    pub fn plug(
        &mut self,
        switch_name: &str,
        port_name: &str,
        mut egress: Vec<Arc<dyn Egress>>,
        ingresses: Vec<Box<dyn Ingress>>,
        record: NewPort,
    ) -> Result<&mut PortRecord, Refusal> {
        let full = format!("{switch_name}:{port_name}");
        let switch = self.switch(switch_name)?;
        if record.gro {
            egress = egress.into_iter().map(|e| Arc::new(GroEgress::new(e)) as Arc<dyn Egress>).collect();
        }
        let port = Port { name: port_name.to_owned(), egresses: egress.clone(), lossless: record.lossless };
        let id = switch.attach(port)?;
        let ingress = ingresses.iter().map(|i| Arc::clone(i.counters())).collect();
        let placed = ingresses
            .into_iter()
            .enumerate()
            .map(|(ring, i)| self.place(Box::new(Forwarder::new(Arc::clone(&switch), id, ring, i))))
            .collect();
        let NewPort { kind, owner, persistent, lossless, .. } = record;
        let egress = egress.iter().map(|e| Arc::clone(e.counters())).collect();
        let (switch, id) = (Some(switch), Some(id));
        let base = PortRecord::new(kind, owner);
        let record = PortRecord { switch, id, persistent, lossless, placed, ingress, egress, ..base };
        tracing::info!(port = full, uid = owner.uid, pid = owner.pid, "attached");
        Ok(self.ports.entry(full).or_insert(record))
    }

    /// Gives a task to the worker with the fewest.
    pub(crate) fn place(&mut self, task: Job) -> Placed {
        let load = |w: &Worker| w.stats().ingresses.load(std::sync::atomic::Ordering::Relaxed);
        let worker = (0..self.workers.len()).min_by_key(|&i| load(&self.workers[i])).unwrap_or(0);
        let id = self.next_forwarder;
        self.next_forwarder += 1;
        if let Some(w) = self.workers.get(worker) {
            w.add(id, task);
        }
        Placed { id, worker }
    }

    /// Takes a port off its switch, with a reason for the log.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such port.
    pub fn unplug(&mut self, full: &str, why: &str) -> Result<(), Refusal> {
        let missing = || Refusal::new(Errno::NXIO, format!("there is no port {full}: 'netvale list' shows the ports"));
        let record = self.ports.remove(full).ok_or_else(missing)?;
        match (&record.switch, record.id) {
            _ if record.watching.is_some() => self.watch_no_more(full, &record),
            (Some(switch), Some(id)) => switch.detach(id),
            (Some(_), None) => {}
            (None, _) => self.pass_no_more(full),
        }
        self.end_monitors(&Watched::Port(full.to_owned()));
        self.retire(&record.placed);
        if let Kind::Local(l) | Kind::Monitor(l) = &record.kind {
            self.end_mirrors(&l.rings.mem);
            self.evicted.extend(l.tx_held.iter().chain(&l.rx_held).flat_map(Holders::clients));
        }
        record.device().and_then(|device| device.ptnet.as_ref()).into_iter().for_each(PtnetPort::let_go);
        tracing::info!(port = full, why, "detached");
        if let Some(switch) = &record.switch {
            self.drop_if_empty(switch);
        }
        self.close_captures(record);
        Ok(())
    }

    /// A switch without ports goes.
    pub(crate) fn drop_if_empty(&mut self, switch: &Switch) {
        if switch.ports().is_empty() {
            // A monitor may outlive its switch for a moment, in which there is another one of that name.
            self.switches.retain(|_, known| !std::ptr::eq(Arc::as_ptr(known), switch));
        }
    }

    /// Takes tasks away from their workers; when this returns they are gone, and what they had is free, unless a worker is very busy.
    pub(crate) fn retire(&self, tasks: &[Placed]) {
        let workers = tasks.iter().filter_map(|p| Some((self.workers.get(p.worker)?, p.id)));
        let answers: Vec<_> = workers
            .map(|(w, id)| {
                w.remove(id);
                w.drain(id)
            })
            .collect();
        for answer in answers {
            let _ = answer.recv_timeout(PATIENCE);
        }
    }

    /// Waits until what a port's client left in its tx rings has been forwarded: it was sent, also if the client ended at once.
    pub fn drain(&self, full: &str) {
        let Some(record) = self.ports.get(full) else { return };
        let workers = record.placed.iter().filter_map(|p| Some((self.workers.get(p.worker)?, p.id)));
        let answers: Vec<_> = workers.map(|(w, id)| w.drain(id)).collect();
        for answer in answers {
            let _ = answer.recv_timeout(PATIENCE);
        }
    }

    /// Ageing of the forwarding tables. Returns when to call it again.
    pub fn tick(&mut self, now: Instant) -> Duration {
        let length = Fdb::tick_length(self.config.ageing);
        if now >= self.next_tick {
            self.switches.values().for_each(|s| s.fdb().advance());
            self.next_tick = now + length;
        }
        self.next_tick.saturating_duration_since(now)
    }
}

/// What [`State::plug`] is told of a new port beside its queues.
pub struct NewPort {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub owner: Caller,
    /// Stays when nobody holds its rings.
    pub persistent: bool,
    /// Holds senders back.
    pub lossless: bool,
    /// TCP segments that follow one another are merged for it.
    pub gro: bool,
}

impl NewPort {
    /// A device, attached as `o` says.
    pub fn device(device: Device, owner: Caller, o: &PortOptions) -> NewPort {
        NewPort { kind: Kind::Device(Box::new(device)), owner, persistent: true, lossless: o.lossless, gro: o.gro }
    }
}
