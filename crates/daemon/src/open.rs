//! Opening ports for clients: what stands behind the attach handshake.

use std::num::NonZeroU16;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_control::attach::{
    AttachReply, AttachRequest, FLAG_HUGE, FLAG_LOSSLESS, FLAG_NETMAP, FLAG_NO_HEADER, FLAG_NULL, FLAG_SHARED,
};
use netvale_mem::Region;
use netvale_mem::mapping::Pages;
use netvale_mem::region::Binding;
use netvale_port::{Egress, Ingress};
use netvale_portspec::{Base, Memory, PortSpec, Rings as RingsSpec};
use rustix::io::Errno;

use crate::holders::Holders;
use crate::monitors::Watched;
use crate::offsets;
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
        /// Full name of the port; of a persistent one, its own (`State::place_of`).
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
        if spec.flags.monitor.is_some() {
            return self.open_monitor(request, &spec, caller);
        }
        if let Some(pipe) = spec.name.pipe() {
            let (id, end) = (pipe.id.to_string(), end_index(pipe.end));
            return self.open_pipe(request, &spec, &id, end, caller);
        }
        match spec.name.base() {
            Base::Vale { switch, port } => {
                let (switch, port) = (switch.to_string(), port.to_string());
                self.open_vale(request, &spec, (&switch, &port), caller)
            }
            Base::Netmap { ifname } if self.newifs.contains_key(ifname.as_str()) => {
                let name = ifname.to_string();
                self.open_newif(request, &spec, &name, caller)
            }
            Base::Netmap { ifname } => {
                let ifname = ifname.to_string();
                let opened = match netvale_guest::passed::device_of(&ifname) {
                    Some(device) => self.open_passed(request, &spec, (&ifname, &device), caller),
                    None => self.open_nic(request, &spec, &ifname, caller),
                }?;
                if request.offsets.is_some() {
                    self.close(opened.2, caller.client);
                    // The kernel says where in a buffer it puts a frame.
                    return offsets::unsupported(&format!("interface {ifname}"));
                }
                Ok(opened)
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
        let mut max_offset = None;
        if !self.ports.contains_key(&full) {
            if request.flags & FLAG_NETMAP != 0 {
                self.refuse_interface_name(&full, port)?;
            }
            self.check_name_free(port)?;
            let sizes = Sizes::new(request, &spec.conf)?;
            max_offset = self.make_local(switch, port, &sizes, request, (&spec.memory, Some(spec)), caller, false)?;
        }
        let opened = self.bind_local(&full, spec, request, caller, max_offset);
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
        self.make_local(switch, port, &sizes, request, (&memory, None), caller, true).map(|_| ())
    }

    #[allow(clippy::too_many_arguments)]
    fn make_local(
        &mut self,
        switch: &str,
        port: &str,
        sizes: &Sizes,
        request: &AttachRequest,
        (memory, opener): (&Memory, Option<&PortSpec>),
        caller: Caller,
        persistent: bool,
    ) -> Result<Option<u32>, Refusal> {
        if self.ports.contains_key(&format!("{switch}:{port}")) {
            return refuse(
                Errno::EXIST,
                format!("switch {switch} has a port {port} already: choose another name, or detach it first"),
            );
        }
        let (region, mem_id) = self.region_for(memory, sizes, request.flags & FLAG_HUGE != 0, caller)?;
        let (rings, ingresses) = Rings::new(&region, mem_id, sizes.shape, request.hdr_len, self.new_fault())?;
        let egress = rings.rx.iter().map(|e| Arc::clone(e) as Arc<dyn Egress>).collect();
        let ingresses = ingresses.into_iter().map(|i| Box::new(i) as Box<dyn Ingress>).collect();
        let held = |n: u32| vec![Holders::default(); n as usize];
        let local = LocalPort { rings, tx_held: held(sizes.shape.tx_rings), rx_held: held(sizes.shape.rx_rings) };
        // Before frames can come.
        let max_offset = match (&request.offsets, opener) {
            (Some(asked), Some(spec)) => {
                let (tx, rx) = local.wanted(spec)?;
                Some(offsets::begin(asked, &offsets::rings(&local.rings.mem, (&tx, &rx), |_, _| true))?)
            }
            _ => None,
        };
        let lossless = request.flags & FLAG_LOSSLESS != 0;
        let new = NewPort { kind: Kind::Local(local), owner: caller, persistent, lossless, gro: false };
        self.plug(switch, port, egress, ingresses, new).map(|_| max_offset)
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
        match self.ports.get(self.place_of(name)).map(|p| &p.kind) {
            Some(Kind::Local(l) | Kind::Monitor(l)) => Some(l.rings.mem_id),
            _ => self.pipes.get(&name.replace('}', "{")).map(|p| p.mem_id).or_else(|| self.region_of_interface(name)),
        }
    }

    pub(crate) fn bind_local(
        &mut self,
        full: &str,
        spec: &PortSpec,
        request: &AttachRequest,
        caller: Caller,
        max_offset: Option<u32>,
    ) -> Result<Opened, Refusal> {
        self.check_not_joined(full)?;
        let lasting = self.lasting_name(full);
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
        let agreed = match (&request.offsets, max_offset) {
            (Some(asked), None) => {
                let alone = |is_rx: bool, i| offsets::is_alone(if is_rx { &local.rx_held } else { &local.tx_held }, i);
                let rings = offsets::rings(&local.rings.mem, (&tx, &rx), alone);
                self.begin_live_offsets(asked, &rings)
            }
            (_, already) => Ok(already.unwrap_or(0)),
        };
        let Some(Kind::Local(local)) = self.ports.get_mut(full).map(|p| &mut p.kind) else {
            return Err(Refusal::internal("a port vanished"));
        };
        let bound = agreed.and_then(|max| Ok((max, local.bind(full, (&tx, &rx), request.extra_bufs)?)));
        match bound {
            Ok((max_offset, (mut reply, fds, binding))) => {
                reply.alone = local.holds_alone(caller.client);
                reply.max_offset = max_offset;
                Ok((reply, fds, Attachment::Local { port: lasting, tx, rx, binding }))
            }
            Err(refusal) => {
                local.let_go(caller.client);
                Err(refusal)
            }
        }
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
        if host {
            return refuse(Errno::INVAL, "a pipe has no host rings");
        }
        if matches!(spec.rings, RingsSpec::OneNic(i) if i.get() > 0) {
            return refuse(Errno::INVAL, "a pipe has one ring each way, number 0");
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
        let max_offset = match &request.offsets {
            None => Ok(0),
            Some(_) if pipe.passed().is_some() => offsets::unsupported("a pipe to a virtual machine"),
            Some(asked) => {
                let of = |end: usize| offsets::of_pipe(pipe.end(end), &pipe.held_by[end & 1]);
                offsets::begin_pipe(asked, &of(end), &of(end ^ 1), !pipe.held_by[(end ^ 1) & 1].is_empty())
            }
        };
        let max_offset = match max_offset {
            Ok(max) => max,
            Err(refusal) => {
                if pipe.passed().is_none() && pipe.held_by.iter().all(Holders::is_empty) {
                    self.pipes.remove(&key);
                }
                return Err(refusal);
            }
        };
        let binding = pipe.end(end).bind(&request.name, 0..1, 0..1, request.extra_bufs)?;
        let (mut reply, fds) = pipe.reply(end, &binding)?;
        reply.max_offset = max_offset;
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
                let port = self.place_of(&port).to_owned();
                let mut idle = false;
                if let Some(Kind::Local(l) | Kind::Monitor(l)) = self.ports.get_mut(&port).map(|p| &mut p.kind) {
                    l.let_go(client);
                    idle = l.is_unheld();
                }
                if idle {
                    self.end_monitors(&Watched::Port(port.clone()));
                }
                self.end_offsets(&port);
                self.drop_if_unused(&port, "its client is gone");
            }
            Attachment::Null { .. } | Attachment::Passed(_) => {}
            Attachment::Nic { binding, .. } => {
                drop(binding);
                self.close_nic(client);
            }
            Attachment::Pipe { pipe, end, binding } => {
                drop(binding);
                let Some(p) = self.pipes.get_mut(&pipe) else { return };
                p.held_by[end & 1].remove(client);
                let (idle, unused) = (p.held_by[end & 1].is_empty(), p.held_by.iter().all(Holders::is_empty));
                if p.passed().is_none()
                    && unused
                    && let Some(p) = self.pipes.remove(&pipe)
                {
                    [0, 1].into_iter().for_each(|end| self.end_mirrors(p.end(end)));
                }
                if idle {
                    self.end_monitors(&Watched::Pipe(pipe, end & 1));
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
