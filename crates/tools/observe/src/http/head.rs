//! Heads of HTTP/1.1 requests (RFC 9112). Pure: bytes in, a *head* out. Its *method* is GET or HEAD.

use crate::http::answer::Status;

/// Maximum bytes of a request's head.
pub const MAX_HEAD: usize = 8192;
/// Maximum number of fields of a request.
pub const MAX_FIELDS: usize = 64;

/// A request's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET: the answer with its body.
    Get,
    /// HEAD: the answer without its body.
    Head,
}

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The path, without a query.
    pub path: String,
    /// The query, undecoded.
    pub query: String,
    /// Names, in lower case, and values of all fields, in order of arrival.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// Parses the bytes of a request received so far; `None`: incomplete.
    ///
    /// # Errors
    /// The status to answer with if the request is malformed or not for this server.
    pub fn parse(bytes: &[u8]) -> Result<Option<Head>, Status> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(_)) => Head::of(&request).map(Some),
            Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => Err(Status::HeadTooLarge),
            Ok(httparse::Status::Partial) => Ok(None),
            Err(httparse::Error::TooManyHeaders) => Err(Status::HeadTooLarge),
            Err(httparse::Error::Version) => Err(Status::VersionNotSupported),
            Err(_) => Err(Status::BadRequest),
        }
    }

    fn of(request: &httparse::Request<'_, '_>) -> Result<Head, Status> {
        let method = match request.method {
            Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            _ => return Err(Status::MethodNotAllowed),
        };
        let target = request.path.unwrap_or_default();
        let target = target.split('#').next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let field = |one: &httparse::Header<'_>| {
            let value = std::str::from_utf8(one.value).map_err(|_| Status::BadRequest)?;
            Ok((one.name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let fields: Vec<_> = request.headers.iter().map(field).collect::<Result<_, Status>>()?;
        let head = Head { method, path: path.to_owned(), query: query.to_owned(), fields };
        // A client that sends a body gets no answer before it is read, and no client has a reason to send one.
        let has_body =
            head.all("transfer-encoding").next().is_some() || head.all("content-length").any(|len| len != "0");
        if has_body { Err(Status::ContentTooLarge) } else { Ok(head) }
    }

    /// The values of all fields of a name in lower case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.fields.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of the field of that name, if exactly one exists.
    #[must_use]
    pub fn only<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut all = self.all(name);
        all.next().filter(|_| all.next().is_none())
    }

    /// A parameter of the query, decoded; `None` if missing, repeated, or not text.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let mut all = pairs.filter(|(known, _)| *known == name).map(|(_, value)| decoded(value));
        all.next().flatten().filter(|_| all.next().is_none())
    }
}

/// Decodes percent-encoded text (RFC 3986 section 2.1).
fn decoded(text: &str) -> Option<String> {
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

    fn parse(text: &str) -> Result<Option<Head>, Status> {
        Head::parse(text.as_bytes())
    }

    /// Objective: method, path and fields are parsed in any spelling.
    #[test]
    fn request() {
        let head = parse("GET /metrics?name=x HTTP/1.1\r\nHost: a\r\nACCEPT:  text/plain \r\naccept: */*\r\n\r\n");
        let head = head.expect("a request").expect("a whole one");
        assert_eq!((head.method, head.path.as_str()), (Method::Get, "/metrics"));
        assert_eq!(head.all("accept").collect::<Vec<_>>(), ["text/plain", "*/*"]);
        assert_eq!(parse("HEAD / HTTP/1.0\r\n\r\n").map(|head| head.map(|head| head.method)), Ok(Some(Method::Head)));
        assert_eq!(parse("GET /metrics HTTP/1.1\r\nHost:"), Ok(None));
        assert_eq!(parse(""), Ok(None));
    }

    /// Objective: parameters are found by name and decoded; repeated ones, and ones that are not text, count as
    /// missing.
    #[test]
    fn parameters() {
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

    /// Objective: a malformed request, or one for another server, is refused with a status that gives the reason.
    #[test]
    fn refused() {
        let of = |text: &str| parse(text).expect_err("refused");
        assert_eq!(of("POST /metrics HTTP/1.1\r\n\r\n"), Status::MethodNotAllowed);
        assert_eq!(of("GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), Status::ContentTooLarge);
        assert_eq!(of("GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), Status::ContentTooLarge);
        assert_eq!(of("GET /metrics HTTP/2.0\r\n\r\n"), Status::VersionNotSupported);
        assert_eq!(of("\x16\x03\x01 is TLS\r\n\r\n"), Status::BadRequest);
        assert_eq!(of("GET /\0 HTTP/1.1\r\n\r\n"), Status::BadRequest);
        assert_eq!(of(&format!("GET /{}", "x".repeat(MAX_HEAD))), Status::HeadTooLarge);
        assert_eq!(of(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_FIELDS + 1))), Status::HeadTooLarge);
        assert_eq!(Head::parse(b"GET / HTTP/1.1\r\na: \xff\r\n\r\n"), Err(Status::BadRequest));
    }

    proptest! {
        /// Objective: any bytes are a head, part of one, or refused; a whole request parses the same whatever parts of
        /// it were parsed before.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Head::parse(&bytes);
            let whole = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
            for end in 0..whole.len() {
                prop_assert_eq!(Head::parse(&whole[..end]), Ok(None));
            }
        }
    }
}
