//! `netvale vtep check`: checks whether remote endpoints answer.

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use netvale_control::types::VxlanInfo;
use netvale_vxlan::check::{Asker, CheckError, VtepFailure, VtepReport, check};
use netvale_vxlan::tunnel::check_vtep;
use serde_json::{Value, json};

use crate::grid::{self, Align};
use crate::{CliContext, CliError, out, values};

/// Maximum number of VTEPs that are checked at the same time.
const TOGETHER: usize = 32;

/// Check whether endpoints answer, how fast, and which packet lengths the path passes.
///
/// Sends each endpoint a VXLAN header without a frame, to find out whether a program listens on its UDP port, and ICMP
/// echo requests of different lengths. The requests have the tunnel's source address, so the command must run in the
/// daemon's network namespace. The exit code is 1 if an endpoint has a fault.
#[derive(Debug, clap::Args)]
pub struct VtepCheckArgs {
    /// The tunnel's port: SWITCH:NAME, e.g. vale0:vxlan100.
    port: String,

    /// The endpoint's IP address; default: all endpoints of the tunnel.
    vtep: Option<IpAddr>,

    /// Seconds to wait for each of three attempts.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = values::seconds)]
    timeout: f64,

    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, the tunnel does not exist or has no endpoint, or this process may not send the requests.
pub fn run(args: &VtepCheckArgs, ctx: &CliContext) -> Result<ExitCode, CliError> {
    let mut daemon = ctx.daemon()?;
    let tunnel = super::tunnel(daemon.ask(|client| client.show(&args.port))?, &args.port)?;
    if let Some(pid) = daemon.pid().filter(|pid| is_elsewhere(*pid)) {
        return Err(elsewhere("the daemon is in another network namespace", pid));
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

/// Returns the VTEPs to check: the given one, or all endpoints of the tunnel.
fn chosen(args: &VtepCheckArgs, tunnel: &VxlanInfo) -> Result<Vec<IpAddr>, CliError> {
    if let Some(vtep) = args.vtep {
        let wrong = |e: netvale_vxlan::tunnel::ChangeError| {
            CliError::usage(e.to_string(), format!("'netvale vtep list {}' shows its endpoints", args.port))
        };
        return check_vtep(vtep, tunnel.local).map(|()| vec![vtep]).map_err(wrong);
    }
    let known: Vec<_> = tunnel.remotes.iter().map(|remote| remote.vtep).collect();
    if known.is_empty() {
        let what = format!("{} has no endpoint", args.port);
        return Err(CliError::failed(what, format!("name one: 'netvale vtep check {} IP'", args.port)));
    }
    Ok(known)
}

/// Returns whether a process is known to be in another network namespace; `false` if this cannot be determined.
fn is_elsewhere(pid: u32) -> bool {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    matches!((of("self"), of(&pid.to_string())), (Ok(here), Ok(there)) if here != there)
}

fn elsewhere(what: &str, pid: u32) -> CliError {
    CliError::failed(what, format!("run this there, as root: 'nsenter --net=/proc/{pid}/ns/net netvale vtep check …'"))
}

fn refusal(error: &CheckError, pid: Option<u32>) -> CliError {
    let next = match (error, pid) {
        (CheckError::NotHere(_), Some(pid)) => return elsewhere(&error.to_string(), pid),
        (CheckError::NotHere(_), None) => "run this in the daemon's network namespace ('ip netns exec', 'nsenter')",
        (CheckError::NoEcho, _) => {
            "run this as root, or let all groups send ICMP echo: 'sysctl net.ipv4.ping_group_range=\"0 2147483647\"'"
        }
        (CheckError::Socket(..), _) => {
            "check 'ip address' and 'ip route', and the limits of this process ('ulimit -n')"
        }
    };
    CliError::failed(error.to_string(), next)
}

/// Checks all VTEPs, up to [`TOGETHER`] at the same time.
fn all(asker: &Asker, vteps: &[IpAddr]) -> Result<Vec<VtepReport>, CheckError> {
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

fn to_json(args: &VtepCheckArgs, tunnel: &VxlanInfo, reports: &[VtepReport]) -> Value {
    let one = |report: &VtepReport| {
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

/// Returns a time in milliseconds with three decimals.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn render(tunnel: &VxlanInfo, reports: &[VtepReport]) -> String {
    let heads = [
        ("VTEP", Align::Left),
        ("ROUND TRIP", Align::Right),
        ("PATH MTU", Align::Right),
        ("INNER MTU", Align::Right),
        ("RESULT", Align::Left),
    ];
    let number = |mtu: Option<u32>| mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string());
    let row = |report: &VtepReport| {
        let time = report.round_trip.map_or_else(|| "-".to_owned(), |time| format!("{:.3} ms", milliseconds(time)));
        let mut result = report.failure.map_or_else(|| "ok".to_owned(), |failure| failure.to_string());
        if exceeds(tunnel, report) {
            result += &format!("; the tunnel's MTU is {}", tunnel.mtu);
        } else if matches!(report.failure, Some(VtepFailure::BlackHole(_))) {
            result += "; the tunnel's packets are shorter";
        }
        [report.vtep.to_string(), time, number(report.path_mtu), number(report.inner_mtu()), result]
    };
    grid::render(heads, reports.iter().map(row))
}

/// Returns whether the tunnel accepts packets that are too long for the path to the report's VTEP.
fn exceeds(tunnel: &VxlanInfo, report: &VtepReport) -> bool {
    report.inner_mtu().is_some_and(|mtu| mtu < tunnel.mtu)
}

/// Returns whether the failure in the report affects the tunnel. It does not if only long packets are lost and the
/// tunnel sends only shorter packets.
fn is_wrong(tunnel: &VxlanInfo, report: &VtepReport) -> bool {
    match report.failure {
        Some(VtepFailure::BlackHole(_)) => exceeds(tunnel, report),
        failure => failure.is_some(),
    }
}

/// Returns advice on the tunnel's MTU; empty if there is none.
fn notes(args: &VtepCheckArgs, tunnel: &VxlanInfo, reports: &[VtepReport]) -> String {
    let Some(fits) = reports.iter().filter_map(VtepReport::inner_mtu).min() else { return String::new() };
    if fits < tunnel.mtu {
        return format!("frames need an MTU of {fits}: set it in guests, or attach the tunnel with '--mtu {fits}'\n");
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

    fn report(path_mtu: Option<u32>, failure: Option<VtepFailure>) -> VtepReport {
        let round_trip = path_mtu.map(|_| Duration::from_micros(1234));
        VtepReport { vtep: [10, 0, 0, 2].into(), round_trip, known_mtu: Some(1500), path_mtu, failure }
    }

    fn args() -> VtepCheckArgs {
        VtepCheckArgs { port: "vale0:v".into(), vtep: None, timeout: 1.0, json: false }
    }

    /// Objective: a row shows the packet lengths that pass, and the fault; if the tunnel's MTU is too large or could be
    /// larger, the right MTU is printed.
    #[test]
    fn a_row_gives_the_passing_lengths_and_the_fault() {
        let hole = report(Some(1400), Some(VtepFailure::BlackHole(1400)));
        let all = [report(Some(1500), None), hole, report(None, Some(VtepFailure::PortUnreachable(4789)))];
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

    /// Objective: lost long packets count as a fault only if the tunnel sends such packets; all other failures always
    /// count.
    #[test]
    fn lost_long_packets_are_a_fault_only_where_sent() {
        let hole = report(Some(1400), Some(VtepFailure::BlackHole(1400)));
        assert!(is_wrong(&tunnel(1450), &hole) && !is_wrong(&tunnel(1350), &hole));
        assert!(is_wrong(&tunnel(1350), &report(None, Some(VtepFailure::NoAnswer))));
        assert!(!is_wrong(&tunnel(1450), &report(Some(1400), None)));
    }

    /// Objective: JSON has a name for each result, and null for an unknown value.
    #[test]
    fn each_result_has_a_name_in_json() {
        let all = [report(Some(1500), None), report(None, Some(VtepFailure::NoRoute(None)))];
        let said = to_json(&args(), &tunnel(1450), &all);
        assert_eq!((&said["vteps"][0]["result"], &said["vteps"][0]["inner_mtu"]), (&json!("ok"), &json!(1450)));
        assert_eq!(
            (&said["vteps"][1]["result"], &said["vteps"][1]["reason"]),
            (&json!("no-route"), &json!("no route"))
        );
        assert_eq!((&said["vteps"][0]["round_trip_ms"], &said["vteps"][1]["path_mtu"]), (&json!(1.234), &Value::Null));
    }
}
