//! Ports that are devices of their own: TAPs here, capture files in [`crate::captures`].

use std::sync::Arc;

use netvale_control::types::{PortKind, PortOptions};
use netvale_e1000::driver::port::DriverPort;
use netvale_e1000::port::E1000Port;
use netvale_nic::Nic;
use netvale_nic::stack::OpenRing;
use netvale_port::{Egress, Ingress};
use netvale_ptnet::port::PtnetPort;
use netvale_tap::{Tap, TapEgress, TapError, TapIngress, TapOptions};
use netvale_vhost::driver::port::VirtioPort;
use netvale_vhost::port::VhostPort;
use rustix::io::Errno;

use crate::StartError;
use crate::captures::Files;
use crate::joints::Joined;
use crate::refusal::Refusal;
use crate::state::{Caller, NewPort, State};
use crate::{e1000s, ptnets, vhosts};

/// A device behind a port.
#[derive(Default)]
pub struct Device {
    /// TAP or capture files.
    pub kind: PortKind,
    /// Of a TAP: its interface and offloads, for `netvale show`.
    pub detail: Option<String>,
    /// Of capture files: their state.
    pub files: Files,
    /// A vhost-user device.
    pub vhost: Option<VhostPort>,
    /// A virtio-net driver.
    pub virtio: Option<VirtioPort>,
    /// A ptnet device.
    pub ptnet: Option<PtnetPort>,
    /// An e1000.
    pub e1000: Option<E1000Port>,
    /// A driver of an e1000.
    pub e1000_driver: Option<DriverPort>,
    /// An interface.
    pub nic: Option<Arc<Nic>>,
    /// The stack behind an interface.
    pub stack: Option<OpenRing>,
    /// A persistent port that is on another switch.
    pub joined: Option<Joined>,
}

impl Device {
    /// Sentences for `netvale show`.
    pub fn notes(&self) -> Vec<String> {
        let vhost = self.vhost.iter().flat_map(vhosts::notes);
        let virtio = self.virtio.iter().flat_map(vhosts::driver_notes);
        let ptnet = self.ptnet.iter().flat_map(ptnets::notes).chain(self.e1000.iter().flat_map(e1000s::notes));
        let ptnet = ptnet.chain(self.e1000_driver.iter().flat_map(e1000s::driver_notes));
        self.detail.iter().cloned().chain(self.files.notes()).chain(vhost).chain(virtio).chain(ptnet).collect()
    }
}

/// Status lines of a VM-facing port: current peer, past connections, last disconnect reason.
pub(crate) fn machine_notes(now: Option<String>, connections: u64, last_error: Option<String>) -> Vec<String> {
    let first = match now {
        Some(now) => format!("virtual machine connected, {now}"),
        None => format!("waits for a virtual machine; there were {connections}"),
    };
    let last = last_error.map(|why| format!("the last one was disconnected: {why}"));
    std::iter::once(first).chain(last).collect()
}

impl State {
    /// Attaches the ports of the configuration.
    ///
    /// # Errors
    /// The first that cannot be attached.
    pub fn attach_configured(&mut self) -> Result<(), StartError> {
        let caller = Caller {
            client: 0,
            uid: rustix::process::getuid().as_raw(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
        };
        for params in self.config.ports.clone() {
            self.attach(&params, caller).map_err(|refusal| StartError::Port { port: params.port, refusal })?;
        }
        Ok(())
    }

    /// Attaches a TAP: an interface of the host's stack.
    pub(crate) fn attach_tap(
        &mut self,
        (switch, port): (&str, &str),
        name: &str,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.check_free(switch, port)?;
        let options = TapOptions { name: name.to_owned(), queues: o.rings, mtu: o.mtu, ..TapOptions::default() };
        let tap = Tap::open(&options).map_err(|e| tap_refusal(&e))?;
        let uso = if tap.has_uso() { "TSO, USO" } else { "TSO" };
        let detail = format!("interface {}, offloads: checksum, {uso}", tap.name());
        let (mut egress, mut ingresses) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
        for queue in tap.into_queues().into_iter().map(Arc::new) {
            egress.push(Arc::new(TapEgress::new(Arc::clone(&queue), Arc::default())));
            ingresses.push(Box::new(TapIngress::new(queue, Arc::default())));
        }
        let device = Device { kind: PortKind::Tap, detail: Some(detail), ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, port, egress, ingresses, new).map(|_| ())
    }

    /// Refuses a name that is taken before a device is made for it.
    pub(crate) fn check_free(&self, switch: &str, port: &str) -> Result<(), Refusal> {
        if self.ports.contains_key(&format!("{switch}:{port}")) {
            let text = format!("switch {switch} has a port {port} already: choose another name, or detach it first");
            return Err(Refusal::new(Errno::EXIST, text));
        }
        Ok(())
    }
}

pub(crate) fn tap_refusal(e: &TapError) -> Refusal {
    let errno = match e {
        TapError::NoTun(errno) | TapError::Step { source: errno, .. } => *errno,
        TapError::Permission(_) => Errno::PERM,
        TapError::Busy(_) => Errno::BUSY,
        TapError::Queues(_) => Errno::INVAL,
    };
    Refusal::new(errno, e.to_string())
}
