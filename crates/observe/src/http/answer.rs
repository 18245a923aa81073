//! An *answer* to a request: its *status*, the type of its body, and the body, which several connections may share.

use std::sync::Arc;

/// Type of a body that is a sentence for people.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// How a request went (RFC 9110 section 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200.
    Ok,
    /// 400: no request.
    BadRequest,
    /// 404: there is no such page.
    NotFound,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 408: it did not arrive in time.
    RequestTimeout,
    /// 413: a request with a body.
    ContentTooLarge,
    /// 431: a head that is too long.
    HeadTooLarge,
    /// 503: what would be answered with cannot be had now.
    Unavailable,
    /// 505: another HTTP than 1.0 and 1.1.
    VersionNotSupported,
}

impl Status {
    /// Code and phrase.
    #[must_use]
    pub const fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::RequestTimeout => "408 Request Timeout",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::HeadTooLarge => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How it went.
    pub status: Status,
    /// Type of the body (RFC 9110 section 8.3).
    pub content_type: &'static str,
    /// The body.
    pub body: Arc<str>,
}

impl Answer {
    /// An answer with a page.
    pub fn page(content_type: &'static str, body: impl Into<Arc<str>>) -> Answer {
        Answer { status: Status::Ok, content_type, body: body.into() }
    }

    /// An answer that only says how it went, and `why` if that is not empty.
    #[must_use]
    pub fn only(status: Status, why: &str) -> Answer {
        let body = if why.is_empty() { format!("{}\n", status.line()) } else { format!("{}: {why}\n", status.line()) };
        Answer { status, content_type: PLAIN, body: body.into() }
    }

    /// The head of the answer. The connection ends after it.
    #[must_use]
    pub fn head(&self) -> String {
        let allow = if self.status == Status::MethodNotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            self.status.line(),
            self.content_type,
            self.body.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the head says how long the body is in bytes, and what may be asked where that was wrong.
    #[test]
    fn heads() {
        let head = Answer::page(PLAIN, "größer\n").head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Length: 9\r\n") && !head.contains("Allow"), "{head}");
        let refused = Answer::only(Status::MethodNotAllowed, "");
        assert!(refused.head().contains("\r\nAllow: GET, HEAD\r\n"));
        assert_eq!(&*refused.body, "405 Method Not Allowed\n");
        assert_eq!(&*Answer::only(Status::Unavailable, "no daemon").body, "503 Service Unavailable: no daemon\n");
    }
}
