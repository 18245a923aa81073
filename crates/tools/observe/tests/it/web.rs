//! Access to the browser's page and its figures, with a simulated daemon.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use netvale_control::dirs::CONTROL_SOCKET;
use netvale_control::server::{ControlConnection, RequestHandler as Methods};
use netvale_control::types::{AllStats, PortDetails, PortInfo};
use netvale_control::{ErrorCode, Reply, Request, RpcError};
use netvale_observe::http::answer::{BodyParts, HttpAnswer, HttpBody, HttpStatus};
use netvale_observe::http::handler::HttpHandler;
use netvale_observe::http::head::RequestHead;
use netvale_observe::http::hosts::ServerNames;
use netvale_observe::source::FiguresSource;
use netvale_observe::web::assets::files;
use netvale_observe::web::capture::{CaptureTap, WebCapture, WebCaptures};
use netvale_observe::web::flows::WebFlows;
use netvale_observe::web::guard::WebGuard;
use netvale_observe::web::page::WebPage;
use netvale_observe::web::ports::WebPorts;
use netvale_observe::web::token::Token;

const SECRET: &str = "0123456789abcdef";
const ODD: &str = "vale0:<b>\"'\u{202e}";

/// A simulated daemon with one port.
struct Played;

impl Methods for Played {
    fn call(&mut self, request: Request) -> Result<Reply, RpcError> {
        let port = PortInfo { name: ODD.into(), ..PortInfo::default() };
        match request {
            Request::StatsAll(_) => {
                let ports = vec![PortDetails { name: ODD.into(), ..PortDetails::default() }];
                Ok(Reply::AllStats(Box::new(AllStats { version: "1.2.3".into(), ports, ..AllStats::default() })))
            }
            Request::PortList(_) => Ok(Reply::Ports(vec![port])),
            Request::PortShow(asked) if asked.port == ODD => Ok(Reply::Port(Box::new(port))),
            Request::PortShow(_) => Err(RpcError::new(ErrorCode::NotFound, "there is no such port", "")),
            other => panic!("{other:?}"),
        }
    }
}

fn daemon(dir: &Path) {
    let listener = UnixListener::bind(dir.join(CONTROL_SOCKET)).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: UnixStream = stream.expect("a client");
            std::thread::spawn(move || {
                let mut connection = ControlConnection::default();
                let mut bytes = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    stream.write_all(&connection.feed(&bytes[..len], &mut Played).bytes).expect("sent");
                }
            });
        }
    });
}

/// A tap whose captures contain only the port's name.
struct Named;

impl CaptureTap for Named {
    fn open(&self, capture: &WebCapture) -> Result<Box<dyn BodyParts>, String> {
        Ok(Box::new(Once(Some(capture.port.clone().into_bytes()))))
    }
}

struct Once(Option<Vec<u8>>);

impl BodyParts for Once {
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.0.take())
    }
}

fn page(run_dir: &Path) -> WebPage {
    WebPage {
        hosts: ServerNames::default(),
        guard: WebGuard::new(Token::parse(SECRET).expect("a token")),
        source: FiguresSource::new(run_dir.into()),
        ports: WebPorts::new(run_dir.into()),
        flows: WebFlows::new(run_dir),
        captures: WebCaptures::new(Box::new(Named)),
    }
}

fn ask(page: &WebPage, request: &str, fields: &str) -> HttpAnswer {
    let text = format!("{request} HTTP/1.1\r\nHost: localhost:9848\r\n{fields}\r\n");
    page.answer(&RequestHead::parse(text.as_bytes()).expect("a request").expect("a whole one"))
}

fn text(answer: &HttpAnswer) -> &str {
    match &answer.body {
        HttpBody::Whole(text) => text,
        HttpBody::InParts(_) => panic!("in parts"),
    }
}

const TOKEN: &str = "Authorization: Bearer 0123456789abcdef\r\n";
const PORT: &str = "vale0%3A%3Cb%3E%22%27%E2%80%AE";

/// Objective: every client gets the page's files, with the protective header fields; only clients with the token get
/// figures; requests from pages of other sites get neither.
#[test]
fn only_clients_with_the_token_get_figures() {
    let dir = tempfile::tempdir().expect("a folder");
    daemon(dir.path());
    let page = page(dir.path());
    for (path, kind, file) in files() {
        let answer = ask(&page, &format!("GET {path}"), "");
        assert_eq!((answer.status, answer.content_type, text(&answer)), (HttpStatus::Ok, kind, &*file));
        let head = answer.head();
        assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; "), "{head}");
        assert!(
            head.contains("frame-ancestors 'none'") && !head.contains("unsafe") && !head.contains("Access-Control")
        );
    }
    let figures = ["/api/stats", "/api/ports", "/api/flows", "/api/capture", "/api/", "/api/nothing"];
    for path in figures.into_iter().chain([format!("/api/port?name={PORT}").as_str()]) {
        let status = |fields: &str| ask(&page, &format!("GET {path}"), fields).status;
        assert_eq!(status(""), HttpStatus::Unauthorized, "{path}");
        assert_eq!(status(&format!("{TOKEN}Origin: http://evil.example\r\n")), HttpStatus::Forbidden, "{path}");
        assert_eq!(status(&format!("{TOKEN}Sec-Fetch-Site: cross-site\r\n")), HttpStatus::Forbidden, "{path}");
    }
    assert_eq!(ask(&page, "GET /../etc/passwd", "").status, HttpStatus::NotFound);
    assert_eq!(ask(&page, "GET /api/nothing", TOKEN).status, HttpStatus::NotFound);
}

/// Objective: clients get the daemon's figures, even of ports with odd names; a port that the daemon does not list
/// cannot be captured.
#[test]
fn the_figures_are_those_of_the_daemon() {
    let dir = tempfile::tempdir().expect("a folder");
    let page = page(dir.path());
    for path in ["/api/stats", "/api/ports", "/api/port?name=a"] {
        let answer = ask(&page, &format!("GET {path}"), TOKEN);
        assert_eq!(answer.status, HttpStatus::Unavailable, "{path}");
        assert!(!text(&answer).contains(dir.path().to_str().expect("a text")), "{}", text(&answer));
    }
    daemon(dir.path());
    std::thread::sleep(netvale_observe::source::FRESH);
    for path in ["/api/stats", "/api/ports", &format!("/api/port?name={PORT}")] {
        let answer = ask(&page, &format!("GET {path}"), TOKEN);
        assert_eq!((answer.status, answer.content_type), (HttpStatus::Ok, "application/json"), "{path}");
        let json: serde_json::Value = serde_json::from_str(text(&answer)).expect("JSON");
        assert!(json.to_string().contains(&serde_json::to_string(ODD).expect("JSON")), "{path}: {json}");
    }
    assert_eq!(ask(&page, "GET /api/port?name=other", TOKEN).status, HttpStatus::NotFound);
    assert_eq!(ask(&page, "GET /api/port", TOKEN).status, HttpStatus::BadRequest);
    let capture = |method: &str, port: &str| {
        let query = format!("port={port}&way=both&seconds=1&frames=1&snaplen=0");
        ask(&page, &format!("{method} /api/capture?{query}"), TOKEN)
    };
    let HttpBody::InParts(mut parts) = capture("GET", PORT).body else { panic!("whole") };
    assert_eq!(parts.next().expect("no failure").as_deref(), Some(ODD.as_bytes()));
    assert_eq!(capture("HEAD", PORT).status, HttpStatus::MethodNotAllowed);
    assert_eq!(capture("GET", "netmap%3Aeth0").status, HttpStatus::NotFound);
    assert_eq!(ask(&page, &format!("GET /api/capture?port={PORT}"), TOKEN).status, HttpStatus::BadRequest);
}

/// Objective: a client that requests very many single ports gets status 429 (too many requests) once the limit is
/// reached.
#[test]
fn questions_about_many_ports_have_to_wait() {
    let dir = tempfile::tempdir().expect("a folder");
    daemon(dir.path());
    let page = page(dir.path());
    let asked = (0..200).map(|n| ask(&page, &format!("GET /api/port?name=p{n}"), TOKEN).status);
    let statuses: Vec<_> = asked.collect();
    assert!(statuses.contains(&HttpStatus::NotFound) && statuses.contains(&HttpStatus::TooMany));
}

/// Answers one client of a gateway's control socket. The returned thread yields the client's request.
fn gateway(run_dir: &Path, port: &str, answer: serde_json::Value) -> std::thread::JoinHandle<String> {
    let listener = UnixListener::bind(run_dir.join(format!("gateway-{port}.sock"))).expect("a socket");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = [0; 64];
        let len = stream.read(&mut request).expect("a request");
        // The write may fail, since the client stops reading at its limit.
        let _ = writeln!(stream, "{answer}");
        String::from_utf8_lossy(&request[..len]).into_owned()
    })
}

/// Objective: each gateway's flows are returned, with unchanged names, and at most as many as the page shows. A gateway
/// that hangs or sends something else has no list, and does not affect the other gateways.
#[test]
fn flows_are_those_of_the_gateways() {
    let dir = tempfile::tempdir().expect("a folder");
    let flow = serde_json::json!({"name": ODD, "transport": "tcp", "sent": 7, "seconds": 1.5});
    let sent = [
        ("vale0:a", serde_json::json!([flow])),
        ("vale0:b", serde_json::json!([null])),
        ("vale0:c", serde_json::json!([flow, {"sent": "x".repeat(300 << 10)}])),
        ("vale0:d", vec![flow; 300].into()),
    ];
    let send = |(port, flows)| gateway(dir.path(), port, serde_json::json!({"ok": {"flows": flows, "more": 3}}));
    let answers = sent.map(send);
    let _hangs = UnixListener::bind(dir.path().join("gateway-vale1:gateway.sock")).expect("a socket");
    let answer = ask(&page(dir.path()), "GET /api/flows", TOKEN);
    assert_eq!((answer.status, answer.content_type), (HttpStatus::Ok, "application/json"));
    let json: serde_json::Value = serde_json::from_str(text(&answer)).expect("JSON");
    let shown = serde_json::json!({
        "name": ODD, "transport": "tcp", "direction": "", "guest": "", "remote": "", "sent": 7, "received": 0,
        "seconds": 1.5,
    });
    let expected = serde_json::json!([
        {"port": "vale0:a", "flows": [shown], "more": 3}, {"port": "vale0:b"}, {"port": "vale0:c"},
        {"port": "vale0:d", "flows": vec![shown; 200], "more": 3}, {"port": "vale1:gateway"},
    ]);
    assert_eq!(json, expected);
    for answer in answers {
        assert_eq!(answer.join().expect("answered"), "{\"do\":\"flows\",\"most\":200}\n");
    }
}
