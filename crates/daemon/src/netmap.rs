//! netmap's control requests: what `NIOCCTRL` asks beside opening a port, and ports that exist without a switch.
//!
//! Bodies are netmap's structures (netmap.h, `struct nmreq_*`) as bytes: read field by field, answered in place.

use std::mem::offset_of;
use std::sync::Arc;

use netvale_abi::nmreq::{
    NETMAP_POLLING_MODE_MULTI_CPU, NETMAP_POLLING_MODE_SINGLE_CPU, NETMAP_REQ_POOLS_INFO_GET, NETMAP_REQ_PORT_HDR_GET,
    NETMAP_REQ_PORT_HDR_SET, NETMAP_REQ_PORT_INFO_GET, NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_DELIF,
    NETMAP_REQ_VALE_DETACH, NETMAP_REQ_VALE_LIST, NETMAP_REQ_VALE_NEWIF, NETMAP_REQ_VALE_POLLING_DISABLE,
    NETMAP_REQ_VALE_POLLING_ENABLE, NR_REG_NIC_SW, NmreqPoolsInfo, NmreqPortHdr, NmreqPortInfoGet, NmreqRegister,
    NmreqValeAttach, NmreqValeDetach, NmreqValeList, NmreqValeNewif, NmreqValePolling,
};
use netvale_control::attach::AttachRequest;
use netvale_control::device::{BODY_LEN, DeviceReply, DeviceRequest};
use netvale_mem::{Layout, PortShape, Region};
use netvale_portspec::{Base, Conf, PortName};
use rustix::io::Errno;

use crate::open::{Attachment, Opened};
use crate::refusal::Refusal;
use crate::rings::Rings;
use crate::sizes::Sizes;
use crate::state::{Caller, Kind, PortRecord, State};

/// A persistent VALE port made by `NETMAP_REQ_VALE_NEWIF`, on a switch or not.
pub struct NewIf {
    /// How it is to be made when it comes to a switch.
    request: AttachRequest,
    uid: u32,
    /// Its full name while it is on a switch.
    attached: Option<String>,
}

fn refuse<T>(errno: Errno, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(errno, text))
}

/// A request's body.
struct Body([u8; BODY_LEN]);

impl Body {
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.get(at))
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.get(at))
    }
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(place) = self.0.get_mut(at..at + N) {
            place.copy_from_slice(&bytes);
        }
    }
    fn put16(&mut self, at: usize, v: u32) {
        self.put(at, u16::try_from(v).unwrap_or(u16::MAX).to_le_bytes());
    }
    fn put32(&mut self, at: usize, v: u32) {
        self.put(at, v.to_le_bytes());
    }
    fn put64(&mut self, at: usize, v: u64) {
        self.put(at, v.to_le_bytes());
    }
}

/// What is told of a port, made or not.
struct Facts {
    shape: PortShape,
    layout: Layout,
    /// 0 for a port that is not made yet: it will get a region of its own.
    mem_id: u32,
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
        if let Some(rings) = self.ports.get(&parsed.to_string()).and_then(PortRecord::rings) {
            return Ok(Facts { shape: rings.mem.shape(), layout: *rings.mem.region().layout(), mem_id: rings.mem_id });
        }
        let region = match (parsed.pipe(), parsed.base()) {
            (Some(_), base) => self.region_of(&parsed.to_string()).or_else(|| self.region_of(&base.to_string())),
            (None, Base::Netmap { ifname }) if !self.newifs.contains_key(ifname.as_str()) => {
                return refuse(Errno::NXIO, format!("there is no interface {ifname}"));
            }
            _ => None,
        };
        let region = region.or((request.mem_id != 0).then_some(request.mem_id));
        let Some(id) = region else {
            return Ok(Facts {
                shape: wanted.shape,
                layout: Layout::new(wanted.region()).map_err(|e| Refusal::from(netvale_mem::RegionError::from(e)))?,
                mem_id: 0,
            });
        };
        Ok(Facts { shape: wanted.shape, layout: *self.region(id, caller.uid)?.layout(), mem_id: id })
    }

    fn port_info(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        let request = AttachRequest {
            mem_id: body.u16(offset_of!(NmreqPortInfoGet, nr_mem_id)).into(),
            ..self.newif_request(name).unwrap_or_default()
        };
        let facts = self.facts(name, &request, caller)?;
        let s = facts.shape;
        body.put64(offset_of!(NmreqPortInfoGet, nr_memsize), facts.layout.total);
        body.put32(offset_of!(NmreqPortInfoGet, nr_tx_slots), s.tx_slots);
        body.put32(offset_of!(NmreqPortInfoGet, nr_rx_slots), s.rx_slots);
        body.put16(offset_of!(NmreqPortInfoGet, nr_tx_rings), s.tx_rings);
        body.put16(offset_of!(NmreqPortInfoGet, nr_rx_rings), s.rx_rings);
        body.put16(offset_of!(NmreqPortInfoGet, nr_host_tx_rings), 1);
        body.put16(offset_of!(NmreqPortInfoGet, nr_host_rx_rings), 1);
        body.put16(offset_of!(NmreqPortInfoGet, nr_mem_id), facts.mem_id);
        Ok(())
    }

    fn pools_info(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        if name.is_empty() {
            return refuse(Errno::INVAL, "pools belong to a port: name one");
        }
        let mem_id = body.u16(offset_of!(NmreqPoolsInfo, nr_mem_id)).into();
        let facts = self.facts(name, &AttachRequest { mem_id, ..AttachRequest::default() }, caller)?;
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
    fn own_port(&mut self, name: &str, caller: Caller) -> Result<&mut PortRecord, Refusal> {
        let record = self.ports.get_mut(name).ok_or_else(|| {
            Refusal::new(Errno::NXIO, format!("there is no port {name}: 'netvale list' shows the ports"))
        })?;
        crate::open::check_owner(record, name, caller)?;
        Ok(record)
    }

    fn hdr_set(&mut self, name: &str, body: &Body, caller: Caller) -> Result<(), Refusal> {
        let len = body.u32(offset_of!(NmreqPortHdr, nr_hdr_len));
        let record = self.own_port(name, caller)?;
        match &record.kind {
            Kind::Local(l) if l.rings.hdr_len.set(len) => Ok(()),
            Kind::Local(_) => {
                refuse(Errno::INVAL, format!("a virtio-net header of {len} bytes: 0, 10 and 12 are possible"))
            }
            _ => {
                refuse(Errno::OPNOTSUPP, format!("{name} is not a VALE port of a program: its header cannot be chosen"))
            }
        }
    }

    fn hdr_get(&mut self, name: &str, body: &mut Body) -> Result<(), Refusal> {
        let len = match self.ports.get(name) {
            Some(record) => record.hdr_len(),
            None if self.pipes.contains_key(&name.replace('}', "{")) || self.newifs.contains_key(name) => 0,
            None => return refuse(Errno::NXIO, format!("there is no port {name}")),
        };
        body.put32(offset_of!(NmreqPortHdr, nr_hdr_len), len);
        Ok(())
    }

    fn newif_request(&self, name: &str) -> Option<AttachRequest> {
        self.newifs.get(name).map(|n| n.request.clone())
    }

    fn newif(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        const MOST: usize = 254;
        match PortName::parse(name) {
            Ok(parsed) if parsed.pipe().is_none() && matches!(parsed.base(), Base::Netmap { .. }) => {}
            _ => return refuse(Errno::INVAL, format!("{name}: a persistent port has an interface's name")),
        }
        if self.newifs.contains_key(name) {
            return refuse(Errno::EXIST, format!("there is a persistent port {name} already"));
        }
        if self.newifs.len() >= MOST {
            return refuse(Errno::NOSPC, format!("there are {MOST} persistent ports, the most there can be"));
        }
        let request = AttachRequest {
            tx_slots: body.u32(offset_of!(NmreqValeNewif, nr_tx_slots)),
            rx_slots: body.u32(offset_of!(NmreqValeNewif, nr_rx_slots)),
            tx_rings: body.u16(offset_of!(NmreqValeNewif, nr_tx_rings)).into(),
            rx_rings: body.u16(offset_of!(NmreqValeNewif, nr_rx_rings)).into(),
            mem_id: body.u16(offset_of!(NmreqValeNewif, nr_mem_id)).into(),
            ..AttachRequest::default()
        };
        let shape = Sizes::new(&request, &Conf::default())?.shape;
        if request.mem_id != 0 {
            self.region(request.mem_id, caller.uid)?;
        }
        body.put32(offset_of!(NmreqValeNewif, nr_tx_slots), shape.tx_slots);
        body.put32(offset_of!(NmreqValeNewif, nr_rx_slots), shape.rx_slots);
        body.put16(offset_of!(NmreqValeNewif, nr_tx_rings), shape.tx_rings);
        body.put16(offset_of!(NmreqValeNewif, nr_rx_rings), shape.rx_rings);
        self.newifs.insert(name.to_owned(), NewIf { request, uid: caller.uid, attached: None });
        Ok(())
    }

    fn own_newif(&mut self, name: &str, caller: Caller) -> Result<&mut NewIf, Refusal> {
        let newif = self
            .newifs
            .get_mut(name)
            .ok_or_else(|| Refusal::new(Errno::NXIO, format!("there is no persistent port {name}")))?;
        // It may have been detached by other means.
        if newif.attached.as_ref().is_some_and(|full| !self.ports.contains_key(full)) {
            newif.attached = None;
        }
        if caller.uid != 0 && caller.uid != newif.uid {
            return refuse(Errno::ACCESS, format!("{name} belongs to user {}", newif.uid));
        }
        Ok(newif)
    }

    fn delif(&mut self, name: &str, caller: Caller) -> Result<(), Refusal> {
        if let Some(full) = &self.own_newif(name, caller)?.attached {
            return refuse(Errno::BUSY, format!("{name} is on a switch as {full}: detach it first"));
        }
        self.newifs.remove(name);
        Ok(())
    }

    fn vale_attach(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        let (switch, port) = vale_name(name)?;
        if self.ports.contains_key(name) {
            return refuse(Errno::BUSY, format!("{name} is attached already"));
        }
        let at = offset_of!(NmreqValeAttach, reg) + offset_of!(NmreqRegister, nr_mem_id);
        if !self.newifs.contains_key(&port) {
            let host = body.u32(offset_of!(NmreqValeAttach, reg) + offset_of!(NmreqRegister, nr_mode)) == NR_REG_NIC_SW;
            self.attach_nic_named((&switch, &port), host, caller)?;
            let index = self.ports.get(name).and_then(|record| record.id).unwrap_or_default();
            body.put32(offset_of!(NmreqValeAttach, port_index), index.into());
            return Ok(());
        }
        let newif = self.own_newif(&port, caller)?;
        if let Some(full) = &newif.attached {
            return refuse(Errno::BUSY, format!("{port} is on a switch already, as {full}"));
        }
        let mut request = newif.request.clone();
        if body.u16(at) != 0 {
            request.mem_id = body.u16(at).into();
        }
        self.make_port(&switch, &port, &request, caller)?;
        if let Some(newif) = self.newifs.get_mut(&port) {
            newif.attached = Some(name.to_owned());
        }
        let (index, mem_id) = match self.ports.get(name) {
            Some(record) => (record.id.unwrap_or_default(), record.rings().map_or(0, |r| r.mem_id)),
            None => (0, 0),
        };
        body.put16(at, mem_id);
        body.put32(offset_of!(NmreqValeAttach, port_index), index.into());
        Ok(())
    }

    fn vale_detach(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        let (_, port) = vale_name(name)?;
        let record = self.own_port(name, caller)?;
        if matches!(&record.kind, Kind::Local(l) if !record.persistent && !l.is_unheld()) {
            return refuse(Errno::BUSY, format!("{name} is open: it goes when its program closes it"));
        }
        let index = record.id.unwrap_or_default();
        self.detach(name, "asked for by a netmap program")?;
        if let Some(newif) = self.newifs.get_mut(&port) {
            newif.attached = None;
        }
        body.put32(offset_of!(NmreqValeDetach, port_index), index.into());
        Ok(())
    }

    /// With a name, where it is; without, the first port at or behind the place in the body. Returns its name.
    fn vale_list(&self, name: &str, body: &mut Body) -> Result<String, Refusal> {
        let (bridge_at, port_at) = (offset_of!(NmreqValeList, nr_bridge_idx), offset_of!(NmreqValeList, nr_port_idx));
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
        let Some((bridge, port, full)) = found else {
            return refuse(Errno::NOENT, "no such port, or no more of them");
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
        let record = self.own_port(name, caller)?;
        if !may {
            return refuse(Errno::PERM, "only root and the daemon's user may keep a worker awake");
        }
        if record.polled == on {
            return refuse(
                if on { Errno::BUSY } else { Errno::INVAL },
                format!("{name} is {} polled", if on { "already" } else { "not" }),
            );
        }
        let single = mode == NETMAP_POLLING_MODE_SINGLE_CPU && count <= 1;
        let multi = mode == NETMAP_POLLING_MODE_MULTI_CPU && count >= 1;
        if on && (!(single || multi) || first >= cpus || count.saturating_add(first) > cpus) {
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
            0 => self.new_region(sizes.region(), netvale_mem::mapping::Pages::Ordinary, caller.uid)?,
            id => (self.region(id, caller.uid)?, id),
        };
        open_rings(&region, mem_id, sizes.shape, request)
    }

    /// A persistent port: the rings of its switch's port, or rings with nothing behind them while it is on none.
    pub(crate) fn open_newif(
        &mut self,
        request: &AttachRequest,
        name: &str,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let newif = self.own_newif(name, caller)?;
        if let Some(full) = newif.attached.clone() {
            return refuse(Errno::BUSY, format!("{name} is on a switch: open it as {full}"));
        }
        let own = newif.request.clone();
        let mem_id = if request.mem_id != 0 { request.mem_id } else { own.mem_id };
        self.open_null(&AttachRequest { mem_id, extra_bufs: request.extra_bufs, name: name.to_owned(), ..own }, caller)
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
                let rings = self.ports.get(port).and_then(PortRecord::rings).ok_or_else(gone)?;
                rings.reply(binding.nifp(), binding.extra_bufs(), tx.clone(), rx.clone())
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

fn open_rings(region: &Arc<Region>, mem_id: u32, shape: PortShape, request: &AttachRequest) -> Result<Opened, Refusal> {
    let (rings, _no_ingress) = Rings::new(region, mem_id, shape, 0)?;
    let (tx, rx) = (0..shape.tx_rings, 0..shape.rx_rings);
    let binding = rings.mem.bind(&request.name, tx.clone(), rx.clone(), request.extra_bufs)?;
    let (mut reply, fds) = rings.reply(binding.nifp(), binding.extra_bufs(), tx, rx)?;
    reply.alone = true;
    Ok((reply, fds, Attachment::Null { rings, binding }))
}

/// Switch and port of `valeID:port`.
fn vale_name(name: &str) -> Result<(String, String), Refusal> {
    match PortName::parse(name).map(|n| (n.pipe().is_none(), n.base().clone())) {
        Ok((true, Base::Vale { switch, port })) => Ok((switch.to_string(), port.to_string())),
        _ => refuse(Errno::INVAL, format!("{name}: a port of a switch is named valeID:port")),
    }
}
