//! `tap:NAME`: a TAP, which is an interface of the host's stack.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_afxdp::iface::has_carrier;
use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::PortKind;
use netvale_fdio::state::{Fd, State};
use netvale_port::{Egress, Ingress};
use netvale_portspec::AttachSpec;
use netvale_tap::link::GONE;
use netvale_tap::restore::name_of;
use netvale_tap::{Tap, TapEgress, TapIngress, TapLink, TapOptions};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::kind::AdmittedRequest;
use super::plug::{NewPort, plug};
use crate::daemon::{Daemon, PortBackend};
use crate::refusal::{Refusal, refuse};
use crate::system::sandbox::KernelNeeds;

/// Default MTU of an interface.
const USUAL_MTU: u32 = 1500;

/// Backend of a TAP's port.
struct TapPort {
    /// Name that the interface had when it was created.
    name: String,
    /// Note for `netvale show`: the interface's name, and its offloads.
    detail: String,
    link: TapLink,
    /// Whether the kernel leaves UDP segmentation (USO) to the reader of the TAP.
    uso: bool,
    queues: Vec<Arc<OwnedFd>>,
}

/// The state from which another process restores the port.
#[derive(Serialize, Deserialize)]
struct TapState {
    name: String,
    uso: bool,
    queues: Vec<Fd>,
}

impl PortBackend for TapPort {
    fn kind(&self) -> PortKind {
        PortKind::Tap
    }

    fn notes(&self) -> Vec<String> {
        let gone = self.link.is_gone().then(|| format!("{GONE}; attach it again"));
        std::iter::once(self.detail.clone()).chain(gone).collect()
    }

    /// Sets the MTU of the interface. The interface must still be in the daemon's network namespace.
    fn set_mtu(&self, mtu: Option<u32>) -> Result<(), Refusal> {
        // The interface may have been renamed.
        let name = self.queues.first().and_then(|queue| name_of(queue).ok());
        let name = name.ok_or_else(|| Refusal::new(Errno::NODEV, GONE))?;
        Ok(Tap::set_mtu(&name, mtu.unwrap_or(USUAL_MTU))?)
    }

    fn may_be_received(&self) -> bool {
        !self.link.is_down()
    }

    fn look(&self) -> Option<String> {
        self.link.look(self.queues.first()?)
    }

    fn is_link_reported(&self) -> bool {
        true
    }

    fn link(&self) -> Option<bool> {
        Some(!self.link.is_gone() && has_carrier(&self.name))
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        // The interface may have been renamed.
        let Some(Ok(name)) = self.queues.first().map(|queue| name_of(queue)) else { return Ok(None) };
        let queues = self.queues.iter().map(Fd::shared).collect();
        Ok(Some(State::of(&TapState { name, uso: self.uso, queues })?))
    }
}

/// System calls and devices that the sandbox permits for TAPs.
pub const KERNEL: KernelNeeds = KernelNeeds {
    values: &[(libc::SYS_ioctl, 1, &netvale_tap::IOCTLS)],
    devices: || vec!["/dev/net/tun".into()],
    ..KernelNeeds::NOTHING
};

/// Attaches a TAP that the daemon creates, or restores such a port.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Tap(name) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Tap>()?;
    let tap = match asked.continued() {
        Some(state) => restore(state, o.rings().max(1))?,
        None => open(name.to_string(), &o)?,
    };
    let uso = tap.has_uso();
    let offloads = if uso { "TSO, USO" } else { "TSO" };
    let detail = format!("interface {}, offloads: checksum, {offloads}", tap.name());
    let name = tap.name().to_owned();
    let queues: Vec<_> = tap.into_queues().into_iter().map(Arc::new).collect();
    let mut egress = Vec::<Arc<dyn Egress>>::new();
    let mut ingresses = Vec::<Box<dyn Ingress>>::new();
    let link = TapLink::default();
    link.on_change(d.on_news());
    for queue in &queues {
        egress.push(Arc::new(TapEgress::new(Arc::clone(queue), link.clone())));
        ingresses.push(Box::new(TapIngress::new(Arc::clone(queue), link.clone())));
    }
    let behind = TapPort { name, detail, link, uso, queues };
    plug(d, &asked.at, (egress, ingresses), NewPort::new(behind, asked).with_gro(o.gro()))
}

fn open(name: String, o: &OptionsOf<'_, kind::Tap>) -> Result<Tap, Refusal> {
    if o.netns().is_some() {
        return refuse(
            Errno::OPNOTSUPP,
            "netns: the daemon does not enter network namespaces; 'netvale attach --netns' creates the TAP there and \
             hands it over",
        );
    }
    let mac = o.mac().map(|mac| mac.0);
    Ok(Tap::open(&TapOptions { name, queues: o.rings(), mtu: o.mtu(), mac, ..TapOptions::default() })?)
}

/// Restores a TAP with that many queues. Frames that wait in the TAP's queues are in the kernel, and need not be
/// restored.
fn restore(state: State, rings: u32) -> Result<Tap, Refusal> {
    let TapState { name, uso, queues } = state.read()?;
    if queues.len() != rings as usize {
        return refuse(Errno::INVAL, format!("expected {rings} TAP queues (one per ring), found {}", queues.len()));
    }
    Ok(Tap::restore(&name, uso, Fd::take_all(queues)?)?)
}
