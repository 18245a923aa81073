//! Ports that are vhost-user devices: a virtual machine's virtio-net.

use std::path::Path;

use netvale_control::types::{PortKind, PortOptions};
use netvale_vhost::net::features;
use netvale_vhost::port::{Mode, VhostOptions, VhostPort, VhostState};

use crate::devices::Device;
use crate::refusal::Refusal;
use crate::state::{Caller, Kind, NewPort, State};

impl State {
    /// Attaches a vhost-user device.
    pub(crate) fn attach_vhost(
        &mut self,
        (switch, port): (&str, &str),
        path: &str,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.check_free(switch, port)?;
        self.may_name(Path::new(path), caller)?;
        let options = VhostOptions {
            path: path.into(),
            mode: if o.client { Mode::Client } else { Mode::Server },
            pairs: u16::try_from(o.rings.max(1)).unwrap_or(u16::MAX),
            mac: o.mac.map_or_else(|| mac_for(&format!("{switch}:{port}")), |mac| mac.0),
            mtu: o.mtu.map_or(1500, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX)),
        };
        let (vhost, (egress, ingresses)) =
            VhostPort::new(&options).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
        let device = Device { kind: PortKind::Vhost, vhost: Some(vhost), ..Device::default() };
        let new = NewPort { kind: Kind::Device(device), owner: caller, persistent: true, lossless: o.lossless };
        self.plug(switch, port, egress, ingresses, new).map(|_| ())
    }
}

/// A locally administered address that is the same whenever a port of this name is attached.
fn mac_for(name: &str) -> [u8; 6] {
    // FNV-1a.
    let sum = name.bytes().fold(0x811c_9dc5u32, |sum, b| (sum ^ u32::from(b)).wrapping_mul(0x0100_0193));
    let [a, b, c, d] = sum.to_be_bytes();
    [0x02, 0x76, a, b, c, d]
}

/// Sentences for `netvale show`.
pub fn notes(port: &VhostPort) -> Vec<String> {
    let state = port.state();
    let (calls, kicks) = port.notifications();
    let mut notes = vec![if state.connected {
        format!("front end connected, {} queues running, {calls} calls to it, {kicks} kicks from it", state.queues)
    } else {
        format!("waits for a front end; there were {}", state.connections)
    }];
    if state.queues > 0 {
        notes.push(format!("driver: {}", negotiated(&state)));
    }
    notes.extend(state.last_error.map(|why| format!("the last front end was disconnected: {why}")));
    notes
}

/// What was negotiated, in words.
fn negotiated(state: &VhostState) -> String {
    let has = |bit: u64| state.features & bit != 0;
    let layout = if has(features::RING_PACKED) { "packed ring" } else { "split ring" };
    let words = [
        (true, layout),
        (has(features::MRG_RXBUF), "mergeable buffers"),
        (has(features::IN_ORDER), "in order"),
        (has(features::EVENT_IDX), "event index"),
        (has(features::INDIRECT_DESC), "indirect descriptors"),
        (has(features::CSUM), "sends without checksums"),
        (has(features::HOST_TSO4), "sends TCP segments whole"),
        (has(features::GUEST_CSUM), "takes frames without checksums"),
        (has(features::GUEST_TSO4), "takes TCP segments whole"),
        (has(features::MQ), "several queues"),
    ];
    words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}
