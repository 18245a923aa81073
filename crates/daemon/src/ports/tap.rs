//! `tap:NAME`: an interface of the host's stack.

use std::sync::Arc;

use netvale_control::options::kind;
use netvale_control::types::PortKind;
use netvale_port::{Egress, Ingress};
use netvale_portspec::AttachSpec;
use netvale_tap::{Tap, TapEgress, TapIngress, TapOptions};

use super::kind::Asked;
use super::plug::{NewPort, plug};
use crate::daemon::{Attached, Daemon};
use crate::refusal::Refusal;

/// A TAP behind a port.
struct TapPort {
    /// Its interface name and offloads, in words.
    detail: String,
}

impl Attached for TapPort {
    fn kind(&self) -> PortKind {
        PortKind::Tap
    }

    fn notes(&self) -> Vec<String> {
        vec![self.detail.clone()]
    }
}

/// Attaches a TAP.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let AttachSpec::Tap(name) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Tap>()?;
    let options = TapOptions { name: name.to_string(), queues: o.rings(), mtu: o.mtu(), ..TapOptions::default() };
    let tap = Tap::open(&options)?;
    let uso = if tap.has_uso() { "TSO, USO" } else { "TSO" };
    let detail = format!("interface {}, offloads: checksum, {uso}", tap.name());
    let (mut egress, mut ingresses) = (Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
    for queue in tap.into_queues().into_iter().map(Arc::new) {
        egress.push(Arc::new(TapEgress::new(Arc::clone(&queue), Arc::default())));
        ingresses.push(Box::new(TapIngress::new(queue, Arc::default())));
    }
    plug(d, &asked.at, (egress, ingresses), NewPort::new(TapPort { detail }, asked).with_gro(o.gro()))
}
