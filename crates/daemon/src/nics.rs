//! Network interfaces: as ports of a switch, and opened by programs as `netmap:IF`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use netvale_abi::nmreq::{NR_REG_ALL_NIC, NR_REG_NIC_SW};
use netvale_afxdp::bpf::{Diversion, steering};
use netvale_afxdp::iface::Interface;
use netvale_afxdp::outlet::Outlet;
use netvale_afxdp::rx_end::RxEnd;
use netvale_afxdp::sizes::{self, Needs};
use netvale_afxdp::socket::{Buffers, Got};
use netvale_afxdp::{Nic, NicError};
use netvale_control::attach::{AttachRequest, FLAG_NETMAP, MAX_PORT_RINGS, MAX_RINGS};
use netvale_control::types::{PortKind, PortOptions};
use netvale_mem::host::HostTx;
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RING_SLOTS_RANGE};
use netvale_mem::mapping::Pages;
use netvale_mem::notify::KickCounts;
use netvale_mem::{Mapping, PortShape, Region};
use netvale_nic::egress::NicEgress;
use netvale_nic::ingress::NicIngress;
use netvale_nic::stack::{Stack, StackRx, StackTx};
use netvale_port::{Egress, Ingress, RingCounters};
use netvale_portspec::{Directions, Memory, NicSpec, PortSpec, Rings as RingsSpec};
use netvale_tap::{Tap, TapEgress, TapIngress, TapOptions};
use rustix::io::Errno;

use crate::devices::{Device, tap_refusal};
use crate::monitors::Watched;
use crate::nic_port::{NicPort, mode_words};
use crate::open::{Attachment, Opened, refuse};
use crate::refusal::Refusal;
use crate::rings::Bells;
use crate::state::{COMMON_REGION, Caller, NewPort, PortRecord, State};
use crate::worker::Job;

impl From<NicError> for Refusal {
    fn from(e: NicError) -> Self {
        Refusal::new(e.errno(), e.to_string())
    }
}

/// Most extra buffers that a region is made with for a netmap program, which takes what it gets: they are locked in memory.
const MOST_EXTRA_BUFS: u32 = 128 * 1024;

/// Interfaces in use.
#[derive(Default)]
pub struct Nics {
    open: BTreeMap<String, Weak<Nic>>,
    stacks: BTreeMap<String, Weak<Stack>>,
    /// Ports that programs have open, by connection.
    pub ports: BTreeMap<u64, NicPort>,
}

impl Nics {
    pub(crate) fn nic(&mut self, name: &str) -> Result<Arc<Nic>, Refusal> {
        if let Some(nic) = self.open.get(name).and_then(Weak::upgrade) {
            return Ok(nic);
        }
        let nic = Nic::open(name)?;
        self.open.insert(name.to_owned(), Arc::downgrade(&nic));
        Ok(nic)
    }

    /// A port that a program has open on the interface: what the others are opened like.
    pub(crate) fn port_on(&self, ifname: &str) -> Option<&NicPort> {
        self.ports.values().find(|port| port.nic.interface().name == ifname)
    }

    /// The TAP in the place of the interface's stack, with `queues` queues; `finished`: of frames with nothing left to do.
    fn stack(&mut self, nic: &Nic, queues: u32, finished: bool) -> Result<Arc<Stack>, Refusal> {
        let interface = nic.interface();
        let options = TapOptions {
            name: "nvhost%d".to_owned(),
            queues,
            mtu: Some(interface.mtu),
            no_offloads: finished,
            ..TapOptions::default()
        };
        let tap = Tap::open(&options).map_err(|e| tap_refusal(&e))?;
        let failed = |what: &str, source: Errno| {
            Refusal::new(source, format!("host rings of {}: cannot {what}: {source}", interface.name))
        };
        let there = Interface::find(tap.name()).map_err(|e| failed("find the TAP", e))?;
        if queues > 1 {
            let program = steering().map_err(|(what, e)| failed(what, e))?;
            tap.steer(&program).map_err(|e| tap_refusal(&e))?;
        }
        let diversion = Diversion::attach(interface.index, there.index, queues).map_err(|(what, e)| failed(what, e))?;
        tap.bring_up().map_err(|e| tap_refusal(&e))?;
        let stack = Arc::new(Stack::new(tap.into_queues(), diversion));
        self.stacks.insert(interface.name.clone(), Arc::downgrade(&stack));
        Ok(stack)
    }

    /// The one that the interface's host rings lead to; made with the first of them.
    fn stack_of(&mut self, port: &NicPort) -> Result<Arc<Stack>, Refusal> {
        match self.stacks.get(&port.nic.interface().name).and_then(Weak::upgrade) {
            Some(stack) => Ok(stack),
            None => self.stack(&port.nic, port.mem.host_rings().1.max(1), true),
        }
    }

    /// Refuses host rings that somebody has.
    fn check_host_rings(&self, ifname: &str, (tx, rx): (&Range<u32>, &Range<u32>), queues: u32) -> Result<(), Refusal> {
        let of_host = |range: &Range<u32>| range.start.max(queues)..range.end.max(queues);
        let meet = |a: &Range<u32>, b: &Range<u32>| !a.is_empty() && a.start < b.end && b.start < a.end;
        let on = self.ports.values().filter(|port| port.nic.interface().name == ifname);
        for port in on {
            if meet(&of_host(tx), &port.tx) || meet(&of_host(rx), &port.rx) {
                let text = format!("the host rings of {ifname} are taken: open others, or end who has them");
                return refuse(Errno::BUSY, text);
            }
        }
        Ok(())
    }
}

/// Whether a caller could do without the daemon what it does.
fn is_trusted(caller: Caller) -> bool {
    caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw()
}

/// Rings of one direction: those of queues, and behind them the host rings.
pub(crate) type Counts = (u32, u32);

/// The rings that a specification names in one direction, as netmap has it: a number that only the other direction has means the first.
pub(crate) fn wanted(rings: RingsSpec, (queues, host): Counts, other: Counts) -> Result<Range<u32>, Refusal> {
    let one = |i: u32, own: u32, other: u32, what: &str| match i {
        i if i < own => Ok(i),
        i if i < other => Ok(0),
        i => refuse(Errno::INVAL, format!("{what}ring {i} asked for; the interface has {own}, numbered from 0")),
    };
    match rings {
        RingsSpec::AllNic => Ok(0..queues),
        RingsSpec::NicAndHost => Ok(0..queues + host),
        RingsSpec::AllHost => Ok(queues..queues + host),
        RingsSpec::OneHost(i) => one(i.get().into(), host, other.1, "host ").map(|i| queues + i).map(|i| i..i + 1),
        RingsSpec::OneNic(i) => one(i.get().into(), queues, other.0, "").map(|i| i..i + 1),
    }
}

impl State {
    /// Who may take an interface away from the kernel: who could do so without the daemon, and whom the configuration lets.
    pub(crate) fn may_take(&self, name: &str, caller: Caller) -> Result<(), Refusal> {
        if is_trusted(caller) || self.config.allow_nics.iter().any(|allowed| allowed == name) {
            return Ok(());
        }
        let text = "only root and the daemon's own user may open it; 'netvale up --allow-nic' lets others";
        refuse(Errno::ACCESS, format!("{name}: {text}"))
    }

    /// Opens an interface for a program: its rings are the interface's queues.
    pub(crate) fn open_nic(
        &mut self,
        request: &AttachRequest,
        spec: &PortSpec,
        ifname: &str,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        self.may_take(ifname, caller)?;
        let nic = self.nics.nic(ifname)?;
        let queues = nic.interface().queues;
        let (shape, host) = self.shape_of(&nic, request, spec)?;
        let (tx_counts, rx_counts) = ((queues, host.0), (queues, host.1));
        let bound = |own: Counts, other: Counts, without: Directions| match spec.rings {
            _ if spec.flags.directions == without => Ok(0..0),
            rings => wanted(rings, own, other),
        };
        let tx = bound(tx_counts, rx_counts, Directions::Rx)?;
        let rx = bound(rx_counts, tx_counts, Directions::Tx)?;
        if tx.len() + rx.len() > MAX_RINGS {
            return refuse(Errno::NOMEM, format!("{ifname}: at most {MAX_RINGS} rings can be open at once"));
        }
        if tx.end.max(rx.end) > queues {
            self.check_stack_free(ifname)?;
            self.nics.check_host_rings(ifname, (&tx, &rx), queues)?;
        }
        let used = (tx.len() as u32, rx.len() as u32);
        let extra_bufs = match request.flags & FLAG_NETMAP {
            0 => request.extra_bufs,
            // As many as there are.
            _ => request.extra_bufs.min(MOST_EXTRA_BUFS),
        };
        let needs = Needs { shape, host, used, buf_size: request.buf_size, extra_bufs };
        let (region, mem_id) = self.nic_region((ifname, &spec.memory), request, &needs, caller)?;
        let mem = Arc::new(region.port_in_part(shape, host, (&tx, &rx))?);
        let binding = mem.bind(&spec.name.to_string(), tx.clone(), rx.clone(), request.extra_bufs)?;
        let port = NicPort {
            name: request.name.clone(),
            nic,
            sockets: Vec::new(),
            trusted: is_trusted(caller),
            got: None,
            stack: None,
            mem,
            mem_id,
            fault: self.new_fault(),
            bells: BTreeMap::new(),
            tx,
            rx,
            open_rings: Vec::new(),
            tasks: Vec::new(),
            owner: caller,
            counts: Vec::new(),
        };
        let port = self.start_nic(port)?;
        let (reply, fds) = port.reply(&binding, false)?;
        tracing::info!(port = port.name, uid = caller.uid, pid = caller.pid, "opened");
        self.nics.ports.insert(caller.client, port);
        self.watch_too(ifname, caller.client);
        Ok((reply, fds, Attachment::Nic { client: caller.client, binding }))
    }

    /// How many rings the interface has, of how many slots, and how many of them are host rings: whoever comes first says it, as long as somebody has it open.
    fn shape_of(&self, nic: &Nic, request: &AttachRequest, spec: &PortSpec) -> Result<(PortShape, Counts), Refusal> {
        let interface = nic.interface();
        if let Some(port) = self.nics.port_on(&interface.name) {
            return Ok((port.mem.shape(), port.mem.host_rings()));
        }
        let or_one = |conf: u16, asked: u32| u32::from(conf).max(asked).max(1);
        let host = (
            or_one(spec.conf.host_tx_rings, request.host_tx_rings),
            or_one(spec.conf.host_rx_rings, request.host_rx_rings),
        );
        let all = host.0.saturating_add(host.1).saturating_add(2 * interface.queues);
        if all > MAX_PORT_RINGS || host.1 > netvale_tap::device::MAX_QUEUES {
            let (tx, rx) = host;
            return refuse(Errno::NOMEM, format!("{tx} and {rx} host rings are too many for {}", interface.name));
        }
        let slots = (spec.conf.tx_slots.max(request.tx_slots), spec.conf.rx_slots.max(request.rx_slots));
        Ok((sizes::shape(interface.queues, host, slots), host))
    }

    /// The stack behind an interface on a switch is that switch's, or left alone.
    fn check_stack_free(&self, ifname: &str) -> Result<(), Refusal> {
        if let Some(full) = self.switch_port_on(ifname) {
            return refuse(Errno::BUSY, format!("{ifname} is on a switch, as {full}: detach it first"));
        }
        Ok(())
    }

    /// Under which name an interface is on a switch.
    pub(crate) fn switch_port_on(&self, ifname: &str) -> Option<&str> {
        let on = |record: &PortRecord| record.interface().is_some_and(|interface| interface.name == ifname);
        self.ports.iter().find(|(_, record)| on(record)).map(|(full, _)| full.as_str())
    }

    /// Opens a socket for each queue and puts what moves frames on workers.
    fn start_nic(&mut self, mut port: NicPort) -> Result<NicPort, Refusal> {
        let layout = port.mem.region().layout();
        let bufs = layout.sizes.bufs;
        let buffers = Buffers { first: layout.buf_pool, stride: bufs.size, count: bufs.num };
        let map = Arc::clone(port.mem.region().mapping());
        let entries = sizes::entries(port.mem.shape());
        let queues = port.nic.interface().queues;
        for queue in port.tx.start.min(port.rx.start)..port.tx.end.max(port.rx.end).min(queues) {
            if !port.tx.contains(&queue) && !port.rx.contains(&queue) {
                continue;
            }
            let opened = port.nic.queue(queue, entries, (&map, buffers), port.rx.contains(&queue))?;
            if !port.trusted {
                port.got = Some(opened.bind()?);
            }
            port.sockets.push((queue, opened.socket, opened.queue));
        }
        if port.tx.end.max(port.rx.end) > queues {
            let stack = self.nics.stack_of(&port)?;
            for (task, counts) in host_rings(&mut port, &stack)? {
                port.counts.push(counts);
                port.tasks.push(self.place(task));
            }
            port.stack = Some(stack);
        }
        Ok(port)
    }

    /// The region for an interface's buffers: that of its other rings, or the one that the user's interfaces share, as long as it has room.
    fn nic_region(
        &mut self,
        (ifname, memory): (&str, &Memory),
        request: &AttachRequest,
        needs: &Needs,
        caller: Caller,
    ) -> Result<(Arc<Region>, u32), Refusal> {
        if *memory == Memory::Auto
            && let Some(pools) = crate::sizes::own_pools(&request.pools)
        {
            return self.new_region(pools, Pages::Ordinary, caller.uid);
        }
        match memory {
            Memory::Id(id) if u32::from(id.get()) == COMMON_REGION => {
                return Ok((self.common_region(caller.uid, needs.common())?, COMMON_REGION));
            }
            Memory::Auto => {}
            named => return self.region_for_spec(named, caller),
        }
        let beside = self.nics.ports.values().filter(|p| p.nic.interface().name == ifname && p.owner.uid == caller.uid);
        let beside: Vec<_> = beside.map(|p| (Arc::clone(p.mem.region()), p.mem_id)).collect();
        if let Some(found) = beside.into_iter().find(|(region, _)| needs.fit(region)) {
            return Ok(found);
        }
        if needs.is_usual() {
            let common = self.common_region(caller.uid, needs.common())?;
            if needs.fit(&common) {
                return Ok((common, COMMON_REGION));
            }
        }
        self.new_region(needs.region(), Pages::Ordinary, caller.uid)
    }

    /// A program has closed its interface: its queues are the stack's again when this returns.
    pub(crate) fn close_nic(&mut self, client: u64) {
        let Some(port) = self.nics.ports.remove(&client) else { return };
        self.retire(&port.tasks);
        self.end_mirrors(&port.mem);
        let ifname = &port.nic.interface().name;
        if !self.nics.ports.values().any(|other| other.nic.interface().name == *ifname) {
            self.end_monitors(&Watched::Nic(ifname.clone()));
        }
        tracing::info!(port = port.name, "closed");
    }

    /// Attaches an interface to a switch.
    pub(crate) fn attach_nic(
        &mut self,
        (switch, port): (&str, &str),
        spec: &NicSpec,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.check_free(switch, port)?;
        let ifname = spec.ifname().as_str();
        self.may_take(ifname, caller)?;
        let nic = self.nics.nic(ifname)?;
        let counts = (nic.interface().queues, 1);
        let which = wanted(spec.spec().rings, counts, counts)?;
        if o.slots > *RING_SLOTS_RANGE.end() {
            return refuse(Errno::INVAL, format!("at most {} slots a ring are possible", RING_SLOTS_RANGE.end()));
        }
        let entries = sizes::entries(sizes::shape(1, (0, 0), (o.slots, o.slots)));
        let (mut egress, mut ingresses) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
        let mut detail = None;
        let queues = nic.interface().queues;
        let host = o.host || which.end > queues;
        for queue in which.start..which.end.min(queues) {
            let (ingress, out, got) = switch_queue(&nic, queue, entries)?;
            ingresses.push(Box::new(ingress));
            egress.push(Arc::new(out));
            detail = Some(format!("interface {ifname}, {}", mode_words(&nic, got.zero_copy)));
        }
        let device = Device { kind: PortKind::Nic, detail, nic: Some(Arc::clone(&nic)), ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, port, egress, ingresses, new)?;
        if host && let Err(why) = self.attach_stack((switch, port), &nic, o, caller) {
            self.unplug(&format!("{switch}:{port}"), "its host stack cannot be attached")?;
            return Err(why);
        }
        Ok(())
    }

    /// Attaches the interface that a port is named after, as netmap's `VALE_ATTACH` does.
    pub(crate) fn attach_nic_named(
        &mut self,
        (switch, port): (&str, &str),
        (mode, ring): (u32, u16),
        caller: Caller,
    ) -> Result<(), Refusal> {
        let spec = PortSpec::parse(&format!("netmap:{port}")).ok().and_then(NicSpec::new);
        let missing = || Refusal::new(Errno::INVAL, format!("there is no interface {port}: 'ip link' shows them"));
        Interface::find(port).map_err(|_| missing())?;
        if !matches!(mode, NR_REG_ALL_NIC | NR_REG_NIC_SW) || ring != 0 {
            return refuse(Errno::INVAL, format!("{port} is attached with all its rings, and its stack or without"));
        }
        if self.nics.port_on(port).is_some() {
            return refuse(Errno::BUSY, format!("{port} is open in a program: end that first"));
        }
        let options = PortOptions { host: mode == NR_REG_NIC_SW, ..PortOptions::default() };
        self.attach_nic((switch, port), &spec.ok_or_else(missing)?, &options, caller)
    }

    /// Takes a port off its switch, and with an interface the stack behind it. A persistent port stays, on no switch.
    pub(crate) fn detach(&mut self, full: &str, why: &str) -> Result<(), Refusal> {
        if self.unhook(full, why) {
            return Ok(());
        }
        self.unplug(full, why)?;
        self.newifs.retain(|_, newif| newif.place() != full);
        let stack = host_port(full);
        if self.ports.contains_key(&stack) {
            self.unplug(&stack, "its interface is detached")?;
        }
        Ok(())
    }

    /// Attaches the stack behind an interface to a switch, as the port `NAME^`.
    fn attach_stack(
        &mut self,
        (switch, port): (&str, &str),
        nic: &Nic,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        let name = host_port(port);
        self.check_free(switch, &name)?;
        let interface = nic.interface();
        if self.nics.stacks.get(&interface.name).is_some_and(|stack| stack.strong_count() > 0) {
            return refuse(Errno::BUSY, format!("the host rings of {} are taken: end who has them", interface.name));
        }
        let stack = self.nics.stack(nic, 1, false)?;
        let open = |e| Refusal::new(e, format!("host rings of {}: {e}", interface.name));
        let queue = Arc::clone(stack.queue(0).map_err(open)?);
        let stack = stack.open_ring(0).map_err(open)?;
        let egress: Arc<dyn Egress> = Arc::new(TapEgress::new(Arc::clone(&queue), Arc::default()));
        let ingress = Box::new(TapIngress::new(queue, Arc::default()));
        let detail = Some(format!("the host's stack behind interface {}", nic.interface().name));
        let device = Device { kind: PortKind::Nic, detail, stack: Some(stack), ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, &name, vec![egress], vec![ingress], new).map(|_| ())
    }
}

/// What moves frames between the stack and the port's host rings, in the directions that are bound. What is opened for it becomes the port's.
fn host_rings(port: &mut NicPort, stack: &Arc<Stack>) -> Result<Vec<Counted>, Refusal> {
    let mut tasks = Vec::<Counted>::new();
    let interface = port.nic.interface().clone();
    let queues = interface.queues;
    let failed = |what: &'static str| {
        let name = interface.name.clone();
        move |e: Errno| Refusal::new(e, format!("{name}: cannot {what}: {e}"))
    };
    for i in port.tx.clone().filter(|&i| i >= queues) {
        let side = port.mem.tx.get(i as usize).ok_or_else(|| Refusal::internal("a host ring without memory"))?;
        let (bells, counters) = (Bells::new(&port.fault)?, Arc::<RingCounters>::default());
        let host = HostTx::new(side.clone(), bells.wake.try_clone()?);
        let (kicks, doorbell) = (host.kicks(), bells.doorbell.try_clone()?);
        let queue = stack.queue(i - queues).map_err(failed("reach the stack"))?;
        let task = StackTx::new(Arc::clone(&port.mem), host, doorbell, queue, Arc::clone(&counters));
        port.bells.insert((false, i), bells);
        tasks.push((Box::new(task), (counters, kicks)));
    }
    for i in port.rx.clone().filter(|&i| i >= queues) {
        let side = port.mem.rx.get(i as usize).ok_or_else(|| Refusal::internal("a host ring without memory"))?;
        let (bells, counters) = (Bells::new(&port.fault)?, Arc::<RingCounters>::default());
        let wire = Outlet::wire(interface.index).map_err(failed("send past the stack"))?;
        let end = RxEnd::new(side.clone(), bells.wake.try_clone()?);
        let queue = stack.queue(i - queues).map_err(failed("reach the stack"))?;
        let task = StackRx::new(Arc::clone(&port.mem), end, queue, wire, Arc::clone(&counters));
        let kicks = task.kicks();
        port.open_rings.push(stack.open_ring(i - queues).map_err(failed("lead the stack's frames here"))?);
        port.bells.insert((true, i), bells);
        tasks.push((Box::new(task), (counters, kicks)));
    }
    Ok(tasks)
}

/// A task and what it counts.
type Counted = (Job, (Arc<RingCounters>, Arc<KickCounts>));

/// The name of the port for the stack behind an interface that is the port `name`.
pub fn host_port(name: &str) -> String {
    format!("{name}^")
}

/// A queue for a switch, with memory of its own: half of it to receive into, half to send from.
fn switch_queue(nic: &Arc<Nic>, queue: u32, entries: u32) -> Result<(NicIngress, NicEgress, Got), Refusal> {
    // Buffer 0 has no room for the kernel's headroom before it.
    let count = 1 + 2 * entries;
    let bytes = (count as usize * DEFAULT_BUF_SIZE as usize).next_multiple_of(4096);
    let missing =
        || Refusal::new(Errno::NOMEM, format!("no memory for {count} frames of interface {}", nic.interface().name));
    let memory = Arc::new(Mapping::private(bytes).ok_or_else(missing)?);
    let buffers = Buffers { first: 0, stride: DEFAULT_BUF_SIZE, count };
    let opened = nic.queue(queue, entries, (&memory, buffers), true)?;
    let halves = opened.socket.receiver().and_then(|receiver| Ok((receiver, opened.socket.sender()?)));
    let failed = |e| Refusal::new(e, format!("{}: cannot map the socket's rings: {e}", nic.interface().name));
    let (receiver, sender) = halves.map_err(failed)?;
    let got = opened.bind()?;
    let queue = opened.queue;
    let ours = (got.multi_buffer, Arc::clone(&queue));
    let egress = NicEgress::new(sender, Arc::clone(&memory), buffers, 1 + entries..count, ours);
    Ok((NicIngress::new(receiver, memory, buffers, 1..1 + entries, queue), egress, got))
}
