//! Network interfaces: as ports of a switch, and opened by programs as `netmap:IF`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use netvale_control::attach::AttachRequest;
use netvale_control::types::{PortKind, PortOptions};
use netvale_mem::host::HostTx;
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RING_SLOTS_RANGE};
use netvale_mem::mapping::Pages;
use netvale_mem::notify::KickCounts;
use netvale_mem::{Mapping, Region};
use netvale_nic::bpf::Diversion;
use netvale_nic::egress::NicEgress;
use netvale_nic::iface::Interface;
use netvale_nic::ingress::NicIngress;
use netvale_nic::outlet::Outlet;
use netvale_nic::rx_end::RxEnd;
use netvale_nic::sizes::{self, Needs};
use netvale_nic::socket::{Buffers, Got};
use netvale_nic::stack::{Stack, StackRx, StackTx};
use netvale_nic::{Nic, NicError};
use netvale_port::{Egress, Ingress, RingCounters};
use netvale_portspec::{Directions, Memory, NicSpec, PortSpec, Rings as RingsSpec};
use netvale_tap::{Tap, TapEgress, TapIngress, TapOptions};
use rustix::io::Errno;

use crate::devices::{Device, tap_refusal};
use crate::nic_port::{NicPort, mode_words};
use crate::open::{Attachment, Opened, refuse};
use crate::refusal::Refusal;
use crate::rings::Bells;
use crate::state::{Caller, NewPort, State};
use crate::task::Task;

impl From<NicError> for Refusal {
    fn from(e: NicError) -> Self {
        Refusal::new(e.errno(), e.to_string())
    }
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
    pub(crate) fn nic(&mut self, name: &str) -> Result<Arc<Nic>, Refusal> {
        if let Some(nic) = self.open.get(name).and_then(Weak::upgrade) {
            return Ok(nic);
        }
        let nic = Nic::open(name)?;
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

/// Whether a caller could do without the daemon what it does.
fn is_trusted(caller: Caller) -> bool {
    caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw()
}

/// The rings that a specification names: those of queues, and behind them the host ring.
pub(crate) fn wanted(rings: RingsSpec, queues: u32) -> Result<Range<u32>, Refusal> {
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
        if spec.flags.monitor.is_some() {
            return refuse(Errno::OPNOTSUPP, "interfaces have no monitors: attach one to a switch, and watch its port");
        }
        let nic = self.nics.nic(ifname)?;
        let queues = nic.interface().queues;
        let which = wanted(spec.rings, queues)?;
        let (tx, rx) = match spec.flags.directions {
            Directions::Both => (which.clone(), which),
            Directions::Tx => (which, 0..0),
            Directions::Rx => (0..0, which),
        };
        let host = u32::from(tx.end.max(rx.end) > queues);
        let slots = (spec.conf.tx_slots.max(request.tx_slots), spec.conf.rx_slots.max(request.rx_slots));
        let shape = sizes::shape(queues, host, slots);
        let needs = Needs { shape, buf_size: request.buf_size, extra_bufs: request.extra_bufs };
        let (region, mem_id) = self.nic_region(&spec.memory, &needs, caller)?;
        let mem = Arc::new(region.port_with_host_rings(shape, host)?);
        let binding = mem.bind(&spec.name.to_string(), tx.clone(), rx.clone(), request.extra_bufs)?;
        let bells = (0..2 * host).map(|_| Bells::new()).collect::<Result<_, _>>()?;
        let port = NicPort {
            name: request.name.clone(),
            nic,
            sockets: Vec::new(),
            trusted: is_trusted(caller),
            got: None,
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
        let entries = sizes::entries(port.mem.shape());
        port.stack = if port.host > 0 { Some(self.nics.stack(&port.nic, true)?) } else { None };
        let queues = port.nic.interface().queues;
        for queue in port.tx.start.max(port.rx.start)..port.tx.end.max(port.rx.end).min(queues) {
            let opened = port.nic.queue(queue, entries, (&map, buffers), port.rx.contains(&queue))?;
            if !port.trusted {
                port.got = Some(opened.bind()?);
            }
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
    fn nic_region(&mut self, memory: &Memory, needs: &Needs, caller: Caller) -> Result<(Arc<Region>, u32), Refusal> {
        if *memory != Memory::Auto {
            return self.region_for_spec(memory, caller);
        }
        let known = self.nics.regions.get(&caller.uid).and_then(|(id, region)| Some((region.upgrade()?, *id)));
        if let Some(found) = known.filter(|(region, _)| needs.fit(region)) {
            return Ok(found);
        }
        let (region, id) = self.new_region(needs.region(), Pages::Ordinary, caller.uid)?;
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
        let nic = self.nics.nic(ifname)?;
        let which = wanted(spec.spec().rings, nic.interface().queues)?;
        if o.slots > *RING_SLOTS_RANGE.end() {
            return refuse(Errno::INVAL, format!("at most {} slots a ring are possible", RING_SLOTS_RANGE.end()));
        }
        let entries = sizes::entries(sizes::shape(1, 0, (o.slots, o.slots)));
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
