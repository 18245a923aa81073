//! `netvale sflow`: samples for collectors.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use netvale_observe::sflow::agent::{SflowAgent, SflowOptions};
use netvale_observe::sflow::datagram::{DatagramSender, PORT};
use netvale_observe::sflow::sessions::SamplingRates;

use crate::cmd::up::LogLevel;
use crate::{CliContext, CliError, signals};

/// Send sampled frames and counters to sFlow collectors (version 5) until SIGTERM or SIGINT.
///
/// Frames are sampled where they enter a switch, on each ring separately. The samples cover the ports that the user who
/// runs the command may see: all of them for root and for the daemon's own user. Frames that are not sampled cost
/// nothing, nor does the daemon sample while the command does not run.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SflowArgs {
    /// Collector: ADDRESS or ADDRESS:PORT; the default port is 6343. May be given several times.
    #[arg(long, value_name = "COLLECTOR", value_parser = collector, required = true)]
    target: Vec<SocketAddr>,

    /// Sampling rate: one frame of that many.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    sampling: u32,

    /// Sampling rate of one port, whatever that of other ports; may be given several times.
    #[arg(long, value_name = "SWITCH:PORT=N", value_parser = port_rate)]
    port_sampling: Vec<(String, u32)>,

    /// Seconds between two counter samples; 0: none are sent.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=86400))]
    polling: u32,

    /// Maximum bytes of a sampled frame.
    #[arg(long, value_name = "BYTES", default_value_t = 128, value_parser = clap::value_parser!(u8).range(14..=128))]
    header: u8,

    /// The address by which collectors identify this host; default: the source address towards the first collector.
    #[arg(long, value_name = "ADDRESS")]
    agent: Option<IpAddr>,

    /// Number that distinguishes agents of one host.
    #[arg(long, value_name = "N", default_value_t = 0)]
    sub_agent: u32,

    /// Only the ports of these switches.
    #[arg(value_name = "SWITCH")]
    switches: Vec<String>,

    /// Log messages of this level and above, to standard error.
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

fn own_rates(args: &SflowArgs) -> Result<BTreeMap<String, u32>, CliError> {
    let mut rates = BTreeMap::new();
    for (port, rate) in &args.port_sampling {
        let switch = port.split(':').next().unwrap_or_default();
        if !args.switches.is_empty() && args.switches.iter().all(|named| named != switch) {
            let what = format!("{port} is not on any of the given switches");
            return Err(CliError::usage(what, format!("add {switch}")));
        }
        if rates.insert(port.clone(), *rate).is_some() {
            return Err(CliError::usage(format!("two rates for {port}"), "give one --port-sampling for each port"));
        }
    }
    Ok(rates)
}

/// Runs the subcommand.
///
/// # Errors
/// There is no route to a collector.
pub fn run(args: &SflowArgs, ctx: &CliContext) -> Result<(), CliError> {
    super::up::log_from(args.log_level);
    let rates = SamplingRates { one_of: args.sampling, ports: own_rates(args)? };
    let sender = DatagramSender::new(&args.target, args.agent, args.sub_agent)
        .map_err(|e| CliError::failed(format!("no route to the collector: {e}"), "check its address and routes"))?;
    tracing::info!("sending samples as agent {}", sender.agent());
    let stop = signals::stop_flag()?;
    let options = SflowOptions {
        run_dir: ctx.dir(),
        switches: args.switches.clone(),
        rates,
        polling: Duration::from_secs(args.polling.into()),
        header: args.header.into(),
    };
    SflowAgent::new(options, sender).run(&|| stop.load(Ordering::Relaxed));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a sampling rate for one port needs the port's full name and a valid number.
    #[test]
    fn a_ports_own_rate_takes_its_full_name() {
        assert_eq!(port_rate("vale0:up=100"), Ok(("vale0:up".to_owned(), 100)));
        for text in ["", "vale0:up", "vale0:up=", "vale0:up=0", "vale0:up=16777217", "up=100", "vale0:up=x"] {
            assert!(port_rate(text).is_err(), "{text}");
        }
    }

    /// Objective: a collector is an IPv4 or IPv6 address, with or without a port.
    #[test]
    fn collectors_are_addresses_of_both_families() {
        assert_eq!(collector("192.0.2.9"), Ok("192.0.2.9:6343".parse().unwrap()));
        assert_eq!(collector("192.0.2.9:7"), Ok("192.0.2.9:7".parse().unwrap()));
        for text in ["2001:db8::9", "[2001:db8::9]"] {
            assert_eq!(collector(text), Ok("[2001:db8::9]:6343".parse().unwrap()));
        }
        assert_eq!(collector("[2001:db8::9]:7"), Ok("[2001:db8::9]:7".parse().unwrap()));
        assert!(collector("host").is_err() && collector("192.0.2.9:x").is_err() && collector("").is_err());
    }
}
