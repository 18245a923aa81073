//! Permissions: the rights, limits and reserved names that every request is checked against before anything is created
//! for it.
//!
//! Every request passes [`admit`], from either socket. Regions have many names; code that looks one up for a caller
//! calls [`may_use_region`]. Missing, busy and impossible ports are not refused here, but at their lookup.

use std::path::Path;

use netvale_afxdp::iface::Interface;
use netvale_control::attach::{AttachRequest, FLAG_NETMAP};
use netvale_control::options::MTU;
use netvale_control::types::{Owner, Policies};
use netvale_portspec::{AttachSpec, Base, Needs, PortName, PortSpec};
use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::caller::{Caller, is_trusted_user};
use crate::config::Config;
use crate::daemon::{Daemon, Record};
use crate::refusal::{Refusal, refuse};
use crate::registry::persistent::own_name;
use crate::registry::ports::SwitchPort;
use crate::rings::pipe::{Pipe, pipe_and_end};

/// Maximum number of switches.
pub const MAX_SWITCHES: usize = 64;
/// Maximum number of persistent ports.
const MAX_PERSISTENT: usize = 254;
/// Matches all switches in `shared_switches`.
const ALL: &str = "*";

/// A request, reduced to the facts that permissions depend on.
#[derive(Clone, Copy)]
pub enum Request<'a> {
    /// Attach a port to a switch.
    Attach(&'a SwitchPort, &'a AttachSpec),
    /// Attach a device of the caller's own, sent with the request.
    Bring(&'a SwitchPort),
    /// Give a virtual machine a pipe's end or an interface, as a device on that socket.
    Passthrough(&'a Path, &'a PortSpec),
    /// Take a port off its switch, over the control socket.
    Detach(&'a str),
    /// Change these policies of a port.
    SetPolicies(&'a str, &'a Map<String, Value>),
    /// List or show ports; replies are filtered by [`sees`].
    Inspect,
    /// Read a switch's forwarding table.
    InspectSwitch(&'a str),
    /// Apply a configuration file, or export the running configuration.
    Configure,
    /// End the daemon.
    Shutdown,
    /// Hand everything over to a successor.
    HandOver,
    /// Open a port.
    Open(&'a PortSpec, &'a AttachRequest),
    /// Open rings with no backend.
    OpenNull(&'a AttachRequest),
    /// List ports by a netmap request; replies are filtered by [`controls`].
    NetmapList,
    /// Read properties of the named port by a netmap request.
    NetmapGet(&'a str),
    /// Make a persistent port.
    MakePersistent(&'a str),
    /// Remove a persistent port.
    RemovePersistent(&'a str),
    /// Attach a persistent port or an interface by its name.
    AttachNamed(&'a SwitchPort),
    /// Change or detach a port.
    Change(&'a str),
    /// Keep a port's workers awake.
    KeepAwake(&'a str),
}

/// Admits or refuses a request.
///
/// # Errors
/// [`Refusal`] when the caller lacks the right, or a limit is reached.
pub fn admit(d: &Daemon, caller: Caller, request: Request<'_>) -> Result<(), Refusal> {
    match request {
        Request::Attach(at, spec) => attach(d, caller, at, spec),
        Request::Bring(at) => bring(d, caller, at),
        Request::Passthrough(socket, backend) => passthrough(d, caller, socket, backend),
        Request::Open(spec, request) => {
            quota::may_have_extra(caller, request.extra_bufs)?;
            open(d, caller, spec, request)
        }
        Request::MakePersistent(name) => make_persistent(d, caller, name),
        Request::RemovePersistent(name) => owns_persistent(d, name, caller),
        Request::AttachNamed(at) => attach_named(d, caller, at),
        Request::Change(name) => owns_port(d, name, caller),
        Request::NetmapGet(name) => owns_named(d, name, caller),
        Request::Detach(name) => detach(d, name, caller),
        Request::SetPolicies(name, policies) => set_policies(d, name, policies, caller),
        Request::InspectSwitch(name) => may_join(d, name, caller),
        Request::Configure => configure(caller),
        Request::Shutdown => shutdown(caller),
        Request::HandOver => hand_over(caller),
        Request::KeepAwake(name) => keep_awake(d, name, caller),
        Request::OpenNull(request) => quota::may_have_extra(caller, request.extra_bufs),
        Request::Inspect | Request::NetmapList => Ok(()),
    }
}

/// Root and the daemon's own user may do everything.
pub fn is_trusted(caller: Caller) -> bool {
    is_trusted_user(caller.uid)
}

/// Whether a caller controls that user's objects.
pub fn controls(caller: Caller, uid: u32) -> bool {
    user_controls(caller.uid, uid)
}

/// Like [`controls`], for a caller known only by user.
pub fn user_controls(caller: u32, uid: u32) -> bool {
    is_trusted_user(caller) || caller == uid
}

/// Whether a caller may see that user's objects: ports, their counters, the reasons for evictions.
pub fn sees(caller: Caller, owner: Option<Owner>) -> bool {
    controls(caller, owner.map_or(0, |owner| owner.uid))
}

/// The caller could create such a device without the daemon.
fn bring(d: &Daemon, caller: Caller, at: &SwitchPort) -> Result<(), Refusal> {
    may_join(d, &at.switch, caller)?;
    is_free(d, at)?;
    quota::may_have_port(d, caller)?;
    has_room_for_switch(d, &at.switch, caller)
}

fn attach(d: &Daemon, caller: Caller, at: &SwitchPort, spec: &AttachSpec) -> Result<(), Refusal> {
    may_join(d, &at.switch, caller)?;
    is_free(d, at)?;
    files::may_name(&d.config, caller, spec.files().into_iter().map(Path::new))?;
    match spec.needs() {
        Needs::Nothing => {}
        Needs::Interface(name) => may_take_interface(&d.config, name, caller)?,
        // A TAP is an interface of the host: the same users may have the daemon use, create and configure one.
        Needs::Tap(name) if is_trusted(caller) || d.config.allow_taps.iter().any(|allowed| allowed == name) => {}
        Needs::Tap(_) => {
            let text = "only root and the daemon's own user may attach it; 'netvale up --allow-tap' lets others";
            return refuse(Errno::ACCESS, format!("{spec}: {text}"));
        }
        Needs::Trust(_) if is_trusted(caller) => {}
        Needs::Trust(what) => {
            return refuse(Errno::ACCESS, format!("only root and the daemon's own user attach {what}"));
        }
    }
    quota::may_have_port(d, caller)?;
    has_room_for_switch(d, &at.switch, caller)
}

fn passthrough(d: &Daemon, caller: Caller, socket: &Path, backend: &PortSpec) -> Result<(), Refusal> {
    let config = &d.config;
    files::may_name(config, caller, std::iter::once(socket))?;
    quota::may_have_port(d, caller)?;
    match (backend.name.pipe(), backend.name.base()) {
        (None, Base::Netmap { ifname }) => may_take_interface(config, ifname.as_str(), caller),
        _ => Ok(()),
    }
}

fn open(d: &Daemon, caller: Caller, spec: &PortSpec, request: &AttachRequest) -> Result<(), Refusal> {
    if spec.flags.monitor.is_some() {
        quota::may_have_port(d, caller)?;
        return watch(d, caller, spec);
    }
    if spec.name.pipe().is_some() {
        return open_pipe(d, caller, spec);
    }
    match spec.name.base() {
        Base::Vale { switch, port } => {
            let at = SwitchPort::new(switch, port);
            if let Some(memory) = OwnedMemory::of_base(d, spec.name.base()) {
                return memory.may_share(&spec.memory, caller);
            }
            may_join(d, &at.switch, caller)?;
            may_be_named(d, &at, request.flags & FLAG_NETMAP != 0, caller)?;
            quota::may_have_port(d, caller)?;
            has_room_for_switch(d, &at.switch, caller)
        }
        base @ Base::Netmap { ifname } if d.persistent.contains(ifname.as_str()) => {
            let memory = OwnedMemory::of_base(d, base);
            memory.map_or_else(
                || owns_persistent(d, ifname.as_str(), caller),
                |memory| memory.may_share(&spec.memory, caller),
            )
        }
        Base::Netmap { ifname } => {
            may_take_interface(&d.config, ifname.as_str(), caller)?;
            quota::may_have_port(d, caller)?;
            OwnedMemory::of_guest(d, ifname.as_str()).map_or(Ok(()), |memory| memory.may_share(&spec.memory, caller))
        }
    }
}

/// A pipe lies in the memory of the port in its name.
fn open_pipe(d: &Daemon, caller: Caller, spec: &PortSpec) -> Result<(), Refusal> {
    let Some((name, _)) = pipe_and_end(&spec.name) else { return Ok(()) };
    if let Some(pipe) = d.pipes.get(&name) {
        return OwnedMemory::of_pipe(&name, pipe).may_share(&spec.memory, caller);
    }
    quota::may_have_port(d, caller)?;
    match spec.name.base() {
        Base::Vale { switch, .. } => may_join(d, switch.as_ref(), caller)?,
        Base::Netmap { ifname }
            if !d.persistent.contains(ifname.as_str()) && Interface::find(ifname.as_str()).is_ok() =>
        {
            may_take_interface(&d.config, ifname.as_str(), caller)?;
        }
        Base::Netmap { .. } => {}
    }
    OwnedMemory::of_base(d, spec.name.base()).map_or(Ok(()), |memory| memory.may_share(&spec.memory, caller))
}

/// A caller may watch a port that it controls. A zero-copy monitor lies in the memory of the watched port.
fn watch(d: &Daemon, caller: Caller, spec: &PortSpec) -> Result<(), Refusal> {
    controls_watched(d, caller, spec)?;
    let is_zero_copy = spec.flags.monitor.is_some_and(|monitor| monitor.zero_copy);
    let pipe = pipe_and_end(&spec.name).and_then(|(name, _)| Some(OwnedMemory::of_pipe(&name, d.pipes.get(&name)?)));
    match pipe.or_else(|| OwnedMemory::of_base(d, spec.name.base())) {
        Some(memory) if is_zero_copy => memory.may_share(&spec.memory, caller),
        _ => Ok(()),
    }
}

fn controls_watched(d: &Daemon, caller: Caller, spec: &PortSpec) -> Result<(), Refusal> {
    if let Some((name, end)) = pipe_and_end(&spec.name) {
        let in_use = d.pipes.get(&name).filter(|pipe| pipe.is_in_use(end));
        return match in_use {
            Some(Pipe { uid, .. }) if !controls(caller, *uid) => {
                refuse(Errno::ACCESS, format!("pipe {name} belongs to another user"))
            }
            _ => Ok(()),
        };
    }
    let ifname = match spec.name.base() {
        Base::Vale { switch, port } => return owns_port(d, &format!("{switch}:{port}"), caller),
        Base::Netmap { ifname } => ifname.as_str(),
    };
    if let Some(place) = d.persistent.own_place(ifname) {
        return owns_port(d, &place, caller);
    }
    let open = || d.interfaces.ports_on(ifname).map(|(_, port)| controls(caller, port.owner.uid));
    match open().next() {
        Some(_) if open().any(|is_theirs| is_theirs) => Ok(()),
        Some(_) => refuse(Errno::ACCESS, format!("{ifname} is open for another user")),
        None => match d.ports.iter().find(|(_, record)| record.behind.interface() == Some(ifname)) {
            Some((full, record)) => owns(record, full, caller),
            None => Ok(()),
        },
    }
}

fn owns(record: &Record, full: &str, caller: Caller) -> Result<(), Refusal> {
    if !controls(caller, record.owner.uid) {
        return refuse(Errno::ACCESS, format!("{full} belongs to user {}: open a port of your own", record.owner.uid));
    }
    Ok(())
}

fn owns_port(d: &Daemon, full: &str, caller: Caller) -> Result<(), Refusal> {
    d.ports.get(full).map_or(Ok(()), |record| owns(record, full, caller))
}

/// Ports without a record (a pipe's end, an interface) cannot be detached; [`crate::ports::detach`] refuses them.
fn detach(d: &Daemon, full: &str, caller: Caller) -> Result<(), Refusal> {
    match d.ports.get(full) {
        Some(record) if !controls(caller, record.owner.uid) => {
            refuse(Errno::ACCESS, format!("{full} belongs to another user: that user, or root, may detach it"))
        }
        _ => Ok(()),
    }
}

/// An owner cannot change policies set by root or the daemon's own user.
fn set_policies(d: &Daemon, full: &str, set: &Map<String, Value>, caller: Caller) -> Result<(), Refusal> {
    owns_port(d, full, caller)?;
    let Some(record) = d.ports.get(full).filter(|_| !is_trusted(caller)) else { return Ok(()) };
    if record.policies_are_set {
        let text = format!("policies of {full} were set by root or the daemon's own user: ask them");
        return refuse(Errno::ACCESS, text);
    }
    let Some(switch) = record.switch.as_ref() else { return Ok(()) };
    let mut set = set.clone();
    set.remove(MTU);
    let policies = record.policies.with(&set).or_else(|what| refuse(Errno::INVAL, what))?;
    let change = NewPolicies { policies: &policies, names: &|key| set.contains_key(key) };
    policies::may_set(d, caller, switch.name(), full, &change)?;
    policies::is_within(d, switch.name(), &policies)
}

/// Checks the policies of a new port on a switch.
///
/// # Errors
/// [`Refusal`], see [`policies::may_set`] and [`policies::is_within`].
pub fn may_begin_with(d: &Daemon, caller: Caller, at: &SwitchPort, policies: &Policies) -> Result<(), Refusal> {
    if is_trusted(caller) {
        return Ok(());
    }
    let change = NewPolicies { policies, names: &|key| policies.get(key).is_some() };
    policies::may_set(d, caller, &at.switch, &at.full(), &change)?;
    policies::is_within(d, &at.switch, policies)
}

fn configure(caller: Caller) -> Result<(), Refusal> {
    if is_trusted(caller) {
        return Ok(());
    }
    refuse(Errno::ACCESS, "only root and the daemon's own user apply and export configurations: ask them")
}

fn shutdown(caller: Caller) -> Result<(), Refusal> {
    if is_trusted(caller) {
        return Ok(());
    }
    refuse(Errno::ACCESS, "only root and the daemon's own user end the daemon: ask them")
}

fn hand_over(caller: Caller) -> Result<(), Refusal> {
    if is_trusted(caller) {
        return Ok(());
    }
    refuse(Errno::ACCESS, "only root and the daemon's own user take the daemon's place: ask them")
}

/// Ports of different users meet on shared switches only.
///
/// # Errors
/// [`Refusal`]: `EACCES` for another user's switch that is not shared.
pub fn may_join(d: &Daemon, switch: &str, caller: Caller) -> Result<(), Refusal> {
    let is_shared = || is_shared(d, switch);
    match d.switches.owner(switch) {
        None if !is_trusted(caller) && !is_shared() && d.config.ports.iter().any(|port| port.switch == switch) => {
            refuse(
                Errno::ACCESS,
                format!(
                    "switch {switch} is the configuration's: use one of your own; 'shared' in [switch] lets users meet on it"
                ),
            )
        }
        Some(owner) if !controls(caller, owner) && !is_shared() => refuse(
            Errno::ACCESS,
            format!(
                "switch {switch} belongs to another user: use one of your own; 'shared' in the configuration's [switch] lets users meet on it"
            ),
        ),
        _ => Ok(()),
    }
}

/// Whether the switch is open to all users.
fn is_shared(d: &Daemon, switch: &str) -> bool {
    d.config.switch.shared.iter().any(|shared| shared == switch || shared == ALL)
}

/// [`owns_port`] for a pipe, or a port by any of its names.
fn owns_named(d: &Daemon, name: &str, caller: Caller) -> Result<(), Refusal> {
    owns_port(d, name, caller)?;
    // An invalid name is refused at its lookup.
    let Ok(parsed) = PortName::parse(name) else { return Ok(()) };
    if let Some((pipe, _)) = pipe_and_end(&parsed) {
        return match d.pipes.get(&pipe) {
            Some(known) if !controls(caller, known.uid) => {
                refuse(Errno::ACCESS, format!("pipe {pipe} belongs to another user"))
            }
            _ => Ok(()),
        };
    }
    match parsed.base() {
        Base::Netmap { ifname } => owns_persistent(d, ifname.as_str(), caller),
        Base::Vale { .. } => Ok(()),
    }
}

fn owns_persistent(d: &Daemon, name: &str, caller: Caller) -> Result<(), Refusal> {
    match d.persistent.get(name) {
        Some(port) if !controls(caller, port.uid) => {
            refuse(Errno::ACCESS, format!("{name} belongs to user {}", port.uid))
        }
        _ => Ok(()),
    }
}

fn make_persistent(d: &Daemon, caller: Caller, name: &str) -> Result<(), Refusal> {
    if d.persistent.contains(name) || Interface::find(name).is_ok() {
        return refuse(Errno::EXIST, format!("there is an interface {name} already"));
    }
    if d.persistent.count() >= MAX_PERSISTENT - reserved(caller, 16) {
        return refuse(Errno::NOSPC, format!("there are {MAX_PERSISTENT} persistent ports, the most there can be"));
    }
    quota::may_have_port(d, caller)
}

fn attach_named(d: &Daemon, caller: Caller, at: &SwitchPort) -> Result<(), Refusal> {
    may_join(d, &at.switch, caller)?;
    if d.ports.contains(&at.full()) {
        return refuse(Errno::BUSY, format!("{} is attached already", at.full()));
    }
    owns_persistent(d, &at.port, caller)?;
    if !d.persistent.contains(&at.port) && Interface::find(&at.port).is_ok() {
        may_take_interface(&d.config, &at.port, caller)?;
    }
    // A persistent port on no switch moves there, and is already counted.
    if d.persistent.own_place(&at.port).is_none_or(|place| place != own_name(&at.port)) {
        quota::may_have_port(d, caller)?;
    }
    has_room_for_switch(d, &at.switch, caller)
}

fn keep_awake(d: &Daemon, name: &str, caller: Caller) -> Result<(), Refusal> {
    owns_port(d, name, caller)?;
    let has_queues = d.ports.get(name).is_some_and(|record| record.behind.wrapped_queues().is_some());
    if has_queues && !is_trusted(caller) {
        return refuse(Errno::PERM, "only root and the daemon's user may keep a worker awake");
    }
    Ok(())
}

/// Refuses a name already in use on the switch.
///
/// # Errors
/// [`Refusal`] with `EEXIST` if the name is taken.
pub fn is_free(d: &Daemon, at: &SwitchPort) -> Result<(), Refusal> {
    if d.ports.contains(&at.full()) {
        let SwitchPort { switch, port } = at;
        let text = format!("switch {switch} has a port {port} already: choose another name, or detach it first");
        return refuse(Errno::EXIST, text);
    }
    Ok(())
}

/// Refuses reserved names for a new port: that of a persistent port not attached there, and, for a netmap program, that
/// of an interface.
///
/// # Errors
/// [`Refusal`] with `EINVAL` if the name is reserved.
pub fn may_be_named(d: &Daemon, at: &SwitchPort, by_netmap: bool, caller: Caller) -> Result<(), Refusal> {
    let port = &at.port;
    if by_netmap && !d.ports.contains(&at.full()) && Interface::find(port).is_ok() {
        return refuse(
            Errno::INVAL,
            format!("{port} is an interface: attach it, and open {}, or choose another name", own_name(port)),
        );
    }
    // Another user's port does not reserve its name.
    if d.persistent.get(port).is_some_and(|known| controls(caller, known.uid)) {
        return refuse(Errno::INVAL, format!("{port} is a persistent port: attach it to the switch first"));
    }
    Ok(())
}

/// Number of last slots reserved for root and the daemon's own user.
fn reserved(caller: Caller, kept: usize) -> usize {
    if is_trusted(caller) { 0 } else { kept }
}

fn has_room_for_switch(d: &Daemon, switch: &str, caller: Caller) -> Result<(), Refusal> {
    if d.switches.get(switch).is_some() {
        return Ok(());
    }
    if d.switches.count() >= MAX_SWITCHES - reserved(caller, 8) {
        return refuse(Errno::NOSPC, format!("there are {MAX_SWITCHES} switches, the most there can be"));
    }
    quota::may_have_switch(d, caller)
}

/// Callers that could take an interface from the kernel without the daemon may do so, and those in the configuration.
fn may_take_interface(config: &Config, name: &str, caller: Caller) -> Result<(), Refusal> {
    if is_trusted(caller) || config.allow_nics.iter().any(|allowed| allowed == name) {
        return Ok(());
    }
    let text = "only root and the daemon's own user may open it; 'netvale up --allow-nic' lets others";
    refuse(Errno::ACCESS, format!("{name}: {text}"))
}

mod files;
pub mod policies;
mod quota;
mod regions;
mod sharing;
#[cfg(test)]
mod tests;

pub use files::{configured_folders, place, unreached};
use policies::NewPolicies;
pub use quota::{
    allowance, may_connect, may_have_bytes, may_have_memory, may_have_rings, may_leave_unread, may_subscribe,
    may_trace, most_addresses,
};
pub use regions::{has_room_for_file, may_lie_in_file, may_map_file, may_move_to, may_use_region};
use sharing::OwnedMemory;
