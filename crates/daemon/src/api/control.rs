//! The methods of the control protocol.

use netvale_control::server::RequestHandler;
use netvale_control::types::{ApplyParams, ApplyResult, AttachParams, Confirmation, EventName, PortInfo, Version};
use netvale_control::{ErrorCode, Reply, Request, RpcError};

use super::attaching::attach;
use super::counting::all_stats;
use super::inspect::{last_eviction, list_evicted, list_groups, list_ports, list_switches, list_table, show};
use super::{configuration, events, trace};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::naming;
use crate::permission;
use crate::ports::{self, detach, policies};
use crate::refusal::Refusal;
use crate::registry::events::NewEvent;

/// The context in which a control request is executed.
pub struct Rpc<'a> {
    /// The daemon on which the request acts.
    pub daemon: &'a mut Daemon,
    /// The connection from which the request came, with its user.
    pub caller: Caller,
    /// Whether the daemon must shut down; the `shutdown` method sets this field.
    pub shutdown: bool,
}

impl From<Refusal> for RpcError {
    fn from(r: Refusal) -> Self {
        let (what, hint) = r.parts();
        RpcError::from_errno(r.errno, what, hint.unwrap_or("see 'netvale list' and the daemon's log"))
    }
}

impl RequestHandler for Rpc<'_> {
    fn call(&mut self, request: Request) -> Result<Reply, RpcError> {
        self.answer(request).inspect_err(|refused| self.daemon.note_refusal(self.caller, &refused.message))
    }
}

impl Rpc<'_> {
    fn answer(&mut self, mut request: Request) -> Result<Reply, RpcError> {
        naming::settle(self.daemon, &mut request);
        match naming::misplaced_switch(self.daemon, &request) {
            // Callers who may not use the switch must not learn that it exists.
            Some(switch) if permission::may_join(self.daemon, switch, self.caller).is_ok() => {
                return Err(is_switch(switch));
            }
            _ => {}
        }
        let full;
        let what = match &request {
            // `attaching` checks the permission, after it has determined the port's kind.
            Request::PortAttach(_) => return self.carry_out(request),
            Request::PortDetach(p) => {
                full = format!("{}:{}", p.switch, p.port);
                permission::PermissionRequest::Detach(&full)
            }
            Request::PortSet(p) => permission::PermissionRequest::SetPolicies(&p.port, &p.set),
            Request::SwitchTable(p) | Request::SwitchGroups(p) => {
                permission::PermissionRequest::InspectSwitch(&p.switch)
            }
            Request::OfKind(p) => permission::PermissionRequest::Change(p.port()),
            Request::ConfigApply(_) | Request::ConfigExport => permission::PermissionRequest::Configure,
            Request::Shutdown => permission::PermissionRequest::Shutdown,
            _ => permission::PermissionRequest::Inspect,
        };
        permission::admit(self.daemon, self.caller, what)?;
        self.carry_out(request)
    }

    fn carry_out(&mut self, request: Request) -> Result<Reply, RpcError> {
        self.daemon.changes.everything |= matches!(
            request,
            Request::PortAttach(_) | Request::PortDetach(_) | Request::PortSet(_) | Request::ConfigApply(_)
        );
        Ok(match request {
            Request::Version => Reply::Version(Version::current()),
            Request::SwitchList => Reply::Switches(list_switches(self.daemon, self.caller)),
            Request::SwitchTable(p) => {
                Reply::Table(list_table(self.daemon, &p.switch, self.caller).ok_or_else(|| no_switch(&p.switch))?)
            }
            Request::SwitchGroups(p) => {
                Reply::Groups(list_groups(self.daemon, &p.switch, self.caller).ok_or_else(|| no_switch(&p.switch))?)
            }
            Request::PortAttach(p) => Reply::Port(Box::new(self.attach(&p)?)),
            Request::PortDetach(p) => {
                detach(self.daemon, &format!("{}:{}", p.switch, p.port), "requested")?;
                Reply::Done(Confirmation {})
            }
            Request::PortSet(p) => {
                policies::set(self.daemon, &p, self.caller)?;
                Reply::Port(Box::new(self.show(&p.port)?))
            }
            Request::PortList(p) => Reply::Ports(self.list(p.switch.as_deref())?),
            Request::PortShow(p) => Reply::Port(Box::new(self.show(&p.port)?)),
            Request::PortEvicted => Reply::Evicted(list_evicted(self.daemon, self.caller)),
            Request::OfKind(p) => ports::answer(self.daemon, &p, self.caller)?,
            Request::TraceBegin(p) => Reply::TraceBegun(trace::begin(self.daemon, &p, self.caller)?),
            Request::TraceRead => Reply::Traced(trace::read(self.daemon, self.caller)?),
            Request::StatsAll(p) => Reply::AllStats(Box::new(all_stats(self.daemon, &p, self.caller))),
            Request::Subscribe(p) => Reply::Subscribed(Box::new(events::subscribe(self.daemon, p, self.caller)?)),
            Request::Unsubscribe => {
                self.daemon.events.forget(self.caller.client);
                Reply::Done(Confirmation {})
            }
            Request::ConfigApply(p) => Reply::Applied(self.apply(&p)?),
            Request::ConfigExport => Reply::Exported(Box::new(configuration::export(self.daemon))),
            Request::Shutdown => {
                self.shutdown = true;
                Reply::Done(Confirmation {})
            }
        })
    }
}

fn no_switch(name: &str) -> RpcError {
    RpcError::new(ErrorCode::NotFound, format!("switch {name} does not exist"), "'netvale list' shows the switches")
}

fn is_switch(name: &str) -> RpcError {
    let hint = format!("name one of its ports; 'netvale list {name}' shows them");
    RpcError::new(ErrorCode::InvalidParams, format!("expected a port, found the switch {name}"), hint)
}

impl Rpc<'_> {
    fn attach(&mut self, p: &AttachParams) -> Result<PortInfo, RpcError> {
        let full = attach(self.daemon, p, self.caller)?;
        show(self.daemon, &full, self.caller).ok_or_else(|| Refusal::internal("a port vanished").into())
    }

    fn apply(&mut self, p: &ApplyParams) -> Result<ApplyResult, RpcError> {
        let Caller { uid, pid, .. } = self.caller;
        let applied = configuration::apply(self.daemon, p)?;
        if !p.dry_run {
            tracing::info!(uid, pid, "applied a configuration: {} changes", applied.changes.len());
            let configured = NewEvent::to(EventName::DaemonConfigured, 0).by(self.caller);
            self.daemon.events.tell(configured.with("changes", applied.changes.len()));
        }
        Ok(applied)
    }

    fn list(&self, switch: Option<&str>) -> Result<Vec<PortInfo>, RpcError> {
        match switch {
            Some(name) if self.daemon.switches.get(name).is_none() => Err(no_switch(name)),
            switch => Ok(list_ports(self.daemon, switch, self.caller)),
        }
    }

    fn show(&self, port: &str) -> Result<PortInfo, RpcError> {
        show(self.daemon, port, self.caller).ok_or_else(|| {
            let why = last_eviction(self.daemon, port, self.caller).map(|why| format!("; {why}")).unwrap_or_default();
            let text = format!("port {port} does not exist{why}");
            RpcError::new(ErrorCode::NotFound, text, "'netvale list' shows the ports")
        })
    }
}
