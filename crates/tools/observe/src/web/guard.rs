//! The *guard*: decides which requests are answered.
//!
//! A browser lets every page that its user opens send requests to every address. The server has already checked that a
//! request is for it ([`hosts`](crate::http::hosts)). A browser also names the page that sends the request, and the
//! guard checks that:
//!
//! - `Origin`, if present, is the requested host: no other page may send requests. No answer is marked as readable for
//!   other origins (CORS).
//! - `Sec-Fetch-Site`, sent by current browsers, says the same for figures.
//! - `Authorization` carries the token, for figures. A browser never adds it by itself.

use crate::http::answer::Status;
use crate::http::head::Head;
use crate::web::token::Token;

/// Checks requests to this server.
#[derive(Clone, Debug)]
pub struct Guard(Token);

impl Guard {
    /// A guard that demands this token for figures.
    #[must_use]
    pub fn new(token: Token) -> Guard {
        Guard(token)
    }

    /// Checks a request for the page itself.
    ///
    /// # Errors
    /// The status of a refusal.
    pub fn page(&self, head: &Head) -> Result<(), Status> {
        let host = head.only("host").ok_or(Status::Misdirected)?;
        let mut origins = head.all("origin");
        let is_own = |origin: &str| {
            let of = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            of.is_some_and(|of| of.eq_ignore_ascii_case(host))
        };
        if origins.all(is_own) { Ok(()) } else { Err(Status::Forbidden) }
    }

    /// Checks a request for figures.
    ///
    /// # Errors
    /// The status of a refusal.
    pub fn figures(&self, head: &Head) -> Result<(), Status> {
        self.page(head)?;
        if head.all("sec-fetch-site").any(|site| site != "same-origin") {
            return Err(Status::Forbidden);
        }
        let shown = head.only("authorization").and_then(|value| value.split_once(' '));
        match shown {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && self.0.is(token) => Ok(()),
            _ => Err(Status::Unauthorized),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn guard() -> Guard {
        Guard::new(Token::parse(SECRET).expect("a token"))
    }

    fn head(fields: &str) -> Head {
        let text = format!("GET /api/stats HTTP/1.1\r\n{fields}\r\n");
        Head::parse(text.as_bytes()).expect("a request").expect("a whole one")
    }

    /// Objective: requests by other pages are refused, whatever else they carry.
    #[test]
    fn origins() {
        let guard = guard();
        let judged = |origin: &str| guard.page(&head(&format!("Host: localhost:9848\r\nOrigin: {origin}\r\n")));
        assert_eq!(judged("http://localhost:9848"), Ok(()));
        assert_eq!(judged("https://localhost:9848"), Ok(()));
        for other in ["http://evil.example", "null", "http://localhost", "http://127.0.0.1:9848", "", "localhost:9848"]
        {
            assert_eq!(judged(other), Err(Status::Forbidden), "{other}");
        }
        let two = "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n";
        assert_eq!(guard.page(&head(two)), Err(Status::Forbidden));
        let token = format!("Host: localhost\r\nAuthorization: Bearer {SECRET}\r\n");
        for (site, judged) in [
            ("same-origin", Ok(())),
            ("cross-site", Err(Status::Forbidden)),
            ("same-site", Err(Status::Forbidden)),
            ("none", Err(Status::Forbidden)),
        ] {
            assert_eq!(guard.figures(&head(&format!("{token}Sec-Fetch-Site: {site}\r\n"))), judged, "{site}");
        }
    }

    /// Objective: figures take the token, exactly once and in its field.
    #[test]
    fn tokens() {
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
            assert_eq!(judged(&wrong), Err(Status::Unauthorized), "{wrong}");
        }
    }
}
