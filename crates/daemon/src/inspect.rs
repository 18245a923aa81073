//! What the daemon tells of its ports: snapshots for `list`, `show`, `top`.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use netvale_control::types::{
    Direction, Drops, Mac, Owner, PortInfo, PortKind, PortState, PortStats, RegionInfo, RingInfo, StatsReply,
    SwitchInfo, TableEntry, WorkerStats,
};
use netvale_mem::Region;
use netvale_mem::region::RingSide;
use netvale_port::RingCounters;
use netvale_switch::Fdb;

use crate::devices::Device;
use crate::holders::Holders;
use crate::nic_port::NicPort;
use crate::pipes::Pipe;
use crate::rings::Rings;
use crate::state::{Kind, PortRecord, State};
use crate::{e1000s, ptnets, vhosts};

impl PortRecord {
    fn port_kind(&self) -> PortKind {
        match &self.kind {
            Kind::Local(_) => PortKind::Local,
            Kind::Monitor(_) => PortKind::Monitor,
            Kind::Device(d) => d.kind,
        }
    }

    fn port_state(&self) -> PortState {
        match &self.kind {
            Kind::Local(l) | Kind::Monitor(l) if l.is_unheld() => PortState::Idle,
            _ => PortState::Open,
        }
    }

    /// Over all its rings.
    fn drops(&self) -> Drops {
        let ingress = self.ingress.iter().map(AsRef::as_ref);
        let counters = ingress.chain(self.egress.iter().map(AsRef::as_ref));
        let mut sum = Drops::new();
        for (why, n) in counters.flat_map(RingCounters::all_drops) {
            *sum.entry(why.name().to_owned()).or_default() += n;
        }
        sum
    }

    /// Its rings, if it has rings that programs open.
    pub fn rings(&self) -> Option<&Rings> {
        match &self.kind {
            Kind::Local(l) | Kind::Monitor(l) => Some(&l.rings),
            Kind::Device(_) => None,
        }
    }

    /// Without its rings.
    fn summary(&self, name: &str) -> PortInfo {
        let region = self.rings().map(|r| region_info(r.mem.region(), r.mem_id));
        PortInfo {
            name: name.to_owned(),
            switch: self.switch.as_ref().map(|switch| switch.name().to_owned()),
            kind: self.port_kind(),
            state: self.port_state(),
            owner: Some(Owner { uid: self.owner.uid, pid: self.owner.pid }),
            region,
            vnet_hdr: self.hdr_len(),
            lossless: self.lossless,
            drops: self.drops(),
            rings: Vec::new(),
            vhost: self.device().and_then(|d| d.vhost.as_ref()).map(vhosts::info),
            ptnet: self.device().and_then(|d| d.ptnet.as_ref()).map(ptnets::info),
            e1000: self.device().and_then(|d| d.e1000.as_ref()).map(e1000s::info),
            notes: Vec::new(),
        }
    }

    /// With its rings.
    pub fn info(&self, name: &str) -> PortInfo {
        let mut info = self.summary(name);
        let ingress = self.ingress.iter().enumerate().map(|(i, c)| self.ring_in(i, c));
        let egress = self.egress.iter().enumerate().map(|(i, c)| self.ring_out(i, c));
        info.rings = ingress.chain(egress).collect();
        info.notes = self.notes();
        info
    }

    fn ring_in(&self, i: usize, counters: &RingCounters) -> RingInfo {
        let base = RingInfo { dir: Direction::In, index: i as u32, ..counted(counters) };
        let worker = self.placed.get(i).map(|p| p.worker as u32);
        let Some(tx) = self.rings().and_then(|r| r.tx.get(i)) else {
            let (kicks_sent, kicks_suppressed, kicks_received) = self.ptnet_kicks(Direction::In, i);
            return RingInfo { worker, kicks_sent, kicks_suppressed, kicks_received, ..base };
        };
        RingInfo {
            kicks_sent: tx.kicks.sent(),
            kicks_suppressed: tx.kicks.suppressed(),
            kicks_received: tx.kicks.received(),
            worker,
            ..with_indices(base, &tx.side)
        }
    }

    fn ring_out(&self, i: usize, counters: &RingCounters) -> RingInfo {
        let base = RingInfo { dir: Direction::Out, index: i as u32, ..counted(counters) };
        let Some(rx) = self.rings().and_then(|r| r.rx.get(i)) else {
            let (kicks_sent, kicks_suppressed, _) = self.ptnet_kicks(Direction::Out, i);
            return RingInfo { kicks_sent, kicks_suppressed, ..base };
        };
        let (kicks, side) = (rx.host().kicks(), rx.host().side());
        RingInfo { kicks_sent: kicks.sent(), kicks_suppressed: kicks.suppressed(), ..with_indices(base, side) }
    }

    /// Of a ptnet device's ring: interrupts sent and saved, and kicks got. Zero elsewhere.
    fn ptnet_kicks(&self, dir: Direction, i: usize) -> (u64, u64, u64) {
        let ptnet = self.device().and_then(|d| d.ptnet.as_ref());
        ptnet.map_or((0, 0, 0), |p| p.ring_kicks(dir == Direction::In, i))
    }

    /// Warnings: what an application did to its rings that will cost it frames.
    fn notes(&self) -> Vec<String> {
        let mut uses: BTreeMap<u32, u32> = BTreeMap::new();
        let sides = self.rings().into_iter().flat_map(|r| r.mem.tx.iter().chain(&r.mem.rx));
        for side in sides {
            (0..side.ring.num_slots()).for_each(|s| *uses.entry(side.ring.slot_word(s).buf_idx).or_default() += 1);
        }
        let bufs = self.rings().map_or(u32::MAX, |r| r.mem.region().layout().sizes.bufs.num);
        let twice = uses.values().filter(|&&n| n > 1).count();
        let outside = uses.keys().filter(|&&b| b < netvale_mem::layout::RESERVED_BUFS || b >= bufs).count();
        let mut notes = Vec::new();
        if twice > 0 {
            notes.push(format!("{twice} buffers are named by more than one slot: their frames overwrite each other"));
        }
        if outside > 0 {
            notes.push(format!("slots name {outside} buffers outside the pool: frames for them are dropped"));
        }
        notes.extend(self.device().into_iter().flat_map(Device::notes));
        notes
    }

    fn stats(&self, name: &str) -> PortStats {
        let info = self.info(name);
        let mut s = PortStats { name: info.name, switch: info.switch, kind: info.kind, ..PortStats::default() };
        for r in &info.rings {
            let (frames, bytes) = match r.dir {
                Direction::In => (&mut s.in_frames, &mut s.in_bytes),
                Direction::Out => (&mut s.out_frames, &mut s.out_bytes),
            };
            *frames += r.frames;
            *bytes += r.bytes;
            s.drops += r.drops.values().sum::<u64>();
            s.kicks_sent += r.kicks_sent;
            s.kicks_suppressed += r.kicks_suppressed;
            s.kicks_received += r.kicks_received;
        }
        if let Some(vhost) = self.device().and_then(|d| d.vhost.as_ref()) {
            // Virtqueues have calls and kicks.
            (s.kicks_sent, s.kicks_received) = vhost.notifications();
        }
        if let Some(e1000) = &info.e1000 {
            // Every register access is one, and what it sends are interrupts.
            (s.kicks_sent, s.kicks_received) = (e1000.interrupts, e1000.register_reads + e1000.register_writes);
        }
        s
    }
}

pub(crate) fn region_info(region: &Region, id: u32) -> RegionInfo {
    let (layout, bufs) = (region.layout(), region.layout().sizes.bufs);
    RegionInfo { id, bytes: layout.total, buf_size: bufs.size, bufs: bufs.num, huge: region.is_huge() }
}

pub(crate) fn counted(c: &RingCounters) -> RingInfo {
    let drops: Drops = c.all_drops().map(|(why, n)| (why.name().to_owned(), n)).collect();
    RingInfo { frames: c.frames(), bytes: c.bytes(), drops, ..RingInfo::default() }
}

pub(crate) fn with_indices(info: RingInfo, side: &RingSide) -> RingInfo {
    RingInfo {
        slots: side.ring.num_slots(),
        head: side.csb.head(),
        cur: side.csb.cur(),
        tail: side.ring.indices().2,
        hwcur: side.csb.hwcur(),
        hwtail: side.csb.hwtail(),
        ..info
    }
}

impl State {
    /// All switches.
    pub fn list_switches(&self) -> Vec<SwitchInfo> {
        let info = |s: &std::sync::Arc<netvale_switch::Switch>| SwitchInfo {
            name: s.name().to_owned(),
            ports: s.ports().len() as u32,
            addresses: s.fdb().entries().len() as u64,
            table_size: s.fdb().capacity() as u64,
        };
        self.switches.values().map(info).collect()
    }

    /// A switch's forwarding table; none when there is no such switch.
    pub fn list_table(&self, switch: &str) -> Option<Vec<TableEntry>> {
        let s = self.switches.get(switch)?;
        let names: BTreeMap<_, _> = s.ports().into_iter().collect();
        let tick = Fdb::tick_length(self.config.ageing).as_millis() as u64;
        let entry = |e: netvale_switch::FdbEntry| {
            let [a, b, c, d, f, g, ..] = e.mac.to_le_bytes();
            let port = names.get(&e.port).map(|port| format!("{switch}:{port}")).unwrap_or_default();
            TableEntry { mac: Mac([a, b, c, d, f, g]), port, age_seconds: u64::from(e.ticks) * tick / 1000 }
        };
        let mut entries: Vec<_> = s.fdb().entries().into_iter().map(entry).collect();
        entries.sort_by_key(|e| e.mac);
        Some(entries)
    }

    /// All ports, or those of one switch, without their rings; pipes are on no switch.
    pub fn list_ports(&self, switch: Option<&str>) -> Vec<PortInfo> {
        let on = |r: &PortRecord| switch.is_none_or(|s| r.switch.as_ref().is_some_and(|on| on.name() == s));
        let mut ports: Vec<_> = self.ports.iter().filter(|(_, r)| on(r)).map(|(n, r)| r.summary(n)).collect();
        if switch.is_none() {
            // A pipe that is passed through is listed as what it is passed through.
            let own = self.pipes.iter().filter(|(_, pipe)| pipe.passed().is_none());
            ports.extend(own.filter_map(|(name, _)| self.show_pipe(name)));
            ports.extend(self.passed.values().filter_map(Weak::upgrade).map(|port| port.info()));
            ports.extend(self.nics.ports.values().map(|port| PortInfo { rings: Vec::new(), ..port.info() }));
        }
        ports
    }

    /// One port with its rings.
    pub fn show(&self, name: &str) -> Option<PortInfo> {
        let pipe = name.replace('}', "{");
        let passed = || self.passed.get(name.strip_prefix("netmap:")?).and_then(Weak::upgrade).map(|port| port.info());
        let nic = || self.nics.ports.values().map(NicPort::info).find(|info| info.name == name);
        let port = || {
            let mut info = self.ports.get(name)?.info(name);
            info.notes.extend(self.pipes.get(&pipe).and_then(Pipe::far_end));
            Some(info)
        };
        let mut info = port().or_else(|| self.show_pipe(&pipe)).or_else(nic).or_else(passed)?;
        info.notes.extend(self.evictions.note_of(name));
        Some(info)
    }

    fn show_pipe(&self, name: &str) -> Option<PortInfo> {
        let pipe = self.pipes.get(name)?;
        let region = pipe.end(0).region();
        let ring = |end: usize, dir, side: &RingSide| {
            with_indices(RingInfo { dir, index: end as u32, ..RingInfo::default() }, side)
        };
        let rings = [0, 1].into_iter().flat_map(|end| {
            let (tx, rx) = (pipe.end(end).tx.first(), pipe.end(end).rx.first());
            tx.map(|s| ring(end, Direction::In, s)).into_iter().chain(rx.map(|s| ring(end, Direction::Out, s)))
        });
        let open = |end: usize| if pipe.held_by[end].is_empty() { "not open" } else { "open" };
        Some(PortInfo {
            name: name.to_owned(),
            kind: PortKind::Pipe,
            state: if pipe.held_by.iter().all(Holders::is_empty) { PortState::Idle } else { PortState::Open },
            owner: Some(Owner { uid: pipe.uid, pid: 0 }),
            region: Some(region_info(region, pipe.mem_id)),
            rings: rings.collect(),
            notes: vec![
                format!("end {{ is {}, end }} is {}", open(0), open(1)),
                "the daemon is not on a pipe's data path: frames are counted by its ends".to_owned(),
            ],
            ..PortInfo::default()
        })
    }

    /// All counters at one moment.
    pub fn stats(&self) -> StatsReply {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let get = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed);
        let worker = |(i, w): (usize, &crate::worker::Worker)| WorkerStats {
            index: i as u32,
            cpu: w.cpu().map(|c| c as u32),
            busy_ns: get(&w.stats().busy_ns),
            polled_ns: get(&w.stats().polled_ns),
            slept_ns: get(&w.stats().slept_ns),
            ingresses: get(&w.stats().ingresses),
        };
        StatsReply {
            now_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
            ports: self.ports.iter().map(|(n, r)| r.stats(n)).collect(),
            workers: self.workers.iter().enumerate().map(worker).collect(),
        }
    }
}
