//! An *answer* to a request: *status*, content type and body. The body is a text that several connections may share, or
//! *parts* made while they are sent.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Type of a plain-text body for people.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// Status codes (RFC 9110 section 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
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

impl Status {
    /// Code and reason phrase.
    #[must_use]
    pub const fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::Unauthorized => "401 Unauthorized",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::RequestTimeout => "408 Request Timeout",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::Misdirected => "421 Misdirected Request",
            Status::TooMany => "429 Too Many Requests",
            Status::HeadTooLarge => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// Parts of a body whose length is unknown before its end.
pub trait Parts {
    /// The next part; empty, within a second, without one yet; `None` after the last.
    ///
    /// # Errors
    /// The body ends early, which its receiver can detect.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// The body of an answer.
pub enum Body {
    /// The whole text.
    Whole(Arc<str>),
    /// Parts made while they are sent.
    InParts(Box<dyn Parts>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Whole(text) => f.debug_tuple("Whole").field(text).finish(),
            Body::InParts(_) => f.write_str("InParts"),
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// Type of the body (RFC 9110 section 8.3).
    pub content_type: &'static str,
    /// Further lines of the head, each with its line end.
    pub fields: &'static str,
    /// The body.
    pub body: Body,
}

impl Answer {
    /// An answer with a page.
    pub fn page(content_type: &'static str, body: impl Into<Arc<str>>) -> Answer {
        Answer { status: Status::Ok, content_type, fields: "", body: Body::Whole(body.into()) }
    }

    /// An answer in parts.
    #[must_use]
    pub fn in_parts(content_type: &'static str, parts: Box<dyn Parts>) -> Answer {
        Answer { status: Status::Ok, content_type, fields: "", body: Body::InParts(parts) }
    }

    /// An answer with a status only, and `why` if that is not empty.
    #[must_use]
    pub fn only(status: Status, why: &str) -> Answer {
        let body = if why.is_empty() { format!("{}\n", status.line()) } else { format!("{}: {why}\n", status.line()) };
        Answer { status, content_type: PLAIN, fields: "", body: Body::Whole(body.into()) }
    }

    /// Adds lines to the head, each with its line end.
    #[must_use]
    pub fn with(self, fields: &'static str) -> Answer {
        Answer { fields, ..self }
    }

    /// The head of the answer. The connection ends after it.
    #[must_use]
    pub fn head(&self) -> String {
        let more = match self.status {
            Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            Status::Unauthorized => "WWW-Authenticate: Bearer\r\n",
            _ => "",
        };
        let length = match &self.body {
            Body::Whole(text) => format!("Content-Length: {}", text.len()),
            Body::InParts(_) => "Transfer-Encoding: chunked".to_owned(),
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

    /// Objective: the head gives the body's length in bytes and, for a wrong method, the allowed ones.
    #[test]
    fn heads() {
        let head = Answer::page(PLAIN, "größer\n").head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Length: 9\r\n") && !head.contains("Allow"), "{head}");
        let refused = Answer::only(Status::MethodNotAllowed, "");
        assert!(refused.head().contains("\r\nAllow: GET, HEAD\r\n"));
        let text = |answer: Answer| match answer.body {
            Body::Whole(text) => text,
            Body::InParts(_) => panic!("in parts"),
        };
        assert_eq!(&*text(refused), "405 Method Not Allowed\n");
        let why = Answer::only(Status::Unavailable, "no daemon").with("X-More: 1\r\n");
        assert!(why.head().contains("\r\nX-More: 1\r\n"));
        assert_eq!(&*text(why), "503 Service Unavailable: no daemon\n");
    }
}
