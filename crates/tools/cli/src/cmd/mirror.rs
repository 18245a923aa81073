//! `netvale mirror`: sends copies of a port's frames to another host.
//!
//! | module | what it is |
//! |---|---|
//! | `target` | the destination and its notation |
//! | `headers` | the headers before each frame |
//! | `tunnel` | the socket |

use std::time::{Duration, Instant};

use netvale_portspec::PortSpec;
use rustix::event::PollFlags;
use std::os::fd::AsFd;

use crate::capture::filter::CaptureFilter;
use crate::capture::limits::{CaptureCondition, CaptureLimits};
use crate::capture::source::{CapturePorts, WaitEvent};
use crate::{CliContext, CliError, out};

mod headers;
mod target;
mod tunnel;

use target::MirrorTarget;
use tunnel::{MirrorTotals, MirrorTunnel};

/// Send copies of ports' frames to another host, in UDP, VXLAN or ERSPAN, until Ctrl-C.
///
/// For a port's name alone, copies what the port sends and receives; vale0:a/t, vale0:a/r and vale0:a/rt select the
/// direction. The copies are made as for `netvale dump`; copies that cannot be sent in time are lost, never the port's
/// frames. The mirror's own datagrams are not mirrored if they pass the port.
#[derive(Debug, clap::Args)]
#[command(after_long_help = TARGETS)]
pub struct MirrorArgs {
    /// The ports.
    #[arg(value_name = "PORT", required = true)]
    ports: Vec<String>,

    /// The destination: udp:HOST:PORT, vxlan:VNI,remote=IP[,port=N] or erspan:ID,remote=IP.
    #[arg(long, value_name = "TARGET")]
    to: MirrorTarget,

    /// Mirror only frames that match an expression of pcap-filter(7), tcpdump's language.
    #[arg(short = 'f', long, value_name = "EXPRESSION")]
    filter: Option<String>,

    /// Send only this many bytes of each frame; 0: all.
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 0)]
    snaplen: u32,

    /// Stop after this many frames.
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Stop after this many seconds.
    #[arg(long, value_name = "S", value_parser = crate::values::seconds)]
    seconds: Option<f64>,

    /// Print the totals as one JSON object.
    #[arg(long)]
    json: bool,
}

const TARGETS: &str = "\
Targets:
  udp:HOST:PORT                  one frame per datagram, after a TZSP header; Wireshark decodes it on port 37008
  vxlan:VNI,remote=IP[,port=N]   VXLAN (RFC 7348); default port: 4789
  erspan:ID,remote=IP            ERSPAN type II in GRE; needs CAP_NET_RAW

Examples:
  netvale mirror vale0:vm1 --to udp:192.0.2.1:37008
  netvale mirror vale0:vm1/t --to vxlan:77,remote=192.0.2.1 -f 'not port 22'
  netvale mirror vale0:vm1 --to erspan:5,remote=192.0.2.1 -s 128
";

/// Runs the subcommand.
///
/// # Errors
/// A port or the socket cannot be opened, the filter cannot be compiled, or a port has ended.
pub fn run(args: &MirrorArgs, ctx: &CliContext) -> Result<(), CliError> {
    let filter = CaptureFilter::new(args.filter.as_deref(), args.snaplen)?;
    let names = args.ports.iter().map(|name| monitor(name)).collect::<Result<Vec<_>, _>>()?;
    let mut tunnel = MirrorTunnel::open(args.to)?;
    let mut sources = CapturePorts::open(&names, ctx)?;
    let seconds = args.seconds.map(CaptureCondition::Duration);
    let conditions: Vec<_> = seconds.into_iter().chain(args.count.map(CaptureCondition::Packets)).collect();
    let start = Instant::now();
    let ended = mirror(&mut sources, &mut tunnel, &filter, &CaptureLimits::of(&conditions));
    sources.ask();
    let dropped = (0..names.len()).map(|port| sources.lost(port)).sum();
    report(args, &tunnel.totals, dropped, start.elapsed())?;
    ended
}

/// Returns the name of the monitor (suffix `/r`, `/t` or `/rt`) that copies a port's frames.
fn monitor(name: &str) -> Result<String, CliError> {
    let wrong = |what: String| CliError::usage(what, "give vale0:a, vale0:a/t, vale0:a/r or vale0:a/rt");
    let spec = PortSpec::parse(name).map_err(|e| wrong(e.to_string()))?;
    match spec.flags.monitor {
        Some(_) => Ok(name.to_owned()),
        // The name consists only of a port's name, without flags or a ring. A number at the end counts as part of the
        // name.
        None if spec.clone().settled(|_| true) == PortSpec::from(spec.written_name().clone()) => {
            Ok(format!("{name}/rt"))
        }
        None => Err(wrong(format!("{name} is not a mirror: it receives no copy of a port's frames"))),
    }
}

fn mirror(
    sources: &mut CapturePorts,
    tunnel: &mut MirrorTunnel,
    filter: &CaptureFilter,
    limits: &CaptureLimits,
) -> Result<(), CliError> {
    let start = Instant::now();
    let stop = crate::signals::stop_pipe()?;
    // When this line is printed, mirroring has begun, so a script that waits for the line may continue.
    netvale_control::note!("mirroring from now on");
    while let Some(left) = limits.left(start) {
        let stop = WaitEvent(stop.as_fd(), PollFlags::IN);
        sources.wait(left, &[stop])?;
        sources.drain(|seen| {
            if let Some(kept) = filter.kept(seen.frame) {
                tunnel.send(seen.frame, kept);
            }
            Ok::<_, CliError>(limits.takes(0, 0, tunnel.totals.sent))
        })?;
        if stop.is_there() || !limits.takes(0, 0, tunnel.totals.sent) {
            break;
        }
    }
    Ok(())
}

fn report(args: &MirrorArgs, totals: &MirrorTotals, dropped: Option<u64>, time: Duration) -> Result<(), CliError> {
    let seconds = time.as_secs_f64();
    if args.json {
        return out::json(&serde_json::json!({
            "frames": totals.sent,
            "bytes": totals.bytes,
            "seconds": seconds,
            "dropped": dropped,
            "unsent": totals.unsent,
            "own": totals.own,
        }));
    }
    let mut text = format!("{} frames, {} bytes mirrored in {seconds:.2} seconds", totals.sent, totals.bytes);
    if let Some(why) = &totals.why {
        text.push_str(&format!("; {} could not be sent: {why}", totals.unsent));
    }
    if let Some(lost) = dropped.filter(|lost| *lost > 0) {
        text.push_str(&format!("; {lost} more were lost: the mirror was too slow"));
    }
    out::line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a port's name alone stands for a monitor of the port; names that would open the port itself, such as
    /// one of its rings, are refused.
    #[test]
    fn a_ports_name_alone_means_its_monitor() {
        let name = |name: &str| monitor(name).ok();
        assert_eq!(name("vale0:a").as_deref(), Some("vale0:a/rt"));
        assert_eq!(name("netmap:p{1").as_deref(), Some("netmap:p{1/rt"));
        assert_eq!(name("vale0:a/t").as_deref(), Some("vale0:a/t"));
        assert_eq!(name("vale0:web-1").as_deref(), Some("vale0:web-1/rt"));
        assert_eq!([name("vale0:a/x"), name("vale0:'a'-1"), name("vale0:a^"), name("vale0:")], [const { None }; 4]);
    }
}
