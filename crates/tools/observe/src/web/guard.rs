//! The *guard* ([`WebGuard`]), which decides which requests are answered.
//!
//! A browser lets every page that its user opens send requests to every address. The server has already checked that a
//! request names this server as its host ([`hosts`](crate::http::hosts)). The guard checks which page sent the request,
//! and whether the request has the token:
//!
//! - `Origin`, if present, must be the requested host, since pages of other sites may not send requests. No answer
//!   permits pages of other origins to read it (CORS).
//! - `Sec-Fetch-Site`, if present (current browsers send it), must be `same-origin` in requests for figures (the
//!   counters and lists that the page shows).
//! - `Authorization` must have the token in requests for figures. A browser never adds this field by itself.

use crate::http::answer::HttpStatus;
use crate::http::head::RequestHead;
use crate::web::token::Token;

/// The guard of a server: it checks requests, and knows the token that requests for figures must contain.
#[derive(Clone, Debug)]
pub struct WebGuard(Token);

impl WebGuard {
    /// Creates a guard that requires this token for figures.
    #[must_use]
    pub fn new(token: Token) -> WebGuard {
        WebGuard(token)
    }

    /// Checks a request for one of the page's files.
    ///
    /// # Errors
    /// The status with which the request must be refused.
    pub fn page(&self, head: &RequestHead) -> Result<(), HttpStatus> {
        let host = head.only("host").ok_or(HttpStatus::Misdirected)?;
        let mut origins = head.all("origin");
        let is_own = |origin: &str| {
            let of = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            of.is_some_and(|of| of.eq_ignore_ascii_case(host))
        };
        if origins.all(is_own) { Ok(()) } else { Err(HttpStatus::Forbidden) }
    }

    /// Checks a request for figures.
    ///
    /// # Errors
    /// The status with which the request must be refused.
    pub fn figures(&self, head: &RequestHead) -> Result<(), HttpStatus> {
        self.page(head)?;
        if head.all("sec-fetch-site").any(|site| site != "same-origin") {
            return Err(HttpStatus::Forbidden);
        }
        let shown = head.only("authorization").and_then(|value| value.split_once(' '));
        match shown {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && self.0.is(token) => Ok(()),
            _ => Err(HttpStatus::Unauthorized),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn guard() -> WebGuard {
        WebGuard::new(Token::parse(SECRET).expect("a token"))
    }

    fn head(fields: &str) -> RequestHead {
        let text = format!("GET /api/stats HTTP/1.1\r\n{fields}\r\n");
        RequestHead::parse(text.as_bytes()).expect("a request").expect("a whole one")
    }

    /// Objective: requests from pages of other sites are refused, regardless of what else they contain.
    #[test]
    fn requests_by_other_pages_are_refused() {
        let guard = guard();
        let judged = |origin: &str| guard.page(&head(&format!("Host: localhost:9848\r\nOrigin: {origin}\r\n")));
        assert_eq!(judged("http://localhost:9848"), Ok(()));
        assert_eq!(judged("https://localhost:9848"), Ok(()));
        for other in ["http://evil.example", "null", "http://localhost", "http://127.0.0.1:9848", "", "localhost:9848"]
        {
            assert_eq!(judged(other), Err(HttpStatus::Forbidden), "{other}");
        }
        let two = "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n";
        assert_eq!(guard.page(&head(two)), Err(HttpStatus::Forbidden));
        let token = format!("Host: localhost\r\nAuthorization: Bearer {SECRET}\r\n");
        for (site, judged) in [
            ("same-origin", Ok(())),
            ("cross-site", Err(HttpStatus::Forbidden)),
            ("same-site", Err(HttpStatus::Forbidden)),
            ("none", Err(HttpStatus::Forbidden)),
        ] {
            assert_eq!(guard.figures(&head(&format!("{token}Sec-Fetch-Site: {site}\r\n"))), judged, "{site}");
        }
    }

    /// Objective: requests for figures must have the token, exactly once and in the field `Authorization`.
    #[test]
    fn figures_take_the_token_exactly_once() {
        let guard = guard();
        let judged = |fields: &str| guard.figures(&head(&format!("Host: localhost\r\n{fields}")));
        assert_eq!(judged(&format!("Authorization: Bearer {SECRET}\r\n")), Ok(()));
        assert_eq!(judged(&format!("authorization: bearer {SECRET}\r\n")), Ok(()));
        for wrong in [
            String::new(),
            "Authorization: Bearer\r\n".into(),
            "Authorization: Bearer 0123456789abcdeF\r\n".into(),
            format!("Authorization: Basic {SECRET}\r\n"),
            format!("Authorization: {SECRET}\r\n"),
            format!("Cookie: token={SECRET}\r\n"),
            format!("Authorization: Bearer {SECRET}\r\nAuthorization: Bearer {SECRET}\r\n"),
        ] {
            assert_eq!(judged(&wrong), Err(HttpStatus::Unauthorized), "{wrong}");
        }
    }
}
