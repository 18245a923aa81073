//! What idle ports cost: a busy pair beside them, the daemon's CPU use and memory, and requests of the control socket.

use std::any::Any;

use netvale_control::client::Client;
use netvale_control::types::AttachParams;

use super::idle::{cpu_percent, memory_kib};
use super::vale::across_local;
use super::*;

/// Numbers of idle ports that take no descriptors.
const SINKS: &[u32] = &[10, 100, 1000, 4000];
/// Numbers of idle ports with rings, each of which takes about eight descriptors of the daemon.
const RINGS: &[u32] = &[10, 100, 1000];
/// The variant with a busy pair.
const PAIR: &str = "pair";
/// The prefix of the variants that measure memory; the rest of the name is the kind of port.
const MEMORY: &str = "memory-";

const BESIDE: Variant = Variant { ports: SINKS, ..Variant::SHORT };
const REQUEST: Variant = Variant { unit: Unit::Micros, ports: SINKS, ..Variant::TWO_PORTS };

/// The scenario. `pair` measures the rate of a sender and a receiver beside idle ports; `cpu`, the daemon with idle
/// ports only; `memory-…`, memory per port by kind; the other variants, the mean time of a request beside idle ports.
pub const SCENARIO: Scenario = Scenario {
    name: "ports",
    about: "idle ports on one switch: a busy pair beside them, CPU use, memory by kind, times of requests",
    variants: variants![
        BESIDE => PAIR;
        Variant { unit: Unit::Percent, ..REQUEST } => "cpu";
        Variant { unit: Unit::Kib, ..REQUEST } => "memory-sink";
        Variant { unit: Unit::Kib, ports: RINGS, ..REQUEST } =>
            "memory-rings", "memory-opened", "memory-tap", "memory-vhost";
        REQUEST => "attach-detach", "list", "counters"
    ],
    needs: &[TWO],
    start,
};

fn start(case: &Case, cores: Cores) -> Result<Session> {
    if case.variant == PAIR {
        let pair = Case { ports: 2, ..case.clone() };
        return across_local(&pair, cores, |daemon, _| attach_idle(daemon, "null:i", case));
    }
    let folder = sys::scratch("ports")?;
    let daemon = Daemon::start(None, cores.0, &format!("allow_dirs = [{:?}]\n", folder.path()))?;
    let session = match case.variant.strip_prefix(MEMORY) {
        Some(kind) => memory(case, kind, daemon, cores, folder.path()),
        None => {
            attach_idle(&daemon, "null:i", case)?;
            if case.unit == Unit::Percent { cpu(daemon, cores) } else { requests(case, daemon, cores) }
        }
    };
    Ok(session?.keeping(folder))
}

/// Attaches the case's number of ports, with numbered names.
fn attach_idle(daemon: &Daemon, name: &str, case: &Case) -> Result<()> {
    let mut control = daemon.control()?;
    (0..case.ports).try_for_each(|n| attach(&mut control, format!("{name}{n}")))
}

fn attach(control: &mut Client, port: String) -> Result<()> {
    let params = AttachParams { switch: VALE.into(), port, options: PortOptions::default() };
    control.attach(params).map(drop).map_err(|error| failed(&error))
}

/// Creates a session that measures a daemon, and keeps `kept` until the daemon is dropped.
fn session(
    daemon: Rc<Daemon>,
    cores: Cores,
    kept: impl Any,
    mut measure: impl FnMut(&Daemon, Duration) -> Result<f64> + 'static,
) -> Session {
    let own = daemon.clone();
    let measuring = move |window| {
        let watch = Watch::start(&[own.pid()], &[]);
        let value = measure(&own, window)?;
        Ok(Sample::new(value, watch.finish()))
    };
    Session::new(format!("the daemon on CPU {}", cores.0), false, measuring).keeping(kept).keeping(daemon)
}

fn cpu(daemon: Rc<Daemon>, cores: Cores) -> Result<Session> {
    Ok(session(daemon, cores, (), |daemon, window| cpu_percent(daemon.pid(), window)))
}

/// Measures by how much the memory of the daemon and of this process grows per port of a kind.
fn memory(case: &Case, kind: &str, daemon: Rc<Daemon>, cores: Cores, folder: &Path) -> Result<Session> {
    let processes = [daemon.pid(), std::process::id()];
    let before = memory_kib(&processes)?;
    let mut opened = Vec::new();
    match kind {
        "sink" => attach_idle(&daemon, "null:i", case)?,
        "rings" => attach_idle(&daemon, "i", case)?,
        "tap" => attach_idle(&daemon, "tap:nvi", case)?,
        "vhost" => attach_idle(&daemon, &format!("vhost:{}/s", folder.display()), case)?,
        _ => {
            for n in 0..case.ports {
                opened.push(daemon.open(&format!("{VALE}:i{n}"), 0)?);
            }
        }
    }
    let kib_a_port = (memory_kib(&processes)? - before) / f64::from(case.ports.max(1));
    let measuring = move |_: &Daemon, window| interrupt::sleep(window).map(|()| kib_a_port);
    Ok(session(daemon, cores, opened, measuring))
}

/// Measures the mean time of a request in microseconds.
fn requests(case: &Case, daemon: Rc<Daemon>, cores: Cores) -> Result<Session> {
    let mut control = daemon.control()?;
    let variant = case.variant.clone();
    Ok(session(daemon, cores, (), move |_, window| {
        let start = Instant::now();
        let mut count = 0u32;
        while count == 0 || start.elapsed() < window {
            interrupt::check()?;
            request(&variant, &mut control)?;
            count += 1;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }))
}

fn request(variant: &str, control: &mut Client) -> Result<()> {
    match variant {
        "attach-detach" => {
            attach(control, "null:more".into())?;
            control.detach(VALE, "more").map_err(|error| failed(&error))
        }
        "list" => control.ports(Some(VALE)).map(drop).map_err(|error| failed(&error)),
        _ => control.all_stats().map(drop).map_err(|error| failed(&error)),
    }
}
