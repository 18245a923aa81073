//! The answers of the HTTP interface, with gvproxy's paths, status codes and texts.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netvale_gateway::control::message::ControlRequest;
use rustix::net::Shutdown;
use serde::Serialize;
use serde_json::json;

use super::control::GvControl;
use super::exposed::{ExposedPort, ExposedPorts};
use super::http::{HttpReply, HttpRequest};
use super::json::{self, JsonObject};
use super::network::SwitchClient;
use super::relay::{GuestDialer, relay};
use super::settings::{ConnectFraming, NetSettings};
use super::stream::GvStream;
use super::zones::{GvZone, merged};
use super::{addresses, endpoint, framing, log};

/// The clients of a listener. Which requests are permitted depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiAudience {
    /// Programs of the host that connect to a socket of `-listen`.
    Host,
    /// Programs that connect to the socket of `-services`, where `/connect` is not available.
    Services,
    /// Guests that connect to port 80 of the gateway; they may only manage exposed ports.
    Guests,
}

/// The HTTP interface.
pub(super) struct GvApi {
    pub exposed: ExposedPorts,
    pub control: Arc<GvControl>,
    pub dialer: GuestDialer,
    pub switch: SwitchClient,
    pub net: NetSettings,
    pub framing: ConnectFraming,
    /// The switch's socket for the connections of `/connect`.
    pub connect: PathBuf,
    pub zones: Mutex<Vec<GvZone>>,
}

/// Status 200 without a body, or an error's status and text.
type ApiResult = Result<(), (u16, String)>;

fn done(result: ApiResult) -> HttpReply {
    match result {
        Ok(()) => HttpReply::Text(200, String::new()),
        Err((status, why)) => failure(status, &why),
    }
}

fn failure(status: u16, why: &str) -> HttpReply {
    HttpReply::Text(status, format!("{why}\n"))
}

fn page(value: &impl Serialize) -> HttpReply {
    HttpReply::Text(200, json::line(value))
}

fn page_or_failure(answer: Result<impl Serialize, impl Display>) -> HttpReply {
    answer.map_or_else(|why| failure(500, &why.to_string()), |value| page(&value))
}

fn bad(why: String) -> (u16, String) {
    (400, why)
}

fn failed(why: String) -> (u16, String) {
    (500, why)
}

/// Returns whether the local address of a forward with this protocol is the path of a socket.
fn is_socket(protocol: &str) -> bool {
    ["unix", "npipe"].contains(&protocol)
}

impl GvApi {
    /// Answers a request.
    pub(super) fn answer(&self, request: HttpRequest, audience: ApiAudience) -> HttpReply {
        let is_guest = audience == ApiAudience::Guests;
        log::debug(format_args!("{} {}", request.method, request.path));
        match request.path.as_str() {
            "/services/forwarder/all" => page(&self.exposed_to(audience)),
            "/services/forwarder/expose" => done(self.expose(&request, audience)),
            "/services/forwarder/unexpose" => done(self.unexpose(&request, audience)),
            _ if is_guest => failure(404, "404 page not found"),
            "/services/dhcp/leases" | "/leases" => self.leases(),
            "/services/dns/all" => page(&*self.zones()),
            "/services/dns/add" => done(self.add_zone(&request)),
            "/stats" => self.stats(),
            "/cam" => page_or_failure(self.switch.stations()),
            "/tunnel" => self.tunnel(&request),
            "/connect" if audience == ApiAudience::Host => self.connect(request),
            _ => failure(404, "404 page not found"),
        }
    }

    fn expose(&self, request: &HttpRequest, audience: ApiAudience) -> ApiResult {
        let body = posted(request, EXPOSE)?;
        let protocol = protocol(&body)?;
        let local = body.text("local", "string").map_err(bad)?;
        let remote = body.text("remote", "string").map_err(bad)?;
        if is_socket(&protocol) {
            // A guest could otherwise create sockets anywhere in the user's folders.
            if audience == ApiAudience::Guests {
                return Err(bad("guests cannot expose sockets of the host: use the socket of -listen".to_owned()));
            }
            return self.exposed.expose(&protocol, &local, &remote).map_err(failed);
        }
        let remote = with_host(&remote, request.client.as_deref()).map_err(bad)?;
        self.exposed.expose(&protocol, &local, &remote).map_err(failed)
    }

    /// Lists the exposed ports. For programs of the host, lists the exposed sockets, too; guests must not see paths of
    /// the host.
    fn exposed_to(&self, audience: ApiAudience) -> Vec<ExposedPort> {
        let is_listed = |port: &ExposedPort| audience != ApiAudience::Guests || !is_socket(&port.protocol);
        self.exposed.all().into_iter().filter(is_listed).collect()
    }

    fn unexpose(&self, request: &HttpRequest, audience: ApiAudience) -> ApiResult {
        let body = posted(request, UNEXPOSE)?;
        let local = body.text("local", "string").map_err(bad)?;
        let protocol = protocol(&body)?;
        if audience == ApiAudience::Guests && is_socket(&protocol) {
            return Err(failed("proxy not found".to_owned()));
        }
        self.exposed.unexpose(&protocol, &local).map_err(failed)
    }

    /// Lists the leases by address, with the gateway's own address and the configured leases, as gvproxy does.
    fn leases(&self) -> HttpReply {
        let mut leases: BTreeMap<String, String> = BTreeMap::new();
        leases.insert(self.net.gateway.address.to_string(), self.net.mac.to_string());
        leases.extend(self.net.leases.iter().map(|(mac, address)| (address.to_string(), mac.to_string())));
        page_or_failure(self.control.leases().map(|given| {
            let host = self.net.host.to_string();
            leases.extend(given.into_iter().filter(|lease| lease.ip != host).map(|lease| (lease.ip, lease.mac)));
            leases
        }))
    }

    fn zones(&self) -> MutexGuard<'_, Vec<GvZone>> {
        // The list is consistent even after a panic, because it is only replaced as a whole.
        self.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_zone(&self, request: &HttpRequest) -> ApiResult {
        post_only(request)?;
        let new = GvZone::read(&request.body).map_err(bad)?;
        let mut zones = self.zones();
        let (all, at) = merged(&zones, new);
        if let Some(changed) = all.get(at) {
            let request = ControlRequest::SetNames { zone: changed.for_gateway() };
            self.control.ask(&request).map_err(|why| bad(why.to_string()))?;
        }
        *zones = all;
        Ok(())
    }

    fn stats(&self) -> HttpReply {
        let counted = self.switch.guest_bytes();
        page_or_failure(counted.map(|(sent, received)| json!({"BytesSent": sent, "BytesReceived": received})))
    }

    fn tunnel(&self, request: &HttpRequest) -> HttpReply {
        let value = |name: &str| endpoint::parameter(&request.query, name).unwrap_or_default();
        let ip = value("ip");
        if ip.is_empty() {
            return failure(500, "ip is mandatory");
        }
        let port = match addresses::port_number(&value("port")) {
            Ok(port) => port,
            Err(why) => return failure(500, &why),
        };
        let Ok(ip) = ip.parse::<Ipv4Addr>() else {
            return failure(500, &format!("ip: expected an IPv4 address, found {ip:?}"));
        };
        let dialer = self.dialer.clone();
        let rest = request.rest.clone();
        HttpReply::Taken(Box::new(move |stream| {
            if (&stream).write_all(b"OK").is_err() {
                return;
            }
            let dialed = dialer.dial(SocketAddr::new(ip.into(), port));
            match dialed.and_then(|guest| (&guest).write_all(&rest).map(|()| guest)) {
                Ok(guest) => relay(stream, guest),
                Err(why) => log::error(format_args!("cannot dial: {why}")),
            }
        }))
    }

    fn connect(&self, request: HttpRequest) -> HttpReply {
        let path = self.connect.clone();
        let framing = self.framing;
        if framing == ConnectFraming::Messages {
            return failure(500, "/connect is not available with -listen-bess and -listen-vfkit");
        }
        HttpReply::Taken(Box::new(move |stream| match GvStream::connect(&path) {
            Ok(port) => join(stream, port, framing, &request.rest),
            Err(why) => log::error(format_args!("cannot connect a guest to the switch: {why}")),
        }))
    }
}

/// Connects a guest's stream to the switch's port. `rest` are the bytes that the guest sent after the request.
fn join(stream: GvStream, port: GvStream, form: ConnectFraming, rest: &[u8]) {
    match form {
        ConnectFraming::Hyperkit => {
            let stream = Arc::new(stream);
            framing::carry(rest, &*stream, SharedStream(Arc::clone(&stream)), port);
        }
        ConnectFraming::Qemu | ConnectFraming::Messages => {
            if (&port).write_all(rest).is_ok() {
                relay(stream, port);
            }
        }
    }
}

/// The sending direction of a stream that another thread reads. When this value is dropped, both directions of the
/// stream are shut down.
struct SharedStream(Arc<GvStream>);

impl Drop for SharedStream {
    fn drop(&mut self) {
        self.0.shutdown(Shutdown::Both);
    }
}

impl Write for SharedStream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Name of the type of requests to expose a port, in Go's errors.
const EXPOSE: &str = "ExposeRequest";
/// Name of the type of requests to unexpose a port, in Go's errors.
const UNEXPOSE: &str = "UnexposeRequest";

fn post_only(request: &HttpRequest) -> ApiResult {
    if request.method == "POST" { Ok(()) } else { Err(bad("post only".to_owned())) }
}

/// Returns the object in the body of a POST request; `name` is the object's type in Go.
fn posted(request: &HttpRequest, name: &'static str) -> Result<JsonObject, (u16, String)> {
    post_only(request)?;
    let value = json::first_value(&request.body).map_err(bad)?;
    JsonObject::of(value, &format!("types.{name}"), name).map_err(bad)
}

fn protocol(body: &JsonObject) -> Result<String, (u16, String)> {
    let text = body.text("protocol", "types.TransportProtocol").map_err(bad)?;
    Ok(if text.is_empty() { "tcp".to_owned() } else { text })
}

/// Returns the guest's address and port. If `remote` has no host, the guest is the client that sent the request.
fn with_host(remote: &str, client: Option<&str>) -> Result<String, String> {
    let (host, _) = addresses::split(remote)?;
    if !host.is_empty() {
        return Ok(remote.to_owned());
    }
    // A client at a UNIX socket has no address. Go prints `@` instead, so gvproxy's message contains `@`.
    let (host, _) = addresses::split(client.unwrap_or("@"))?;
    Ok(format!("{host}{remote}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_the_one_that_asks_unless_another_is_named() {
        assert_eq!(with_host("10.0.0.2:80", None), Ok("10.0.0.2:80".to_owned()));
        assert_eq!(with_host(":80", Some("10.0.0.3:40000")), Ok("10.0.0.3:80".to_owned()));
        assert_eq!(with_host(":80", None), Err("address @: missing port in address".to_owned()));
        assert_eq!(with_host("", None), Err("missing port in address".to_owned()));
    }

    #[test]
    fn the_protocol_is_tcp_unless_another_is_named() {
        let of = |text: &str| protocol(&JsonObject::of(serde_json::from_str(text).unwrap(), "", EXPOSE).unwrap());
        assert_eq!(of("{}"), Ok("tcp".to_owned()));
        assert_eq!(of(r#"{"Protocol":"udp"}"#), Ok("udp".to_owned()));
        let why = "json: cannot unmarshal number into Go struct field ExposeRequest.protocol of type \
                   types.TransportProtocol";
        assert_eq!(of(r#"{"protocol":1}"#), Err((400, why.to_owned())));
    }
}
