//! Parsing of the *heads* of HTTP/1.1 requests (RFC 9112). The *method* is GET or HEAD.

use crate::http::answer::HttpStatus;

/// Maximum length of a request's head in bytes.
pub const MAX_HEAD: usize = 8192;
/// Maximum number of header fields of a request.
pub const MAX_FIELDS: usize = 64;

/// A request's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET: requests the answer with its body.
    Get,
    /// HEAD: requests the answer without its body.
    Head,
}

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The path, without a query.
    pub path: String,
    /// The query, not decoded; empty if the target has no query.
    pub query: String,
    /// Names (in lower case) and values of all header fields, in order of arrival.
    pub fields: Vec<(String, String)>,
}

impl RequestHead {
    /// Parses the received bytes of a request; `None` if the head is incomplete.
    ///
    /// # Errors
    /// If the request is malformed or not supported, the status with which it must be answered.
    pub fn parse(bytes: &[u8]) -> Result<Option<RequestHead>, HttpStatus> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(_)) => RequestHead::of(&request).map(Some),
            Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => Err(HttpStatus::HeadTooLarge),
            Ok(httparse::Status::Partial) => Ok(None),
            Err(httparse::Error::TooManyHeaders) => Err(HttpStatus::HeadTooLarge),
            Err(httparse::Error::Version) => Err(HttpStatus::VersionNotSupported),
            Err(_) => Err(HttpStatus::BadRequest),
        }
    }

    fn of(request: &httparse::Request<'_, '_>) -> Result<RequestHead, HttpStatus> {
        let method = match request.method {
            Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            _ => return Err(HttpStatus::MethodNotAllowed),
        };
        let target = request.path.unwrap_or_default();
        let target = target.split('#').next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let field = |one: &httparse::Header<'_>| {
            let value = std::str::from_utf8(one.value).map_err(|_| HttpStatus::BadRequest)?;
            Ok((one.name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let fields: Vec<_> = request.headers.iter().map(field).collect::<Result<_, HttpStatus>>()?;
        let head = RequestHead { method, path: path.to_owned(), query: query.to_owned(), fields };
        // A request with a body is refused: the server would have to read the body first, and no supported request
        // needs one.
        let has_body =
            head.all("transfer-encoding").next().is_some() || head.all("content-length").any(|len| len != "0");
        if has_body { Err(HttpStatus::ContentTooLarge) } else { Ok(head) }
    }

    /// Returns the values of all fields with the name `name`, which must be in lower case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.fields.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of the field `name` (in lower case) if there is exactly one such field, otherwise `None`.
    #[must_use]
    pub fn only<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut all = self.all(name);
        all.next().filter(|_| all.next().is_none())
    }

    /// Returns a parameter of the query, decoded; `None` if it is missing, repeated, or not UTF-8.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let mut all = pairs.filter(|(known, _)| *known == name).map(|(_, value)| decoded(value));
        all.next().flatten().filter(|_| all.next().is_none())
    }
}

/// Decodes percent-encoded text (RFC 3986 section 2.1); `None` if it is malformed, or not UTF-8.
#[must_use]
pub fn decoded(text: &str) -> Option<String> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16).map(|digit| digit as u8);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            bytes.push(16 * digit(after.first())? + digit(after.get(1))?);
            rest = after.get(2..)?;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Option<RequestHead>, HttpStatus> {
        RequestHead::parse(text.as_bytes())
    }

    /// Objective: method, path and header fields are parsed, with field names in upper or lower case, and with blanks
    /// around values.
    #[test]
    fn a_request_is_parsed_in_any_spelling() {
        let head = parse("GET /metrics?name=x HTTP/1.1\r\nHost: a\r\nACCEPT:  text/plain \r\naccept: */*\r\n\r\n");
        let head = head.expect("a request").expect("a whole one");
        assert_eq!((head.method, head.path.as_str()), (Method::Get, "/metrics"));
        assert_eq!(head.all("accept").collect::<Vec<_>>(), ["text/plain", "*/*"]);
        assert_eq!(parse("HEAD / HTTP/1.0\r\n\r\n").map(|head| head.map(|head| head.method)), Ok(Some(Method::Head)));
        assert_eq!(parse("GET /metrics HTTP/1.1\r\nHost:"), Ok(None));
        assert_eq!(parse(""), Ok(None));
    }

    /// Objective: parameters are found by name and decoded; parameters that are repeated or not UTF-8 count as missing.
    #[test]
    fn parameters_are_found_by_name() {
        let head =
            parse("GET /p?name=vale0%3Aa%7b1%C3%A9&n=5&n=6&bad=%ff&cut=%4&sign=a+b#x HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = head.expect("a request").expect("a whole one");
        assert_eq!(head.parameter("name").as_deref(), Some("vale0:a{1é"));
        assert_eq!(head.parameter("sign").as_deref(), Some("a+b"));
        for absent in ["n", "bad", "cut", "other", ""] {
            assert_eq!(head.parameter(absent), None, "{absent}");
        }
        assert_eq!((head.only("host"), head.only("origin")), (Some("a"), None));
    }

    /// Objective: a request that is malformed or not supported is refused with a status that indicates the reason.
    #[test]
    fn a_malformed_request_is_refused_with_a_status() {
        let of = |text: &str| parse(text).expect_err("refused");
        assert_eq!(of("POST /metrics HTTP/1.1\r\n\r\n"), HttpStatus::MethodNotAllowed);
        assert_eq!(of("GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), HttpStatus::ContentTooLarge);
        assert_eq!(of("GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), HttpStatus::ContentTooLarge);
        assert_eq!(of("GET /metrics HTTP/2.0\r\n\r\n"), HttpStatus::VersionNotSupported);
        assert_eq!(of("\x16\x03\x01 is TLS\r\n\r\n"), HttpStatus::BadRequest);
        assert_eq!(of("GET /\0 HTTP/1.1\r\n\r\n"), HttpStatus::BadRequest);
        assert_eq!(of(&format!("GET /{}", "x".repeat(MAX_HEAD))), HttpStatus::HeadTooLarge);
        assert_eq!(
            of(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_FIELDS + 1))),
            HttpStatus::HeadTooLarge
        );
        assert_eq!(RequestHead::parse(b"GET / HTTP/1.1\r\na: \xff\r\n\r\n"), Err(HttpStatus::BadRequest));
    }

    proptest! {
        /// Objective: no bytes make the parser panic, and every proper prefix of a valid head is incomplete, not
        /// malformed.
        #[test]
        fn any_bytes_are_a_head_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = RequestHead::parse(&bytes);
            let whole = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
            for end in 0..whole.len() {
                prop_assert_eq!(RequestHead::parse(&whole[..end]), Ok(None));
            }
        }
    }
}
