//! Guests' sockets as ports of the switch.

use std::path::Path;

use super::addresses;
use super::endpoint::GvEndpoint;

/// Name of the option for a capture file. The same word is the name of a kind of port, and only this module may contain
/// the name of a kind.
pub(super) const CAPTURE_OPTION: &str = "pcap";
/// The scheme of the addresses of vfkit's sockets.
pub(super) const VFKIT_SCHEME: &str = "unixgram";

/// Returns the port for guests' socket at `endpoint`, in the notation of `netvale attach`.
pub(super) fn guest_port(endpoint: &GvEndpoint) -> String {
    match endpoint.scheme.as_str() {
        VFKIT_SCHEME => format!("unixgram:{}", endpoint.path),
        "unixpacket" => format!("seqpacket:{}", endpoint.path),
        "unix" => stream_port(Path::new(&endpoint.path)),
        _ => {
            let host = match endpoint.host.as_str() {
                "" => "0.0.0.0",
                "localhost" => "127.0.0.1",
                host => host,
            };
            format!("stream:{}", addresses::joined(host, &endpoint.port))
        }
    }
}

/// Returns a port for QEMU's frame streams at a UNIX socket, in the notation of `netvale attach`.
pub(super) fn stream_port(path: &Path) -> String {
    format!("stream:{}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_addresses_are_ports_of_the_switch() {
        let of = |text: &str| GvEndpoint::parse(text).unwrap();
        assert_eq!(guest_port(&of("unix:///tmp/q.sock")), "stream:/tmp/q.sock");
        assert_eq!(guest_port(&of("tcp://127.0.0.1:1234")), "stream:127.0.0.1:1234");
        assert_eq!(guest_port(&of("tcp://:1234")), "stream:0.0.0.0:1234");
        assert_eq!(guest_port(&of("tcp://localhost:1")), "stream:127.0.0.1:1");
        assert_eq!(guest_port(&of("unixpacket:///tmp/b")), "seqpacket:/tmp/b");
        assert_eq!(guest_port(&of("unixgram:///tmp/v")), "unixgram:/tmp/v");
    }
}
