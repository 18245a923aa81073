//! `ptnet:/PATH` with a backend (passthrough): a virtual machine uses a pipe's end or a network interface without a
//! switch.

mod wires;

use std::sync::Arc;

use netvale_afxdp::Nic;
use netvale_afxdp::sizes::entries;
use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::{Direction, PortInfo, PortKind};
use netvale_fdio::state::State;
use netvale_mem::Region;
use netvale_mem::mapping::PageKind;
use netvale_mem::notify::Doorbell;
use netvale_port::RingCounters;
use netvale_port::listener::ListenAddress;
use netvale_port::passage::SeatTask;
use netvale_port::service::AskedToPause;
use netvale_portspec::{AttachSpec, Base, Flags, PortSpec, Rings};
use netvale_ptnet::backend::{Backend, GuestRings};
use netvale_ptnet::header::PtnetDeviceConfig;
use netvale_ptnet::instance::{shape, sizes};
use netvale_ptnet::pipe::{PipeBackend, PipeState};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use self::wires::NicBackend;
use super::kind::Continuation;
use super::memory::new_number;
use super::plug::tell_attached;
use super::ptnet::{self, PtnetConfig, PtnetDevicePort};
use super::site::site;
use crate::caller::Caller;
use crate::daemon::{Daemon, Kicks, PortBackend, PortPeers};
use crate::handover::items::{ParkedPort, PortItem};
use crate::naming;
use crate::ports::handed::{begin, domain_of_site};
use crate::refusal::{Refusal, refuse};
use crate::registry::pipes::Pipes;
use crate::registry::ports::PortRecord;
use crate::rings::holders::Holders;
use crate::rings::pipe::{PipeRecord, pipe_and_end};
use crate::worker::{TaskId, WorkerTask};

/// Backend of a ptnet device that is connected to a pipe or an interface instead of a switch.
struct PassthroughPort {
    device: PtnetDevicePort,
    /// The interface, if the device's backend is an interface.
    nic: Option<Arc<Nic>>,
    /// The pipe, if the device's backend is a pipe.
    pipe: Option<Arc<PipeBackend>>,
}

/// State of a device on a pipe, and state of that pipe.
#[derive(Serialize, Deserialize)]
struct PipedState {
    device: State,
    pipe: PipeState,
}

impl PortBackend for PassthroughPort {
    fn kind(&self) -> PortKind {
        self.device.kind()
    }

    fn describe(&self, port: &mut PortInfo) {
        self.device.describe(port);
    }

    fn memory(&self) -> u64 {
        self.device.memory()
    }

    fn notes(&self) -> Vec<String> {
        self.device.notes()
    }

    fn peers(&self) -> Option<PortPeers> {
        self.device.peers()
    }

    fn gone(&self) -> Option<String> {
        self.nic.as_ref()?.gone()
    }

    fn link(&self) -> Option<bool> {
        self.device.link()
    }

    fn ring_kicks(&self, dir: Direction, ring: usize) -> Kicks {
        self.device.ring_kicks(dir, ring)
    }

    fn ask_to_pause(&self) -> Vec<AskedToPause> {
        if self.pipe.is_some() { self.device.ask_to_pause() } else { Vec::new() }
    }

    /// Saves the device, unless it is on a pipe: the pipe's memory is shared with the program at the other end, and
    /// cannot be restored after the daemon was killed.
    fn save(&self) -> std::io::Result<Option<State>> {
        if self.pipe.is_some() { Ok(None) } else { self.device.save() }
    }

    /// Saves a device on a pipe. A device on an interface is attached anew by the successor, because the interface's
    /// sockets cannot be handed over together with the guest's buffers.
    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        let Some(backend) = &self.pipe else { return Ok(None) };
        let Some(device) = self.device.save_parked()? else { return Ok(None) };
        let state = PipedState { device: device.state, pipe: backend.save()? };
        Ok(Some(ParkedPort { state: State::of(&state)?, paused: device.paused }))
    }

    /// Evicts the programs at the other end of a pipe.
    fn stop(self: Box<Self>, d: &mut Daemon, full: &str) {
        if let Some(pipe) = d.pipes.remove(&Pipes::name(full)) {
            d.evictions.evict(pipe.held_by.iter().flat_map(Holders::clients));
        }
    }
}

/// The backend of a virtual machine's ptnet device, and the tasks that forward its frames.
struct PassthroughDevice {
    backend: Arc<dyn Backend>,
    /// The interface, if it is the device's backend.
    nic: Option<Arc<Nic>>,
    /// The pipe, if it is the device's backend.
    pipe: Option<Arc<PipeBackend>>,
    tasks: Vec<WorkerTask>,
    /// Counters of the guest's tx rings, then of the guest's rx rings.
    counters: [Vec<Arc<RingCounters>>; 2],
    /// Saved state of the device, if a device that another process saved is to be restored.
    continued: Option<State>,
}

/// Attaches a ptnet device without a switch. The port has its own socket; its name is the name of the backend.
///
/// # Errors
/// [`Refusal`] if the backend is in use, or cannot be passed through.
pub fn attach(
    d: &mut Daemon,
    backend: &PortSpec,
    socket: &str,
    o: &OptionsOf<'_, kind::Ptnet>,
    caller: Caller,
) -> Result<(), Refusal> {
    attach_or_continue(d, backend, socket, o, caller, None)
}

/// Restores devices that are passed through to virtual machines.
pub const CONTINUATION: Continuation = Continuation {
    is_for: |item| item.kind == PortKind::Ptnet && item.on.is_none() && item.declared.is_some(),
    go_on,
    is_last: false,
    is_still: false,
};

/// Restores a passed-through device that another process saved.
///
/// # Errors
/// [`Refusal`] if the state is inconsistent.
fn go_on(d: &mut Daemon, item: &PortItem, state: State) -> Result<(), Refusal> {
    let bad = |what: &str| Refusal::new(Errno::INVAL, format!("cannot restore a passed-through port: {what}"));
    let (params, _) = item.declared.as_ref().ok_or_else(|| bad("its parameters are missing"))?;
    let spec = params.check().map_err(|_| bad("its parameters are invalid"))?;
    let (AttachSpec::Ptnet(socket), Some(backend)) = (&spec, &params.options.backend) else {
        return Err(bad("its device is not ptnet, or its backend is missing"));
    };
    let named = naming::backend(backend).map_err(|_| bad("its backend is invalid"))?;
    let options = params.options.of().ok_or_else(|| bad("its options belong to another kind of port"))?;
    attach_or_continue(d, &named, socket.as_str(), &options, item.owner.into(), Some(state))
}

fn attach_or_continue(
    d: &mut Daemon,
    backend: &PortSpec,
    socket: &str,
    o: &OptionsOf<'_, kind::Ptnet>,
    caller: Caller,
    continued: Option<State>,
) -> Result<(), Refusal> {
    let full = backend.name.to_string();
    if d.ports.contains(&full) {
        return refuse(Errno::EXIST, format!("{full} is already passed through; detach it first"));
    }
    if backend.rings != Rings::AllNic || backend.flags != Flags::default() {
        return refuse(
            Errno::INVAL,
            format!("{backend}: expected all rings, because only all of them together can be passed through"),
        );
    }
    let site = site(&d.config, caller, socket, o)?;
    match (pipe_and_end(&backend.name), backend.name.base()) {
        (Some((key, end)), _) => pipe(d, &full, PassedEnd { key, end }, site, o, caller, continued),
        (None, Base::Netmap { ifname }) => interface(d, &full, ifname.as_str(), site, o, caller, continued),
        (None, Base::Vale { .. }) => Err(Refusal::internal("the backend is neither a pipe nor an interface")),
    }
}

/// An end of a pipe that is passed through to a virtual machine.
struct PassedEnd {
    /// The pipe's name, without the suffix that selects one of its ends.
    key: String,
    end: usize,
}

fn pipe(
    d: &mut Daemon,
    full: &str,
    PassedEnd { key, end }: PassedEnd,
    site: ListenAddress,
    o: &OptionsOf<'_, kind::Ptnet>,
    caller: Caller,
    continued: Option<State>,
) -> Result<(), Refusal> {
    if d.pipes.get(&key).is_some() {
        return refuse(Errno::BUSY, format!("pipe {key} is open; close it, attach the port, then open the other end"));
    }
    if o.rings() > 1 || o.vfio_user() {
        return refuse(Errno::INVAL, "a pipe has one ring in each direction, and is passed through only by ivshmem");
    }
    let config = with_rings(1, ptnet::config(o, full));
    ptnet::check(d, &config, caller)?;
    let fault = d.evictions.new_fault(caller);
    let (backend, device) = match continued {
        Some(state) => {
            let PipedState { device, pipe } = state.read()?;
            (PipeBackend::restore(&config, fault, pipe).map_err(|why| why.of("its pipe"))?, Some(device))
        }
        None => (PipeBackend::new(&config, fault).map_err(|e| Refusal::new(Errno::NOMEM, e.to_string()))?, None),
    };
    let backend = Arc::new(backend);
    let [out, back] = backend.seats();
    let counters = [vec![Arc::clone(&out.counters)], vec![Arc::clone(&back.counters)]];
    let tasks: Vec<WorkerTask> = vec![Box::new(SeatTask(Arc::clone(out))), Box::new(SeatTask(Arc::clone(back)))];
    let pipe = PipeRecord::to_guest(Arc::clone(&backend), end, new_number(d)?, caller.uid);
    let pipe_behind = Some(Arc::clone(&backend));
    let passing = PassthroughDevice { backend, nic: None, pipe: pipe_behind, tasks, counters, continued: device };
    pass(d, full, site, config, passing, o, caller)?;
    d.pipes.insert(key, pipe);
    Ok(())
}

fn interface(
    d: &mut Daemon,
    full: &str,
    ifname: &str,
    site: ListenAddress,
    o: &OptionsOf<'_, kind::Ptnet>,
    caller: Caller,
    continued: Option<State>,
) -> Result<(), Refusal> {
    let nic = d.interfaces.nic(ifname)?;
    let interface = nic.interface().clone();
    if o.rings() != 0 && o.rings() != interface.queues {
        return refuse(
            Errno::INVAL,
            format!("{} rings requested: expected {}, one for each queue of {ifname}", o.rings(), interface.queues),
        );
    }
    let mut config = with_rings(interface.queues, ptnet::config(o, full));
    config.mtu = o.mtu().unwrap_or(interface.mtu);
    if o.mac().is_none() && interface.mac != [0; 6] {
        config.mac = interface.mac;
    }
    ptnet::check(d, &config, caller)?;
    let behind = Arc::clone(&nic);
    let backend = Arc::new(NicBackend::new(nic, entries(shape(&config)))?);
    try_out(&backend, &config)?;
    let boxed = |task: WorkerTask| task;
    let tx = backend.tx.iter().map(|seat| boxed(Box::new(SeatTask(Arc::clone(seat)))));
    let tasks = tx.chain(backend.rx.iter().map(|seat| boxed(Box::new(SeatTask(Arc::clone(seat)))))).collect();
    let counters = [
        backend.tx.iter().map(|seat| Arc::clone(&seat.counters)).collect(),
        backend.rx.iter().map(|seat| Arc::clone(&seat.counters)).collect(),
    ];
    pass(
        d,
        full,
        site,
        config,
        PassthroughDevice { backend, nic: Some(behind), pipe: None, tasks, counters, continued },
        o,
        caller,
    )
}

/// Returns the configuration with that number of rings in each direction.
fn with_rings(rings: u32, config: PtnetDeviceConfig) -> PtnetDeviceConfig {
    PtnetDeviceConfig { tx_rings: rings, rx_rings: rings, ..config }
}

/// Opens the device's socket, places the tasks on workers, and registers the port.
fn pass(
    d: &mut Daemon,
    full: &str,
    site: ListenAddress,
    config: PtnetDeviceConfig,
    passing: PassthroughDevice,
    o: &OptionsOf<'_, kind::Ptnet>,
    caller: Caller,
) -> Result<(), Refusal> {
    let domain = domain_of_site(d, caller, &site);
    let device = PtnetConfig { site, config, vfio_user: o.vfio_user(), backend: passing.backend };
    let device = ptnet::open(d, device, passing.continued)?;
    begin(d, caller, domain)?;
    let placed: Vec<TaskId> = passing.tasks.into_iter().map(|task| d.workers.place_for(domain, task)).collect();
    let [ingress, egress] = passing.counters;
    let base = PortRecord::new(
        Box::new(PassthroughPort { device, nic: passing.nic, pipe: passing.pipe }) as Box<dyn PortBackend>,
        caller,
    );
    tracing::info!(port = full, uid = caller.uid, pid = caller.pid, "passed through");
    d.ports.insert(full, PortRecord { placed, ingress, egress, ..base });
    tell_attached(d, full);
    Ok(())
}

/// Connects the queues to rings of a temporary region and then disconnects them, so that errors appear when the port is
/// attached, not when a guest connects.
fn try_out(backend: &NicBackend, config: &PtnetDeviceConfig) -> Result<(), Refusal> {
    let region = Region::device("netvale-trial", sizes(config), PageKind::Ordinary)?;
    let mem = Arc::new(region.port(shape(config))?);
    let of = |_: usize, side: &netvale_mem::region::RingSide| Ok((side.clone(), Arc::new(Doorbell::new()?)));
    let connected = backend.connect(&GuestRings { mem: &mem, hdr_len: 0.into(), uso: false, goes_on: false, of: &of });
    let emptied = backend.empty().map_err(|why| Refusal::new(Errno::BUSY, why.to_string()));
    connected.map_err(Refusal::from).and(emptied)
}
