//! netmap's control requests: the requests of `NIOCCTRL` that do not open a port.
//!
//! Request bodies are netmap's structures (netmap.h, `struct nmreq_*`) as bytes (`body`). `info` handles the requests
//! for properties of a port or its memory, `ports` the other requests about ports.

mod body;
mod info;
mod ports;

use netvale_abi::nmreq::{
    NETMAP_REQ_POOLS_INFO_GET, NETMAP_REQ_PORT_HDR_GET, NETMAP_REQ_PORT_HDR_SET, NETMAP_REQ_PORT_INFO_GET,
    NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_DELIF, NETMAP_REQ_VALE_DETACH, NETMAP_REQ_VALE_LIST, NETMAP_REQ_VALE_NEWIF,
    NETMAP_REQ_VALE_POLLING_DISABLE, NETMAP_REQ_VALE_POLLING_ENABLE,
};
use netvale_control::device::{DeviceReply, DeviceRequest};
use netvale_portspec::{Base, PortName};
use rustix::io::Errno;

use self::body::NetmapBody;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::naming;
use crate::permission::{self, PermissionRequest};
use crate::refusal::{Refusal, refuse};
use crate::registry::ports::SwitchPort;

/// Executes a request. Returns the request with its status, and with the name and body that netmap would return.
pub fn request(d: &mut Daemon, request: &DeviceRequest, caller: Caller) -> DeviceReply {
    let mut name = naming::port_meant(d, &request.name);
    let mut body = NetmapBody(request.body);
    let at = vale_name(&name).ok();
    let admitted = permission::admit(d, caller, subject(request.reqtype, &name, at.as_ref()));
    let done = admitted.and_then(|()| carry_out(d, request.reqtype, &mut name, &mut body, caller));
    let status = done.map_or_else(
        |refusal| {
            d.note_refusal(caller, &format!("{name}: {refusal}"));
            refusal.errno
        },
        |()| 0,
    );
    DeviceReply { status, name, body: body.0, ..request.clone() }
}

/// Whether executing a request may change state that the service manager keeps.
pub fn changes_something(request: &DeviceRequest) -> bool {
    const ASK: [u16; 4] =
        [NETMAP_REQ_PORT_INFO_GET, NETMAP_REQ_POOLS_INFO_GET, NETMAP_REQ_PORT_HDR_GET, NETMAP_REQ_VALE_LIST];
    !ASK.contains(&request.reqtype)
}

/// Returns the operation that needs permission if the caller requests it. `at` is `name`, split into switch and port,
/// if the request concerns a port of a switch.
fn subject<'a>(reqtype: u16, name: &'a str, at: Option<&'a SwitchPort>) -> PermissionRequest<'a> {
    match (reqtype, at) {
        (NETMAP_REQ_VALE_NEWIF, _) => PermissionRequest::MakePersistent(name),
        (NETMAP_REQ_VALE_DELIF, _) => PermissionRequest::RemovePersistent(name),
        (NETMAP_REQ_VALE_ATTACH, Some(at)) => PermissionRequest::AttachNamed(at),
        (NETMAP_REQ_PORT_HDR_SET, _) | (NETMAP_REQ_VALE_DETACH, Some(_)) => PermissionRequest::Change(name),
        (NETMAP_REQ_VALE_POLLING_ENABLE | NETMAP_REQ_VALE_POLLING_DISABLE, Some(_)) => {
            PermissionRequest::KeepAwake(name)
        }
        (NETMAP_REQ_VALE_LIST, _) => PermissionRequest::NetmapList,
        // A malformed name is refused when the request is executed.
        _ => PermissionRequest::NetmapGet(name),
    }
}

fn carry_out(
    d: &mut Daemon,
    reqtype: u16,
    name: &mut String,
    body: &mut NetmapBody,
    caller: Caller,
) -> Result<(), Refusal> {
    match reqtype {
        NETMAP_REQ_PORT_INFO_GET => info::port_info(d, name, body, caller),
        NETMAP_REQ_POOLS_INFO_GET => info::pools_info(d, name, body, caller),
        NETMAP_REQ_PORT_HDR_SET => ports::hdr_set(d, name, body),
        NETMAP_REQ_PORT_HDR_GET => ports::hdr_get(d, name, body),
        NETMAP_REQ_VALE_NEWIF => ports::newif(d, name, body, caller),
        NETMAP_REQ_VALE_DELIF => crate::ports::persistent::remove(d, name),
        NETMAP_REQ_VALE_ATTACH => ports::vale_attach(d, &vale_name(name)?, body, caller),
        NETMAP_REQ_VALE_DETACH => ports::vale_detach(d, &vale_name(name)?, body),
        NETMAP_REQ_VALE_LIST => {
            *name = ports::vale_list(d, name, body, caller)?;
            Ok(())
        }
        NETMAP_REQ_VALE_POLLING_ENABLE => ports::polling(d, &vale_name(name)?, body, true),
        NETMAP_REQ_VALE_POLLING_DISABLE => ports::polling(d, &vale_name(name)?, body, false),
        other => refuse(Errno::INVAL, format!("unknown request type {other}")),
    }
}

/// Parses `valeID:port` into switch and port.
fn vale_name(name: &str) -> Result<SwitchPort, Refusal> {
    match PortName::parse(name).map(|n| (n.pipe().is_none(), n.base().clone())) {
        Ok((true, Base::Vale { switch, port })) => Ok(SwitchPort::new(switch, port)),
        _ => refuse(Errno::INVAL, format!("invalid name {name}: expected SWITCH:PORT")),
    }
}
