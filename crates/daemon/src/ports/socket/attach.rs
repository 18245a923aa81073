//! Attaches socket ports: new ports, and ports that another process saved.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use netvale_control::options::kind::KindType;
use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::PortKind;
use netvale_fdio::state::{BadState, Fd};
use netvale_port::domain::TimeDomain;
use netvale_port::listener::OpenError;
use netvale_portspec::AttachSpec;
use netvale_portspec::kinds::{DgramSpec, SocketAddress};
use netvale_socket::exchange::{
    DatagramPair, DialTarget, Dialing, GuestSocket, ListeningSource, MulticastGroup, OwnAddress, PairAddresses,
    PeerSource, PlugSwitch,
};
use netvale_socket::{Exchange, FrameFormat, FrameRules, LineQueues, LineState, SocketLine};

use super::port::{SocketClaims, SocketPort, SocketState, USUAL_MTU};
use crate::daemon::Daemon;
use crate::permission::{self, unreached};
use crate::ports::handed::{domain_of, domain_of_listener, domain_of_site};
use crate::ports::kind::AdmittedRequest;
use crate::ports::plug::{NewPort, plug, unplug};
use crate::ports::site::site;
use crate::refusal::Refusal;
use crate::registry::exchanges::{KnownExchange, LineTemplate};

/// Default maximum number of peers that are connected to a listening socket.
const USUAL_PEERS: u32 = 64;
/// Default number of seconds between two attempts to reach a peer.
const USUAL_PAUSE: u32 = 1;

/// The parts of a socket port that depend on the port's kind: the source of its peers, and the format of its frames.
struct SocketPlan {
    kind: PortKind,
    source: Box<dyn PeerSource>,
    format: FrameFormat,
    rules: Arc<FrameRules>,
    domain: TimeDomain,
    /// Number of the first line (a peer's place): 0 if that line is the attached port itself, otherwise 1.
    first: u16,
    most: u32,
}

/// The sockets of a port that another process saved, and the state of the port's peer.
struct LeftSockets {
    sockets: Vec<OwnedFd>,
    line: Option<LineState>,
}

impl LeftSockets {
    fn of(asked: &AdmittedRequest<'_>) -> Result<Option<LeftSockets>, Refusal> {
        let Some(state) = asked.continued() else { return Ok(None) };
        let SocketState { sockets, line, .. } = state.read()?;
        Ok(Some(LeftSockets { sockets: Fd::take_all(sockets)?, line }))
    }

    /// Takes the sockets. Fails unless there are exactly `N`.
    fn exactly<const N: usize>(&mut self) -> Result<[OwnedFd; N], Refusal> {
        let sockets = std::mem::take(&mut self.sockets);
        let count = sockets.len();
        sockets.try_into().map_err(|_| BadState::new(format!("{count} saved sockets: expected {N}")).into())
    }
}

/// Returns the source of a port's peers, with new sockets, or with the `N` sockets of a port that another process
/// saved.
fn peers<S: PeerSource + 'static, const N: usize>(
    d: &Daemon,
    left: Option<&mut LeftSockets>,
    open: impl FnOnce() -> Result<S, OpenError>,
    restore: impl FnOnce([OwnedFd; N]) -> Result<S, OpenError>,
) -> Result<Box<dyn PeerSource>, Refusal> {
    let made = match left {
        None => open(),
        Some(left) => restore(left.exactly()?),
    };
    Ok(Box::new(made.map_err(|e| unreached(&d.config, e.errno(), e.to_string()))?))
}

fn pause(seconds: Option<u32>) -> Duration {
    Duration::from_secs(seconds.unwrap_or(USUAL_PAUSE).into())
}

fn rules(header: u32, mtu: Option<u32>) -> Arc<FrameRules> {
    Arc::new(FrameRules::new(header, mtu.unwrap_or(USUAL_MTU)))
}

/// Returns the address of the port's own socket. Fails if the caller may not have a socket there.
fn address_of<K: KindType>(
    d: &Daemon,
    asked: &AdmittedRequest<'_>,
    address: &SocketAddress,
    o: &OptionsOf<'_, K>,
) -> Result<OwnAddress, Refusal> {
    Ok(match address {
        SocketAddress::Path(path) => OwnAddress::Unix(site(&d.config, asked.caller, path.as_str(), o)?),
        SocketAddress::Inet(at) => OwnAddress::Inet(*at),
    })
}

/// The properties of a port to which peers connect, or which itself connects to a peer.
struct ConnectionPlan {
    kind: PortKind,
    format: FrameFormat,
    rules: Arc<FrameRules>,
    client: bool,
    every: Duration,
    most: u32,
}

/// Attaches `stream:/PATH` or `stream:IP:PORT`.
///
/// # Errors
/// [`Refusal`] if the port cannot be created.
pub fn stream(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Stream(address) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Stream>()?;
    let connections = ConnectionPlan {
        kind: PortKind::Stream,
        format: FrameFormat::Stream,
        rules: rules(o.vnet_hdr(), o.mtu()),
        client: o.client(),
        every: pause(o.reconnect()),
        most: o.peers().unwrap_or(USUAL_PEERS),
    };
    let at = address_of(d, asked, address, &o)?;
    connect(d, asked, at, connections)
}

/// Attaches `seqpacket:/PATH`.
///
/// # Errors
/// [`Refusal`] if the port cannot be created.
pub fn seqpacket(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Seqpacket(path) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Seqpacket>()?;
    let connections = ConnectionPlan {
        kind: PortKind::Seqpacket,
        format: FrameFormat::Messages,
        rules: rules(o.vnet_hdr(), o.mtu()),
        client: o.client(),
        every: pause(o.reconnect()),
        most: o.peers().unwrap_or(USUAL_PEERS),
    };
    let at = OwnAddress::Unix(site(&d.config, asked.caller, path.as_str(), &o)?);
    connect(d, asked, at, connections)
}

/// Attaches a port that listens for connections, or that connects to a peer.
fn connect(d: &mut Daemon, asked: &AdmittedRequest<'_>, at: OwnAddress, c: ConnectionPlan) -> Result<(), Refusal> {
    let mut left = LeftSockets::of(asked)?;
    let ConnectionPlan { kind, format, rules, client, every, most } = c;
    let domain = match &at {
        OwnAddress::Inet(_) => domain_of(asked.caller),
        OwnAddress::Unix(site) if client => domain_of_listener(d, asked.caller, site.path()),
        OwnAddress::Unix(site) => domain_of_site(d, asked.caller, site),
    };
    if client {
        let target = match at {
            OwnAddress::Unix(site) => DialTarget::Unix(site.place),
            OwnAddress::Inet(at) => DialTarget::Inet(at),
        };
        let source = Box::new(Dialing::new(target, format, every));
        return begin(d, asked, SocketPlan { kind, source, format, rules, domain, first: 0, most: 1 }, left);
    }
    let restore = |[socket]: [OwnedFd; 1]| ListeningSource::restore(&at, format, socket);
    let source = peers(d, left.as_mut(), || ListeningSource::open(&at, format), restore)?;
    begin(d, asked, SocketPlan { kind, source, format, rules, domain, first: 0, most }, left)
}

/// Attaches `dgram:…`.
///
/// # Errors
/// [`Refusal`] if the port cannot be created.
pub fn dgram(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Dgram(spec) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Dgram>()?;
    let mut left = LeftSockets::of(asked)?;
    let (source, domain) = match spec {
        DgramSpec::Group { group, interface } => {
            let restore = |[input, output]: [OwnedFd; 2]| MulticastGroup::restore(*group, input, output);
            let source = peers(d, left.as_mut(), || MulticastGroup::join(*group, *interface), restore)?;
            (source, domain_of(asked.caller))
        }
        DgramSpec::Pair { local, remote } => {
            let (addresses, domain) = pair(d, asked, local, remote, &o)?;
            let every = pause(o.reconnect());
            let restore = |[socket]: [OwnedFd; 1]| DatagramPair::restore(&addresses, every, socket);
            (peers(d, left.as_mut(), || DatagramPair::open(&addresses, every), restore)?, domain)
        }
    };
    let rules = rules(o.vnet_hdr(), o.mtu());
    let format = FrameFormat::Messages;
    begin(d, asked, SocketPlan { kind: PortKind::Dgram, source, format, rules, domain, first: 0, most: 1 }, left)
}

/// Returns the addresses of the port's own socket and of its peer's socket, and the domain whose workers serve the
/// port.
fn pair(
    d: &Daemon,
    asked: &AdmittedRequest<'_>,
    local: &SocketAddress,
    remote: &SocketAddress,
    o: &OptionsOf<'_, kind::Dgram>,
) -> Result<(PairAddresses, TimeDomain), Refusal> {
    match (address_of(d, asked, local, o)?, remote) {
        (OwnAddress::Unix(site), SocketAddress::Path(path)) => {
            let other = permission::place(&d.config, asked.caller, path.as_str().as_ref())?;
            let own = domain_of_site(d, asked.caller, &site);
            let others = domain_of_listener(d, asked.caller, other.path());
            let domain = if own == TimeDomain::TRUSTED { others } else { own };
            Ok((PairAddresses::Unix(site, other), domain))
        }
        (OwnAddress::Inet(local), SocketAddress::Inet(remote)) => {
            let remote: SocketAddr = *remote;
            Ok((PairAddresses::Inet(local, remote), domain_of(asked.caller)))
        }
        _ => Err(Refusal::internal("the two sockets have different address families")),
    }
}

/// Attaches `unixgram:/PATH`.
///
/// # Errors
/// [`Refusal`] if the port cannot be created.
pub fn unixgram(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Unixgram(path) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Unixgram>()?;
    let mut left = LeftSockets::of(asked)?;
    let site = site(&d.config, asked.caller, path.as_str(), &o)?;
    let restore = |[socket]: [OwnedFd; 1]| GuestSocket::restore(&site, socket);
    let source = peers(d, left.as_mut(), || GuestSocket::open(&site), restore)?;
    let plan = SocketPlan {
        kind: PortKind::Unixgram,
        source,
        format: FrameFormat::Messages,
        rules: rules(o.vnet_hdr(), o.mtu()),
        domain: domain_of_site(d, asked.caller, &site),
        first: 0,
        most: 1,
    };
    begin(d, asked, plan, left)
}

/// Attaches `vde:/DIR`.
///
/// # Errors
/// [`Refusal`] if the port cannot be created.
pub fn vde(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Vde(folder) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Vde>()?;
    let mut left = LeftSockets::of(asked)?;
    let site = site(&d.config, asked.caller, folder.control(), &o)?;
    let restore = |[socket]: [OwnedFd; 1]| PlugSwitch::restore(&site, socket);
    let source = peers(d, left.as_mut(), || PlugSwitch::open(&site), restore)?;
    let plan = SocketPlan {
        kind: PortKind::Vde,
        source,
        format: FrameFormat::Messages,
        rules: rules(0, o.mtu()),
        domain: domain_of_site(d, asked.caller, &site),
        first: 1,
        most: o.peers().unwrap_or(USUAL_PEERS),
    };
    begin(d, asked, plan, left)
}

/// Attaches the port to its switch. If the port is itself a line (a place for one peer), it gets the queues of that
/// line.
fn begin(
    d: &mut Daemon,
    asked: &AdmittedRequest<'_>,
    plan: SocketPlan,
    left: Option<LeftSockets>,
) -> Result<(), Refusal> {
    let template = template(asked, &plan);
    let is_continued = left.is_some();
    let mut exchange = Exchange::new(plan.source, plan.format)?;
    template.sockets.replace(exchange.save());
    let (line, queues) = match plan.first {
        0 => own_line(&mut exchange, &template, left.and_then(|left| left.line))?,
        _ => (None, LineQueues::default()),
    };
    if is_continued {
        d.held.push(Box::new(SocketClaims(exchange.source().claims())));
    }
    let port = SocketPort::first(&template, line);
    plug(d, &asked.at, queues, NewPort::new(port, asked).in_domain(plan.domain))?;
    let full = asked.at.full();
    let inserted = d.exchanges.insert(&full, KnownExchange { exchange, template });
    inserted.or_else(|e| {
        unplug(d, &full, "its sockets cannot be watched")?;
        Err(e.into())
    })
}

/// Returns the properties that all lines of a port have in common.
fn template(asked: &AdmittedRequest<'_>, plan: &SocketPlan) -> LineTemplate {
    LineTemplate {
        at: asked.at.clone(),
        kind: plan.kind,
        owner: asked.caller,
        domain: plan.domain,
        lossless: asked.lossless(),
        policies: asked.policies().clone(),
        rules: Arc::clone(&plan.rules),
        first: plan.first,
        most: plan.most as usize,
        sockets: Rc::default(),
    }
}

/// Creates or restores the attached port's own line, with its queues.
fn own_line(
    exchange: &mut Exchange,
    template: &LineTemplate,
    state: Option<LineState>,
) -> Result<(Option<Rc<SocketLine>>, LineQueues), Refusal> {
    let (line, queues) = SocketLine::new(&template.rules, exchange.news())?;
    let line = Rc::new(line);
    match state {
        Some(state) => exchange.restore(0, Rc::clone(&line), state)?,
        None => exchange.add(0, Rc::clone(&line)),
    }
    Ok((Some(line), queues))
}
