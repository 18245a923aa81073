//! Monitors: copies of what passes another port, for one program, ring by ring as netmap has them.

use std::ops::Range;
use std::sync::Arc;

use netvale_control::attach::{AttachReply, AttachRequest, Role};
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RegionSizes};
use netvale_mem::mapping::Pages;
use netvale_mem::mirror::Moment;
use netvale_mem::{PortShape, Region};
use netvale_port::Egress;
use netvale_port::ring_out::{RingEgress, SentCopies};
use netvale_portspec::{Base, Directions, Memory, Monitor, PortSpec, Rings as RingsSpec};
use netvale_switch::{MonitorRings, Switch};
use rustix::io::Errno;

use crate::holders::Holders;
use crate::open::{Attachment, Opened, check_owner, refuse};
use crate::pipes::end_index;
use crate::refusal::Refusal;
use crate::rings::Rings;
use crate::sizes::DEFAULT_SLOTS;
use crate::state::{Caller, Kind, LocalPort, PortRecord, State};
use crate::{nic_facts, offsets};

/// Tx rings of a monitor, from which nothing is taken: netmap gives it one.
const TX_RINGS: u32 = 1;
/// Most slots of its rings (netmap's limit), and fewest.
const SLOTS: std::ops::RangeInclusive<u32> = 2..=4096;

/// What a monitor watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A port of a switch, by its full name.
    Port(String),
    /// An interface on a switch, by that port's full name: what the port sends, the interface has received.
    Wire(String),
    /// An end of a pipe.
    Pipe(String, usize),
    /// An interface that programs have open.
    Nic(String),
}

/// What a monitor watches, and where the copies go.
#[derive(Clone)]
pub(crate) struct Watching {
    pub(crate) what: Watched,
    /// Frames are seen when their slots are given back.
    released: bool,
    sent: MonitorRings,
    received: MonitorRings,
}

/// What is known of a port that is to be watched.
struct Parent {
    watched: Watched,
    /// Its name, as programs have it.
    name: String,
    /// Its rings, of the direction that has more of them.
    rings: u32,
    /// Host rings that can be watched.
    host: u32,
    tx_slots: u32,
    rx_slots: u32,
    hdr_len: u32,
    buf_size: u32,
    /// The region that its rings lie in, if it has rings.
    memory: Option<(Arc<Region>, u32)>,
}

/// A monitor's rings, host rings included, and those of them that a specification names.
struct Wanted {
    host: u32,
    tx: Range<u32>,
    rx: Range<u32>,
}

impl Wanted {
    fn new(spec: &PortSpec, parent: &Parent) -> Result<Wanted, Refusal> {
        let n = parent.rings;
        let (tx, rx) = match spec.rings {
            RingsSpec::AllNic => (0..TX_RINGS, 0..n),
            RingsSpec::OneNic(i) if u32::from(i.get()) < n => (0..TX_RINGS, u32::from(i.get())..u32::from(i.get()) + 1),
            RingsSpec::OneNic(i) => {
                return refuse(Errno::INVAL, format!("ring {} asked for; {} has {n}, from 0", i.get(), parent.name));
            }
            _ if parent.host == 0 => return refuse(Errno::INVAL, format!("{} has no host rings", parent.name)),
            RingsSpec::OneHost(i) if u32::from(i.get()) < parent.host => {
                let i = u32::from(i.get());
                (TX_RINGS + i..TX_RINGS + i + 1, n + i..n + i + 1)
            }
            RingsSpec::OneHost(i) => {
                return refuse(Errno::INVAL, format!("host ring {} asked for; there are {}", i.get(), parent.host));
            }
            RingsSpec::AllHost => (TX_RINGS..TX_RINGS + parent.host, n..n + parent.host),
            RingsSpec::NicAndHost => (0..TX_RINGS + parent.host, 0..n + parent.host),
        };
        let host = if tx.end > TX_RINGS { parent.host } else { 0 };
        Ok(match spec.flags.directions {
            Directions::Both => Wanted { host, tx, rx },
            Directions::Tx => Wanted { host, tx, rx: 0..0 },
            Directions::Rx => Wanted { host, tx: 0..0, rx },
        })
    }
}

/// As netmap has it: too few are the usual number, too many the most there can be.
fn slots(asked: u32, usual: u32) -> u32 {
    if asked == 0 { usual.clamp(*SLOTS.start(), *SLOTS.end()) } else { asked.clamp(*SLOTS.start(), *SLOTS.end()) }
}

/// What a monitor's rings are told: those that it has bound, of `all` there are.
fn bound(
    rings: &[Arc<RingEgress>],
    bound: &Range<u32>,
    of: impl Fn(&Arc<RingEgress>) -> Arc<dyn Egress>,
) -> MonitorRings {
    rings.iter().enumerate().map(|(i, ring)| bound.contains(&(i as u32)).then(|| of(ring))).collect()
}

impl State {
    /// Opens a monitor of the port that `spec` names.
    pub(crate) fn open_monitor(
        &mut self,
        request: &AttachRequest,
        spec: &PortSpec,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        if let Memory::Id(id) = spec.memory {
            // A monitor of copies has memory of its own, one without copying the port's; but what is named has to be there.
            self.region(id.get().into(), caller.uid)?;
        }
        let parent = self.parent(spec, caller)?;
        let flags = spec.flags.monitor.ok_or_else(|| Refusal::internal("no monitor"))?;
        let directions = if flags.zero_copy { Directions::Both } else { flags.directions };
        let wanted = Wanted::new(spec, &parent)?;
        let rings = self.monitor_rings(request, (spec, flags.zero_copy), (&parent, &wanted), caller)?;
        let Wanted { tx, rx, .. } = wanted;
        let max_offset = match &request.offsets {
            // netmap's shares the buffers of the port it watches.
            Some(_) if flags.zero_copy => return offsets::unsupported("a zero-copy monitor"),
            Some(asked) => offsets::begin(asked, &offsets::rings(&rings.mem, (&tx, &rx), |_, _| true))?,
            None => 0,
        };
        let binding = rings.mem.bind(&self.monitor_name(&parent, flags), tx.clone(), rx.clone(), request.extra_bufs)?;
        let (reply, fds) = rings.reply(binding.nifp(), binding.extra_bufs(), tx.clone(), rx.clone())?;
        let full = format!("{}/monitor-{}", parent.name, caller.client);
        let egress = |on: bool| if on { rings.rx.as_slice() } else { &[] };
        let sent = bound(egress(directions != Directions::Rx), &rx, |e| Arc::new(SentCopies(Arc::clone(e))));
        let received = bound(egress(directions != Directions::Tx), &rx, |e| Arc::clone(e) as Arc<dyn Egress>);
        let watching = Watching { what: parent.watched, released: flags.zero_copy, sent, received };
        let switch = self.watch(&watching, &full)?;
        tracing::info!(port = full, uid = caller.uid, pid = caller.pid, "opened");
        self.ports.insert(full.clone(), record(rings, watching, switch, caller));
        let reply = AttachReply { alone: true, role: Role::Monitor, max_offset, ..reply };
        Ok((reply, fds, Attachment::Local { port: full, tx, rx, binding }))
    }

    /// The rings of a monitor: without copying in the region of the port, as far as it has one, otherwise in a region of its own.
    fn monitor_rings(
        &mut self,
        request: &AttachRequest,
        (spec, zero_copy): (&PortSpec, bool),
        (parent, wanted): (&Parent, &Wanted),
        caller: Caller,
    ) -> Result<Rings, Refusal> {
        let shape = PortShape {
            tx_rings: TX_RINGS + wanted.host,
            rx_rings: parent.rings + wanted.host,
            tx_slots: slots(spec.conf.tx_slots.max(request.tx_slots), parent.tx_slots),
            rx_slots: slots(spec.conf.rx_slots.max(request.rx_slots), parent.rx_slots),
        };
        let (region, mem_id) = match parent.memory.clone().filter(|_| zero_copy) {
            Some(shared) => shared,
            None => {
                let buf_size = if request.buf_size == 0 { parent.buf_size } else { request.buf_size };
                let (rings, most) = (shape.tx_rings + shape.rx_rings, shape.tx_slots.max(shape.rx_slots));
                let sizes = RegionSizes::for_port(rings, most, buf_size, 0, request.extra_bufs.min(1 << 20));
                self.new_region(sizes, Pages::Ordinary, caller.uid)?
            }
        };
        let all = (0..shape.tx_rings, 0..shape.rx_rings);
        let mem = Arc::new(region.port_in_part(shape, (wanted.host, wanted.host), (&all.0, &all.1))?);
        let (rings, _takes_nothing) = Rings::of(mem, mem_id, parent.hdr_len, self.new_fault())?;
        rings.mem.tx.iter().for_each(|side| netvale_mem::notify::disarm(side.csb.kern_need_kick()));
        Ok(rings)
    }

    /// The name in a monitor's `netmap_if`, made as netmap makes it.
    fn monitor_name(&self, parent: &Parent, flags: Monitor) -> String {
        let others = self.ports.values().filter_map(|record| record.watching.as_ref());
        let number = others.filter(|watching| watching.what == parent.watched).count();
        let name = parent.name.strip_prefix("netmap:").unwrap_or(&parent.name);
        let letter = |on: bool, letter: &'static str| if on { letter } else { "" };
        let (z, both) = (flags.zero_copy, flags.zero_copy || flags.directions == Directions::Both);
        let r = letter(both || flags.directions == Directions::Rx, "r");
        let t = letter(both || flags.directions == Directions::Tx, "t");
        format!("{name}/{}{r}{t}#{number}", letter(z, "z"))
    }

    /// The port that is to be watched. As in netmap it has to be there, and in use.
    fn parent(&mut self, spec: &PortSpec, caller: Caller) -> Result<Parent, Refusal> {
        if let Some(pipe) = spec.name.pipe() {
            let key = format!("{}{{{}", spec.name.base(), pipe.id);
            return self.parent_pipe(&spec.name.to_string(), key, end_index(pipe.end), caller);
        }
        match spec.name.base() {
            Base::Vale { switch, port } => self.parent_port(&format!("{switch}:{port}"), caller),
            Base::Netmap { ifname } if self.newifs.contains_key(ifname.as_str()) => {
                let place = self.own_place(ifname.as_str()).unwrap_or_default();
                self.parent_port(&place, caller)
            }
            Base::Netmap { ifname } => self.parent_nic(ifname.as_str(), caller),
        }
    }

    fn parent_port(&self, full: &str, caller: Caller) -> Result<Parent, Refusal> {
        let idle = || format!("there is no port {full} in use that could be watched: 'netvale list' shows the ports");
        let record = self.ports.get(full).ok_or_else(|| Refusal::new(Errno::INVAL, idle()))?;
        check_owner(record, full, caller)?;
        let (watched, hdr_len) = (Watched::Port(full.to_owned()), record.hdr_len());
        match &record.kind {
            Kind::Local(local) if local.is_unheld() && !self.is_joined(full) => refuse(Errno::INVAL, idle()),
            Kind::Local(local) => {
                let (shape, region) = (local.rings.mem.shape(), local.rings.mem.region());
                let memory = Some((Arc::clone(region), local.rings.mem_id));
                Ok(Parent { hdr_len, memory, ..Parent::of_rings(watched, full, region, shape) })
            }
            Kind::Device(_) => Ok(Parent {
                watched,
                name: full.to_owned(),
                rings: record.ingress.len().max(record.egress.len()).max(1) as u32,
                host: 0,
                tx_slots: DEFAULT_SLOTS,
                rx_slots: DEFAULT_SLOTS,
                hdr_len,
                buf_size: DEFAULT_BUF_SIZE,
                memory: None,
            }),
            Kind::Monitor(_) => refuse(Errno::INVAL, format!("{full} is a monitor")),
        }
    }

    fn parent_pipe(&self, name: &str, key: String, end: usize, caller: Caller) -> Result<Parent, Refusal> {
        let in_use = self.pipes.get(&key).filter(|pipe| !pipe.held_by[end].is_empty() || pipe.passed().is_some());
        let Some(pipe) = in_use else {
            return refuse(Errno::INVAL, format!("nobody has {name} open: there is nothing to watch"));
        };
        if caller.uid != 0 && caller.uid != pipe.uid {
            return refuse(Errno::ACCESS, format!("pipe {key} belongs to another user"));
        }
        if pipe.passed().is_some() {
            return refuse(
                Errno::OPNOTSUPP,
                format!("an end of pipe {key} is a virtual machine's: it has no monitors"),
            );
        }
        let (mem, mem_id) = (pipe.end(end), pipe.mem_id);
        Ok(Parent {
            memory: Some((Arc::clone(mem.region()), mem_id)),
            ..Parent::of_rings(Watched::Pipe(key, end), name, mem.region(), mem.shape())
        })
    }

    fn parent_nic(&mut self, ifname: &str, caller: Caller) -> Result<Parent, Refusal> {
        if netvale_guest::passed::device_of(ifname).is_some() {
            return refuse(Errno::OPNOTSUPP, format!("{ifname} is a ptnet device: the host's port can be watched"));
        }
        nic_facts::find(ifname)?;
        if let Some(port) = self.nics.port_on(ifname) {
            if caller.uid != 0 && caller.uid != port.owner.uid {
                return refuse(Errno::ACCESS, format!("{ifname} is open for user {}", port.owner.uid));
            }
            let (mem, queues) = (&port.mem, port.nic.interface().queues);
            let parent = Parent::of_rings(
                Watched::Nic(ifname.to_owned()),
                &format!("netmap:{ifname}"),
                mem.region(),
                mem.shape(),
            );
            let memory = Some((Arc::clone(mem.region()), port.mem_id));
            let (host_tx, host_rx) = mem.host_rings();
            return Ok(Parent { rings: queues, host: host_tx.max(host_rx).max(1), memory, ..parent });
        }
        let Some(full) = self.switch_port_on(ifname).map(str::to_owned) else {
            return refuse(Errno::INVAL, format!("nobody has {ifname} open: there is nothing to watch"));
        };
        Ok(Parent { watched: Watched::Wire(full.clone()), ..self.parent_port(&full, caller)? })
    }

    /// Has what is sent and received copied to a monitor's rings. Returns the switch of the port, if it is on one.
    fn watch(&mut self, watching: &Watching, full: &str) -> Result<Option<Arc<Switch>>, Refusal> {
        let Watching { what, sent, received, .. } = watching;
        let done = match what {
            Watched::Port(port) => self.watch_port(port, full, watching).map(Some),
            Watched::Wire(port) => self.watch_device(port, full, received.clone(), sent.clone()).map(Some),
            Watched::Pipe(key, end) => self.watch_pipe((key, *end), full, watching).map(|()| None),
            Watched::Nic(ifname) => {
                let open = self.nics.ports.iter().filter(|(_, port)| port.nic.interface().name == *ifname);
                let clients: Vec<u64> = open.map(|(client, _)| *client).collect();
                clients.into_iter().try_for_each(|client| self.watch_nic(client, full, watching)).map(|()| None)
            }
        };
        if done.is_err() {
            self.mirror_no_more(full);
        }
        done
    }

    /// A switch's workers copy what a port sends, which is given back at once, and what it receives; what it gives back is copied by its
    /// program.
    fn watch_port(&mut self, port: &str, full: &str, watching: &Watching) -> Result<Arc<Switch>, Refusal> {
        let Watching { sent, received, .. } = watching;
        let local = match self.ports.get(port).map(|record| &record.kind) {
            Some(Kind::Local(local)) if watching.released && !self.is_joined(port) => Arc::clone(&local.rings.mem),
            _ => return self.watch_device(port, full, sent.clone(), received.clone()),
        };
        for (side, to) in local.rx.iter().zip(received).filter_map(|(side, to)| Some((side, to.as_ref()?))) {
            self.mirror(local.region(), (side, Moment::Released), (full, to))?;
        }
        self.watch_device(port, full, sent.clone(), MonitorRings::new())
    }

    fn watch_device(
        &self,
        port: &str,
        full: &str,
        sent: MonitorRings,
        received: MonitorRings,
    ) -> Result<Arc<Switch>, Refusal> {
        let on = self.ports.get(port).and_then(|record| record.switch.clone());
        let on = on.ok_or_else(|| Refusal::new(Errno::INVAL, format!("{port} is on no switch")))?;
        let (_, name) = port.split_once(':').ok_or_else(|| Refusal::internal("a port without a switch"))?;
        on.monitor(name, full, sent, received)?;
        Ok(on)
    }

    /// Copies are made by the ends: as the one sends, or as the other gives back what it has received.
    fn watch_pipe(&mut self, (key, end): (&str, usize), full: &str, watching: &Watching) -> Result<(), Refusal> {
        let pipe = self.pipes.get(key).ok_or_else(|| Refusal::internal("a pipe vanished"))?;
        let region = Arc::clone(pipe.end(end).region());
        let (own, other) = (pipe.end(end), pipe.end(end ^ 1));
        let (sent, received, moment) = match watching.released {
            false => (own.tx.first(), other.tx.first(), Moment::Passing),
            true => (other.rx.first(), own.rx.first(), Moment::Released),
        };
        let ways = [(sent.cloned(), &watching.sent), (received.cloned(), &watching.received)];
        ways.into_iter().try_for_each(|(side, to)| match (side, to.first().and_then(Option::as_ref)) {
            (Some(side), Some(to)) => self.mirror(&region, (&side, moment), (full, to)),
            _ => Ok(()),
        })
    }

    /// Copies are made by whoever moves an interface's frames: the program, and, of its host rings, our workers, which give back at once what
    /// they have sent.
    fn watch_nic(&mut self, client: u64, full: &str, watching: &Watching) -> Result<(), Refusal> {
        let port = self.nics.ports.get(&client).ok_or_else(|| Refusal::internal("an interface vanished"))?;
        let (mem, queues) = (Arc::clone(&port.mem), port.nic.interface().queues as usize);
        let ways = [(&mem.tx, port.tx.clone(), &watching.sent), (&mem.rx, port.rx.clone(), &watching.received)];
        for (is_rx, (sides, bound, to)) in [false, true].into_iter().zip(ways) {
            let rings = sides.iter().zip(to).enumerate().filter(|(i, _)| bound.contains(&(*i as u32)));
            for (i, side, to) in rings.filter_map(|(i, (side, to))| Some((i, side, to.as_ref()?))) {
                let late = watching.released && (is_rx || i < queues);
                let moment = if late { Moment::Released } else { Moment::Passing };
                self.mirror(mem.region(), (side, moment), (full, to))?;
            }
        }
        Ok(())
    }

    /// A program has opened rings of an interface that is watched.
    pub(crate) fn watch_too(&mut self, ifname: &str, client: u64) {
        let what = Watched::Nic(ifname.to_owned());
        let watches = |record: &PortRecord| record.watching.as_ref().filter(|watching| watching.what == what).cloned();
        let monitors = self.ports.iter().filter_map(|(full, record)| Some((full.clone(), watches(record)?)));
        for (full, watching) in monitors.collect::<Vec<_>>() {
            if let Err(why) = self.watch_nic(client, &full, &watching) {
                tracing::warn!(monitor = full, "does not see all of {ifname}: {why}");
            }
        }
    }

    /// A monitor is gone: nothing is copied for it any more.
    pub(crate) fn watch_no_more(&mut self, full: &str, record: &PortRecord) {
        if let Some(switch) = &record.switch {
            switch.unmonitor(full);
        }
        self.mirror_no_more(full);
    }

    /// A port is gone, or nobody has it open any more: its monitors end, as netmap's do when the port leaves netmap mode.
    pub(crate) fn end_monitors(&mut self, gone: &Watched) {
        let ended = |record: &&PortRecord| record.watching.as_ref().is_some_and(|watching| watching.what.is(gone));
        let holders = self.ports.values().filter(ended).filter_map(|record| match &record.kind {
            Kind::Monitor(local) => Some(local.rx_held.iter().flat_map(Holders::clients)),
            _ => None,
        });
        let evicted: Vec<u64> = holders.flatten().collect();
        self.evicted.extend(evicted);
    }
}

impl Watched {
    /// The same, or the same port by another name.
    fn is(&self, other: &Watched) -> bool {
        self == other || matches!((self, other), (Watched::Wire(own), Watched::Port(full)) if own == full)
    }
}

impl Parent {
    /// A port with rings in a region.
    fn of_rings(watched: Watched, name: &str, region: &Region, shape: PortShape) -> Parent {
        Parent {
            watched,
            name: name.to_owned(),
            rings: shape.tx_rings.max(shape.rx_rings),
            host: 0,
            tx_slots: shape.tx_slots,
            rx_slots: shape.rx_slots,
            hdr_len: 0,
            buf_size: region.layout().sizes.bufs.size.max(DEFAULT_BUF_SIZE),
            memory: None,
        }
    }
}

fn record(rings: Rings, watching: Watching, switch: Option<Arc<Switch>>, owner: Caller) -> PortRecord {
    let mut held = Holders::default();
    held.add(owner.client, false);
    let egress = rings.rx.iter().map(|e| Arc::clone(e.counters())).collect();
    let kind = Kind::Monitor(LocalPort { rings, tx_held: Vec::new(), rx_held: vec![held] });
    PortRecord { switch, egress, watching: Some(watching), persistent: false, ..PortRecord::new(kind, owner) }
}

/// What the client of a monitor is told: nobody takes what it sends.
pub(crate) fn as_monitor(record: &PortRecord, reply: AttachReply) -> AttachReply {
    match record.watching {
        Some(_) => AttachReply { role: Role::Monitor, ..reply },
        None => reply,
    }
}
