//! What policies cost: the same frames across a switch with them and without, and beside other switches with the same.

mod delay;
pub mod kinds;
mod on_top;

use netvale::Port;
use serde_json::{Map, Value, json};

use super::own::{Daemon, failed};
use super::stations::{FIRST_SENDER, Plan};
use super::traffic::{SLOTS, address};
use super::vale::{Ports, Running, ports};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Session};
use crate::error::{Result, Skip};
use crate::scenarios::{Scenario, Variant};
use delay::Delay;
use kinds::{Kind, VLAN};
use on_top::OnTop;

/// Nanoseconds on top, in one thread.
const COST: Variant = Variant { unit: Unit::Nanos, frame_bytes: &[60], batch: &[256], ..Variant::TWO_PORTS };
/// Frames a second, as in the scenario `vale`.
const RATE: Variant = Variant { unit: Unit::Mpps, ..COST };
/// The delay line's variant.
const LINK: &str = "link";

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "policies",
    about: "what policies of ports cost a frame on top of none, a switch with them, and a delay line",
    variants: &[
        Variant { name: "none", ..COST },
        Variant { name: "vlan", ..COST },
        Variant { name: "trunk", ..COST },
        Variant { name: "security", ..COST },
        Variant { name: "rate", ..COST },
        Variant { name: "filter", ..COST },
        Variant { name: "all", ..COST },
        Variant { name: "switch", ..RATE },
        Variant { name: Case::SECURED, ..RATE },
        Variant { name: LINK, ..RATE },
    ],
    ours: Some(|| Box::new(Ours)),
};

/// Netvale's switch.
struct Ours;

impl Contender for Ours {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "local ports on a VALE switch with policies, embedded or with one worker"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        if case.is_across_a_switch() {
            return Ok(Box::new(running(case, cores)?));
        }
        if case.variant == LINK {
            return Ok(Box::new(Delay::start(case, cores.0)?));
        }
        Ok(Box::new(OnTop::start(case, Kind::named(&case.variant)?, cores.0)?))
    }
}

/// A daemon's switch, with VLANs and port security if the case says so.
fn running(case: &Case, cores: (usize, usize)) -> Result<Running> {
    let daemon = Daemon::start(cores.1, "")?;
    let (senders, receivers): Ports = ports(Plan::of(case), |name| daemon.open(&format!("vale0:{name}"), SLOTS))?;
    if case.is_secured() {
        secure(&daemon, &senders, FIRST_SENDER)?;
        secure(&daemon, &receivers, 0)?;
    }
    Running::start((case, 0), cores, daemon, (senders, receivers))
}

/// Puts ports, behind which the stations from `first` on are, into a VLAN, and takes frames of these stations only.
fn secure(daemon: &Daemon, ports: &[Port], first: u16) -> Result<()> {
    let mut control = daemon.control()?;
    for (station, port) in (first..).zip(ports) {
        let [a, b, c, d, e, f] = address(station);
        let own = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        let words = json!({"access": VLAN, "addresses": own, "guard": "mac", "max_addresses": 4, "locked": true});
        let words: Map<String, Value> = words.as_object().cloned().unwrap_or_default();
        control.set(port.name(), words).map_err(|error| failed(&error))?;
    }
    Ok(())
}
