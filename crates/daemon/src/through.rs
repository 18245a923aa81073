//! Ports that are passed through to a virtual machine without a switch: a pipe's end, a network interface.

use std::path::Path;
use std::sync::Arc;

use netvale_afxdp::sizes::entries;
use netvale_control::types::{Mac, PortKind, PortOptions};
use netvale_mem::Region;
use netvale_mem::mapping::Pages;
use netvale_mem::notify::Doorbell;
use netvale_port::RingCounters;
use netvale_port::passage::Seated;
use netvale_portspec::{Base, Flags, PortSpec, Rings};
use netvale_ptnet::backend::{Backend, Fresh};
use netvale_ptnet::header::Config;
use netvale_ptnet::instance::{shape, sizes};
use netvale_ptnet::pipe::PipeBackend;
use netvale_ptnet::port::PtnetPort;
use rustix::io::Errno;

use crate::devices::Device;
use crate::open::refuse;
use crate::pipes::{Pipe, end_index};
use crate::refusal::Refusal;
use crate::state::{Caller, Kind, Placed, PortRecord, State};
use crate::wires::NicBackend;
use crate::worker::Job;

/// What is passed through, and its seats on workers.
struct Passing {
    backend: Arc<dyn Backend>,
    tasks: Vec<Job>,
    /// Of the guest's tx rings, and of its rx rings.
    counters: [Vec<Arc<RingCounters>>; 2],
}

impl State {
    /// Attaches a ptnet device whose rings are not a switch's. Returns the name of the port: that of what is passed through.
    pub(crate) fn attach_through(
        &mut self,
        backend: &str,
        path: &str,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<String, Refusal> {
        let spec = PortSpec::parse(backend).or_else(|e| refuse(Errno::INVAL, format!("backend {backend}: {e:#}")))?;
        if let Base::Vale { switch, port } = spec.name.base() {
            let (switch, port) = (switch.to_string(), port.to_string());
            self.attach_ptnet((&switch, &port), path, o, caller)?;
            return Ok(format!("{switch}:{port}"));
        }
        self.may_name(Path::new(path), caller)?;
        let full = spec.name.to_string();
        if self.ports.contains_key(&full) {
            return refuse(Errno::EXIST, format!("{full} is passed through already: detach it first"));
        }
        if o.vnet_hdr != 0 || o.gro {
            return refuse(
                Errno::INVAL,
                "without a switch there is nobody to do the work of a virtio-net header, or GRO",
            );
        }
        if spec.rings != Rings::AllNic || spec.flags != Flags::default() {
            return refuse(Errno::INVAL, format!("{backend}: all rings are passed through, or none"));
        }
        if let Some(pipe) = spec.name.pipe() {
            let (parent, id, end) = (spec.name.base().to_string(), pipe.id.to_string(), end_index(pipe.end));
            return self.pass_pipe((&full, format!("{parent}{{{id}")), end, path, o, caller);
        }
        let Base::Netmap { ifname } = spec.name.base() else {
            return Err(Refusal::internal("neither a switch's port nor an interface"));
        };
        self.pass_nic(&full, ifname.as_str(), path, o, caller)
    }

    fn pass_pipe(
        &mut self,
        (full, key): (&str, String),
        end: usize,
        path: &str,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<String, Refusal> {
        if self.pipes.contains_key(&key) {
            return refuse(Errno::BUSY, format!("pipe {key} is open: close it, then attach, then open the other end"));
        }
        if o.rings > 1 || o.vfio_user {
            return refuse(Errno::INVAL, "a pipe has one ring each way, and goes by ivshmem");
        }
        let config = self.config_of(full, &PortOptions { rings: 1, ..o.clone() });
        PtnetPort::check(&config).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
        let backend =
            PipeBackend::new(&config, self.new_fault()).map_err(|e| Refusal::new(Errno::NOMEM, e.to_string()))?;
        let backend = Arc::new(backend);
        let [out, back] = backend.seats();
        let counters = [vec![Arc::clone(&out.counters)], vec![Arc::clone(&back.counters)]];
        let tasks: Vec<Job> = vec![Box::new(Seated(Arc::clone(out))), Box::new(Seated(Arc::clone(back)))];
        let pipe = Pipe::passed_through(Arc::clone(&backend), end, self.new_region_id(), caller.uid);
        self.pass((full, path), config, Passing { backend, tasks, counters }, o, caller)?;
        self.pipes.insert(key, pipe);
        Ok(full.to_owned())
    }

    fn pass_nic(
        &mut self,
        full: &str,
        ifname: &str,
        path: &str,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<String, Refusal> {
        self.may_take(ifname, caller)?;
        let nic = self.nics.nic(ifname)?;
        let interface = nic.interface().clone();
        if o.rings != 0 && o.rings != interface.queues {
            return refuse(Errno::INVAL, format!("{ifname} has {} queues, and each is a ring", interface.queues));
        }
        let mut config = self.config_of(full, &PortOptions { rings: interface.queues, ..o.clone() });
        config.mtu = o.mtu.unwrap_or(interface.mtu);
        if o.mac.is_none() && interface.mac != [0; 6] {
            config.mac = interface.mac;
        }
        PtnetPort::check(&config).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
        let backend = Arc::new(NicBackend::new(nic, entries(shape(&config)))?);
        try_out(&backend, &config)?;
        let boxed = |task: Job| task;
        let tx = backend.tx.iter().map(|seat| boxed(Box::new(Seated(Arc::clone(seat)))));
        let tasks = tx.chain(backend.rx.iter().map(|seat| boxed(Box::new(Seated(Arc::clone(seat)))))).collect();
        let counters = [
            backend.tx.iter().map(|seat| Arc::clone(&seat.counters)).collect(),
            backend.rx.iter().map(|seat| Arc::clone(&seat.counters)).collect(),
        ];
        self.pass((full, path), config, Passing { backend, tasks, counters }, o, caller)?;
        Ok(full.to_owned())
    }

    fn config_of(&self, full: &str, o: &PortOptions) -> Config {
        crate::ptnets::config(o, Mac::of_name(b'p', full))
    }

    /// Puts it on workers, and opens the device's socket.
    fn pass(
        &mut self,
        (full, path): (&str, &str),
        config: Config,
        passing: Passing,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        // What lies in the memory of a pipe is its other end's, too: it does not outlive this process.
        let survives = passing.backend.memory().is_none();
        let ptnet = self.ptnet_port(path, config, o.vfio_user, passing.backend, survives)?;
        let placed: Vec<Placed> = passing.tasks.into_iter().map(|task| self.place(task)).collect();
        let [ingress, egress] = passing.counters;
        let device = Device { kind: PortKind::Ptnet, ptnet: Some(ptnet), ..Device::default() };
        let base = PortRecord::new(Kind::Device(Box::new(device)), caller);
        let record = PortRecord { placed, ingress, egress, ..base };
        tracing::info!(port = full, uid = caller.uid, pid = caller.pid, "passed through");
        self.ports.insert(full.to_owned(), record);
        Ok(())
    }

    /// What is passed through no more is gone; programs at the other end of a pipe lose it.
    pub(crate) fn pass_no_more(&mut self, full: &str) {
        if let Some(pipe) = self.pipes.remove(&full.replace('}', "{")) {
            self.evicted.extend(pipe.held_by.iter().flat_map(crate::holders::Holders::clients));
        }
    }
}

/// Connects rings that nobody uses: what cannot be is found out now, not when a guest comes.
fn try_out(backend: &NicBackend, config: &Config) -> Result<(), Refusal> {
    let region = Region::device("netvale-trial", sizes(config), Pages::Ordinary)?;
    let mem = Arc::new(region.port(shape(config))?);
    let of = |_: usize, side: &netvale_mem::region::RingSide| Ok((side.clone(), Arc::new(Doorbell::new()?)));
    let connected = backend.connect(&Fresh { mem: &mem, hdr_len: 0.into(), uso: false, of: &of });
    let emptied = backend.empty().map_err(|why| Refusal::new(Errno::BUSY, why.to_string()));
    connected.map_err(Refusal::from).and(emptied)
}
