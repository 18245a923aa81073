//! Network interfaces: as ports of a switch, and opened by programs as `netmap:IF`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use netvale_control::attach::{AttachReply, AttachRequest, NIC_BOUND, NIC_FORWARDS, Role};
use netvale_control::types::{Direction, Owner, PortInfo, PortKind, PortOptions, PortState, RingInfo};
use netvale_mem::host::HostTx;
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RegionSizes};
use netvale_mem::mapping::Pages;
use netvale_mem::notify::KickCounts;
use netvale_mem::region::Binding;
use netvale_mem::{Mapping, PortMem, PortShape, Region};
use netvale_nic::bpf::{Diversion, Mode};
use netvale_nic::egress::NicEgress;
use netvale_nic::iface::Interface;
use netvale_nic::ingress::NicIngress;
use netvale_nic::nic::Queue;
use netvale_nic::outlet::Outlet;
use netvale_nic::socket::{Buffers, Got, Socket};
use netvale_nic::stack::{Stack, StackRx, StackTx};
use netvale_nic::through::RxEnd;
use netvale_nic::{Nic, NicError, NicOptions};
use netvale_port::{Egress, Ingress, RingCounters};
use netvale_portspec::{Directions, Memory, NicSpec, PortSpec, Rings as RingsSpec};
use netvale_tap::{Tap, TapEgress, TapIngress, TapOptions};
use rustix::io::Errno;

use crate::devices::{Device, tap_refusal};
use crate::inspect::{region_info, with_indices};
use crate::open::{Attachment, Opened, refuse};
use crate::refusal::Refusal;
use crate::rings::{Bells, region_reply};
use crate::state::{Caller, NewPort, Placed, State};
use crate::task::Task;

/// Slots of a ring unless asked otherwise: a driver's usual number.
const SLOTS: u32 = 1024;
/// Ports of the same size that find room in a region made for one: what is to be forwarded without a copy lies in one region.
const ROOM: u32 = 4;

impl From<NicError> for Refusal {
    fn from(e: NicError) -> Self {
        Refusal::new(e.errno(), e.to_string())
    }
}

/// How an interface's queues are bound, in words.
pub fn mode_words(nic: &Nic, zero_copy: bool) -> String {
    let place = match nic.mode() {
        Mode::Native => "in the driver",
        Mode::Generic => "in the stack (generic: the driver has no XDP)",
    };
    let copy = if zero_copy { "zero-copy" } else { "the kernel copies each frame (copy mode)" };
    format!("AF_XDP {place}, {copy}")
}

/// Interfaces in use.
#[derive(Default)]
pub struct Nics {
    open: BTreeMap<String, Weak<Nic>>,
    stacks: BTreeMap<String, Weak<Stack>>,
    /// The region that a user's interfaces share.
    regions: BTreeMap<u32, (u32, Weak<Region>)>,
    /// Ports that programs have open, by connection.
    pub ports: BTreeMap<u64, NicPort>,
}

impl Nics {
    fn nic(&mut self, name: &str, options: NicOptions) -> Result<Arc<Nic>, Refusal> {
        if let Some(nic) = self.open.get(name).and_then(Weak::upgrade) {
            return Ok(nic);
        }
        let nic = Nic::open(name, options)?;
        self.open.insert(name.to_owned(), Arc::downgrade(&nic));
        Ok(nic)
    }

    /// What the stack sends on the interface, and what it receives there, from now on; with `finished` frames only.
    fn stack(&mut self, nic: &Nic, finished: bool) -> Result<Arc<Stack>, Refusal> {
        let interface = nic.interface();
        if self.stacks.get(&interface.name).is_some_and(|stack| stack.strong_count() > 0) {
            return refuse(Errno::BUSY, format!("the host rings of {} are taken: end who has them", interface.name));
        }
        let options = TapOptions {
            name: "nvhost%d".to_owned(),
            mtu: Some(interface.mtu),
            no_offloads: finished,
            ..TapOptions::default()
        };
        let tap = Tap::open(&options).map_err(|e| tap_refusal(&e))?;
        let failed = |what: &str, source: Errno| {
            Refusal::new(source, format!("host rings of {}: cannot {what}: {source}", interface.name))
        };
        let there = Interface::find(tap.name()).map_err(|e| failed("find the TAP", e))?;
        let diversion = Diversion::attach(interface.index, there.index).map_err(|(what, e)| failed(what, e))?;
        tap.bring_up().map_err(|e| tap_refusal(&e))?;
        let queue = tap.into_queues().pop().ok_or_else(|| Refusal::internal("a TAP without a queue"))?;
        let stack = Arc::new(Stack { tap: Arc::new(queue), diversion });
        self.stacks.insert(interface.name.clone(), Arc::downgrade(&stack));
        Ok(stack)
    }
}

/// An interface that a program has open.
pub struct NicPort {
    name: String,
    nic: Arc<Nic>,
    /// For each queue that is bound, its socket; the program has it too.
    sockets: Vec<(u32, Arc<Socket>, Arc<Queue>)>,
    stack: Option<Arc<Stack>>,
    mem: Arc<PortMem>,
    mem_id: u32,
    /// Of the host rings.
    bells: Vec<Bells>,
    tx: Range<u32>,
    rx: Range<u32>,
    /// Host rings, the last of each direction.
    host: u32,
    tasks: Vec<Placed>,
    owner: Caller,
    /// For each ring that is bound, tx first: what passed, and kicks to the program.
    counts: Vec<(Arc<RingCounters>, Arc<KickCounts>)>,
}

impl NicPort {
    /// What its client is told, and the descriptors that go with it. Unless they are `bound`, the client binds its sockets.
    ///
    /// # Errors
    /// [`Refusal`] when the daemon is out of descriptors.
    pub fn reply(&self, binding: &Binding, bound: bool) -> Result<(AttachReply, Vec<std::os::fd::OwnedFd>), Refusal> {
        let queues = self.nic.interface().queues;
        let region = self.mem.region().fd().ok_or_else(|| Refusal::internal("a region without a memfd"))?;
        let mut fds = vec![region.try_clone_to_owned()?];
        for (ring, receives) in self.tx.clone().map(|i| (i, false)).chain(self.rx.clone().map(|i| (i, true))) {
            let [one, other] = if ring < queues { self.queue_fds(ring, receives)? } else { self.host_fds(receives)? };
            fds.extend([one.try_clone_to_owned()?, other.try_clone_to_owned()?]);
        }
        let reply = AttachReply {
            role: Role::Switch,
            nifp: binding.nifp(),
            csb_first: self.mem.csb_first(),
            extra_bufs: binding.extra_bufs(),
            mem_id: self.mem_id,
            tx_bound: self.tx.clone(),
            rx_bound: self.rx.clone(),
            alone: true,
            host_rings: self.host,
            nic_entries: self.sockets.first().map_or(1, |(_, socket, _)| socket.entries()),
            nic_flags: if bound { NIC_BOUND } else { 0 } | if self.stack.is_some() { NIC_FORWARDS } else { 0 },
            nic_ifindex: self.nic.interface().index,
            nic_mtu: self.nic.interface().mtu,
            ..region_reply(&self.mem)
        };
        Ok((reply, fds))
    }

    /// The two descriptors of a queue's ring: its socket, and where its frames are forwarded to.
    fn queue_fds(&self, queue: u32, receives: bool) -> Result<[BorrowedFd<'_>; 2], Refusal> {
        let found = self.sockets.iter().find(|(number, ..)| *number == queue);
        let (_, socket, _) = found.ok_or_else(|| Refusal::internal("a queue without a socket"))?;
        let other = self.stack.as_ref().filter(|_| receives).map(|stack| stack.tap.as_fd());
        Ok([socket.as_fd(), other.unwrap_or(socket.as_fd())])
    }

    /// The two descriptors of a host ring.
    fn host_fds(&self, receives: bool) -> Result<[BorrowedFd<'_>; 2], Refusal> {
        let bells = self.bells(receives)?;
        Ok([bells.doorbell.as_fd(), bells.wake.as_fd()])
    }

    /// Of the host rings: the tx ring's, or the rx ring's.
    fn bells(&self, receives: bool) -> Result<&Bells, Refusal> {
        self.bells.get(usize::from(receives)).ok_or_else(|| Refusal::internal("a ring without bells"))
    }

    /// As `netvale show` tells it.
    pub fn info(&self) -> PortInfo {
        let sides = (self.tx.clone().filter_map(|i| Some((Direction::In, i, self.mem.tx.get(i as usize)?))))
            .chain(self.rx.clone().filter_map(|i| Some((Direction::Out, i, self.mem.rx.get(i as usize)?))));
        let mut counts = self.counts.iter();
        let queues = self.nic.interface().queues;
        let ring = |(dir, index, side)| {
            // What a program does with an interface's queues is between it and the kernel.
            let counted = if index < queues { None } else { counts.next() };
            let base = counted.map_or_else(RingInfo::default, |(counters, kicks)| RingInfo {
                kicks_sent: kicks.sent(),
                kicks_suppressed: kicks.suppressed(),
                ..crate::inspect::counted(counters)
            });
            with_indices(RingInfo { dir, index, ..base }, side)
        };
        let first = self.sockets.first();
        let mut notes: Vec<String> =
            first.iter().map(|(_, socket, _)| mode_words(&self.nic, socket.is_zero_copy())).collect();
        notes.extend(self.sockets.iter().filter_map(|(queue, socket, _)| lost(*queue, socket)));
        if !self.sockets.is_empty() {
            notes.push("frames go between the program and the kernel: 'ip -s link' counts them".to_owned());
        }
        PortInfo {
            name: self.name.clone(),
            kind: PortKind::Nic,
            state: PortState::Open,
            owner: Some(Owner { uid: self.owner.uid, pid: self.owner.pid }),
            region: Some(region_info(self.mem.region(), self.mem_id)),
            rings: sides.map(ring).collect(),
            notes,
            ..PortInfo::default()
        }
    }
}

/// The rings that a specification names: those of queues, and behind them the host ring.
fn wanted(rings: RingsSpec, queues: u32) -> Result<Range<u32>, Refusal> {
    match rings {
        RingsSpec::AllNic => Ok(0..queues),
        RingsSpec::NicAndHost => Ok(0..queues + 1),
        RingsSpec::AllHost => Ok(queues..queues + 1),
        RingsSpec::OneHost(i) if i.get() == 0 => Ok(queues..queues + 1),
        RingsSpec::OneHost(_) => refuse(Errno::INVAL, "an interface has one host ring, number 0"),
        RingsSpec::OneNic(i) if u32::from(i.get()) < queues => Ok(u32::from(i.get())..u32::from(i.get()) + 1),
        RingsSpec::OneNic(i) => {
            let i = i.get();
            refuse(Errno::INVAL, format!("ring {i} asked for; the interface has {queues}, numbered from 0"))
        }
    }
}

impl State {
    /// Who may take an interface away from the kernel: who could do so without the daemon, and whom the configuration lets.
    fn may_take(&self, name: &str, caller: Caller) -> Result<(), Refusal> {
        let own = caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw();
        if own || self.config.allow_nics.iter().any(|allowed| allowed == name) {
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
        if spec.flags.monitor.is_some() {
            return refuse(Errno::OPNOTSUPP, "interfaces have no monitors: attach one to a switch, and watch its port");
        }
        let nic = self.nics.nic(ifname, NicOptions::default())?;
        let queues = nic.interface().queues;
        let which = wanted(spec.rings, queues)?;
        let (tx, rx) = match spec.flags.directions {
            Directions::Both => (which.clone(), which),
            Directions::Tx => (which, 0..0),
            Directions::Rx => (0..0, which),
        };
        let or = |asked: u32| if asked == 0 { SLOTS } else { asked };
        let host = u32::from(tx.end.max(rx.end) > queues);
        let shape = PortShape {
            tx_rings: queues + host,
            rx_rings: queues + host,
            tx_slots: or(spec.conf.tx_slots.max(request.tx_slots)),
            rx_slots: or(spec.conf.rx_slots.max(request.rx_slots)),
        };
        let (region, mem_id) = self.nic_region(&spec.memory, shape, request, caller)?;
        let mem = Arc::new(region.port_with_host_rings(shape, host)?);
        let binding = mem.bind(&spec.name.to_string(), tx.clone(), rx.clone(), request.extra_bufs)?;
        let bells = (0..2 * host).map(|_| Bells::new()).collect::<Result<_, _>>()?;
        let port = NicPort {
            name: request.name.clone(),
            nic,
            sockets: Vec::new(),
            stack: None,
            mem,
            mem_id,
            bells,
            tx,
            rx,
            host,
            tasks: Vec::new(),
            owner: caller,
            counts: Vec::new(),
        };
        let port = self.start_nic(port)?;
        let (reply, fds) = port.reply(&binding, false)?;
        tracing::info!(port = port.name, uid = caller.uid, pid = caller.pid, "opened");
        self.nics.ports.insert(caller.client, port);
        Ok((reply, fds, Attachment::Nic { client: caller.client, binding }))
    }

    /// Opens a socket for each queue and puts what moves frames on workers.
    fn start_nic(&mut self, mut port: NicPort) -> Result<NicPort, Refusal> {
        let layout = port.mem.region().layout();
        let bufs = layout.sizes.bufs;
        let buffers = Buffers { first: layout.buf_pool, stride: bufs.size, count: bufs.num };
        let map = Arc::clone(port.mem.region().mapping());
        let shape = port.mem.shape();
        let entries = shape.tx_slots.max(shape.rx_slots).next_power_of_two();
        port.stack = if port.host > 0 { Some(self.nics.stack(&port.nic, true)?) } else { None };
        let queues = port.nic.interface().queues;
        for queue in port.tx.start.max(port.rx.start)..port.tx.end.max(port.rx.end).min(queues) {
            let opened = port.nic.queue(queue, entries, (&map, buffers), port.rx.contains(&queue))?;
            port.sockets.push((queue, opened.socket, opened.queue));
        }
        if let Some(stack) = port.stack.clone() {
            for (task, counts) in host_rings(&port, &stack)? {
                port.counts.push(counts);
                port.tasks.push(self.place(task));
            }
        }
        Ok(port)
    }

    /// The region for an interface's buffers: the one that the user's interfaces share, as long as it has room.
    fn nic_region(
        &mut self,
        memory: &Memory,
        shape: PortShape,
        request: &AttachRequest,
        caller: Caller,
    ) -> Result<(Arc<Region>, u32), Refusal> {
        if *memory != Memory::Auto {
            return self.region_for_spec(memory, caller);
        }
        let (rings, slots) = (shape.tx_rings + shape.rx_rings, shape.tx_slots.max(shape.rx_slots));
        let known = self.nics.regions.get(&caller.uid).and_then(|(id, region)| Some((region.upgrade()?, *id)));
        let fits = |region: &Region| {
            let (ifs, free_rings, bufs) = region.free();
            let layout = region.layout();
            ifs > 0
                && free_rings >= rings
                && bufs >= rings * slots + request.extra_bufs
                && layout.max_slots() >= slots
                && layout.max_port_rings() >= rings + 2
                && (request.buf_size == 0 || request.buf_size == layout.sizes.bufs.size)
        };
        if let Some(found) = known.filter(|(region, _)| fits(region)) {
            return Ok(found);
        }
        let buf_size = if request.buf_size == 0 { DEFAULT_BUF_SIZE } else { request.buf_size };
        let sizes = RegionSizes::for_port(ROOM * rings, slots, buf_size, ROOM, request.extra_bufs);
        let (region, id) = self.new_region(sizes, Pages::Ordinary, caller.uid)?;
        self.nics.regions.insert(caller.uid, (id, Arc::downgrade(&region)));
        Ok((region, id))
    }

    /// A program has closed its interface: its queues are the stack's again when this returns.
    pub(crate) fn close_nic(&mut self, client: u64) {
        let Some(port) = self.nics.ports.remove(&client) else { return };
        self.retire(&port.tasks);
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
        let nic = self.nics.nic(ifname, NicOptions::default())?;
        let which = wanted(spec.spec().rings, nic.interface().queues)?;
        let entries = (if o.slots == 0 { SLOTS } else { o.slots }).next_power_of_two();
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
        let device = Device { kind: PortKind::Nic, detail, ..Device::default() };
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
        host: bool,
        caller: Caller,
    ) -> Result<(), Refusal> {
        let spec = PortSpec::parse(&format!("netmap:{port}")).ok().and_then(NicSpec::new);
        let missing = || Refusal::new(Errno::NXIO, format!("there is no interface {port}: 'ip link' shows them"));
        let options = PortOptions { host, ..PortOptions::default() };
        self.attach_nic((switch, port), &spec.ok_or_else(missing)?, &options, caller)
    }

    /// Takes a port off its switch, and with an interface the stack behind it.
    pub(crate) fn detach(&mut self, full: &str, why: &str) -> Result<(), Refusal> {
        self.unplug(full, why)?;
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
        let stack = self.nics.stack(nic, false)?;
        let egress: Arc<dyn Egress> = Arc::new(TapEgress::new(Arc::clone(&stack.tap), Arc::default()));
        let ingress = Box::new(TapIngress::new(Arc::clone(&stack.tap), Arc::default()));
        let detail = Some(format!("the host's stack behind interface {}", nic.interface().name));
        let device = Device { kind: PortKind::Nic, detail, stack: Some(stack), ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, &name, vec![egress], vec![ingress], new).map(|_| ())
    }
}

/// Frames that the kernel could not hand over, in words.
fn lost(queue: u32, socket: &Socket) -> Option<String> {
    let s = socket.statistics()?;
    let lost = [(s.rx_dropped, "too long"), (s.rx_fill_ring_empty_descs.unwrap_or(0), "times without an empty buffer")];
    let words: Vec<String> = lost.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}")).collect();
    (!words.is_empty()).then(|| format!("queue {queue}, received: {}", words.join(", ")))
}

/// What moves frames between the stack and the port's host rings, in the directions that are bound.
fn host_rings(port: &NicPort, stack: &Arc<Stack>) -> Result<Vec<Counted>, Refusal> {
    let mut tasks = Vec::<Counted>::new();
    let last = port.mem.shape().tx_rings - 1;
    if let Some(side) = port.mem.tx.last().filter(|_| port.tx.contains(&last)) {
        let (bells, counters) = (port.bells(false)?, Arc::<RingCounters>::default());
        let host = HostTx::new(side.clone(), bells.wake.try_clone()?);
        let (kicks, doorbell) = (host.kicks(), bells.doorbell.try_clone()?);
        let task = StackTx::new(Arc::clone(&port.mem), host, doorbell, Arc::clone(stack), Arc::clone(&counters));
        tasks.push((Box::new(task), (counters, kicks)));
    }
    if let Some(side) = port.mem.rx.last().filter(|_| port.rx.contains(&last)) {
        let counters = Arc::<RingCounters>::default();
        let interface = port.nic.interface();
        let wire = Outlet::wire(interface.index)
            .map_err(|e| Refusal::new(e, format!("{}: cannot send past the stack: {e}", interface.name)))?;
        let end = RxEnd::new(side.clone(), port.bells(true)?.wake.try_clone()?);
        let task = StackRx::new(Arc::clone(&port.mem), end, Arc::clone(stack), wire, Arc::clone(&counters));
        let kicks = task.kicks();
        tasks.push((Box::new(task), (counters, kicks)));
    }
    Ok(tasks)
}

/// A task and what it counts.
type Counted = (Box<dyn Task>, (Arc<RingCounters>, Arc<KickCounts>));

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
