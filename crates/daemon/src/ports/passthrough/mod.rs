//! `ptnet:/PATH` with a backend: a virtual machine has a pipe's end or a network interface without a switch
//! (passthrough).

mod wires;

use std::sync::Arc;

use netvale_afxdp::sizes::entries;
use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::{Direction, PortInfo, PortKind};
use netvale_mem::Region;
use netvale_mem::mapping::Pages;
use netvale_mem::notify::Doorbell;
use netvale_port::RingCounters;
use netvale_port::listener::Site;
use netvale_port::passage::Seated;
use netvale_portspec::{Base, Flags, PortSpec, Rings};
use netvale_ptnet::backend::{Backend, Fresh};
use netvale_ptnet::header::Config;
use netvale_ptnet::instance::{shape, sizes};
use netvale_ptnet::pipe::PipeBackend;
use rustix::io::Errno;

use self::wires::NicBackend;
use super::memory::new_number;
use super::ptnet::{self, DevicePort};
use super::site::site;
use crate::caller::Caller;
use crate::daemon::{Attached, Daemon, Kicks};
use crate::refusal::{Refusal, refuse};
use crate::registry::pipes::Pipes;
use crate::registry::ports::PortRecord;
use crate::rings::holders::Holders;
use crate::rings::pipe::{Pipe, pipe_and_end};
use crate::worker::{Job, TaskId};

/// A ptnet device without a switch.
struct PassthroughPort(DevicePort);

impl Attached for PassthroughPort {
    fn kind(&self) -> PortKind {
        self.0.kind()
    }

    fn describe(&self, port: &mut PortInfo) {
        self.0.describe(port);
    }

    fn memory(&self) -> u64 {
        self.0.memory()
    }

    fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    fn ring_kicks(&self, dir: Direction, ring: usize) -> Kicks {
        self.0.ring_kicks(dir, ring)
    }

    /// Evicts the programs at the other end of a pipe.
    fn stop(self: Box<Self>, d: &mut Daemon, full: &str) {
        if let Some(pipe) = d.pipes.remove(&Pipes::name(full)) {
            d.evictions.evict(pipe.held_by.iter().flat_map(Holders::clients));
        }
        Box::new(self.0).stop(d, full);
    }
}

/// A backend for a virtual machine, and the tasks that move its frames.
struct Passing {
    backend: Arc<dyn Backend>,
    tasks: Vec<Job>,
    /// Counters of the guest's tx rings, and of its rx rings.
    counters: [Vec<Arc<RingCounters>>; 2],
}

/// Attaches a ptnet device whose rings are not a switch's; the port has its own socket, and is named after its backend.
///
/// # Errors
/// [`Refusal`] when the backend is in use, or cannot be passed through.
pub fn attach(
    d: &mut Daemon,
    backend: &PortSpec,
    socket: &str,
    o: &OptionsOf<'_, kind::Ptnet>,
    caller: Caller,
) -> Result<(), Refusal> {
    let full = backend.name.to_string();
    if d.ports.contains(&full) {
        return refuse(Errno::EXIST, format!("{full} is passed through already: detach it first"));
    }
    if backend.rings != Rings::AllNic || backend.flags != Flags::default() {
        return refuse(Errno::INVAL, format!("{backend}: all rings are passed through, or none"));
    }
    let site = site(&d.config, caller, socket, o)?;
    match (pipe_and_end(&backend.name), backend.name.base()) {
        (Some((name, end)), _) => pipe(d, &full, name, end, site, o, caller),
        (None, Base::Netmap { ifname }) => interface(d, &full, ifname.as_str(), site, o, caller),
        (None, Base::Vale { .. }) => Err(Refusal::internal("neither a pipe nor an interface")),
    }
}

fn pipe(
    d: &mut Daemon,
    full: &str,
    key: String,
    end: usize,
    site: Site,
    o: &OptionsOf<'_, kind::Ptnet>,
    caller: Caller,
) -> Result<(), Refusal> {
    if d.pipes.get(&key).is_some() {
        return refuse(Errno::BUSY, format!("pipe {key} is open: close it, then attach, then open the other end"));
    }
    if o.rings() > 1 || o.vfio_user() {
        return refuse(Errno::INVAL, "a pipe has one ring each way, and goes by ivshmem");
    }
    let config = with_rings(1, ptnet::config(o, full));
    ptnet::check(d, &config, caller)?;
    let backend = PipeBackend::new(&config, d.evictions.new_fault(caller))
        .map_err(|e| Refusal::new(Errno::NOMEM, e.to_string()))?;
    let backend = Arc::new(backend);
    let [out, back] = backend.seats();
    let counters = [vec![Arc::clone(&out.counters)], vec![Arc::clone(&back.counters)]];
    let tasks: Vec<Job> = vec![Box::new(Seated(Arc::clone(out))), Box::new(Seated(Arc::clone(back)))];
    let pipe = Pipe::to_guest(Arc::clone(&backend), end, new_number(d)?, caller.uid);
    pass(d, full, site, config, Passing { backend, tasks, counters }, o, caller)?;
    d.pipes.insert(key, pipe);
    Ok(())
}

fn interface(
    d: &mut Daemon,
    full: &str,
    ifname: &str,
    site: Site,
    o: &OptionsOf<'_, kind::Ptnet>,
    caller: Caller,
) -> Result<(), Refusal> {
    let nic = d.interfaces.nic(ifname)?;
    let interface = nic.interface().clone();
    if o.rings() != 0 && o.rings() != interface.queues {
        return refuse(Errno::INVAL, format!("{ifname} has {} queues, and each is a ring", interface.queues));
    }
    let mut config = with_rings(interface.queues, ptnet::config(o, full));
    config.mtu = o.mtu().unwrap_or(interface.mtu);
    if o.mac().is_none() && interface.mac != [0; 6] {
        config.mac = interface.mac;
    }
    ptnet::check(d, &config, caller)?;
    let backend = Arc::new(NicBackend::new(nic, entries(shape(&config)))?);
    try_out(&backend, &config)?;
    let boxed = |task: Job| task;
    let tx = backend.tx.iter().map(|seat| boxed(Box::new(Seated(Arc::clone(seat)))));
    let tasks = tx.chain(backend.rx.iter().map(|seat| boxed(Box::new(Seated(Arc::clone(seat)))))).collect();
    let counters = [
        backend.tx.iter().map(|seat| Arc::clone(&seat.counters)).collect(),
        backend.rx.iter().map(|seat| Arc::clone(&seat.counters)).collect(),
    ];
    pass(d, full, site, config, Passing { backend, tasks, counters }, o, caller)
}

/// As many rings each way as there are on the other side.
fn with_rings(rings: u32, config: Config) -> Config {
    Config { tx_rings: rings, rx_rings: rings, ..config }
}

/// Puts the tasks on workers, and opens the device's socket.
fn pass(
    d: &mut Daemon,
    full: &str,
    site: Site,
    config: Config,
    passing: Passing,
    o: &OptionsOf<'_, kind::Ptnet>,
    caller: Caller,
) -> Result<(), Refusal> {
    // The memory of a pipe is shared with its other end: it does not outlive this process.
    let survives = passing.backend.memory().is_none();
    let device = ptnet::open(d, site, config, o.vfio_user(), passing.backend, survives)?;
    let placed: Vec<TaskId> = passing.tasks.into_iter().map(|task| d.workers.place(task)).collect();
    let [ingress, egress] = passing.counters;
    let base = PortRecord::new(Box::new(PassthroughPort(device)) as Box<dyn Attached>, caller);
    tracing::info!(port = full, uid = caller.uid, pid = caller.pid, "passed through");
    d.ports.insert(full, PortRecord { placed, ingress, egress, ..base });
    Ok(())
}

/// Connects unused rings once, so that errors show now and not when a guest connects.
fn try_out(backend: &NicBackend, config: &Config) -> Result<(), Refusal> {
    let region = Region::device("netvale-trial", sizes(config), Pages::Ordinary)?;
    let mem = Arc::new(region.port(shape(config))?);
    let of = |_: usize, side: &netvale_mem::region::RingSide| Ok((side.clone(), Arc::new(Doorbell::new()?)));
    let connected = backend.connect(&Fresh { mem: &mem, hdr_len: 0.into(), uso: false, of: &of });
    let emptied = backend.empty().map_err(|why| Refusal::new(Errno::BUSY, why.to_string()));
    connected.map_err(Refusal::from).and(emptied)
}
