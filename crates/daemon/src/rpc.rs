//! The control protocol's methods, carried out on the daemon's state.

use netvale_control::server::Handler;
use netvale_control::types::{AttachParams, Done, PortInfo, Version};
use netvale_control::{ErrorCode, Reply, Request, RpcError};
use netvale_portspec::{AttachSpec, SwitchName};
use rustix::io::Errno;

use crate::refusal::Refusal;
use crate::state::{Caller, State};
use crate::vhosts::Target;

/// One request's view of the daemon.
pub struct Rpc<'a> {
    /// The daemon.
    pub state: &'a mut State,
    /// Who asks.
    pub caller: Caller,
    /// Set by the `shutdown` method.
    pub shutdown: bool,
}

impl From<Refusal> for RpcError {
    fn from(r: Refusal) -> Self {
        // The text says what to do after a colon or semicolon; without one, there is nothing to add.
        match r.text.rsplit_once(": ").or_else(|| r.text.rsplit_once("; ")) {
            Some((what, hint)) => RpcError::from_errno(r.errno, what, hint),
            None => RpcError::from_errno(r.errno, r.text, "see 'netvale list' and the daemon's log"),
        }
    }
}

impl Handler for Rpc<'_> {
    fn call(&mut self, request: Request) -> Result<Reply, RpcError> {
        match request {
            Request::Version => Ok(Reply::Version(Version::current())),
            Request::SwitchList => Ok(Reply::Switches(self.state.list_switches())),
            Request::SwitchTable(p) => {
                self.state.list_table(&p.switch).map(Reply::Table).ok_or_else(|| no_switch(&p.switch))
            }
            Request::PortAttach(p) => self.attach(&p).map(|i| Reply::Port(Box::new(i))),
            Request::PortDetach(p) => {
                let full = full_name(&p.switch, &p.port);
                self.state.detach(&full, "asked for")?;
                Ok(Reply::Done(Done {}))
            }
            Request::PortList(p) => match &p.switch {
                Some(s) if !self.state.switches.contains_key(s) => Err(no_switch(s)),
                switch => Ok(Reply::Ports(self.state.list_ports(switch.as_deref()))),
            },
            Request::PortShow(p) => {
                let missing = || {
                    let why = self.state.evictions.note_of(&p.port).map(|why| format!("; {why}")).unwrap_or_default();
                    RpcError::new(
                        ErrorCode::NotFound,
                        format!("there is no port {}{why}", p.port),
                        "'netvale list' shows the ports",
                    )
                };
                self.state.show(&p.port).map(|i| Reply::Port(Box::new(i))).ok_or_else(missing)
            }
            Request::PortEvicted => Ok(Reply::Evicted(self.state.evictions.list())),
            Request::Stats => Ok(Reply::Stats(self.state.stats())),
            Request::Shutdown => {
                self.shutdown = true;
                Ok(Reply::Done(Done {}))
            }
        }
    }
}

fn no_switch(name: &str) -> RpcError {
    RpcError::new(ErrorCode::NotFound, format!("there is no switch {name}"), "'netvale list' shows the switches")
}

/// `vale0:a` from switch and port, whether or not the port's name has the switch in it already.
fn full_name(switch: &str, port: &str) -> String {
    if port.starts_with(&format!("{switch}:")) { port.to_owned() } else { format!("{switch}:{port}") }
}

impl Rpc<'_> {
    fn attach(&mut self, p: &AttachParams) -> Result<PortInfo, RpcError> {
        let full = self.state.attach(p, self.caller)?;
        self.state.show(&full).ok_or_else(|| Refusal::internal("a port vanished").into())
    }
}

impl State {
    /// Attaches a port that stays until it is detached. Returns its full name.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn attach(&mut self, p: &AttachParams, caller: Caller) -> Result<String, Refusal> {
        let bad = |e: &dyn std::fmt::Display| Refusal::new(Errno::INVAL, format!("{e:#}"));
        let spec = p.check().map_err(|e| bad(&e))?;
        if let Some(backend) = &p.options.backend {
            return match &spec {
                AttachSpec::Ptnet(path) => self.attach_through(backend, path.as_str(), &p.options, caller),
                _ => Err(Refusal::new(Errno::INVAL, "only ptnet devices have a backend other than a switch")),
            };
        }
        let switch = SwitchName::parse(&p.switch).map_err(|e| bad(&e))?.to_string();
        let port = p.options.name.clone().unwrap_or_else(|| spec.port_name().to_string());
        let full = format!("{switch}:{port}");
        match &spec {
            AttachSpec::Local(local) => {
                if local.switch.as_ref().is_some_and(|s| s.to_string() != switch) {
                    return Err(Refusal::new(
                        Errno::INVAL,
                        format!("{} is not a port of {switch}: name one switch", p.port),
                    ));
                }
                self.make_port(&switch, &port, &local_request(p), caller)?;
            }
            AttachSpec::Tap(name) => self.attach_tap((&switch, &port), name.as_ref(), &p.options, caller)?,
            AttachSpec::Pcap(files) => self.attach_pcap((&switch, &port), files, &p.options, caller)?,
            AttachSpec::Netmap(nic) => self.attach_nic((&switch, &port), nic, &p.options, caller)?,
            AttachSpec::Virtio(path) => {
                let target = Target::Socket(path.as_str().into());
                self.attach_virtio((&switch, &port), target, &p.options, caller)?;
            }
            AttachSpec::VirtioPci(address) => {
                let target = Target::Pci(address.to_string());
                self.attach_virtio((&switch, &port), target, &p.options, caller)?;
            }
            AttachSpec::Vhost(path) => self.attach_vhost((&switch, &port), path.as_str(), &p.options, caller)?,
            AttachSpec::Ptnet(path) => self.attach_ptnet((&switch, &port), path.as_str(), &p.options, caller)?,
            AttachSpec::E1000Pci(address) => {
                self.attach_e1000_pci((&switch, &port), &address.to_string(), &p.options, caller)?;
            }
            AttachSpec::E1000(path) => self.attach_e1000((&switch, &port), path.as_str(), &p.options, caller)?,
        }
        Ok(full)
    }
}

fn local_request(p: &AttachParams) -> netvale_control::attach::AttachRequest {
    use netvale_control::attach::{AttachRequest, FLAG_HUGE, FLAG_LOSSLESS};
    let o = &p.options;
    AttachRequest {
        name: p.port.clone(),
        flags: if o.lossless { FLAG_LOSSLESS } else { 0 } | if o.huge { FLAG_HUGE } else { 0 },
        tx_rings: o.rings,
        rx_rings: o.rings,
        tx_slots: o.slots,
        rx_slots: o.slots,
        buf_size: o.buf_size,
        extra_bufs: o.extra_bufs,
        hdr_len: o.vnet_hdr,
        ..AttachRequest::default()
    }
}
