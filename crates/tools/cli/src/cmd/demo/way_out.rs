//! A gateway: a namespace fetches a page from a server on the host's loopback. One rule allows access to this server,
//! and to nothing else.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use netvale_harness::net::{NamespaceHost, ip};
use serde_json::json;

use super::guide::{Figure, Guide};
use super::stage::{DemoDaemon, failed, finish, harness, host, run_on, start};
use crate::CliError;

/// The page's text.
const PAGE: &str = "hello from the host's loopback";
/// A port of the host's loopback that no rule allows.
const OTHER: u16 = 9;

/// Fetches the page through the gateway. Returns the time that the transfer took.
pub(super) fn way_out(guide: &Guide, daemon: &DemoDaemon) -> Result<Figure, CliError> {
    guide.station("A gateway, without privilege: HTTP to a server on the host's loopback, which one rule allows")?;
    ip("link set lo up").map_err(harness)?;
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| failed("start a server", &e))?;
    let port = server.local_addr().map_err(|e| failed("start a server", &e))?.port();
    std::thread::spawn(move || server.incoming().flatten().for_each(|client| drop(answer(client))));
    let rule = format!("127.0.0.1:{port}");
    guide.command(&format!("netvale gateway vale3 10.98.0.1/24 --deny any --allow {rule}"))?;
    let words = ["gateway", "vale3", "10.98.0.1/24", "--deny", "any", "--allow", &rule, "--log-level", "warn"];
    let _gateway = start(&mut daemon.command(&words))?;
    daemon.wait_for_port("vale3:gateway")?;
    let guest = host(guide, daemon, "vale3", "nv2", "10.98.0.2/24")?;
    let url = format!("http://10.98.0.1:{port}/");
    guide.command(&format!("curl {url}"))?;
    let begun = Instant::now();
    let got = run_on(&guest, "curl", &["-sS", "--max-time", "20", &url])?;
    let took = begun.elapsed();
    if got.trim() != PAGE {
        return Err(failed("fetch a page through the gateway", &format!("expected {PAGE:?}, found {got:?}")));
    }
    guide.output(&got)?;
    refused(guide, &guest)?;
    let ms = took.as_secs_f64() * 1000.0;
    Ok(Figure { what: "a page through the gateway", value: format!("{ms:.1} ms"), json: json!(ms) })
}

/// Shows that another port of the loopback is refused.
fn refused(guide: &Guide, guest: &NamespaceHost) -> Result<(), CliError> {
    let url = format!("http://10.98.0.1:{OTHER}/");
    guide.command(&format!("curl {url}"))?;
    let mut curl = guest.command("curl", &["-sS", "--max-time", "20", &url]);
    match finish(start(curl.stderr(std::process::Stdio::null()))?) {
        Ok(got) => Err(failed("refuse a port", &format!("curl got {got:?} from port {OTHER}"))),
        Err(_) => guide.output("refused: no rule allows port 9"),
    }
}

/// Answers one request with the page.
fn answer(mut client: TcpStream) -> std::io::Result<()> {
    let head = BufReader::new(client.try_clone()?).lines();
    // The request ends with an empty line.
    head.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
    let head = format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", PAGE.len() + 1);
    client.write_all(format!("{head}{PAGE}\n").as_bytes())
}
