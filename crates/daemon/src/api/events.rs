//! The methods `subscribe` and `unsubscribe`.

use netvale_control::types::{EventName, SubscribeParams, SubscribeReply};
use netvale_control::{ErrorCode, RpcError};

use super::inspect::{list_ports, list_switches};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::permission;
use crate::ports::looking;
use crate::registry::events::now_ns;

/// Maximum number of switches and ports, and of event names, in a subscription. Each event is compared with all of
/// these names, so their number is limited.
const MOST: usize = 64;

/// Subscribes a connection to events, or replaces its filters.
///
/// # Errors
/// [`RpcError`] for an unknown event, or too many filters or subscriptions.
pub fn subscribe(d: &mut Daemon, p: SubscribeParams, caller: Caller) -> Result<SubscribeReply, RpcError> {
    check(&p)?;
    if !d.events.has(caller.client) {
        permission::may_subscribe(d, caller)?;
    }
    let snapshot = p.snapshot;
    looking::begin(d);
    let sequence = d.events.subscribe(caller, p, 0);
    let switches = snapshot.then(|| list_switches(d, caller));
    let ports = snapshot.then(|| list_ports(d, None, caller));
    Ok(SubscribeReply { sequence, now_ns: now_ns(), switches, ports })
}

fn check(p: &SubscribeParams) -> Result<(), RpcError> {
    if let Some(name) = p.names.iter().find(|name| !EventName::ALL.iter().any(|event| event.is_meant(name))) {
        let names: Vec<_> = EventName::ALL.iter().map(|event| event.as_str()).collect();
        let text = format!("unknown event or group of events {name:?}");
        return Err(RpcError::new(ErrorCode::InvalidParams, text, format!("the events are {}", names.join(", "))));
    }
    if p.only.len() > MOST || p.names.len() > MOST {
        let text = format!(
            "{} switches and ports and {} names of events: expected at most {MOST} of each",
            p.only.len(),
            p.names.len()
        );
        return Err(RpcError::new(ErrorCode::InvalidParams, text, "name fewer; without filters, all events are sent"));
    }
    Ok(())
}
