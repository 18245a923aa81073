//! Addresses such as `unix:///run/a.sock`, `tcp://127.0.0.1:1234` and `ssh-tunnel://root@192.168.127.2:22/a?key=/k`.

use netvale_observe::http::head::decoded;

use super::GvFailure;

/// An address: a URL (RFC 3986), limited to the parts that gvproxy uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GvEndpoint {
    /// The whole address as text.
    pub text: String,
    pub scheme: String,
    pub user: String,
    /// The host, without brackets.
    pub host: String,
    /// The port; empty if the address has none.
    pub port: String,
    pub path: String,
    query: String,
}

impl GvEndpoint {
    /// Parses an address.
    ///
    /// # Errors
    /// The text has no scheme, or is malformed.
    pub(super) fn parse(text: &str) -> Result<GvEndpoint, GvFailure> {
        let bad = |what: &str| GvFailure(format!("{text:?}: {what}: expected e.g. unix:///run/a.sock"));
        let (scheme, rest) = text.split_once(':').ok_or_else(|| bad("an address without a scheme"))?;
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
        if !scheme.starts_with(|letter: char| letter.is_ascii_alphabetic()) || !scheme.chars().all(is_letter) {
            return Err(bad("a malformed scheme"));
        }
        // The form `unix:/run/a.sock`, without slashes and a host, is accepted, too.
        let rest = rest.strip_prefix("//").or(Some(rest).filter(|rest| rest.starts_with('/')));
        let rest = rest.ok_or_else(|| bad("an address without a path"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (host, port) = split_host(place).ok_or_else(|| bad("a malformed host"))?;
        let decode = |text: &str| decoded(text).ok_or_else(|| bad("a malformed percent-encoding"));
        Ok(GvEndpoint {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            user: decode(user)?,
            host: host.to_owned(),
            port: port.to_owned(),
            path: decode(path)?,
            query: query.to_owned(),
        })
    }

    /// Returns a parameter of the query, decoded; empty if it is missing or malformed.
    pub(super) fn parameter(&self, name: &str) -> String {
        parameter(&self.query, name).unwrap_or_default()
    }
}

/// Returns a parameter of a query, decoded; `None` if it is missing or malformed.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.find(|(known, _)| *known == name)?;
    decoded(&value.replace('+', " "))
}

/// Splits a host from its port. An IPv6 address before a port is in brackets.
fn split_host(place: &str) -> Option<(&str, &str)> {
    if let Some(bracketed) = place.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']')?;
        return if rest.is_empty() { Some((host, "")) } else { Some((host, rest.strip_prefix(':')?)) };
    }
    let (host, port) = place.split_once(':').unwrap_or((place, ""));
    port.chars().all(|digit| digit.is_ascii_digit()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_into_their_parts() {
        let of = |text: &str| {
            let GvEndpoint { scheme, user, host, port, path, .. } = GvEndpoint::parse(text).unwrap();
            [scheme, user, host, port, path]
        };
        assert_eq!(of("unix:///run/a%20b.sock"), ["unix", "", "", "", "/run/a b.sock"]);
        assert_eq!(of("unix:/run/a.sock"), ["unix", "", "", "", "/run/a.sock"]);
        assert_eq!(of("tcp://0.0.0.0:1234"), ["tcp", "", "0.0.0.0", "1234", ""]);
        assert_eq!(of("tcp://[::1]:80/x"), ["tcp", "", "::1", "80", "/x"]);
        assert_eq!(of("vsock://:1024"), ["vsock", "", "", "1024", ""]);
        let tunnel = "ssh-tunnel://root@192.168.127.2:22/run/p.sock?key=/k%2f1&passphrase=";
        assert_eq!(of(tunnel), ["ssh-tunnel", "root", "192.168.127.2", "22", "/run/p.sock"]);
        let tunnel = GvEndpoint::parse(tunnel).unwrap();
        assert_eq!([tunnel.parameter("key"), tunnel.parameter("passphrase"), tunnel.parameter("x")], ["/k/1", "", ""]);
    }

    #[test]
    fn text_that_is_no_address_is_refused() {
        for text in [
            "",
            "/a",
            "://a",
            "a b://c",
            "1a://b",
            "a:80",
            "tcp://[::1",
            "tcp://[::1]80",
            "unix:///%zz",
            "tcp://a:b",
            "unix:///%",
        ] {
            assert!(GvEndpoint::parse(text).is_err(), "{text}");
        }
    }
}
