//! Opening ports for clients: what stands behind the attach handshake.

use std::num::NonZeroU16;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_control::attach::{
    AttachReply, AttachRequest, FLAG_HUGE, FLAG_LOSSLESS, FLAG_NO_HEADER, FLAG_NULL, FLAG_SHARED,
};
use netvale_mem::mapping::Pages;
use netvale_mem::region::Binding;
use netvale_mem::{PortShape, Region};
use netvale_port::{Egress, Ingress};
use netvale_portspec::{Base, Directions, Memory, PortSpec, Rings as RingsSpec};
use rustix::io::Errno;

use crate::holders::Holders;
use crate::passed::Held;
use crate::pipes::{Pipe, end_index};
use crate::refusal::Refusal;
use crate::rings::Rings;
use crate::sizes::Sizes;
use crate::state::{Caller, Kind, LocalPort, NewPort, PortRecord, State};

/// What a connection holds; given back when it closes.
pub enum Attachment {
    /// Rings of a port.
    Local {
        /// Full name of the port.
        port: String,
        /// Tx rings held.
        tx: Range<u32>,
        /// Rx rings held.
        rx: Range<u32>,
        /// Its `netmap_if`.
        binding: Binding,
    },
    /// Rings with nothing behind them.
    Null {
        /// The rings.
        rings: Rings,
        /// Their `netmap_if`.
        binding: Binding,
    },
    /// Rings of a ptnet device of the virtual machine that we run in.
    Passed(Held),
    /// Rings of a network interface.
    Nic {
        /// The connection that opened it.
        client: u64,
        /// Its `netmap_if`.
        binding: Binding,
    },
    /// One end of a pipe.
    Pipe {
        /// Name of the pipe without its end.
        pipe: String,
        /// The end.
        end: usize,
        /// Its `netmap_if`.
        binding: Binding,
    },
}

/// What a client gets: the reply, its descriptors, and what the connection then holds.
pub type Opened = (AttachReply, Vec<OwnedFd>, Attachment);

pub(crate) fn refuse<T>(errno: Errno, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(errno, text))
}

impl State {
    /// Opens a port for a client.
    ///
    /// # Errors
    /// [`Refusal`] with the errno netmap would give.
    pub fn open(&mut self, request: &AttachRequest, caller: Caller) -> Result<Opened, Refusal> {
        if request.flags & FLAG_NULL != 0 {
            return self.open_null(request, caller);
        }
        let mut spec = PortSpec::parse(&request.name).or_else(|e| refuse(Errno::INVAL, format!("{e:#}")))?;
        if let Some(id) = u16::try_from(request.mem_id).ok().and_then(NonZeroU16::new) {
            spec.memory = Memory::Id(id);
        }
        if let Some(pipe) = spec.name.pipe() {
            let (id, end) = (pipe.id.to_string(), end_index(pipe.end));
            return self.open_pipe(request, &spec, &id, end, caller);
        }
        match spec.name.base() {
            Base::Vale { switch, port } if spec.flags.monitor.is_some() => {
                let (switch, port) = (switch.to_string(), port.to_string());
                self.open_monitor(request, &spec, (&switch, &port), caller)
            }
            Base::Vale { switch, port } => {
                let (switch, port) = (switch.to_string(), port.to_string());
                self.open_vale(request, &spec, (&switch, &port), caller)
            }
            Base::Netmap { ifname } if self.newifs.contains_key(ifname.as_str()) => {
                let name = ifname.to_string();
                self.open_newif(request, &name, caller)
            }
            Base::Netmap { ifname } => {
                let ifname = ifname.to_string();
                if let Some(device) = netvale_nic::passed::device_of(&ifname) {
                    return self.open_passed(request, &spec, (&ifname, &device), caller);
                }
                self.open_nic(request, &spec, &ifname, caller)
            }
        }
    }

    fn open_vale(
        &mut self,
        request: &AttachRequest,
        spec: &PortSpec,
        (switch, port): (&str, &str),
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let full = format!("{switch}:{port}");
        if !self.ports.contains_key(&full) {
            let sizes = Sizes::new(request, &spec.conf)?;
            self.make_local(switch, port, &sizes, request, &spec.memory, caller, false)?;
        }
        let opened = self.bind_local(&full, spec, request, caller);
        if opened.is_err() {
            self.drop_if_unused(&full, "could not be opened");
        }
        opened
    }

    /// Makes a local port without binding anybody to it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn make_port(
        &mut self,
        switch: &str,
        port: &str,
        request: &AttachRequest,
        caller: Caller,
    ) -> Result<(), Refusal> {
        let spec = PortSpec::parse(&format!("{switch}:{port}")).or_else(|e| refuse(Errno::INVAL, format!("{e:#}")))?;
        let sizes = Sizes::new(request, &spec.conf)?;
        let memory = match u16::try_from(request.mem_id).ok().and_then(NonZeroU16::new) {
            Some(id) => Memory::Id(id),
            None => spec.memory,
        };
        self.make_local(switch, port, &sizes, request, &memory, caller, true)
    }

    #[allow(clippy::too_many_arguments)]
    fn make_local(
        &mut self,
        switch: &str,
        port: &str,
        sizes: &Sizes,
        request: &AttachRequest,
        memory: &Memory,
        caller: Caller,
        persistent: bool,
    ) -> Result<(), Refusal> {
        if self.ports.contains_key(&format!("{switch}:{port}")) {
            return refuse(
                Errno::EXIST,
                format!("switch {switch} has a port {port} already: choose another name, or detach it first"),
            );
        }
        let (region, mem_id) = self.region_for(memory, sizes, request.flags & FLAG_HUGE != 0, caller)?;
        let (rings, ingresses) = Rings::new(&region, mem_id, sizes.shape, request.hdr_len)?;
        let egress = rings.rx.iter().map(|e| Arc::clone(e) as Arc<dyn Egress>).collect();
        let ingresses = ingresses.into_iter().map(|i| Box::new(i) as Box<dyn Ingress>).collect();
        let held = |n: u32| vec![Holders::default(); n as usize];
        let local = LocalPort { rings, tx_held: held(sizes.shape.tx_rings), rx_held: held(sizes.shape.rx_rings) };
        let lossless = request.flags & FLAG_LOSSLESS != 0;
        let new = NewPort { kind: Kind::Local(local), owner: caller, persistent, lossless, gro: false };
        self.plug(switch, port, egress, ingresses, new).map(|_| ())
    }

    fn region_for(
        &mut self,
        memory: &Memory,
        sizes: &Sizes,
        huge: bool,
        caller: Caller,
    ) -> Result<(Arc<Region>, u32), Refusal> {
        match memory {
            Memory::Auto => {
                let pages = if huge { Pages::PreferHuge } else { Pages::Ordinary };
                self.new_region(sizes.region(), pages, caller.uid)
            }
            other => self.region_for_spec(other, caller),
        }
    }

    /// The region that a specification names.
    pub(crate) fn region_for_spec(&mut self, memory: &Memory, caller: Caller) -> Result<(Arc<Region>, u32), Refusal> {
        match memory {
            Memory::Auto => refuse(Errno::INVAL, "no memory named"),
            Memory::Id(id) => Ok((self.region(u32::from(id.get()), caller.uid)?, u32::from(id.get()))),
            Memory::SharedWith(name) => {
                let id = self.region_of(&name.to_string()).ok_or_else(|| {
                    Refusal::new(Errno::NXIO, format!("there is no port {name} to share memory with"))
                })?;
                Ok((self.region(id, caller.uid)?, id))
            }
            Memory::External(_) => {
                refuse(Errno::OPNOTSUPP, "memory of the client's own (@extmem) is not supported: leave the option away")
            }
        }
    }

    /// Number of the region a port or pipe lies in.
    pub(crate) fn region_of(&self, name: &str) -> Option<u32> {
        match self.ports.get(name).map(|p| &p.kind) {
            Some(Kind::Local(l) | Kind::Monitor(l)) => Some(l.rings.mem_id),
            _ => self.pipes.get(&name.replace('}', "{")).map(|p| p.mem_id),
        }
    }

    fn bind_local(
        &mut self,
        full: &str,
        spec: &PortSpec,
        request: &AttachRequest,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let record = self.ports.get_mut(full).ok_or_else(|| Refusal::internal("a port vanished"))?;
        check_owner(record, full, caller)?;
        let Kind::Local(local) = &mut record.kind else {
            return refuse(
                Errno::BUSY,
                format!("{full} is not a port for local processes; its traffic can be watched as {full}/z"),
            );
        };
        if request.flags & FLAG_NO_HEADER != 0 && local.rings.hdr_len.get() != 0 {
            return refuse(
                Errno::IO,
                format!("{full} has virtio-net headers, which this program does not say it takes"),
            );
        }
        let (tx, rx) = local.wanted(spec)?;
        local.hold(full, (&tx, &rx), caller.client, request.flags & FLAG_SHARED != 0)?;
        let bound = local.bind(full, (&tx, &rx), request.extra_bufs);
        match bound {
            Ok((mut reply, fds, binding)) => {
                reply.alone = local.holds_alone(caller.client);
                Ok((reply, fds, Attachment::Local { port: full.to_owned(), tx, rx, binding }))
            }
            Err(refusal) => {
                local.let_go(caller.client);
                Err(refusal)
            }
        }
    }

    fn open_monitor(
        &mut self,
        request: &AttachRequest,
        spec: &PortSpec,
        (switch, port): (&str, &str),
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let watched = format!("{switch}:{port}");
        let record = self.ports.get(&watched).ok_or_else(|| {
            Refusal::new(Errno::NXIO, format!("there is no port {watched} to monitor: 'netvale list' shows the ports"))
        })?;
        check_owner(record, &watched, caller)?;
        let on = record.switch.clone().ok_or_else(|| Refusal::internal("a port without a switch"))?;
        let hdr_len = record.hdr_len();
        let mut sizes = Sizes::new(request, &spec.conf)?;
        sizes.shape = PortShape { tx_rings: 0, rx_rings: 1, ..sizes.shape };
        let (region, mem_id) = self.region_for(&Memory::Auto, &sizes, false, caller)?;
        let (rings, _no_ingress) = Rings::new(&region, mem_id, sizes.shape, hdr_len)?;
        let full = format!("{watched}/monitor-{}", caller.client);
        let egress: Vec<Arc<dyn Egress>> = rings.rx.iter().map(|e| Arc::clone(e) as Arc<dyn Egress>).collect();
        let directions = spec.flags.monitor.map_or(Directions::Both, |m| m.directions);
        let (tx, rx) = (directions != Directions::Rx, directions != Directions::Tx);
        for e in &egress {
            on.monitor(port, &full, Arc::clone(e), tx, rx)?;
        }
        let binding = rings.mem.bind(&watched, 0..0, 0..1, request.extra_bufs)?;
        let (mut reply, fds) = rings.reply(binding.nifp(), binding.extra_bufs(), 0..0, 0..1)?;
        reply.alone = true;
        let mut held = Holders::default();
        held.add(caller.client, false);
        let local = LocalPort { rings, tx_held: Vec::new(), rx_held: vec![held] };
        let record = PortRecord {
            switch: Some(on),
            id: None,
            kind: Kind::Monitor(local),
            owner: caller,
            persistent: false,
            lossless: false,
            polled: false,
            placed: Vec::new(),
            ingress: Vec::new(),
            egress: egress.iter().map(|e| Arc::clone(e.counters())).collect(),
        };
        self.ports.insert(full.clone(), record);
        Ok((reply, fds, Attachment::Local { port: full, tx: 0..0, rx: 0..1, binding }))
    }

    fn open_pipe(
        &mut self,
        request: &AttachRequest,
        spec: &PortSpec,
        id: &str,
        end: usize,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let host = matches!(spec.rings, RingsSpec::NicAndHost | RingsSpec::AllHost | RingsSpec::OneHost(_));
        if host || spec.flags.monitor.is_some() {
            return refuse(Errno::INVAL, "a pipe has neither host rings nor monitors");
        }
        let parent = spec.name.base().to_string();
        let key = format!("{parent}{{{id}");
        if !self.pipes.contains_key(&key) {
            let sizes = Sizes::new(request, &spec.conf)?;
            let (region, mem_id) = match self.region_of(&parent) {
                Some(id) => (self.region(id, caller.uid)?, id),
                None => self.region_for(&spec.memory, &sizes, request.flags & FLAG_HUGE != 0, caller)?,
            };
            let slots = sizes.shape.tx_slots.min(region.layout().max_slots());
            self.pipes.insert(key.clone(), Pipe::new(&region, mem_id, slots, caller.uid)?);
        }
        let pipe = self.pipes.get_mut(&key).ok_or_else(|| Refusal::internal("a pipe vanished"))?;
        if caller.uid != 0 && caller.uid != pipe.uid {
            return refuse(Errno::ACCESS, format!("pipe {key} belongs to another user: both ends share one memory"));
        }
        if pipe.passed() == Some(end & 1) {
            return refuse(Errno::BUSY, format!("this end of pipe {key} is a virtual machine's: open the other end"));
        }
        let shares = request.flags & FLAG_SHARED != 0;
        if !pipe.held_by[end & 1].admits(shares) {
            return refuse(
                Errno::BUSY,
                format!("this end of pipe {key} is open already: open the other end, or another pipe"),
            );
        }
        let binding = pipe.end(end).bind(&request.name, 0..1, 0..1, request.extra_bufs)?;
        let (mut reply, fds) = pipe.reply(end, &binding)?;
        reply.alone = pipe.held_by[end & 1].is_empty();
        pipe.held_by[end & 1].add(caller.client, shares);
        tracing::info!(pipe = key, end, uid = caller.uid, pid = caller.pid, "opened");
        Ok((reply, fds, Attachment::Pipe { pipe: key, end, binding }))
    }

    /// A connection closed: its rings are free again, and what only it needed goes.
    pub fn close(&mut self, attachment: Attachment, client: u64) {
        match attachment {
            Attachment::Local { port, binding, .. } => {
                drop(binding);
                if let Some(Kind::Local(l) | Kind::Monitor(l)) = self.ports.get_mut(&port).map(|p| &mut p.kind) {
                    l.let_go(client);
                }
                self.drop_if_unused(&port, "its client is gone");
            }
            Attachment::Null { .. } | Attachment::Passed(_) => {}
            Attachment::Nic { binding, .. } => {
                drop(binding);
                self.close_nic(client);
            }
            Attachment::Pipe { pipe, end, binding } => {
                drop(binding);
                if let Some(p) = self.pipes.get_mut(&pipe) {
                    p.held_by[end & 1].remove(client);
                    if p.passed().is_none() && p.held_by.iter().all(Holders::is_empty) {
                        self.pipes.remove(&pipe);
                    }
                }
            }
        }
    }

    fn drop_if_unused(&mut self, full: &str, why: &str) {
        let unused = self.ports.get(full).is_some_and(|p| match &p.kind {
            Kind::Local(l) | Kind::Monitor(l) => !p.persistent && l.is_unheld(),
            Kind::Device(_) => false,
        });
        if unused {
            self.drain(full);
            let _ = self.unplug(full, why);
        }
    }
}

pub(crate) fn check_owner(record: &PortRecord, full: &str, caller: Caller) -> Result<(), Refusal> {
    if caller.uid != 0 && caller.uid != record.owner.uid {
        return refuse(Errno::ACCESS, format!("{full} belongs to user {}: open a port of your own", record.owner.uid));
    }
    Ok(())
}

impl PortRecord {
    /// Bytes of virtio-net header before its frames.
    pub fn hdr_len(&self) -> u32 {
        match &self.kind {
            Kind::Local(l) | Kind::Monitor(l) => l.rings.hdr_len.get(),
            // A device's frames are watched whole, with what is left to be done to them.
            Kind::Device(_) => 0,
        }
    }
}
