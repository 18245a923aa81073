//! An HTTP/1.1 server: each connection carries one request, with or without a body, and one answer; or the program
//! takes over the connection after the request. The length of a client's request and the time that the client may take
//! are limited.

use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::Shutdown;

use super::stream::{self, GvListener, GvStream};

/// Maximum length of a request's head in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Maximum number of header fields of a request.
const MAX_FIELDS: usize = 64;
/// Maximum length of a request's body in bytes, excluding the framing of chunks.
const MAX_BODY: usize = 1 << 20;
/// Time limit for a request, and for each write of the answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum time to wait, after the answer, until the client closes the connection.
const CLOSING: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are read from a client after the answer.
const MAX_REST: usize = 256 << 10;
/// Maximum number of connections of a listener that are served at a time.
const MAX_CLIENTS: usize = 64;
/// Maximum length in bytes of a line of the PROXY protocol, version 1.
const MAX_PREFACE: usize = 107;

/// A received request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HttpRequest {
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: Vec<u8>,
    /// Bytes after the request that were received together with it.
    pub rest: Vec<u8>,
    /// The client's address, from the line of the PROXY protocol; `None` if clients send no such line.
    pub client: Option<String>,
}

/// The answer to a request.
pub(super) enum HttpReply {
    /// The status and the body.
    Text(u16, String),
    /// No answer: this function takes over the connection.
    Taken(Box<dyn FnOnce(GvStream) + Send>),
}

/// The function that answers requests, which several threads may call at the same time.
pub(super) type HttpAnswers = Arc<dyn Fn(HttpRequest) -> HttpReply + Send + Sync>;

/// Whether clients send a line of the PROXY protocol before the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpPreface {
    None,
    ProxyLine,
}

/// Accepts connections in a thread of its own, until the listener is closed.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn serve(
    listener: Arc<GvListener>,
    answers: HttpAnswers,
    preface: HttpPreface,
) -> io::Result<JoinHandle<()>> {
    let places = Arc::new(ClientPlaces::default());
    let wait = move || ClientPlace::take(&places);
    stream::serve(listener, "http", wait, move |stream, place| converse(stream, &answers, preface, place))
}

/// The number of connections that are being served, with a condition variable for threads that wait until one of the
/// connections ends.
#[derive(Default)]
struct ClientPlaces {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// One of the `MAX_CLIENTS` places for connections, which is freed on drop.
struct ClientPlace(Arc<ClientPlaces>);

impl ClientPlace {
    /// Waits for a free place.
    fn take(places: &Arc<ClientPlaces>) -> ClientPlace {
        let taken = places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = places.freed.wait_while(taken, |taken| *taken >= MAX_CLIENTS);
        *taken.unwrap_or_else(PoisonError::into_inner) += 1;
        ClientPlace(Arc::clone(places))
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

fn converse(stream: GvStream, answers: &HttpAnswers, preface: HttpPreface, place: ClientPlace) {
    let mut reader = RequestReader { stream: &stream, bytes: Vec::new(), until: Instant::now() + LIMIT };
    let (reply, is_head) = match reader.request(preface) {
        Ok(request) => {
            let is_head = request.method == "HEAD";
            (answers(request), is_head)
        }
        Err(RequestError::Status(status)) => (HttpReply::Text(status, format!("{}\n", reason(status))), false),
        Err(RequestError::Gone) => return,
    };
    match reply {
        HttpReply::Text(status, body) => {
            let done = stream.limit(Some(LIMIT)).and_then(|()| send(&stream, status, &body, is_head));
            if done.is_ok() {
                part(&stream);
            }
        }
        HttpReply::Taken(taken) => {
            // A connection that is taken over does not count against the limit of clients, since it may last for a long
            // time.
            drop(place);
            if stream.limit(None).is_ok() {
                taken(stream);
            }
        }
    }
}

fn send(mut stream: &GvStream, status: u16, body: &str, is_head: bool) -> io::Result<()> {
    let kind = match (status, body.is_empty()) {
        (_, true) => "",
        (200, _) => "Content-Type: text/plain; charset=utf-8\r\n",
        _ => "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n",
    };
    let reason = reason(status);
    let len = body.len();
    let head = format!("HTTP/1.1 {status} {reason}\r\n{kind}Content-Length: {len}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{}", if is_head { "" } else { body }).as_bytes())
}

/// Closes a connection in such a way that the client receives all data: unread bytes are read first, since the kernel
/// would otherwise reset the connection.
fn part(mut stream: &GvStream) {
    stream.shutdown(Shutdown::Write);
    let until = Instant::now() + CLOSING;
    let mut rest = MAX_REST;
    let mut bytes = [0; 4096];
    while rest > 0
        && let Some(limit) = left(until)
    {
        match stream.limit(Some(limit)).and_then(|()| stream.read(&mut bytes)) {
            Ok(len @ 1..) => rest = rest.saturating_sub(len),
            _ => return,
        }
    }
}

fn left(until: Instant) -> Option<Duration> {
    Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        408 => "Request Timeout",
        413 => "Request Entity Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        _ => "Internal Server Error",
    }
}

/// The reason why no request could be read.
#[derive(Debug, PartialEq, Eq)]
enum RequestError {
    /// The request is invalid; the client gets an answer with this status.
    Status(u16),
    /// The client has closed the connection.
    Gone,
}

struct RequestReader<'a> {
    stream: &'a GvStream,
    bytes: Vec<u8>,
    until: Instant,
}

impl RequestReader<'_> {
    /// Reads more bytes from the client, within the time limit for the request.
    fn more(&mut self) -> Result<(), RequestError> {
        let limit = left(self.until).ok_or(RequestError::Status(408))?;
        self.stream.limit(Some(limit)).map_err(|_| RequestError::Gone)?;
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(RequestError::Gone),
            Ok(len) => {
                self.bytes.extend_from_slice(piece.get(..len).unwrap_or_default());
                Ok(())
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Err(RequestError::Status(408)),
            Err(_) => Err(RequestError::Gone),
        }
    }

    fn request(&mut self, preface: HttpPreface) -> Result<HttpRequest, RequestError> {
        let client = if preface == HttpPreface::ProxyLine { Some(self.proxy_line()?) } else { None };
        let head = loop {
            match GvRequestHead::parse(&self.bytes)? {
                Some(head) => break head,
                None if self.bytes.len() >= MAX_HEAD => return Err(RequestError::Status(431)),
                None => self.more()?,
            }
        };
        self.bytes.drain(..head.len);
        if head.wants_continue && self.bytes.is_empty() {
            let mut stream = self.stream;
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|_| RequestError::Gone)?;
        }
        let body = match head.framing {
            BodyFraming::Length(len) if len > MAX_BODY as u64 => return Err(RequestError::Status(413)),
            BodyFraming::Length(len) => self.take(len as usize)?,
            BodyFraming::Chunks => self.chunks()?,
        };
        let rest = std::mem::take(&mut self.bytes);
        Ok(HttpRequest { body, rest, client, ..head.request })
    }

    /// Reads the line of the PROXY protocol. Returns the client's address and port as text.
    fn proxy_line(&mut self) -> Result<String, RequestError> {
        let end = loop {
            match self.bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => break end,
                None if self.bytes.len() > MAX_PREFACE => return Err(RequestError::Status(400)),
                None => self.more()?,
            }
        };
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        let text = String::from_utf8(line).map_err(|_| RequestError::Status(400))?;
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["PROXY", "TCP4" | "TCP6", host, _, port, _] => Ok(super::addresses::joined(host, port)),
            _ => Err(RequestError::Status(400)),
        }
    }

    fn take(&mut self, len: usize) -> Result<Vec<u8>, RequestError> {
        while self.bytes.len() < len {
            self.more()?;
        }
        Ok(self.bytes.drain(..len).collect())
    }

    /// Reads a body in chunks (RFC 9112 §7.1); trailer fields are not supported.
    fn chunks(&mut self) -> Result<Vec<u8>, RequestError> {
        let mut body = Vec::new();
        loop {
            let (start, size) = match httparse::parse_chunk_size(&self.bytes) {
                Ok(httparse::Status::Complete(found)) => found,
                Ok(httparse::Status::Partial) if self.bytes.len() < MAX_HEAD => {
                    self.more()?;
                    continue;
                }
                _ => return Err(RequestError::Status(400)),
            };
            if size > (MAX_BODY - body.len()) as u64 {
                return Err(RequestError::Status(413));
            }
            self.bytes.drain(..start);
            let chunk = self.take(size as usize)?;
            if self.take(2)? != b"\r\n" {
                return Err(RequestError::Status(400));
            }
            if chunk.is_empty() {
                return Ok(body);
            }
            body.extend(chunk);
        }
    }
}

/// How a request gives the length of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    Length(u64),
    Chunks,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct GvRequestHead {
    /// The request, without its body and client.
    request: HttpRequest,
    framing: BodyFraming,
    wants_continue: bool,
    /// Length of the head in bytes.
    len: usize,
}

impl GvRequestHead {
    /// Parses a request's head; `None` if the head is incomplete.
    fn parse(bytes: &[u8]) -> Result<Option<GvRequestHead>, RequestError> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let len = match request.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(RequestError::Status(431)),
            Err(_) => return Err(RequestError::Status(400)),
        };
        let target = request.path.unwrap_or_default();
        // A request to a proxy has a target with scheme and host, which are removed.
        let target = target.strip_prefix("http://").map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let has = |name: &str, value: &str| {
            let mut named = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            named.any(|field| field.value.eq_ignore_ascii_case(value.as_bytes()))
        };
        let wants_continue = has("expect", "100-continue");
        let framing = framing(request.headers)?;
        let method = request.method.unwrap_or_default().to_owned();
        let request = HttpRequest { method, path: path.to_owned(), query: query.to_owned(), ..HttpRequest::default() };
        Ok(Some(GvRequestHead { request, framing, wants_continue, len }))
    }
}

/// Returns how a body is framed. A request that has both a length and chunks, or several lengths, is refused (RFC 9112
/// §6.3).
fn framing(fields: &[httparse::Header<'_>]) -> Result<BodyFraming, RequestError> {
    let bad = RequestError::Status(400);
    let named = |name: &'static str| {
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    };
    let mut lengths = named("content-length");
    let mut codings = named("transfer-encoding");
    match (lengths.next(), lengths.next(), codings.next(), codings.next()) {
        (None, None, None, None) => Ok(BodyFraming::Length(0)),
        (Some(length), None, None, None) => {
            let text = std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            text.and_then(|text| text.parse().ok()).map(BodyFraming::Length).ok_or(bad)
        }
        (None, None, Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(BodyFraming::Chunks),
        (None, None, Some(_), None) => Err(RequestError::Status(501)),
        _ => Err(bad),
    }
}

#[cfg(test)]
mod tests;
