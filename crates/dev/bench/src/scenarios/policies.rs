//! The cost of policies: the same frames across a switch with and without policies, and across other switches with
//! equivalent policies.

pub mod kinds;
mod one_thread;

use kinds::{VLAN, text};
use serde_json::{Map, Value, json};

use super::vale::across_local;
use super::*;

/// The base of variants whose figure is the additional nanoseconds per frame, measured in one thread.
const COST: Variant = Variant { unit: Unit::Nanos, ..Variant::SHORT };
/// The variant with a delay line.
const LINK: &str = "link";

/// The scenario: a VALE switch whose ports have policies, or none.
pub const SCENARIO: Scenario = Scenario {
    name: "policies",
    about: "the cost per frame of port policies, a switch with policies, and a delay line",
    variants: variants![
        COST => "none", "vlan", "trunk", "security", "rate", "filter", "all";
        Variant::SHORT => "switch", Case::SECURED, LINK
    ],
    needs: &[TWO],
    start,
};

fn start(case: &Case, cores: Cores) -> Result<Session> {
    if case.is_across_a_switch() {
        return across_local(case, cores, |daemon, ends| {
            if !case.is_secured() {
                return Ok(());
            }
            secure(daemon, &ends.senders, FIRST_SENDER)?;
            secure(daemon, &ends.receivers, 0)
        });
    }
    if case.variant == LINK { one_thread::delay(case, cores) } else { one_thread::on_top(case, cores) }
}

/// Puts ports, behind which are the stations from `first` on, into a VLAN, and makes the switch accept only frames of
/// these stations.
fn secure(daemon: &Daemon, ports: &[Port], first: u16) -> Result<()> {
    let mut control = daemon.control()?;
    for (station, port) in (first..).zip(ports) {
        let own = text(address(station));
        let words = json!({"access": VLAN, "addresses": own, "guard": "mac", "max_addresses": 4, "locked": true});
        let words: Map<String, Value> = words.as_object().cloned().unwrap_or_default();
        control.set(port.name(), words).map_err(|error| failed(&error))?;
    }
    Ok(())
}
