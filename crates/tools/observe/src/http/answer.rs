//! An *answer* to a request: *status*, content type and body. The body is a text, which several connections may share,
//! or *parts* that are made while they are sent.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Content type of plain text for people.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// Status codes (RFC 9110 section 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpStatus {
    /// 200.
    Ok,
    /// 400: malformed request.
    BadRequest,
    /// 401: the request lacks authorization.
    Unauthorized,
    /// 403: another origin's page made the request.
    Forbidden,
    /// 404: no such page.
    NotFound,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 408: the request did not arrive in time.
    RequestTimeout,
    /// 413: a request with a body.
    ContentTooLarge,
    /// 421: the request is for another host.
    Misdirected,
    /// 429: a limit on simultaneous or frequent requests is reached.
    TooMany,
    /// 431: the head is too long.
    HeadTooLarge,
    /// 503: the data for the answer is unavailable now.
    Unavailable,
    /// 505: an HTTP version other than 1.0 and 1.1.
    VersionNotSupported,
}

impl HttpStatus {
    /// Returns code and reason phrase.
    #[must_use]
    pub const fn line(self) -> &'static str {
        match self {
            HttpStatus::Ok => "200 OK",
            HttpStatus::BadRequest => "400 Bad Request",
            HttpStatus::Unauthorized => "401 Unauthorized",
            HttpStatus::Forbidden => "403 Forbidden",
            HttpStatus::NotFound => "404 Not Found",
            HttpStatus::MethodNotAllowed => "405 Method Not Allowed",
            HttpStatus::RequestTimeout => "408 Request Timeout",
            HttpStatus::ContentTooLarge => "413 Content Too Large",
            HttpStatus::Misdirected => "421 Misdirected Request",
            HttpStatus::TooMany => "429 Too Many Requests",
            HttpStatus::HeadTooLarge => "431 Request Header Fields Too Large",
            HttpStatus::Unavailable => "503 Service Unavailable",
            HttpStatus::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// The parts of a body whose length is not known in advance.
pub trait BodyParts {
    /// Returns the next part; an empty one, within a second, if none is ready; `None` after the last.
    ///
    /// # Errors
    /// The body ends early, which the client can detect.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// The body of an answer.
pub enum HttpBody {
    /// The whole text.
    Whole(Arc<str>),
    /// Parts that are made while they are sent.
    InParts(Box<dyn BodyParts>),
}

impl fmt::Debug for HttpBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpBody::Whole(text) => f.debug_tuple("Whole").field(text).finish(),
            HttpBody::InParts(_) => f.write_str("InParts"),
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct HttpAnswer {
    /// Its status.
    pub status: HttpStatus,
    /// Type of the body (RFC 9110 section 8.3).
    pub content_type: &'static str,
    /// Further lines of the head, each with its line end.
    pub fields: &'static str,
    /// The body.
    pub body: HttpBody,
}

impl HttpAnswer {
    /// Creates an answer with a page.
    pub fn page(content_type: &'static str, body: impl Into<Arc<str>>) -> HttpAnswer {
        HttpAnswer { status: HttpStatus::Ok, content_type, fields: "", body: HttpBody::Whole(body.into()) }
    }

    /// Creates an answer in parts.
    #[must_use]
    pub fn in_parts(content_type: &'static str, parts: Box<dyn BodyParts>) -> HttpAnswer {
        HttpAnswer { status: HttpStatus::Ok, content_type, fields: "", body: HttpBody::InParts(parts) }
    }

    /// Creates an answer with only a status, and the reason `why` unless it is empty.
    #[must_use]
    pub fn only(status: HttpStatus, why: &str) -> HttpAnswer {
        let body = if why.is_empty() { format!("{}\n", status.line()) } else { format!("{}: {why}\n", status.line()) };
        HttpAnswer { status, content_type: PLAIN, fields: "", body: HttpBody::Whole(body.into()) }
    }

    /// Adds lines to the head, each with its line end.
    #[must_use]
    pub fn with(self, fields: &'static str) -> HttpAnswer {
        HttpAnswer { fields, ..self }
    }

    /// Returns the head of the answer. The connection is closed after the answer.
    #[must_use]
    pub fn head(&self) -> String {
        let more = match self.status {
            HttpStatus::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            HttpStatus::Unauthorized => "WWW-Authenticate: Bearer\r\n",
            _ => "",
        };
        let length = match &self.body {
            HttpBody::Whole(text) => format!("Content-Length: {}", text.len()),
            HttpBody::InParts(_) => "Transfer-Encoding: chunked".to_owned(),
        };
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\n{length}\r\n{more}{}Cache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            self.status.line(),
            self.content_type,
            self.fields,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the head has the body's length in bytes and, for a wrong method, the allowed ones.
    #[test]
    fn the_head_gives_the_length_of_the_body() {
        let head = HttpAnswer::page(PLAIN, "größer\n").head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Length: 9\r\n") && !head.contains("Allow"), "{head}");
        let refused = HttpAnswer::only(HttpStatus::MethodNotAllowed, "");
        assert!(refused.head().contains("\r\nAllow: GET, HEAD\r\n"));
        let text = |answer: HttpAnswer| match answer.body {
            HttpBody::Whole(text) => text,
            HttpBody::InParts(_) => panic!("in parts"),
        };
        assert_eq!(&*text(refused), "405 Method Not Allowed\n");
        let why = HttpAnswer::only(HttpStatus::Unavailable, "no daemon").with("X-More: 1\r\n");
        assert!(why.head().contains("\r\nX-More: 1\r\n"));
        assert_eq!(&*text(why), "503 Service Unavailable: no daemon\n");
    }
}
