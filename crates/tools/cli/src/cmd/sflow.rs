//! `netvale sflow`: samples for collectors.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use netvale_observe::sflow::agent::{Agent, Options};
use netvale_observe::sflow::datagram::{PORT, Sender};
use netvale_observe::sflow::sessions::Rates;

use crate::cmd::up::LogLevel;
use crate::{CliError, Ctx, signals};

/// Send sampled frames and counters to sFlow collectors (version 5) until it gets SIGTERM or SIGINT.
///
/// Frames are sampled where they come into a switch, each ring's for itself. It shows the ports that the user who runs
/// it may see: all of them to root and the daemon's own user. Nothing is asked of frames that are not sampled, and
/// nothing of the daemon when this does not run.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Collector: an address, or ADDRESS:PORT, with 6343 as the port else; may be given several times.
    #[arg(long, value_name = "COLLECTOR", value_parser = collector, required = true)]
    target: Vec<SocketAddr>,

    /// One frame of that many is sampled.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    sampling: u32,

    /// The same for a port of its own, whatever other ports have; may be given several times.
    #[arg(long, value_name = "SWITCH:PORT=N", value_parser = port_rate)]
    port_sampling: Vec<(String, u32)>,

    /// Seconds between counters; 0: none are sent.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=86400))]
    polling: u32,

    /// Bytes of a sampled frame at most.
    #[arg(long, value_name = "BYTES", default_value_t = 128, value_parser = clap::value_parser!(u8).range(14..=128))]
    header: u8,

    /// The address that collectors know this host by; if it is not given, the one from which the first collector is
    /// reached.
    #[arg(long, value_name = "ADDRESS")]
    agent: Option<IpAddr>,

    /// Number that tells agents of one host apart.
    #[arg(long, value_name = "N", default_value_t = 0)]
    sub_agent: u32,

    /// Only these switches.
    #[arg(value_name = "SWITCH")]
    switches: Vec<String>,

    /// Log messages from this level on, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

const EXAMPLES: &str = "\
Examples:
  netvale sflow --target 192.0.2.9                    one frame of 1,000, and counters every 20 s
  netvale sflow --target [2001:db8::9]:6343 --sampling 100 --polling 5 vale0
  netvale sflow --target 192.0.2.9 --port-sampling vale0:up=100
";

fn collector(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT)).or_else(|_| text.parse());
    address.map_err(|_| "expected an address, such as 192.0.2.9, 192.0.2.9:6343 or [2001:db8::9]:6343".to_owned())
}

fn port_rate(text: &str) -> Result<(String, u32), String> {
    let expected = "expected a port and a number, 1 to 16777216, such as vale0:up=100";
    let (port, rate) = text.rsplit_once('=').filter(|(port, _)| port.contains(':')).ok_or(expected)?;
    let rate = rate.parse().ok().filter(|rate| (1..=1 << 24).contains(rate)).ok_or(expected)?;
    Ok((port.to_owned(), rate))
}

fn own_rates(args: &Args) -> Result<BTreeMap<String, u32>, CliError> {
    let mut rates = BTreeMap::new();
    for (port, rate) in &args.port_sampling {
        let switch = port.split(':').next().unwrap_or_default();
        if !args.switches.is_empty() && args.switches.iter().all(|named| named != switch) {
            return Err(CliError::usage(
                format!("{port} is on no switch that is named"),
                format!("name {switch}, too"),
            ));
        }
        if rates.insert(port.clone(), *rate).is_some() {
            return Err(CliError::usage(format!("{port} has two rates"), "give one --port-sampling for each port"));
        }
    }
    Ok(rates)
}

/// Runs the subcommand.
///
/// # Errors
/// No route to a collector.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    super::up::log_from(args.log_level);
    let rates = Rates { one_of: args.sampling, ports: own_rates(args)? };
    let sender = Sender::new(&args.target, args.agent, args.sub_agent)
        .map_err(|e| CliError::failed(format!("no way to the collector: {e}"), "check its address and the routes"))?;
    tracing::info!("samples are sent as agent {}", sender.agent());
    let stop = signals::stop_flag()?;
    let options = Options {
        run_dir: ctx.dir(),
        switches: args.switches.clone(),
        rates,
        polling: Duration::from_secs(args.polling.into()),
        header: args.header.into(),
    };
    Agent::new(options, sender).run(&|| stop.load(Ordering::Relaxed));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a port's own rate takes the port's full name, and a valid number.
    #[test]
    fn rates_of_ports() {
        assert_eq!(port_rate("vale0:up=100"), Ok(("vale0:up".to_owned(), 100)));
        for text in ["", "vale0:up", "vale0:up=", "vale0:up=0", "vale0:up=16777217", "up=100", "vale0:up=x"] {
            assert!(port_rate(text).is_err(), "{text}");
        }
    }

    /// Objective: collectors are addresses of both families, with or without a port.
    #[test]
    fn collectors() {
        assert_eq!(collector("192.0.2.9"), Ok("192.0.2.9:6343".parse().unwrap()));
        assert_eq!(collector("192.0.2.9:7"), Ok("192.0.2.9:7".parse().unwrap()));
        for text in ["2001:db8::9", "[2001:db8::9]"] {
            assert_eq!(collector(text), Ok("[2001:db8::9]:6343".parse().unwrap()));
        }
        assert_eq!(collector("[2001:db8::9]:7"), Ok("[2001:db8::9]:7".parse().unwrap()));
        assert!(collector("host").is_err() && collector("192.0.2.9:x").is_err() && collector("").is_err());
    }
}
