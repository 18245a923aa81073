//! netmap's control requests: what `NIOCCTRL` asks beside opening a port, and ports that exist without a switch.
//!
//! Bodies are netmap's structures (netmap.h, `struct nmreq_*`) as bytes: read field by field, answered in place.

use std::mem::offset_of;
use std::sync::Arc;

use netvale_abi::nmreq::{
    NETMAP_POLLING_MODE_MULTI_CPU, NETMAP_POLLING_MODE_SINGLE_CPU, NETMAP_REQ_POOLS_INFO_GET, NETMAP_REQ_PORT_HDR_GET,
    NETMAP_REQ_PORT_HDR_SET, NETMAP_REQ_PORT_INFO_GET, NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_DELIF,
    NETMAP_REQ_VALE_DETACH, NETMAP_REQ_VALE_LIST, NETMAP_REQ_VALE_NEWIF, NETMAP_REQ_VALE_POLLING_DISABLE,
    NETMAP_REQ_VALE_POLLING_ENABLE, NmreqPoolsInfo, NmreqPortHdr, NmreqPortInfoGet, NmreqValeList, NmreqValePolling,
};
use netvale_control::attach::{AttachRequest, FLAG_NETMAP, Pools};
use netvale_control::device::{BODY_LEN, DeviceReply, DeviceRequest};
use netvale_mem::fault::Fault;
use netvale_mem::{Layout, PortShape, Region};
use netvale_portspec::{Base, Conf, PortName};
use rustix::io::Errno;

use crate::joints::turned;
use crate::open::{Attachment, Opened};
use crate::refusal::Refusal;
use crate::rings::Rings;
use crate::sizes::Sizes;
use crate::state::{COMMON_REGION, Caller, Kind, PortRecord, State};

fn refuse<T>(errno: Errno, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(errno, text))
}

/// A request's body.
pub(crate) struct Body([u8; BODY_LEN]);

impl Body {
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }
    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.get(at))
    }
    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.get(at))
    }
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(place) = self.0.get_mut(at..at + N) {
            place.copy_from_slice(&bytes);
        }
    }
    pub(crate) fn put16(&mut self, at: usize, v: u32) {
        self.put(at, u16::try_from(v).unwrap_or(u16::MAX).to_le_bytes());
    }
    pub(crate) fn put32(&mut self, at: usize, v: u32) {
        self.put(at, v.to_le_bytes());
    }
    fn put64(&mut self, at: usize, v: u64) {
        self.put(at, v.to_le_bytes());
    }
}

/// What is told of a port, made or not.
pub(crate) struct Facts {
    /// Its rings, host rings included.
    pub(crate) shape: PortShape,
    /// How many of the last tx and rx rings are host rings.
    pub(crate) host: (u32, u32),
    pub(crate) layout: Layout,
    /// 0 for a port that is not made yet: it will get a region of its own.
    pub(crate) mem_id: u32,
}

impl State {
    /// Carries a request out. The answer is the request with its status and its body as netmap would leave it.
    pub fn device_request(&mut self, request: &DeviceRequest, caller: Caller) -> DeviceReply {
        let mut body = Body(request.body);
        let name = request.name.as_str();
        let done = match request.reqtype {
            NETMAP_REQ_PORT_INFO_GET => self.port_info(name, &mut body, caller),
            NETMAP_REQ_POOLS_INFO_GET => self.pools_info(name, &mut body, caller),
            NETMAP_REQ_PORT_HDR_SET => self.hdr_set(name, &body, caller),
            NETMAP_REQ_PORT_HDR_GET => self.hdr_get(name, &mut body),
            NETMAP_REQ_VALE_NEWIF => self.newif(name, &mut body, caller),
            NETMAP_REQ_VALE_DELIF => self.delif(name, caller),
            NETMAP_REQ_VALE_ATTACH => self.vale_attach(name, &mut body, caller),
            NETMAP_REQ_VALE_DETACH => self.vale_detach(name, &mut body, caller),
            NETMAP_REQ_VALE_LIST => match self.vale_list(name, &mut body) {
                Ok(found) => return DeviceReply { status: 0, name: found, body: body.0, ..request.clone() },
                Err(refusal) => Err(refusal),
            },
            NETMAP_REQ_VALE_POLLING_ENABLE => self.polling(name, &body, true, caller),
            NETMAP_REQ_VALE_POLLING_DISABLE => self.polling(name, &body, false, caller),
            other => refuse(Errno::INVAL, format!("there is no request of type {other}")),
        };
        let status = done.map_or_else(
            |refusal| {
                tracing::info!(uid = caller.uid, pid = caller.pid, port = name, "request refused: {refusal}");
                refusal.errno
            },
            |()| 0,
        );
        DeviceReply { status, body: body.0, ..request.clone() }
    }

    /// What `name` is, or would be if it were opened with `request`.
    fn facts(&mut self, name: &str, request: &AttachRequest, caller: Caller) -> Result<Facts, Refusal> {
        let parsed = PortName::parse(name).or_else(|e| refuse(Errno::INVAL, format!("{e:#}")))?;
        let wanted = Sizes::new(request, &Conf::default())?;
        if let Some(rings) = self.ports.get(self.place_of(&parsed.to_string())).and_then(PortRecord::rings) {
            let layout = *rings.mem.region().layout();
            return Ok(Facts { shape: rings.mem.shape(), host: (0, 0), layout, mem_id: rings.mem_id });
        }
        let joined = self.ports.get(&parsed.to_string()).and_then(PortRecord::joined);
        if let Some(rings) = joined.and_then(|j| self.ports.get(&self.own_place(&j.port)?)?.rings()) {
            let (layout, shape) = (*rings.mem.region().layout(), turned(rings.mem.shape()));
            return Ok(Facts { shape, host: (0, 0), layout, mem_id: rings.mem_id });
        }
        let on_switch = self.ports.get(&parsed.to_string()).and_then(PortRecord::interface);
        if let Some(ifname) = on_switch.map(|interface| interface.name.clone()) {
            return self.interface_facts(&ifname, request, caller);
        }
        let region = match (parsed.pipe(), parsed.base()) {
            (Some(_), base) => self.region_of(&parsed.to_string()).or_else(|| self.region_of(&base.to_string())),
            (None, Base::Netmap { ifname }) => {
                return self.interface_facts(ifname.as_str(), request, caller);
            }
            (None, Base::Vale { port, .. }) => {
                self.refuse_interface_name(name, port.as_str())?;
                self.check_name_free(port.as_str())?;
                None
            }
        };
        let region = region.or((request.mem_id != 0).then_some(request.mem_id));
        let Some(id) = region else {
            return Ok(Facts {
                shape: wanted.shape,
                host: (0, 0),
                layout: Layout::new(wanted.region()).map_err(|e| Refusal::from(netvale_mem::RegionError::from(e)))?,
                mem_id: 0,
            });
        };
        Ok(Facts { shape: wanted.shape, host: (0, 0), layout: *self.region(id, caller.uid)?.layout(), mem_id: id })
    }

    fn port_info(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        if name.is_empty() {
            return self.region_info(body, caller);
        }
        let asked = |body: &Body| AttachRequest {
            flags: FLAG_NETMAP,
            tx_slots: body.u32(offset_of!(NmreqPortInfoGet, nr_tx_slots)),
            rx_slots: body.u32(offset_of!(NmreqPortInfoGet, nr_rx_slots)),
            tx_rings: body.u16(offset_of!(NmreqPortInfoGet, nr_tx_rings)).into(),
            rx_rings: body.u16(offset_of!(NmreqPortInfoGet, nr_rx_rings)).into(),
            host_tx_rings: body.u16(offset_of!(NmreqPortInfoGet, nr_host_tx_rings)).into(),
            host_rx_rings: body.u16(offset_of!(NmreqPortInfoGet, nr_host_rx_rings)).into(),
            ..AttachRequest::default()
        };
        let request = AttachRequest { mem_id: body.u16(offset_of!(NmreqPortInfoGet, nr_mem_id)).into(), ..asked(body) };
        let facts = self.facts(name, &request, caller)?;
        let s = facts.shape;
        body.put64(offset_of!(NmreqPortInfoGet, nr_memsize), facts.layout.total);
        body.put32(offset_of!(NmreqPortInfoGet, nr_tx_slots), s.tx_slots);
        body.put32(offset_of!(NmreqPortInfoGet, nr_rx_slots), s.rx_slots);
        body.put16(offset_of!(NmreqPortInfoGet, nr_tx_rings), s.tx_rings - facts.host.0);
        body.put16(offset_of!(NmreqPortInfoGet, nr_rx_rings), s.rx_rings - facts.host.1);
        body.put16(offset_of!(NmreqPortInfoGet, nr_host_tx_rings), facts.host.0);
        body.put16(offset_of!(NmreqPortInfoGet, nr_host_rx_rings), facts.host.1);
        body.put16(offset_of!(NmreqPortInfoGet, nr_mem_id), facts.mem_id);
        Ok(())
    }

    /// Of a region alone.
    fn region_info(&mut self, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        let id = match body.u16(offset_of!(NmreqPortInfoGet, nr_mem_id)) {
            0 => COMMON_REGION,
            id => id.into(),
        };
        let region = self.region(id, caller.uid)?;
        body.put64(offset_of!(NmreqPortInfoGet, nr_memsize), region.layout().total);
        body.put16(offset_of!(NmreqPortInfoGet, nr_mem_id), id);
        Ok(())
    }

    fn pools_info(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        if name.is_empty() {
            return refuse(Errno::NXIO, "pools belong to a port: name one");
        }
        let mem_id = body.u16(offset_of!(NmreqPoolsInfo, nr_mem_id)).into();
        let facts =
            self.facts(name, &AttachRequest { mem_id, flags: FLAG_NETMAP, ..AttachRequest::default() }, caller)?;
        let (l, s) = (facts.layout, facts.layout.sizes);
        body.put64(offset_of!(NmreqPoolsInfo, nr_memsize), l.total);
        body.put16(offset_of!(NmreqPoolsInfo, nr_mem_id), facts.mem_id);
        body.put64(offset_of!(NmreqPoolsInfo, nr_if_pool_offset), l.if_pool);
        body.put32(offset_of!(NmreqPoolsInfo, nr_if_pool_objtotal), s.ifs.num);
        body.put32(offset_of!(NmreqPoolsInfo, nr_if_pool_objsize), s.ifs.size);
        body.put64(offset_of!(NmreqPoolsInfo, nr_ring_pool_offset), l.ring_pool);
        body.put32(offset_of!(NmreqPoolsInfo, nr_ring_pool_objtotal), s.rings.num);
        body.put32(offset_of!(NmreqPoolsInfo, nr_ring_pool_objsize), s.rings.size);
        body.put64(offset_of!(NmreqPoolsInfo, nr_buf_pool_offset), l.buf_pool);
        body.put32(offset_of!(NmreqPoolsInfo, nr_buf_pool_objtotal), s.bufs.num);
        body.put32(offset_of!(NmreqPoolsInfo, nr_buf_pool_objsize), s.bufs.size);
        Ok(())
    }

    /// The port of that name, if the caller may change it.
    pub(crate) fn own_port(&mut self, name: &str, caller: Caller) -> Result<&mut PortRecord, Refusal> {
        let record = self.ports.get_mut(name).ok_or_else(|| {
            Refusal::new(Errno::NXIO, format!("there is no port {name}: 'netvale list' shows the ports"))
        })?;
        crate::open::check_owner(record, name, caller)?;
        Ok(record)
    }

    fn hdr_set(&mut self, name: &str, body: &Body, caller: Caller) -> Result<(), Refusal> {
        let len = body.u32(offset_of!(NmreqPortHdr, nr_hdr_len));
        if !matches!(len, 0 | 10 | 12) {
            return refuse(Errno::INVAL, format!("a virtio-net header of {len} bytes: 0, 10 and 12 are possible"));
        }
        let record = self.own_port(name, caller)?;
        match &record.kind {
            Kind::Local(l) => {
                l.rings.hdr_len.set(len);
                Ok(())
            }
            // An interface's frames have none, and get none.
            Kind::Device(d) if d.nic.is_some() && len == 0 => Ok(()),
            // It is chosen where the port's rings are.
            Kind::Device(d) if d.joined.as_ref().is_some_and(|joined| joined.hdr_len.get() == len) => Ok(()),
            _ => {
                refuse(Errno::OPNOTSUPP, format!("{name} is not a VALE port of a program: its header cannot be chosen"))
            }
        }
    }

    fn hdr_get(&mut self, name: &str, body: &mut Body) -> Result<(), Refusal> {
        let len = match self.ports.get(self.place_of(name)).or_else(|| self.ports.get(&self.own_place(name)?)) {
            Some(record) => record.joined().map_or_else(|| record.hdr_len(), |joined| joined.hdr_len.get()),
            None => self.header_without_record(name)?,
        };
        body.put32(offset_of!(NmreqPortHdr, nr_hdr_len), len);
        Ok(())
    }

    /// Of a pipe, or an interface.
    fn header_without_record(&self, name: &str) -> Result<u32, Refusal> {
        let none = || Refusal::new(Errno::NXIO, format!("there is no port {name}"));
        let parsed = PortName::parse(name).map_err(|_| none())?;
        match (parsed.pipe(), parsed.base()) {
            (Some(_), _) if self.pipes.contains_key(&parsed.to_string().replace('}', "{")) => Ok(0),
            (None, Base::Netmap { ifname }) => self.interface_header(ifname.as_str()),
            _ => Err(none()),
        }
    }

    /// With a name, where it is; without, the first port at or behind the place in the body. Returns its name.
    fn vale_list(&self, name: &str, body: &mut Body) -> Result<String, Refusal> {
        let (bridge_at, port_at) = (offset_of!(NmreqValeList, nr_bridge_idx), offset_of!(NmreqValeList, nr_port_idx));
        if !name.is_empty() && !name.starts_with("vale") {
            return refuse(Errno::INVAL, format!("{name}: a port of a switch is named valeID:port"));
        }
        let bridges: Vec<&str> = self.switches.keys().map(String::as_str).collect();
        let place = |full: &str, record: &PortRecord| {
            let bridge = bridges.iter().position(|b| record.switch.as_ref().is_some_and(|on| *b == on.name()))?;
            Some((bridge as u32, u32::from(record.id?), full.to_owned()))
        };
        let from = (u32::from(body.u16(bridge_at)), body.u32(port_at));
        let found = self
            .ports
            .iter()
            .filter_map(|(full, record)| place(full, record))
            .filter(|(bridge, port, full)| if name.is_empty() { (*bridge, *port) >= from } else { full == name })
            .min();
        let Some((bridge, port, full)) = found.or_else(|| no_port(name, &bridges)) else {
            return refuse(Errno::NOENT, "no such switch, or no more ports");
        };
        body.put16(bridge_at, bridge);
        body.put32(port_at, port);
        Ok(full)
    }

    /// netmap has kernel threads poll the port; here the port's workers do not sleep as long as it is asked for.
    fn polling(&mut self, name: &str, body: &Body, on: bool, caller: Caller) -> Result<(), Refusal> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let mode = body.u32(offset_of!(NmreqValePolling, nr_mode));
        let first = body.u32(offset_of!(NmreqValePolling, nr_first_cpu_id));
        let count = body.u32(offset_of!(NmreqValePolling, nr_num_polling_cpus));
        let may = caller.uid == 0 || caller.uid == rustix::process::getuid().as_raw();
        vale_name(name)?;
        let record = self.own_port(name, caller)?;
        let Some(queues) = record.wrapped() else {
            return refuse(Errno::OPNOTSUPP, format!("there is nothing behind {name} to poll: it is a VALE port"));
        };
        if !may {
            return refuse(Errno::PERM, "only root and the daemon's user may keep a worker awake");
        }
        if record.polled == on {
            return refuse(Errno::FAULT, format!("{name} is {} polled", if on { "already" } else { "not" }));
        }
        // netmap has one CPU poll all rings, or several a ring each; one CPU at least does not poll.
        let last = first.saturating_add(count);
        let single = mode == NETMAP_POLLING_MODE_SINGLE_CPU && count == 1;
        let multi = mode == NETMAP_POLLING_MODE_MULTI_CPU && count >= 1 && last <= queues;
        if on && (!(single || multi) || count >= cpus || last > cpus) {
            return refuse(Errno::INVAL, format!("polling mode {mode} on {count} CPUs from {first}: there are {cpus}"));
        }
        record.polled = on;
        let placed: Vec<(usize, u64)> = record.placed.iter().map(|p| (p.worker, p.id)).collect();
        for (worker, id) in placed {
            if let Some(w) = self.workers.get(worker) {
                w.keep_awake(id, on);
            }
        }
        Ok(())
    }

    /// A port with nothing behind its rings (`NR_REG_NULL`).
    pub(crate) fn open_null(&mut self, request: &AttachRequest, caller: Caller) -> Result<Opened, Refusal> {
        let sizes = Sizes::new(request, &Conf::default())?;
        let (region, mem_id) = match request.mem_id {
            0 if request.pools == Pools::default() => {
                return refuse(
                    Errno::INVAL,
                    "rings with nothing behind them lie in memory that is there: name a region",
                );
            }
            0 => self.new_region(sizes.region(), netvale_mem::mapping::Pages::Ordinary, caller.uid)?,
            id => (self.region(id, caller.uid)?, id),
        };
        open_rings((&region, mem_id), sizes.shape, request, self.new_fault())
    }

    /// What the holder of an attachment was told when it got it, told again.
    ///
    /// # Errors
    /// [`Refusal`] when the port is gone or the daemon is out of descriptors.
    pub fn describe(
        &self,
        attachment: &Attachment,
    ) -> Result<(netvale_control::attach::AttachReply, Vec<std::os::fd::OwnedFd>), Refusal> {
        let gone = || Refusal::new(Errno::NXIO, "the port is gone");
        match attachment {
            Attachment::Local { port, tx, rx, binding } => {
                let record = self.ports.get(self.place_of(port)).ok_or_else(gone)?;
                let (Kind::Local(l) | Kind::Monitor(l)) = &record.kind else {
                    return Err(gone());
                };
                let (reply, fds) = l.reply(binding, tx, rx)?;
                Ok((crate::monitors::as_monitor(record, reply), fds))
            }
            Attachment::Null { rings, binding } => {
                let shape = rings.mem.shape();
                rings.reply(binding.nifp(), binding.extra_bufs(), 0..shape.tx_rings, 0..shape.rx_rings)
            }
            Attachment::Passed(held) => held.reply(),
            Attachment::Nic { client, binding } => self.nics.ports.get(client).ok_or_else(gone)?.reply(binding, true),
            Attachment::Pipe { pipe, end, binding } => self.pipes.get(pipe).ok_or_else(gone)?.reply(*end, binding),
        }
    }
}

fn open_rings(
    (region, mem_id): (&Arc<Region>, u32),
    shape: PortShape,
    request: &AttachRequest,
    fault: Fault,
) -> Result<Opened, Refusal> {
    let (rings, _no_ingress) = Rings::new(region, mem_id, shape, 0, fault)?;
    let (tx, rx) = (0..shape.tx_rings, 0..shape.rx_rings);
    let max_offset = match &request.offsets {
        Some(asked) => crate::offsets::begin(asked, &crate::offsets::rings(&rings.mem, (&tx, &rx), |_, _| true))?,
        None => 0,
    };
    let binding = rings.mem.bind(&request.name, tx.clone(), rx.clone(), request.extra_bufs)?;
    let (mut reply, fds) = rings.reply(binding.nifp(), binding.extra_bufs(), tx, rx)?;
    (reply.alone, reply.max_offset) = (true, max_offset);
    Ok((reply, fds, Attachment::Null { rings, binding }))
}

/// What is told of a port that its switch, which there is, does not have.
fn no_port(name: &str, bridges: &[&str]) -> Option<(u32, u32, String)> {
    const NONE: u32 = 254;
    let (switch, _) = name.split_once(':')?;
    let bridge = bridges.iter().position(|b| *b == switch)?;
    Some((bridge as u32, NONE, name.to_owned()))
}

/// Switch and port of `valeID:port`.
pub(crate) fn vale_name(name: &str) -> Result<(String, String), Refusal> {
    match PortName::parse(name).map(|n| (n.pipe().is_none(), n.base().clone())) {
        Ok((true, Base::Vale { switch, port })) => Ok((switch.to_string(), port.to_string())),
        _ => refuse(Errno::INVAL, format!("{name}: a port of a switch is named valeID:port")),
    }
}
