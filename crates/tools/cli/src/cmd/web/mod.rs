//! `netvale web`: serves a page that shows the daemon in a browser.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use netvale_observe::http::hosts::ServerNames;
use netvale_observe::http::listener::{HttpListener, ListenPlace};
use netvale_observe::source::FiguresSource;
use netvale_observe::web::capture::WebCaptures;
use netvale_observe::web::flows::WebFlows;
use netvale_observe::web::guard::WebGuard;
use netvale_observe::web::page::WebPage;
use netvale_observe::web::ports::WebPorts;
use netvale_observe::web::token::Token;

use crate::cmd::metrics;
use crate::cmd::up::LogLevel;
use crate::{CliContext, CliError, out, signals, values};

mod tap;

/// Serve a live page for browsers: switches, ports, rates, drops, workers and rings.
///
/// Prints the address to open, with the token that every visitor needs, and serves until SIGTERM or SIGINT. The page
/// shows the ports that the user who runs the command may see, and can capture their frames. The daemon need not run
/// yet. Nothing is encrypted: for other hosts, forward the port through ssh (ssh -L 9848:127.0.0.1:9848 HOST), or use a
/// proxy with TLS.
#[derive(Debug, clap::Args)]
pub struct WebArgs {
    /// Where to listen: tcp:ADDRESS:PORT, or unix:/PATH for a proxy; may be given several times.
    #[arg(long, value_name = "PLACE", default_value = "tcp:127.0.0.1:9848")]
    pub listen: Vec<ListenPlace>,

    /// Mode of UNIX sockets in octal.
    #[arg(long, value_name = "MODE", value_parser = values::mode, default_value = "0600")]
    pub socket_mode: u32,

    /// File with the token, created if it does not exist. Without it, each start makes a new token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// A further name of this server that browsers may use, such as that of a proxy; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Log messages of this level and above, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "warn")]
    pub log_level: LogLevel,
}

/// Runs the subcommand.
///
/// # Errors
/// The token cannot be read or created, or the command cannot listen.
pub fn run(args: &WebArgs, ctx: &CliContext) -> Result<(), CliError> {
    let token = token(args)?;
    let listeners = metrics::bind(&args.listen, args.socket_mode)?;
    super::up::log_from(args.log_level);
    let stop = signals::stop_pipe()?;
    let places: Vec<_> = listeners.iter().filter_map(HttpListener::place).collect();
    tell(&places, &token, args)?;
    let page = WebPage {
        hosts: ServerNames::of(&listeners, &args.host),
        guard: WebGuard::new(token),
        source: FiguresSource::new(ctx.dir()),
        ports: WebPorts::new(ctx.dir()),
        flows: WebFlows::new(&ctx.dir()),
        captures: WebCaptures::new(Box::new(tap::PortTap(ctx.clone()))),
    };
    metrics::serve(&listeners, page, &stop)
}

fn token(args: &WebArgs) -> Result<Token, CliError> {
    let token = args.token_file.as_deref().map_or_else(Token::random, Token::of_file);
    token.map_err(|e| {
        CliError::failed(e.to_string(), "give another --token-file, or omit it and use the token that is printed")
    })
}

/// Prints the page's address. A token from a file is not printed, so that terminals and logs do not show it.
fn tell(places: &[ListenPlace], token: &Token, args: &WebArgs) -> Result<(), CliError> {
    for place in places {
        let shown = match place {
            ListenPlace::Tcp(address) => url(*address),
            ListenPlace::Unix(path) => path.display().to_string(),
        };
        out::line(match (place, &args.token_file) {
            (_, Some(file)) => format!("{shown}, with the token in {}", file.display()),
            (ListenPlace::Tcp(_), None) => format!("{shown}#token={}", token.secret()),
            (ListenPlace::Unix(_), None) => format!("{shown}, with the token {}", token.secret()),
        })?;
        if let ListenPlace::Tcp(address) = place
            && !address.ip().is_loopback()
        {
            tracing::warn!("{address} is reachable from other hosts, and connections are not encrypted");
        }
    }
    Ok(())
}

/// Returns the URL to open. If the server listens on the unspecified address, the URL has the loopback address.
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

    /// Objective: a browser can open the printed URL.
    #[test]
    fn the_printed_url_can_be_opened() {
        let url = |text: &str| url(text.parse().expect("an address"));
        assert_eq!(url("127.0.0.1:9848"), "http://127.0.0.1:9848/");
        assert_eq!(url("0.0.0.0:80"), "http://127.0.0.1:80/");
        assert_eq!(url("[::]:80"), "http://[::1]:80/");
    }
}
