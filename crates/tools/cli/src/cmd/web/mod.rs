//! `netvale web`: a page for the browser.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use netvale_observe::http::connection::Limits;
use netvale_observe::http::handler::Handler;
use netvale_observe::http::hosts::ServerNames;
use netvale_observe::http::listener::{Listener, Place};
use netvale_observe::http::server;
use netvale_observe::source::Source;
use netvale_observe::web::capture::Captures;
use netvale_observe::web::guard::Guard;
use netvale_observe::web::page::WebPage;
use netvale_observe::web::ports::Ports;
use netvale_observe::web::token::Token;

use crate::cmd::up::LogLevel;
use crate::{CliError, Ctx, out, signals, values};

mod tap;

/// Serve a page for browsers: switches, ports, rates, drops, workers and rings, live.
///
/// Prints the address to open, with a token without which nobody sees anything, and serves until it gets SIGTERM or
/// SIGINT. It shows the ports that the user who runs it may see, and can capture their frames. The daemon need not run
/// yet. Nothing is encrypted: for other hosts, forward the port by ssh (ssh -L 9848:127.0.0.1:9848 HOST), or put a
/// proxy with TLS in front of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen: tcp:ADDRESS:PORT, or unix:/PATH for a proxy; may be given several times.
    #[arg(long, value_name = "PLACE", default_value = "tcp:127.0.0.1:9848")]
    pub listen: Vec<Place>,

    /// Mode of UNIX sockets in octal.
    #[arg(long, value_name = "MODE", value_parser = values::mode, default_value = "0600")]
    pub socket_mode: u32,

    /// File with the token; it is made if it does not exist. Without it, each start has a new token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Another name of this server that browsers may use, such as that of a proxy; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Log messages from this level on, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "warn")]
    pub log_level: LogLevel,
}

/// Runs the subcommand.
///
/// # Errors
/// The token is missing, or it cannot listen.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let token = token(args)?;
    let bind = |place| Listener::bind(place, args.socket_mode);
    let listeners = args.listen.iter().map(bind).collect::<Result<Vec<_>, _>>();
    let listeners = listeners.map_err(|e| {
        CliError::failed(e.to_string(), "another program may have the place: choose another one (--listen)")
    })?;
    super::up::log_from(args.log_level);
    let stop = signals::stop_pipe()?;
    let places: Vec<_> = listeners.iter().filter_map(Listener::place).collect();
    tell(&places, &token, args)?;
    let handler: Arc<dyn Handler> = Arc::new(WebPage {
        hosts: ServerNames::of(&listeners, &args.host),
        guard: Guard::new(token),
        source: Source::new(ctx.dir()),
        ports: Ports::new(ctx.dir()),
        captures: Captures::new(Box::new(tap::PortTap(ctx.clone()))),
    });
    server::run(&listeners, &handler, Limits::default(), stop.as_fd())
        .map_err(|e| CliError::failed(format!("cannot serve: {e}"), "check the system's limits"))?;
    Ok(ExitCode::SUCCESS)
}

fn token(args: &Args) -> Result<Token, CliError> {
    let token = args.token_file.as_deref().map_or_else(Token::random, Token::of_file);
    token.map_err(|e| {
        CliError::failed(e.to_string(), "name another --token-file, or leave it out and take the token that is printed")
    })
}

/// Prints the page's address. A token in a file stays out of terminals and logs.
fn tell(places: &[Place], token: &Token, args: &Args) -> Result<(), CliError> {
    for place in places {
        match (place, &args.token_file) {
            (Place::Tcp(address), None) => out::line(format!("{}#token={}", url(*address), token.secret()))?,
            (Place::Tcp(address), Some(file)) => {
                out::line(format!("{}, with the token in {}", url(*address), file.display()))?;
            }
            (Place::Unix(path), None) => out::line(format!("{}, with the token {}", path.display(), token.secret()))?,
            (Place::Unix(path), Some(file)) => {
                out::line(format!("{}, with the token in {}", path.display(), file.display()))?;
            }
        }
        if let Place::Tcp(address) = place
            && !address.ip().is_loopback()
        {
            tracing::warn!("{address} can be reached from other hosts, and nothing on the way there is encrypted");
        }
    }
    Ok(())
}

/// The URL to open. The unspecified address is opened through the loopback address.
fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}/", SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the printed address can be opened.
    #[test]
    fn urls() {
        let url = |text: &str| url(text.parse().expect("an address"));
        assert_eq!(url("127.0.0.1:9848"), "http://127.0.0.1:9848/");
        assert_eq!(url("0.0.0.0:80"), "http://127.0.0.1:80/");
        assert_eq!(url("[::]:80"), "http://[::1]:80/");
    }
}
