//! A firewall between an interface and the host's stack: frames of the given flows are dropped; all other frames are
//! forwarded in both directions by swapping buffers, without a copy.
//!
//! ```sh
//! # Blocks port 22 for 10.5.0.2; '-' means any.
//! cargo run --release -p netvale --example firewall -- eth0 tcp,10.5.0.2,-,-,22
//! ```

use std::error::Error;
use std::net::IpAddr;
use std::str::FromStr;

use netvale::{Interest, Port, RxRing, TxRing, swap_buffers};
use netvale_wire::Layers;
use netvale_wire::layers::{TCP, UDP};

/// Maximum size in bytes of the headers to examine.
const PREFIX: usize = 128;

/// A set of flows: a `None` field matches anything.
#[derive(Default)]
struct FlowRule {
    protocol: Option<u8>,
    src: Option<IpAddr>,
    src_port: Option<u16>,
    dst: Option<IpAddr>,
    dst_port: Option<u16>,
}

/// Parses a field of a rule; `None` for '-'.
fn given<T: FromStr<Err: Error + 'static>>(field: &str) -> Result<Option<T>, Box<dyn Error>> {
    if field == "-" { Ok(None) } else { Ok(Some(field.parse()?)) }
}

impl FlowRule {
    fn parse(text: &str) -> Result<FlowRule, Box<dyn Error>> {
        let fields: Vec<&str> = text.split(',').collect();
        let [protocol, src, src_port, dst, dst_port] = fields[..] else {
            return Err(format!("invalid rule {text}: expected PROTOCOL,SOURCE,PORT,DESTINATION,PORT").into());
        };
        let protocol = match protocol {
            "tcp" => Some(TCP),
            "udp" => Some(UDP),
            other => given(other)?,
        };
        let src = given(src)?;
        let src_port = given(src_port)?;
        Ok(FlowRule { protocol, src, src_port, dst: given(dst)?, dst_port: given(dst_port)? })
    }

    fn matches(&self, frame: &[u8]) -> bool {
        let Some(ip) = Layers::parse(frame).ok().and_then(|layers| layers.ip) else { return false };
        // TCP and UDP have their ports at the same offset; a fragment other than the first has no ports.
        let ports = frame.get(ip.l4..ip.l4 + 4).filter(|_| !ip.fragment);
        let port = |wanted: Option<u16>, at: usize| {
            wanted.is_none_or(|port| ports.is_some_and(|ports| ports[at..at + 2] == port.to_be_bytes()))
        };
        self.protocol.is_none_or(|protocol| protocol == ip.protocol)
            && self.src.is_none_or(|src| src == ip.src)
            && self.dst.is_none_or(|dst| dst == ip.dst)
            && port(self.src_port, 0)
            && port(self.dst_port, 2)
    }
}

/// Moves the frames that no rule matches, and drops the other frames.
fn filter(from: &mut RxRing, to: &mut TxRing, rules: &[FlowRule]) {
    let mut prefix = [0u8; PREFIX];
    while from.space() > 0 && to.space() > 0 {
        let slot = from.at(0);
        let known = from.read(slot, &mut prefix);
        if !rules.iter().any(|rule| rule.matches(&prefix[..known])) {
            swap_buffers(from, slot, to, to.at(0));
            to.advance(1);
        }
        from.advance(1);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let interface = args.next().ok_or("usage: firewall INTERFACE [RULE…]")?;
    let rules: Vec<FlowRule> = args.map(|text| FlowRule::parse(&text)).collect::<Result<_, _>>()?;
    // The interface's rings, followed by the host ring.
    let mut port = Port::open(&format!("netmap:{interface}*"))?;
    loop {
        port.wait(Interest::Rx, None)?;
        let (tx, rx) = port.rings();
        let ([from_nic @ .., from_host], [to_nic, .., to_host]) = (rx, tx) else { return Err("no host ring".into()) };
        from_nic.iter_mut().for_each(|ring| filter(ring, to_host, &rules));
        filter(from_host, to_nic, &rules);
        port.sync();
    }
}
