//! `netmap:IF` inside a virtual machine with a ptnet device: the device's rings, which programs share as in netmap.

use std::path::Path;
use std::sync::Arc;

use netvale_control::attach::{AttachRequest, FLAG_SHARED};
use netvale_guest::passthrough::Passthrough;
use netvale_portspec::{PortSpec, Rings};
use rustix::io::Errno;

use super::attachment::{Attachment, Description, OpenedPort};
use super::nic::names::wanted_both;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::refusal::{Refusal, refuse};
use crate::rings::guest::{GuestPort, HeldRings};
use crate::system::sandbox::KernelNeeds;

impl Attachment for HeldRings {
    fn describe(&self, _d: &Daemon) -> Result<Description, Refusal> {
        self.reply()
    }

    fn close(self: Box<Self>, _d: &mut Daemon, _client: u64) {}
}

/// System calls and files that the sandbox permits, to find and use ptnet devices inside a virtual machine.
pub const KERNEL: KernelNeeds = KernelNeeds {
    values: &[(libc::SYS_ioctl, 1, &netvale_guest::passthrough::IOCTLS)],
    devices: netvale_guest::passthrough::devices,
    listed: &["/sys/class/net", "/sys/devices"],
    ..KernelNeeds::NOTHING
};

/// Opens a ptnet device of the virtual machine in which this daemon runs.
pub fn open(
    d: &mut Daemon,
    request: &AttachRequest,
    spec: &PortSpec,
    ifname: &str,
    device: &Path,
    caller: Caller,
) -> Result<OpenedPort, Refusal> {
    let known = d.guests.get(ifname);
    let alone = known.is_none();
    let port = known.map_or_else(|| make(d, request, ifname, device, caller), Ok)?;
    if matches!(spec.rings, Rings::AllHost | Rings::NicAndHost | Rings::OneHost(_)) {
        return refuse(Errno::INVAL, "a ptnet device has no host rings");
    }
    let described = port.described();
    let rings = wanted_both(spec, (described.tx_rings, 0), (described.rx_rings, 0))?;
    let Some(held) = port.hold(rings, caller.client, request.flags & FLAG_SHARED != 0, alone) else {
        return refuse(Errno::BUSY, format!("rings of {ifname} are already open for exclusive use; close them first"));
    };
    let (reply, fds) = held.reply()?;
    tracing::info!(interface = ifname, uid = caller.uid, pid = caller.pid, "opened");
    Ok((reply, fds, Box::new(held)))
}

fn make(
    d: &mut Daemon,
    request: &AttachRequest,
    ifname: &str,
    device: &Path,
    caller: Caller,
) -> Result<Arc<GuestPort>, Refusal> {
    let device = Passthrough::open(device, request.hdr_len, request.extra_bufs)?;
    let port = Arc::new(GuestPort::new(format!("netmap:{ifname}"), device, request.hdr_len, caller));
    d.guests.insert(ifname, &port);
    Ok(port)
}
