//! An *answer* to a request: *status*, content type and body. The body is a text, which several connections may share,
//! or *parts* that are generated while the answer is sent.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Content type of plain text.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// Status codes (RFC 9110 section 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpStatus {
    /// 200.
    Ok,
    /// 400: malformed request.
    BadRequest,
    /// 401: the request has no valid authorization.
    Unauthorized,
    /// 403: a page of another origin sent the request.
    Forbidden,
    /// 404: no such page.
    NotFound,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 408: the request did not arrive within the time limit.
    RequestTimeout,
    /// 413: the request has a body.
    ContentTooLarge,
    /// 421: the request is for another host.
    Misdirected,
    /// 429: a limit on simultaneous or frequent requests is reached.
    TooMany,
    /// 431: the head is too long.
    HeadTooLarge,
    /// 503: the data for the answer is temporarily unavailable.
    Unavailable,
    /// 505: the HTTP version is neither 1.0 nor 1.1.
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
    /// Returns the next part; `None` after the last part. If no part is ready, returns an empty part after at most a
    /// second.
    ///
    /// # Errors
    /// The body cannot be continued. The answer then ends without the last chunk, so that the client detects the error.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// The body of an answer.
pub enum HttpBody {
    /// The whole body in memory.
    Whole(Arc<str>),
    /// Parts that are generated while the answer is sent.
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

/// An answer to a request.
#[derive(Debug)]
pub struct HttpAnswer {
    /// The status code.
    pub status: HttpStatus,
    /// Content type of the body (RFC 9110 section 8.3).
    pub content_type: &'static str,
    /// Further header lines, each with its line end.
    pub fields: &'static str,
    /// The body.
    pub body: HttpBody,
}

impl HttpAnswer {
    /// Creates an answer with status 200 and a whole body.
    pub fn page(content_type: &'static str, body: impl Into<Arc<str>>) -> HttpAnswer {
        HttpAnswer { status: HttpStatus::Ok, content_type, fields: "", body: HttpBody::Whole(body.into()) }
    }

    /// Creates an answer with status 200 and a body in parts.
    #[must_use]
    pub fn in_parts(content_type: &'static str, parts: Box<dyn BodyParts>) -> HttpAnswer {
        HttpAnswer { status: HttpStatus::Ok, content_type, fields: "", body: HttpBody::InParts(parts) }
    }

    /// Creates an answer whose body contains only the status and, if `why` is not empty, the reason `why`.
    #[must_use]
    pub fn only(status: HttpStatus, why: &str) -> HttpAnswer {
        let body = if why.is_empty() { format!("{}\n", status.line()) } else { format!("{}: {why}\n", status.line()) };
        HttpAnswer { status, content_type: PLAIN, fields: "", body: HttpBody::Whole(body.into()) }
    }

    /// Sets further header lines, each with its line end.
    #[must_use]
    pub fn with(self, fields: &'static str) -> HttpAnswer {
        HttpAnswer { fields, ..self }
    }

    /// Returns the head of the answer, which announces that the server closes the connection after the answer.
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

    /// Objective: the head has the body's length in bytes and, with status 405, the allowed methods.
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
