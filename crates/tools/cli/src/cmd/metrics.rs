//! `netvale metrics`: the daemon's figures for Prometheus.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use netvale_gateway::control::survey;
use netvale_observe::http::connection::TimeLimits;
use netvale_observe::http::handler::HttpHandler;
use netvale_observe::http::hosts::ServerNames;
use netvale_observe::http::listener::{HttpListener, ListenPlace};
use netvale_observe::http::server;
use netvale_observe::metrics::format::TextFormat;
use netvale_observe::metrics_page::MetricsPage;
use netvale_observe::source::{Figures, FiguresSource};

use crate::cmd::up::LogLevel;
use crate::{CliContext, CliError, out, signals, values};

/// Print the daemon's metrics, or serve them to Prometheus.
///
/// Without --listen, prints the metrics once. With it, serves them at /metrics over HTTP until SIGTERM or SIGINT: in
/// OpenMetrics text format 1.0.0, or in Prometheus' 0.0.4 for clients that request that. The metrics cover the ports
/// that the user who runs the command may see: all of them for root and for the daemon's own user. There is no
/// password: everyone who can connect can read them.
#[derive(Debug, clap::Args)]
pub struct MetricsArgs {
    /// Where to listen: unix:/PATH, or tcp:ADDRESS:PORT, such as tcp:127.0.0.1:9847 (IPv6 addresses in brackets); may
    /// be given several times. Sockets that a service manager passes (named 'metrics') are served as well.
    #[arg(long, value_name = "PLACE")]
    pub listen: Vec<ListenPlace>,

    /// Mode of UNIX sockets in octal.
    #[arg(long, value_name = "MODE", value_parser = values::mode, default_value = "0600", requires = "listen")]
    pub socket_mode: u32,

    /// A further name of this server that clients may use, such as the one in Prometheus' targets; may be given several
    /// times. The server's addresses and 'localhost' are always accepted.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Print OpenMetrics instead of Prometheus' text format.
    #[arg(long, conflicts_with_all = ["listen", "host"])]
    pub openmetrics: bool,

    /// Log messages of this level and above, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// Runs the subcommand.
///
/// # Errors
/// The daemon does not answer, if the metrics are printed; or the command cannot listen, if it serves them.
pub fn run(args: &MetricsArgs, ctx: &CliContext) -> Result<(), CliError> {
    let mut listeners = passed()?;
    listeners.extend(bind(&args.listen, args.socket_mode)?);
    if listeners.is_empty() {
        return print(args.openmetrics, ctx);
    }
    super::up::log_from(args.log_level);
    let stop = signals::stop_pipe()?;
    for place in listeners.iter().filter_map(HttpListener::place) {
        tracing::info!("serving metrics at {place}");
        if let ListenPlace::Tcp(address) = place
            && !address.ip().is_loopback()
        {
            tracing::warn!("{address} is reachable from other hosts, where anyone can read the metrics");
        }
    }
    let hosts = ServerNames::of(&listeners, &args.host);
    serve(&listeners, MetricsPage { hosts, source: FiguresSource::new(ctx.dir()) }, &stop)
}

/// Binds the sockets of an HTTP server.
///
/// # Errors
/// An address is in use, or the user may not listen on it.
pub(super) fn bind(places: &[ListenPlace], mode: u32) -> Result<Vec<HttpListener>, CliError> {
    places.iter().map(|place| HttpListener::bind(place, mode).map_err(|e| cannot_listen(&e))).collect()
}

/// Serves HTTP until `stop` becomes readable.
///
/// # Errors
/// The process has too few descriptors or threads.
pub(super) fn serve(
    listeners: &[HttpListener],
    handler: impl HttpHandler + 'static,
    stop: &UnixStream,
) -> Result<(), CliError> {
    let handler: Arc<dyn HttpHandler> = Arc::new(handler);
    server::run(listeners, &handler, TimeLimits::default(), stop.as_fd())
        .map_err(|e| CliError::failed(format!("cannot serve: {e}"), "check `ulimit -a`"))
}

fn cannot_listen(e: &dyn std::error::Error) -> CliError {
    CliError::failed(e.to_string(), "another program may use this address: choose another with --listen")
}

fn print(openmetrics: bool, ctx: &CliContext) -> Result<(), CliError> {
    let format = if openmetrics { TextFormat::OpenMetrics } else { TextFormat::Prometheus };
    let stats = ctx.daemon()?.ask(netvale_control::client::Client::all_stats)?;
    out::text(Figures::new(stats, survey::folders(&ctx.dir())).text(format).as_ref())
}

/// Returns the sockets that the service manager bound.
fn passed() -> Result<Vec<HttpListener>, CliError> {
    let passed = netvale_daemon::passed_descriptors().into_iter().filter(|(name, _)| name == "metrics");
    passed.map(|(_, fd)| HttpListener::passed(fd).map_err(|e| cannot_listen(&e))).collect()
}
