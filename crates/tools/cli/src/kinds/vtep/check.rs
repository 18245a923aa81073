//! `netvale vtep check`: whether remote endpoints answer.

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use netvale_control::types::VxlanInfo;
use netvale_vxlan::check::{Asker, CheckError, Failure, Report, check};
use netvale_vxlan::tunnel::check_vtep;
use serde_json::{Value, json};

use crate::grid::{self, Align};
use crate::{CliError, Ctx, out, values};

/// Maximum number of VTEPs asked simultaneously.
const TOGETHER: usize = 32;

/// Ask endpoints whether they answer, how fast, and how long packets on the way there may be.
///
/// Sends each a VXLAN header without a frame, to learn whether nothing listens on the UDP port there, and ICMP echo
/// requests of different lengths. It asks from the tunnel's address, and so it runs in the daemon's network namespace.
/// Ends with 1 if something is wrong with one of them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The tunnel's port: SWITCH:NAME, e.g. vale0:vxlan100.
    port: String,

    /// The endpoint's IP address. Without it, all that the tunnel knows are asked.
    vtep: Option<IpAddr>,

    /// How long to wait for an answer; it is asked three times.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = values::seconds)]
    timeout: f64,

    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, the tunnel does not exist or has no endpoint, or this process cannot send the requests.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let mut daemon = ctx.daemon()?;
    let tunnel = super::tunnel(daemon.ask(|client| client.show(&args.port))?, &args.port)?;
    if let Some(pid) = daemon.pid().filter(|pid| is_elsewhere(*pid)) {
        return Err(elsewhere("the daemon is in another network namespace than this command", pid));
    }
    let vteps = chosen(args, &tunnel)?;
    let asker = Asker {
        local: tunnel.local,
        port: tunnel.port,
        vni: tunnel.vni,
        timeout: Duration::from_secs_f64(args.timeout),
    };
    let reports = all(&asker, &vteps).map_err(|e| refusal(&e, daemon.pid()))?;
    if args.json {
        out::json(&to_json(args, &tunnel, &reports))?;
    } else {
        out::text(render(&tunnel, &reports) + &notes(args, &tunnel, &reports))?;
    }
    Ok(ExitCode::from(u8::from(reports.iter().any(|report| is_wrong(&tunnel, report)))))
}

/// The VTEPs to ask.
fn chosen(args: &Args, tunnel: &VxlanInfo) -> Result<Vec<IpAddr>, CliError> {
    if let Some(vtep) = args.vtep {
        let wrong = |e: netvale_vxlan::tunnel::ChangeError| {
            CliError::usage(e.to_string(), format!("'netvale vtep list {}' shows those it knows", args.port))
        };
        return check_vtep(vtep, tunnel.local).map(|()| vec![vtep]).map_err(wrong);
    }
    let known: Vec<_> = tunnel.remotes.iter().map(|remote| remote.vtep).collect();
    if known.is_empty() {
        let what = format!("{} knows no other endpoint", args.port);
        return Err(CliError::failed(what, format!("name one: 'netvale vtep check {} IP'", args.port)));
    }
    Ok(known)
}

/// Whether that process is visibly in another network namespace.
fn is_elsewhere(pid: u32) -> bool {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    matches!((of("self"), of(&pid.to_string())), (Ok(here), Ok(there)) if here != there)
}

fn elsewhere(what: &str, pid: u32) -> CliError {
    CliError::failed(what, format!("run it there, as root: 'nsenter --net=/proc/{pid}/ns/net netvale vtep check …'"))
}

fn refusal(error: &CheckError, pid: Option<u32>) -> CliError {
    let next = match (error, pid) {
        (CheckError::NotHere(_), Some(pid)) => return elsewhere(&error.to_string(), pid),
        (CheckError::NotHere(_), None) => "run it in the daemon's network namespace ('ip netns exec', 'nsenter')",
        (CheckError::NoEcho, _) => {
            "run it as root, or let groups do it: 'sysctl net.ipv4.ping_group_range=\"0 2147483647\"'"
        }
        (CheckError::Socket(..), _) => {
            "look at 'ip address' and 'ip route', and at limits of this process ('ulimit -n')"
        }
    };
    CliError::failed(error.to_string(), next)
}

/// Asks all, several at a time.
fn all(asker: &Asker, vteps: &[IpAddr]) -> Result<Vec<Report>, CheckError> {
    let next = AtomicUsize::new(0);
    let take = || {
        let i = next.fetch_add(1, Ordering::Relaxed);
        vteps.get(i).map(|vtep| (i, *vtep))
    };
    let work = || {
        let mut done = Vec::new();
        while let Some((i, vtep)) = take() {
            done.push((i, check(asker, vtep)?));
        }
        Ok(done)
    };
    let mut done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..vteps.len().min(TOGETHER)).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        joined.collect::<Result<Vec<_>, _>>()
    })?
    .concat();
    done.sort_unstable_by_key(|(i, _)| *i);
    Ok(done.into_iter().map(|(_, report)| report).collect())
}

fn to_json(args: &Args, tunnel: &VxlanInfo, reports: &[Report]) -> Value {
    let one = |report: &Report| {
        json!({
            "vtep": report.vtep,
            "result": report.failure.map_or("ok", |failure| failure.name()),
            "reason": report.failure.map(|failure| failure.to_string()),
            "round_trip_ms": report.round_trip.map(milliseconds),
            "known_path_mtu": report.known_mtu,
            "path_mtu": report.path_mtu,
            "inner_mtu": report.inner_mtu(),
        })
    };
    json!({
        "port": args.port,
        "vni": tunnel.vni,
        "local": tunnel.local,
        "udp_port": tunnel.port,
        "mtu": tunnel.mtu,
        "vteps": reports.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Milliseconds with three decimals.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn render(tunnel: &VxlanInfo, reports: &[Report]) -> String {
    let heads = [
        ("VTEP", Align::Left),
        ("ROUND TRIP", Align::Right),
        ("PATH MTU", Align::Right),
        ("INNER MTU", Align::Right),
        ("RESULT", Align::Left),
    ];
    let number = |mtu: Option<u32>| mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string());
    let row = |report: &Report| {
        let time = report.round_trip.map_or_else(|| "-".to_owned(), |time| format!("{:.3} ms", milliseconds(time)));
        let mut result = report.failure.map_or_else(|| "ok".to_owned(), |failure| failure.to_string());
        if exceeds(tunnel, report) {
            result += &format!("; the tunnel's MTU is {}", tunnel.mtu);
        } else if matches!(report.failure, Some(Failure::BlackHole(_))) {
            result += "; the tunnel's are shorter";
        }
        [report.vtep.to_string(), time, number(report.path_mtu), number(report.inner_mtu()), result]
    };
    grid::render(heads, reports.iter().map(row))
}

/// Whether the tunnel accepts packets that are too long for the path to that VTEP.
fn exceeds(tunnel: &VxlanInfo, report: &Report) -> bool {
    report.inner_mtu().is_some_and(|mtu| mtu < tunnel.mtu)
}

/// Whether the finding affects the tunnel. Lost long packets do not matter to a tunnel that sends shorter ones.
fn is_wrong(tunnel: &VxlanInfo, report: &Report) -> bool {
    match report.failure {
        Some(Failure::BlackHole(_)) => exceeds(tunnel, report),
        failure => failure.is_some(),
    }
}

/// Advice on the tunnel's MTU.
fn notes(args: &Args, tunnel: &VxlanInfo, reports: &[Report]) -> String {
    let Some(fits) = reports.iter().filter_map(Report::inner_mtu).min() else { return String::new() };
    if fits < tunnel.mtu {
        return format!("frames take an MTU of {fits}: give guests that, or attach the tunnel with '--mtu {fits}'\n");
    }
    let is_whole = args.vtep.is_none() && reports.iter().all(|report| report.path_mtu.is_some());
    if is_whole && fits > tunnel.mtu {
        return format!("an MTU of {fits} would pass; the tunnel's is {}\n", tunnel.mtu);
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(mtu: u32) -> VxlanInfo {
        let local = [10, 0, 0, 1].into();
        let addresses = 0;
        let remotes = Vec::new();
        VxlanInfo { vni: 100, local, port: 4789, mtu, evpn: false, instance: 0, addresses, remotes }
    }

    fn report(path_mtu: Option<u32>, failure: Option<Failure>) -> Report {
        let round_trip = path_mtu.map(|_| Duration::from_micros(1234));
        Report { vtep: [10, 0, 0, 2].into(), round_trip, known_mtu: Some(1500), path_mtu, failure }
    }

    fn args() -> Args {
        Args { port: "vale0:v".into(), vtep: None, timeout: 1.0, json: false }
    }

    /// Objective: a row gives the passing lengths and the fault; an MTU that is too large is named with one that fits,
    /// and so is one that could be larger.
    #[test]
    fn rows_and_notes() {
        let hole = report(Some(1400), Some(Failure::BlackHole(1400)));
        let all = [report(Some(1500), None), hole, report(None, Some(Failure::PortUnreachable(4789)))];
        let text = render(&tunnel(1450), &all);
        let rows: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(rows[1], "10.0.0.2 1.234 ms 1500 1450 ok");
        let lost = "packets longer than 1400 bytes are lost silently; the tunnel's MTU is 1450";
        assert_eq!(rows[2], format!("10.0.0.2 1.234 ms 1400 1350 {lost}"));
        assert_eq!(rows[3], "10.0.0.2 - - - port unreachable: no VTEP listens on UDP port 4789");
        assert!(notes(&args(), &tunnel(1450), &all).contains("--mtu 1350"));
        assert_eq!(notes(&args(), &tunnel(1350), &all), "");
        assert!(notes(&args(), &tunnel(1300), &all[..1]).starts_with("an MTU of 1450 would pass"));
    }

    /// Objective: lost long packets are a fault for a tunnel that sends such, and not for one that does not; all other
    /// faults always count.
    #[test]
    fn wrong() {
        let hole = report(Some(1400), Some(Failure::BlackHole(1400)));
        assert!(is_wrong(&tunnel(1450), &hole) && !is_wrong(&tunnel(1350), &hole));
        assert!(is_wrong(&tunnel(1350), &report(None, Some(Failure::NoAnswer))));
        assert!(!is_wrong(&tunnel(1450), &report(Some(1400), None)));
    }

    /// Objective: JSON has a name for each result, and null for unknown values.
    #[test]
    fn for_scripts() {
        let all = [report(Some(1500), None), report(None, Some(Failure::NoRoute(None)))];
        let said = to_json(&args(), &tunnel(1450), &all);
        assert_eq!((&said["vteps"][0]["result"], &said["vteps"][0]["inner_mtu"]), (&json!("ok"), &json!(1450)));
        assert_eq!(
            (&said["vteps"][1]["result"], &said["vteps"][1]["reason"]),
            (&json!("no-route"), &json!("no route"))
        );
        assert_eq!((&said["vteps"][0]["round_trip_ms"], &said["vteps"][1]["path_mtu"]), (&json!(1.234), &Value::Null));
    }
}
