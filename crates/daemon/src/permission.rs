//! Permissions: the rights, limits and reserved names against which every request is checked before the daemon creates
//! anything for it.
//!
//! Requests on both sockets pass [`admit`]. A region can be named in many ways, so code that looks a region up for a
//! caller calls [`may_use_region`]. Requests for missing, busy or impossible ports are refused when the port is looked
//! up, not here.

use std::path::Path;

use netvale_afxdp::iface::Interface;
use netvale_control::attach::{AttachRequest, FLAG_NETMAP};
use netvale_control::options::MTU;
use netvale_control::types::{Owner, Policies};
use netvale_portspec::{AttachNeeds, AttachSpec, Base, PortName, PortSpec};
use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::caller::{Caller, is_trusted_user};
use crate::config::Config;
use crate::daemon::{Daemon, DaemonPort};
use crate::refusal::{Refusal, refuse};
use crate::registry::persistent::own_name;
use crate::registry::ports::SwitchPort;
use crate::rings::pipe::{PipeRecord, pipe_and_end};

/// Maximum number of switches in the daemon.
pub const MAX_SWITCHES: usize = 1024;
/// Maximum number of persistent ports.
const MAX_PERSISTENT: usize = 254;
/// The entry of the setting `switch.shared` that matches all switches.
const ALL: &str = "*";

/// The facts of a request on which permissions depend.
#[derive(Clone, Copy)]
pub enum PermissionRequest<'a> {
    /// Attach a port to a switch.
    Attach(&'a SwitchPort, &'a AttachSpec),
    /// Attach a device whose descriptor the caller sent with the request.
    Bring(&'a SwitchPort),
    /// Give a virtual machine a pipe's end or an interface, as a device whose socket has this path.
    Passthrough(&'a Path, &'a PortSpec),
    /// Detach a port from its switch by a request on the control socket.
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
    /// Hand all ports and sockets over to a successor.
    HandOver,
    /// Open a port.
    Open(&'a PortSpec, &'a AttachRequest),
    /// Open rings that are connected to nothing.
    OpenNull(&'a AttachRequest),
    /// List ports by a netmap request; replies are filtered by [`controls`].
    NetmapList,
    /// Read properties of the named port by a netmap request.
    NetmapGet(&'a str),
    /// Create a persistent port.
    MakePersistent(&'a str),
    /// Remove a persistent port.
    RemovePersistent(&'a str),
    /// Attach a persistent port or an interface to a switch under its own name.
    AttachNamed(&'a SwitchPort),
    /// Change a port, trace it, or detach it by a netmap request.
    Change(&'a str),
    /// Keep a port's workers awake (netmap's polling).
    KeepAwake(&'a str),
}

/// Admits or refuses a request.
///
/// # Errors
/// [`Refusal`] when the caller lacks the right, or a limit is reached.
pub fn admit(d: &Daemon, caller: Caller, request: PermissionRequest<'_>) -> Result<(), Refusal> {
    match request {
        PermissionRequest::Attach(at, spec) => attach(d, caller, at, spec),
        PermissionRequest::Bring(at) => bring(d, caller, at),
        PermissionRequest::Passthrough(socket, backend) => passthrough(d, caller, socket, backend),
        PermissionRequest::Open(spec, request) => {
            quota::may_have_extra(caller, request.extra_bufs)?;
            open(d, caller, spec, request)
        }
        PermissionRequest::MakePersistent(name) => make_persistent(d, caller, name),
        PermissionRequest::RemovePersistent(name) => owns_persistent(d, name, caller),
        PermissionRequest::AttachNamed(at) => attach_named(d, caller, at),
        PermissionRequest::Change(name) => owns_port(d, name, caller),
        PermissionRequest::NetmapGet(name) => owns_named(d, name, caller),
        PermissionRequest::Detach(name) => detach(d, name, caller),
        PermissionRequest::SetPolicies(name, policies) => set_policies(d, name, policies, caller),
        PermissionRequest::InspectSwitch(name) => may_join(d, name, caller),
        PermissionRequest::Configure => configure(caller),
        PermissionRequest::Shutdown => shutdown(caller),
        PermissionRequest::HandOver => hand_over(caller),
        PermissionRequest::KeepAwake(name) => keep_awake(d, name, caller),
        PermissionRequest::OpenNull(request) => quota::may_have_extra(caller, request.extra_bufs),
        PermissionRequest::Inspect | PermissionRequest::NetmapList => Ok(()),
    }
}

/// Whether the caller is root or the daemon's own user, who may do everything.
pub fn is_trusted(caller: Caller) -> bool {
    is_trusted_user(caller.uid)
}

/// Whether a caller may use and change the objects of user `uid`: the caller is that user, or trusted.
pub fn controls(caller: Caller, uid: u32) -> bool {
    user_controls(caller.uid, uid)
}

/// Like [`controls`], for a caller whose user ID is known, but not its process or connection.
pub fn user_controls(caller: u32, uid: u32) -> bool {
    is_trusted_user(caller) || caller == uid
}

/// Whether a caller may see an owner's objects: ports, their counters, the reasons for evictions. Only root and the
/// daemon's own user may see objects without an owner.
pub fn sees(caller: Caller, owner: Option<Owner>) -> bool {
    controls(caller, owner.map_or(0, |owner| owner.uid))
}

/// Admits the attachment of a device whose descriptors the caller sends. The caller needs no right to the device,
/// because the caller created the device without the daemon.
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
        AttachNeeds::Nothing => {}
        AttachNeeds::Interface(name) => may_take_interface(&d.config, name, caller)?,
        // A TAP is an interface of the host. Users who may attach a TAP may also have the daemon create and configure
        // that TAP.
        AttachNeeds::Tap(name) if is_trusted(caller) || d.config.allow_taps.iter().any(|allowed| allowed == name) => {}
        AttachNeeds::Tap(_) => {
            let text = format!(
                "only root and the daemon's own user may attach {spec}; 'netvale up --allow-tap' admits others"
            );
            return refuse(Errno::ACCESS, text);
        }
        AttachNeeds::Trust(_) if is_trusted(caller) => {}
        AttachNeeds::Trust(what) => {
            return refuse(Errno::ACCESS, format!("only root and the daemon's own user may attach {what}"));
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

/// Admits a request to open a pipe's end. A pipe is in the memory of the port whose name is part of the pipe's name.
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

/// Admits a monitor if the caller controls the monitored port. A zero-copy monitor also needs the right to that port's
/// memory, which contains its rings.
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
            Some(PipeRecord { uid, .. }) if !controls(caller, *uid) => {
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

fn owns(record: &DaemonPort, full: &str, caller: Caller) -> Result<(), Refusal> {
    if !controls(caller, record.owner.uid) {
        return refuse(Errno::ACCESS, format!("{full} belongs to user {}; open a port of your own", record.owner.uid));
    }
    Ok(())
}

fn owns_port(d: &Daemon, full: &str, caller: Caller) -> Result<(), Refusal> {
    d.ports.get(full).map_or(Ok(()), |record| owns(record, full, caller))
}

/// Admits a request to detach a port. Requests for ports without a record (a pipe's end, an interface) pass this check;
/// [`crate::ports::detach`] refuses them.
fn detach(d: &Daemon, full: &str, caller: Caller) -> Result<(), Refusal> {
    match d.ports.get(full) {
        Some(record) if !controls(caller, record.owner.uid) => {
            refuse(Errno::ACCESS, format!("{full} belongs to another user; only that user and root may detach it"))
        }
        _ => Ok(()),
    }
}

/// Admits a change of policies by the port's owner, unless root or the daemon's own user has set these policies.
fn set_policies(d: &Daemon, full: &str, set: &Map<String, Value>, caller: Caller) -> Result<(), Refusal> {
    owns_port(d, full, caller)?;
    let Some(record) = d.ports.get(full).filter(|_| !is_trusted(caller)) else { return Ok(()) };
    if record.policies_are_set {
        let text =
            format!("the policies of {full} were set by root or the daemon's own user; ask one of them for a change");
        return refuse(Errno::ACCESS, text);
    }
    let Some(switch) = record.switch.as_ref() else { return Ok(()) };
    let mut set = set.clone();
    set.remove(MTU);
    let policies = record.given_policies().with(&set).or_else(|what| refuse(Errno::INVAL, what))?;
    let change = NewPolicies { policies: &policies, names: &|key| set.contains_key(key) };
    policies::may_set(d, caller, switch.name(), full, &change)?;
    policies::is_within(d, switch.name(), &policies)
}

/// Checks the policies with which a caller creates a port on a switch.
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
    refuse(
        Errno::ACCESS,
        "only root and the daemon's own user may apply and export configurations; run this as one of them",
    )
}

fn shutdown(caller: Caller) -> Result<(), Refusal> {
    if is_trusted(caller) {
        return Ok(());
    }
    refuse(Errno::ACCESS, "only root and the daemon's own user may end the daemon; run this as one of them")
}

fn hand_over(caller: Caller) -> Result<(), Refusal> {
    if is_trusted(caller) {
        return Ok(());
    }
    refuse(Errno::ACCESS, "only root and the daemon's own user may replace the daemon; run this as one of them")
}

/// Checks that the caller may have ports on a switch. Only a shared switch takes ports of several untrusted users.
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
                    "switch {switch} belongs to the configuration; use another switch, or add {switch} to 'shared' in \
                     the configuration's [switch]"
                ),
            )
        }
        Some(owner) if !controls(caller, owner) && !is_shared() => refuse(
            Errno::ACCESS,
            format!(
                "switch {switch} belongs to another user; use another switch, or add {switch} to 'shared' in the \
                 configuration's [switch]"
            ),
        ),
        _ => Ok(()),
    }
}

/// Whether the switch is open to all users.
fn is_shared(d: &Daemon, switch: &str) -> bool {
    d.config.switch.shared.iter().any(|shared| shared == switch || shared == ALL)
}

/// Like [`owns_port`], for a pipe, or for a port that may be given by any of its names.
fn owns_named(d: &Daemon, name: &str, caller: Caller) -> Result<(), Refusal> {
    owns_port(d, name, caller)?;
    // The look-up of an invalid name refuses it.
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
            refuse(Errno::ACCESS, format!("persistent port {name} belongs to user {}", port.uid))
        }
        _ => Ok(()),
    }
}

fn make_persistent(d: &Daemon, caller: Caller, name: &str) -> Result<(), Refusal> {
    if d.persistent.contains(name) || Interface::find(name).is_ok() {
        return refuse(Errno::EXIST, format!("interface {name} already exists; choose another name"));
    }
    if d.persistent.count() >= MAX_PERSISTENT - reserved(caller, 16) {
        return refuse(Errno::NOSPC, format!("the limit of {MAX_PERSISTENT} persistent ports is reached; remove one"));
    }
    quota::may_have_port(d, caller)
}

fn attach_named(d: &Daemon, caller: Caller, at: &SwitchPort) -> Result<(), Refusal> {
    may_join(d, &at.switch, caller)?;
    if d.ports.contains(&at.full()) {
        return refuse(Errno::BUSY, format!("port {} is already attached; detach it first", at.full()));
    }
    owns_persistent(d, &at.port, caller)?;
    if !d.persistent.contains(&at.port) && Interface::find(&at.port).is_ok() {
        may_take_interface(&d.config, &at.port, caller)?;
    }
    // A persistent port that is on no switch only moves to the switch: its user's quota already includes it.
    if d.persistent.own_place(&at.port).is_none_or(|place| place != own_name(&at.port)) {
        quota::may_have_port(d, caller)?;
    }
    has_room_for_switch(d, &at.switch, caller)
}

fn keep_awake(d: &Daemon, name: &str, caller: Caller) -> Result<(), Refusal> {
    owns_port(d, name, caller)?;
    let has_queues = d.ports.get(name).is_some_and(|record| record.behind.wrapped_queues().is_some());
    if has_queues && !is_trusted(caller) {
        return refuse(Errno::PERM, "only root and the daemon's own user may keep a worker awake");
    }
    Ok(())
}

/// Refuses a name that is already in use on the switch.
///
/// # Errors
/// [`Refusal`] with `EEXIST` if the name is taken.
pub fn is_free(d: &Daemon, at: &SwitchPort) -> Result<(), Refusal> {
    if d.ports.contains(&at.full()) {
        let SwitchPort { switch, port } = at;
        let text = format!("switch {switch} already has a port {port}; choose another name, or detach that port first");
        return refuse(Errno::EXIST, text);
    }
    Ok(())
}

/// Refuses reserved names for a new port: the name of a persistent port that is not attached to this switch, and, for a
/// netmap program, the name of an interface.
///
/// # Errors
/// [`Refusal`] with `EINVAL` if the name is reserved.
pub fn may_be_named(d: &Daemon, at: &SwitchPort, by_netmap: bool, caller: Caller) -> Result<(), Refusal> {
    let port = &at.port;
    if by_netmap && !d.ports.contains(&at.full()) && Interface::find(port).is_ok() {
        return refuse(
            Errno::INVAL,
            format!(
                "{port} is the name of an interface; attach the interface and open {}, or choose another name",
                own_name(port)
            ),
        );
    }
    // A persistent port reserves its name only for callers who control the port; other callers must not learn that it
    // exists.
    if d.persistent.get(port).is_some_and(|known| controls(caller, known.uid)) {
        return refuse(Errno::INVAL, format!("{port} is a persistent port; attach it to the switch first"));
    }
    Ok(())
}

/// Returns how many of `kept` entries, which are reserved for root and the daemon's own user, the caller cannot take: 0
/// for these two users, `kept` for all other users.
fn reserved(caller: Caller, kept: usize) -> usize {
    if is_trusted(caller) { 0 } else { kept }
}

fn has_room_for_switch(d: &Daemon, switch: &str, caller: Caller) -> Result<(), Refusal> {
    if d.switches.get(switch).is_some() {
        return Ok(());
    }
    if d.switches.count() >= MAX_SWITCHES - reserved(caller, 8) {
        return refuse(
            Errno::NOSPC,
            format!("the limit of {MAX_SWITCHES} switches is reached; detach all ports of one"),
        );
    }
    quota::may_have_switch(d, caller)
}

/// Checks that the caller may take an interface from the kernel. Root and the daemon's own user may take any interface;
/// other users may take an interface that the setting `allow_nics` contains.
fn may_take_interface(config: &Config, name: &str, caller: Caller) -> Result<(), Refusal> {
    if is_trusted(caller) || config.allow_nics.iter().any(|allowed| allowed == name) {
        return Ok(());
    }
    let text = format!("only root and the daemon's own user may open {name}; 'netvale up --allow-nic' admits others");
    refuse(Errno::ACCESS, text)
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
