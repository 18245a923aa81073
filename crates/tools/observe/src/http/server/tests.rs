use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use super::*;
use crate::http::answer::{BodyParts, HttpAnswer, HttpStatus, PLAIN};
use crate::http::head::{MAX_HEAD, RequestHead};
use crate::http::hosts::ServerNames;
use crate::http::listener::ListenPlace;
use crate::http::visitors::MAX_CONNECTIONS;

/// Length of a page that does not fit into socket buffers.
const LONG: usize = 8 << 20;
/// Time limits short enough for tests.
const SHORT: TimeLimits = TimeLimits { request: Duration::from_millis(300), answer: Duration::from_millis(300) };

struct Pages(ServerNames);

/// A body with this many parts. After the last part, it ends properly (`true`) or with an error (`false`).
struct Counted(usize, bool);

impl BodyParts for Counted {
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        match (self.0, self.1) {
            (0, true) => Ok(None),
            (0, false) => Err(std::io::ErrorKind::Other.into()),
            (left, _) => {
                self.0 -= 1;
                Ok(Some(vec![b'y'; if left % 2 == 0 { 1 << 16 } else { 0 }]))
            }
        }
    }
}

/// An endless body with parts of this many bytes. Dropped bodies are counted.
struct Endless(usize);

impl BodyParts for Endless {
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        std::thread::sleep(Duration::from_millis(5));
        Ok(Some(vec![b'z'; self.0]))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

/// Number of dropped [`Endless`] bodies.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

impl HttpHandler for Pages {
    fn hosts(&self) -> &ServerNames {
        &self.0
    }

    fn answer(&self, head: &RequestHead) -> HttpAnswer {
        match head.path.as_str() {
            "/long" => HttpAnswer::page(PLAIN, "x".repeat(LONG)),
            "/parts" => HttpAnswer::in_parts(PLAIN, Box::new(Counted(4, true))),
            "/broken" => HttpAnswer::in_parts(PLAIN, Box::new(Counted(2, false))),
            "/silent" => HttpAnswer::in_parts(PLAIN, Box::new(Endless(0))),
            "/endless" => HttpAnswer::in_parts(PLAIN, Box::new(Endless(1 << 16))),
            "/stream" => HttpAnswer::in_parts(PLAIN, Box::new(Counted(usize::MAX, true))),
            "/panic" => panic!("as requested"),
            path => HttpAnswer::page(PLAIN, format!("{path}\n")),
        }
    }
}

/// A server that runs until the value is dropped.
struct Served {
    place: std::net::SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

fn serve(limits: TimeLimits) -> Served {
    let listener = HttpListener::bind(&ListenPlace::Tcp(([127, 0, 0, 1], 0).into()), 0).expect("a port");
    let Some(ListenPlace::Tcp(place)) = listener.place() else { panic!("not TCP") };
    let hosts = ServerNames::of(std::slice::from_ref(&listener), &["Switch.example".into()]);
    let (stop, stopped) = UnixStream::pair().expect("a pair");
    let thread = std::thread::spawn(move || {
        let handler: Arc<dyn HttpHandler> = Arc::new(Pages(hosts));
        run(&[listener], &handler, limits, stopped.as_fd()).expect("serves");
    });
    Served { place, stop: Some(stop), thread: Some(thread) }
}

impl Served {
    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.place).expect("connects")
    }

    fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).expect("sent");
        answer(stream)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()));
    }
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

/// Objective: requests are answered; the answer to HEAD has no body; a request that arrives in pieces is answered like
/// one that arrives as a whole.
#[test]
fn requests_are_answered_whole_or_in_pieces() {
    let served = serve(TimeLimits::default());
    let got = served.ask(b"GET /page HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\n/page\n"), "{got}");
    let head = served.ask(b"HEAD /page HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.contains("\r\nContent-Length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let mut stream = served.connect();
    stream.set_nodelay(true).expect("no delay");
    for byte in b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n" {
        stream.write_all(&[*byte]).expect("sent");
    }
    assert!(answer(stream).ends_with("/slow\n"));
    let long = served.ask(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(long.len() > LONG && long.ends_with("xxx"), "{}", long.len());
}

/// Objective: a malformed request is refused with the right status, which the client receives even if it has sent many
/// more bytes.
#[test]
fn a_malformed_request_is_refused_with_its_status() {
    let served = serve(TimeLimits::default());
    for (request, status) in [
        (&b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], HttpStatus::MethodNotAllowed),
        (b"\x16\x03\x01\x02\x00", HttpStatus::BadRequest),
        (&[b'A'; 4 * MAX_HEAD], HttpStatus::HeadTooLarge),
        (&[b"GET /".as_slice(), &[b'x'; 2 * MAX_HEAD]].concat(), HttpStatus::HeadTooLarge),
    ] {
        let got = served.ask(request);
        assert!(got.starts_with(&format!("HTTP/1.1 {}\r\n", status.line())), "{status:?}: {got}");
    }
}

/// Objective: a client that sends half a request, or nothing, gets the status for a timeout and is disconnected at the
/// time limit, without delaying other clients.
#[test]
fn slow_requests_are_cut_off_in_time() {
    let served = serve(SHORT);
    let idle = served.connect();
    let mut half = served.connect();
    half.write_all(b"GET /half HTTP").expect("sent");
    let begun = Instant::now();
    assert!(served.ask(b"GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("/quick\n"));
    assert!(answer(half).starts_with("HTTP/1.1 408 "));
    assert!(answer(idle).starts_with("HTTP/1.1 408 "));
    assert!(begun.elapsed() >= SHORT.request);
}

/// Objective: clients that do not read their answers are disconnected at the time limit, before the end of the answer;
/// otherwise, they could use all places forever.
#[test]
fn slow_readers_are_cut_off_in_time() {
    let served = serve(SHORT);
    let ask = |_| {
        let mut stream = served.connect();
        stream.write_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        stream
    };
    let slow: Vec<_> = (0..MAX_CONNECTIONS).map(ask).collect();
    assert!(served.ask(b"GET /last HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("/last\n"));
    let got = slow.into_iter().map(|mut stream| {
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        got.len()
    });
    assert!(got.min().is_some_and(|least| least < LONG));
}

/// Objective: connections in excess of the limit wait, and all of them are served; a connection that ends frees its
/// place, even after a panic.
#[test]
fn connections_beyond_the_limit_wait_for_their_turn() {
    let served = serve(SHORT);
    let idle: Vec<_> = (0..3 * MAX_CONNECTIONS).map(|_| served.connect()).collect();
    assert!(served.ask(b"GET /last HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("/last\n"));
    drop(idle);
    for _ in 0..2 * MAX_CONNECTIONS {
        assert_eq!(served.ask(b"GET /panic HTTP/1.1\r\nHost: localhost\r\n\r\n"), "");
    }
    let mut gone = served.connect();
    gone.write_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    gone.shutdown(Shutdown::Both).expect("closed");
    assert!(served.ask(b"GET /last HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("/last\n"));
}

/// Objective: a body in parts arrives as chunks with a last chunk; a failing body has no last chunk; the answer to HEAD
/// has no parts.
#[test]
fn a_body_in_parts_arrives_as_chunks() {
    let served = serve(SHORT);
    let got = served.ask(b"GET /parts HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = got.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("\r\nTransfer-Encoding: chunked") && !head.contains("Content-Length"), "{head}");
    let chunk = format!("10000\r\n{}\r\n", "y".repeat(1 << 16));
    assert_eq!(body, format!("{chunk}{chunk}0\r\n\r\n"));
    let broken = served.ask(b"GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(broken.ends_with("y\r\n"), "{}", broken.len());
    assert!(served.ask(b"HEAD /parts HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("\r\n\r\n"));
}

/// Objective: the server notices that a client closes the connection while nothing is sent to it; a client that does
/// not read parts is disconnected.
#[test]
fn parts_end_with_their_reader() {
    let served = serve(SHORT);
    let begin = |request: &[u8]| {
        let mut stream = served.connect();
        stream.write_all(request).expect("sent");
        stream.read_exact(&mut [0; 12]).expect("an answer begins");
        stream
    };
    let wait = |dropped| {
        let limit = Instant::now() + Duration::from_secs(20);
        while DROPPED.load(Ordering::SeqCst) < dropped {
            assert!(Instant::now() < limit, "it continues");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let gone = begin(b"GET /silent HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(DROPPED.load(Ordering::SeqCst), 0);
    drop(gone);
    wait(1);
    let _slow = begin(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait(2);
}

/// Objective: a request for another host, without a host or with two hosts gets only status 421; requests under this
/// server's names and addresses are answered.
#[test]
fn requests_for_other_servers_get_only_421() {
    let served = serve(TimeLimits::default());
    let ask = |fields: &str| served.ask(format!("GET /page HTTP/1.1\r\n{fields}\r\n").as_bytes());
    for host in ["localhost", "127.0.0.1:80", "[::1]", "switch.example:9847"] {
        assert!(ask(&format!("Host: {host}\r\n")).starts_with("HTTP/1.1 200 "), "{host}");
    }
    for fields in ["", "Host: evil.example\r\n", "Host: 10.9.8.7\r\n", "Host: localhost\r\nHost: evil.example\r\n"] {
        let got = ask(fields);
        assert!(got.starts_with("HTTP/1.1 421 ") && !got.contains("/page"), "{fields}: {got}");
    }
}

/// Objective: when all places are taken, clients that send nothing, send half a request, do not read or do not close
/// lose their places to later clients long before their time limits; while there are free places, such clients keep
/// their places.
#[test]
fn crowds_make_room() {
    const FOREVER: Duration = Duration::from_secs(3600);
    let served = serve(TimeLimits { request: FOREVER, answer: FOREVER });
    let begin = |request: &[u8]| {
        let mut stream = served.connect();
        stream.write_all(request).expect("sent");
        stream
    };
    let asks = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
    for said in [Vec::new(), b"GET /half HTTP".to_vec(), asks("/long"), asks("/stream"), asks("/page")] {
        let mut crowd: Vec<_> = (1..MAX_CONNECTIONS).map(|_| begin(&said)).collect();
        assert!(served.ask(&asks("/last")).ends_with("/last\n"));
        crowd.extend((0..2 * MAX_CONNECTIONS).map(|_| begin(&said)));
        assert!(served.ask(&asks("/last")).ends_with("/last\n"));
    }
    let silent = served.connect();
    silent.set_nonblocking(true).expect("does not block");
    assert!(served.ask(&asks("/last")).ends_with("/last\n"));
    let read = (&silent).read(&mut [0]);
    assert_eq!(read.map_err(|e| e.kind()), Err(std::io::ErrorKind::WouldBlock), "there is room");
}
