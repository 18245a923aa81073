//! The metrics page over a UNIX socket, with a simulated daemon.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use netvale_control::dirs::CONTROL_SOCKET;
use netvale_control::server::{ControlConnection, RequestHandler as Methods};
use netvale_control::types::AllStats;
use netvale_control::{Reply, Request, RpcError};
use netvale_observe::http::connection::TimeLimits;
use netvale_observe::http::handler::HttpHandler;
use netvale_observe::http::hosts::ServerNames;
use netvale_observe::http::listener::{HttpListener, ListenPlace};
use netvale_observe::http::server::run;
use netvale_observe::metrics_page::MetricsPage;
use netvale_observe::source::{FRESH, FiguresSource};

/// A daemon's handler that counts requests, and returns their number as `stalls`.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU64>);

impl Methods for Counting {
    fn call(&mut self, request: Request) -> Result<Reply, RpcError> {
        assert!(matches!(request, Request::StatsAll(_)), "{request:?}");
        let stalls = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(Reply::AllStats(Box::new(AllStats { version: "1.2.3".into(), stalls, ..AllStats::default() })))
    }
}

/// Simulates a daemon for one connection, until the connection ends or it has answered `requests` requests.
fn daemon(dir: &Path, mut counting: Counting, requests: u64) -> JoinHandle<()> {
    let path = dir.join(CONTROL_SOCKET);
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut connection = ControlConnection::default();
        let mut bytes = [0; 4096];
        let last = counting.0.load(Ordering::SeqCst) + requests;
        while let Ok(len @ 1..) = stream.read(&mut bytes) {
            let output = connection.feed(&bytes[..len], &mut counting);
            stream.write_all(&output.bytes).expect("sent");
            if counting.0.load(Ordering::SeqCst) >= last {
                return;
            }
        }
    })
}

fn get(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("connects");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Repeats the request until an answer contains the text, since answers may be cached for up to [`FRESH`].
fn get_until(path: &Path, text: &str) -> String {
    let limit = std::time::Instant::now() + 50 * FRESH;
    loop {
        let got = get(path, METRICS);
        if got.contains(text) {
            return got;
        }
        assert!(std::time::Instant::now() < limit, "{text} is not in {got}");
    }
}

/// Objective: while the daemon runs, the page is served in the requested format, and no other path is served. When
/// another daemon has replaced this one, the page works again. Even if clients request the page more often, the server
/// asks the daemon at most once per [`FRESH`].
#[test]
fn the_page_exists_while_the_daemon_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path().join("metrics.sock");
    let listener = HttpListener::bind(&ListenPlace::Unix(at.clone()), 0o600).expect("bound");
    let (stop, stopped) = UnixStream::pair().expect("a pair");
    let source = FiguresSource::new(dir.path().to_owned());
    let server = std::thread::spawn(move || {
        let handler: Arc<dyn HttpHandler> = Arc::new(MetricsPage { hosts: ServerNames::of(&[], &[]), source });
        run(&[listener], &handler, TimeLimits::default(), stopped.as_fd()).expect("serves");
    });

    let without = get(&at, METRICS);
    assert!(without.starts_with("HTTP/1.1 503 ") && !without.contains("netvale_"), "{without}");
    assert!(!without.contains(&*dir.path().to_string_lossy()), "{without}");

    let counting = Counting::default();
    let first = daemon(dir.path(), counting.clone(), 2);
    let got = get_until(&at, "netvale_stalls_total 1\n");
    assert!(
        got.starts_with(
            "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
        ),
        "{got}"
    );
    assert!(got.ends_with("\n# EOF\n") && got.contains("netvale_build_info{version=\"1.2.3\"} 1\n"), "{got}");
    let plain = get(&at, "GET /metrics?x=y HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n");
    assert!(
        plain.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{plain}"
    );
    assert!(get(&at, "GET /metrics/ HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(get(&at, "PUT /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    get_until(&at, "netvale_stalls_total 2\n");
    first.join().expect("it ends after two");

    let begun = std::time::Instant::now();
    let second = daemon(dir.path(), counting.clone(), 3);
    get_until(&at, "netvale_stalls_total 5\n");
    // The daemon has answered three times, with two intervals of at least [`FRESH`].
    assert!(begun.elapsed() >= 2 * FRESH);
    second.join().expect("it ends after three");
    drop(stop);
    server.join().expect("it ends");
    assert!(!at.exists());
}
