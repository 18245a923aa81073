//! `netvale metrics`: the daemon's figures for Prometheus.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;

use netvale_observe::http::connection::Limits;
use netvale_observe::http::handler::Handler;
use netvale_observe::http::hosts::ServerNames;
use netvale_observe::http::listener::{Listener, Place};
use netvale_observe::http::server;
use netvale_observe::metrics::format::Format;
use netvale_observe::metrics_page::MetricsPage;
use netvale_observe::source::Source;

use crate::cmd::up::LogLevel;
use crate::{CliError, Ctx, out, signals, values};

/// Show the daemon's figures as metrics, or serve them to Prometheus.
///
/// Without --listen, prints them once. With it, serves them at /metrics over HTTP until it gets SIGTERM or SIGINT: in
/// OpenMetrics text format 1.0.0, or in Prometheus' 0.0.4 for clients that ask for that. It shows the ports that the
/// user who runs it may see: all of them to root and the daemon's own user. Everybody who can connect can read; there
/// is no password.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen: unix:/PATH, or tcp:ADDRESS:PORT, such as tcp:127.0.0.1:9847 (IPv6 addresses in brackets); may
    /// be given several times. Sockets that a service manager passes (named 'metrics') are served as well.
    #[arg(long, value_name = "PLACE")]
    pub listen: Vec<Place>,

    /// Mode of UNIX sockets in octal.
    #[arg(long, value_name = "MODE", value_parser = values::mode, default_value = "0600", requires = "listen")]
    pub socket_mode: u32,

    /// Another name of this server that clients may use, such as the one in Prometheus' targets; may be given several
    /// times. Its addresses and 'localhost' are known.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Print OpenMetrics instead of Prometheus' text format.
    #[arg(long, conflicts_with_all = ["listen", "host"])]
    pub openmetrics: bool,

    /// Log messages from this level on, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// Runs the subcommand.
///
/// # Errors
/// When printing figures: the daemon does not answer; otherwise: it cannot listen.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let mut listeners = passed()?;
    for place in &args.listen {
        listeners.push(Listener::bind(place, args.socket_mode).map_err(|e| cannot_listen(&e))?);
    }
    if listeners.is_empty() {
        print(args.openmetrics, ctx)?;
    } else {
        super::up::log_from(args.log_level);
        serve(&listeners, &args.host, ctx)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn cannot_listen(e: &dyn std::error::Error) -> CliError {
    CliError::failed(e.to_string(), "another program may have the place: choose another one (--listen)")
}

fn print(openmetrics: bool, ctx: &Ctx) -> Result<(), CliError> {
    let format = if openmetrics { Format::OpenMetrics } else { Format::Prometheus };
    let stats = ctx.daemon()?.ask(netvale_control::client::Client::all_stats)?;
    out::text(format.encode(&Arc::new(stats)))
}

/// Sockets bound by the service manager.
fn passed() -> Result<Vec<Listener>, CliError> {
    let passed = netvale_daemon::passed_descriptors().into_iter().filter(|(name, _)| name == "metrics");
    passed.map(|(_, fd)| Listener::passed(fd).map_err(|e| cannot_listen(&e))).collect()
}

fn serve(listeners: &[Listener], hosts: &[String], ctx: &Ctx) -> Result<(), CliError> {
    for place in listeners.iter().filter_map(Listener::place) {
        tracing::info!("metrics are served at {place}");
        if let Place::Tcp(address) = place
            && !address.ip().is_loopback()
        {
            tracing::warn!("{address} can be reached from other hosts, and everybody there can read");
        }
    }
    let stop = signals::stop_pipe()?;
    let handler: Arc<dyn Handler> =
        Arc::new(MetricsPage { hosts: ServerNames::of(listeners, hosts), source: Source::new(ctx.dir()) });
    server::run(listeners, &handler, Limits::default(), stop.as_fd())
        .map_err(|e| CliError::failed(format!("cannot serve: {e}"), "check the system's limits"))
}
