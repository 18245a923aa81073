//! Attaches the ports that clients request, and the ports of the configuration file.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

use netvale_control::attach::BringRequest;
use netvale_control::types::{AttachParams, PortOptions};
use netvale_portspec::{AttachNeeds, AttachSpec, Base, SwitchName};
use rustix::io::Errno;

use crate::caller::Caller;
use crate::config::{canonical, full_name};
use crate::daemon::{Daemon, DaemonPort};
use crate::naming;
use crate::permission::{self, PermissionRequest};
use crate::ports;
use crate::ports::faults;
use crate::ports::kind::AdmittedRequest;
use crate::ports::private;
use crate::refusal::{Refusal, refuse};
use crate::registry::ports::{DeclaredPort, SwitchPort};
use crate::system::closing::Strangers;

/// Pause between two attempts to attach a port whose resources, such as a socket, are still in use.
const PAUSE: Duration = Duration::from_millis(2);

fn bad(e: impl Display) -> Refusal {
    Refusal::new(Errno::INVAL, format!("{e:#}"))
}

/// Attaches the ports of the configuration, except the ports that were restored from another process. A port that
/// cannot be attached at present is logged and skipped, so that the other ports are attached.
///
/// # Errors
/// Name and refusal of the first port that can never be attached, because its configuration is wrong, or, with
/// `require_ports`, of the first port that cannot be attached now.
pub fn attach_configured(d: &mut Daemon) -> Result<(), (String, Refusal)> {
    let as_attached = |record: &DaemonPort| record.declared.as_ref().map(|declared| canonical(&declared.params));
    let continued: BTreeMap<_, _> =
        d.ports.iter().map(|(full, record)| (full.to_owned(), as_attached(record))).collect();
    let mut ports = d.config.ports.clone();
    ports.sort_by_key(|params| private::is_picked_for(d, params));
    for params in ports {
        let wanted = canonical(&params);
        if continued.values().flatten().any(|attached| *attached == wanted) {
            continue;
        }
        let full = AttachSpec::parse(&params.port).map(|spec| full_name(&params, &spec)).unwrap_or_default();
        if continued.contains_key(&full) {
            tracing::warn!(
                port = full,
                "the port keeps its former options; 'netvale apply' sets those of the configuration"
            );
            continue;
        }
        let declared = DeclaredPort { params: params.clone(), from_file: true };
        match attach_declared(d, declared, Caller::daemon()) {
            Err(refusal) if d.config.require_ports || is_mistake(&params, &refusal) => {
                return Err((params.port, refusal));
            }
            Err(refusal) => {
                tracing::error!(port = params.port, why = %refusal, "a port of the configuration is not attached");
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Whether the refusal is permanent, because the port's parameters are wrong. Returns false for a port that uses files,
/// because a missing file may appear later.
fn is_mistake(params: &AttachParams, refusal: &Refusal) -> bool {
    let has_files = AttachSpec::parse(&params.port).is_ok_and(|spec| !spec.files().is_empty());
    !has_files && [Errno::INVAL, Errno::OPNOTSUPP].iter().any(|errno| errno.raw_os_error() == refusal.errno)
}

/// Attaches a port, which remains until it is detached. Returns the port's full name.
///
/// # Errors
/// [`Refusal`] if the caller lacks the right, or the port cannot be created.
pub fn attach(d: &mut Daemon, p: &AttachParams, caller: Caller) -> Result<String, Refusal> {
    attach_declared(d, DeclaredPort { params: p.clone(), from_file: false }, caller)
}

/// Like [`attach`], for a port that may come from the configuration file. The port's record keeps `declared`: the
/// attach parameters, and whether they come from that file.
///
/// # Errors
/// [`Refusal`] if the caller lacks the right, or the port cannot be created.
pub fn attach_declared(d: &mut Daemon, declared: DeclaredPort, caller: Caller) -> Result<String, Refusal> {
    let full = make(d, &declared.params, caller)?;
    if let Some(record) = d.ports.get_mut(&full) {
        record.declared = Some(declared);
    }
    Ok(full)
}

/// Calls `attach` repeatedly until `until`, as long as it fails because a resource, such as a device or a socket, is in
/// use. The resources of a port that was just removed stay in use until the kernel, the port's threads and the service
/// manager have released them.
///
/// # Errors
/// The error of the last attempt.
pub fn once_free<T>(
    d: &mut Daemon,
    until: Instant,
    attach: impl Fn(&mut Daemon) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    loop {
        match attach(d) {
            Err(why) if is_taken(&why) && Instant::now() < until => {
                d.forget_kept();
                d.watched.progress(Instant::now());
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

fn is_taken(why: &Refusal) -> bool {
    [Errno::BUSY, Errno::ADDRINUSE].iter().any(|errno| errno.raw_os_error() == why.errno)
}

fn make(d: &mut Daemon, p: &AttachParams, caller: Caller) -> Result<String, Refusal> {
    let spec = naming::attached(p.check().map_err(bad)?);
    if let Some(backend) = &p.options.backend {
        return attach_backend(d, backend, &spec, &p.options, caller);
    }
    attach_to_switch(d, place(d, p, &spec)?, &spec, &p.options, caller)
}

/// Returns the switch on which the request attaches a port, and the port's name on that switch.
fn place(d: &Daemon, p: &AttachParams, spec: &AttachSpec) -> Result<SwitchPort, Refusal> {
    let switch = SwitchName::parse(naming::switch_meant(d, &p.switch)).map_err(bad)?;
    let port = p.options.name.clone().unwrap_or_else(|| spec.port_name().to_string());
    Ok(SwitchPort::new(switch, port))
}

/// Attaches a TAP whose queues came as descriptors with the request. The port remains until it is detached or the TAP
/// no longer exists. Returns the port's full name.
///
/// # Errors
/// [`Refusal`] if the caller lacks the right, or the descriptors are not queues of a TAP.
pub fn bring(d: &mut Daemon, request: &BringRequest, queues: Strangers, caller: Caller) -> Result<String, Refusal> {
    let p = &request.params;
    let spec = p.check().map_err(bad)?;
    if !matches!(spec.needs(), AttachNeeds::Tap(_)) {
        return Err(bad(format!("{} is not a TAP, and only a TAP can be handed over; name the port tap:NAME", p.port)));
    }
    let asked = usize::from(request.queues);
    let came = queues.all().len();
    if asked != came {
        return Err(bad(format!("{came} descriptors received: expected {asked}, one for each TAP queue")));
    }
    let at = place(d, p, &spec)?;
    let full = at.full();
    faults::make_way(d, &full);
    permission::admit(d, caller, PermissionRequest::Bring(&at))?;
    permission::may_begin_with(d, caller, &at, &p.options.policies)?;
    ports::brought_tap::attach(d, &AdmittedRequest::new(at, &spec, &p.options, caller), queues)?;
    Ok(full)
}

/// Checks the caller's permissions, then creates the port and attaches it to a switch. First removes a port of the same
/// name whose device no longer exists.
fn attach_to_switch(
    d: &mut Daemon,
    at: SwitchPort,
    spec: &AttachSpec,
    options: &PortOptions,
    caller: Caller,
) -> Result<String, Refusal> {
    let full = at.full();
    faults::make_way(d, &full);
    permission::admit(d, caller, PermissionRequest::Attach(&at, spec))?;
    permission::may_begin_with(d, caller, &at, &options.policies)?;
    ports::attach(d, &AdmittedRequest::new(at, spec, options, caller))?;
    Ok(full)
}

/// Attaches a ptnet device to a backend. The backend is a port of a switch or, without a switch, an end of a pipe or an
/// interface.
fn attach_backend(
    d: &mut Daemon,
    backend: &str,
    spec: &AttachSpec,
    options: &PortOptions,
    caller: Caller,
) -> Result<String, Refusal> {
    if !spec.kind().takes("backend") {
        return Err(Refusal::internal("the port has a backend, but its kind takes none"));
    }
    let named = naming::backend(backend).or_else(|e| refuse(Errno::INVAL, format!("backend {backend}: {e:#}")))?;
    if let Base::Vale { switch, port } = named.name.base() {
        return attach_to_switch(d, SwitchPort::new(switch, port), spec, options, caller);
    }
    let socket = spec.files().first().copied().unwrap_or_default();
    permission::admit(d, caller, PermissionRequest::Passthrough(Path::new(socket), &named))?;
    let options = options.of().ok_or_else(|| Refusal::internal("the options belong to another kind of port"))?;
    ports::passthrough::attach(d, &named, socket, &options, caller)?;
    Ok(named.name.to_string())
}
