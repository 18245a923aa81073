//! The peers of the socket ports: other switches with the same sockets, a link without a switch, and a process that
//! only passes on what it receives.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::*;
use crate::peers::gvproxy::{self, Gvproxy};

/// Name of the worker role [`forward`].
pub const FORWARDER: &str = "socket-forwarder";
/// Time limit for a switch's sockets to appear.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of bytes that one call receives.
const ROOM: usize = 64 << 10;

const VDE_SWITCH: &[Need] = &[Need::Program("vde_switch", "vde2")];

/// Returns the peers.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "vde-switch", "VDE's switch (vde_switch), for its plugs";
        &[TWO, NETWORKS, VDE_SWITCH], |case| fits(case, &[SocketKind::Vde]),
        |case, cores| measured("vde-switch", case, cores, vde_switch);
        "gvproxy", "the switch in gvproxy, for streams in QEMU's form";
        &[TWO, NETWORKS, gvproxy::NEEDS], |case| fits(case, &[SocketKind::Stream]) && case.unit != Unit::Gbps,
        |case, cores| measured("gvproxy", case, cores, gvproxy_switch);
        "socket-direct", "a pair of sockets without a switch; sender and receiver on two cores";
        &[TWO, NETWORKS],
        |case| {
            let kinds = [SocketKind::Stream, SocketKind::Dgram, SocketKind::Seqpacket];
            fits(case, &kinds) && case.ports == 2 && case.unit != Unit::Gbps
        },
        |case, cores| measured("socket-direct", case, cores, direct);
        "socket-forwarder", "two pairs of sockets, and a process that passes on what it receives: the kernel's share";
        &[TWO, NETWORKS],
        |case| case.scenario == SCENARIO.name && case.ports == 2 && case.variant != "vde-tcp",
        |case, cores| measured("socket-forwarder", case, cores, forwarder);
    }
}

fn fits(case: &Case, kinds: &[SocketKind]) -> bool {
    case.scenario == SCENARIO.name && kinds.contains(&SocketKind::of(case))
}

/// Starts a switch as a child process.
fn child(command: Command, folder: PathBuf) -> Result<RunningSwitch> {
    Ok(RunningSwitch::of(&Rc::new(Child::spawn(command, &folder)?)))
}

fn appears(path: &Path, who: &str) -> Result<()> {
    let found = interrupt::poll_until(START_LIMIT, || Ok(path.exists().then_some(())))?;
    found.ok_or_else(|| BenchError::Usage(format!("{who} has made no socket {} within 10 s", path.display())))
}

fn vde_switch(_: SocketKind, place: &SocketPlace) -> Result<RunningSwitch> {
    let program = sys::find_program("vde_switch").unwrap_or_default();
    let mut command = place.command(&program);
    command.arg("-s").arg(place.path("port"));
    let switch = child(command, place.path("vde_switch.log"))?;
    appears(&place.path("port/ctl"), "vde_switch")?;
    Ok(switch)
}

/// Starts gvproxy. Each connection to its control socket becomes a port of its switch.
fn gvproxy_switch(_: SocketKind, place: &SocketPlace) -> Result<RunningSwitch> {
    let proxy = Gvproxy::start(|program| place.command(program), &place.path("gvproxy"), 1500)?;
    let connect = proxy.connector();
    let connect = move |_: usize| connect().map(PeerEnd::stream);
    Ok(RunningSwitch { connect: Some(Box::new(connect)), ..RunningSwitch::of(&proxy.child) })
}

/// Creates a link without a switch.
fn direct(kind: SocketKind, place: &SocketPlace) -> Result<RunningSwitch> {
    let pair = || -> std::io::Result<[PeerEnd; 2]> {
        Ok(match kind {
            SocketKind::Stream => <[UnixStream; 2]>::from(UnixStream::pair()?).map(PeerEnd::stream),
            SocketKind::Seqpacket => {
                let flags = SocketFlags::CLOEXEC;
                let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
                <[OwnedFd; 2]>::from(pair).map(PeerEnd::messages)
            }
            SocketKind::Dgram | SocketKind::Vde => {
                <[UnixDatagram; 2]>::from(UnixDatagram::pair()?).map(PeerEnd::messages)
            }
        })
    };
    let pair = place.space.inside(|| pair().map_err(BenchError::io("creating a pair of sockets")))?;
    let mut pair = pair.into_iter();
    let connect = move |_: usize| pair.next().ok_or_else(|| no_frames("socket-direct"));
    Ok(RunningSwitch { connect: Some(Box::new(connect)), ..RunningSwitch::default() })
}

/// The parameters of the forwarding process.
#[derive(Debug, Serialize, Deserialize)]
struct Forwarding {
    kind: SocketKind,
    /// The forwarder's sockets: for datagrams, one socket for each peer; otherwise, both paths are the path of the
    /// listening socket.
    own: [PathBuf; 2],
    /// The two peers' sockets, for datagrams.
    peers: [PathBuf; 2],
}

/// Starts a process that passes on what it receives. The plugs of VDE are datagram sockets, too.
fn forwarder(kind: SocketKind, place: &SocketPlace) -> Result<RunningSwitch> {
    let is_listening = matches!(kind, SocketKind::Stream | SocketKind::Seqpacket);
    let kind = if is_listening { kind } else { SocketKind::Dgram };
    let own = if is_listening { ["port", "port"] } else { ["port0", "port1"] }.map(|name| place.path(name));
    let peers = ["peer0", "peer1"].map(|name| place.path(name));
    let task = Forwarding { kind, own: own.clone(), peers: peers.clone() };
    let worker = Worker::spawn(Wrapper::Network(&place.space), FORWARDER, Some(place.core), &task)?;
    let space = place.space.again()?;
    let connect = move |index: usize| {
        let sockets = [own[index % 2].clone(), peers[index % 2].clone()];
        space.inside(|| kind.connect(&sockets))
    };
    Ok(RunningSwitch { connect: Some(Box::new(connect)), ..RunningSwitch::of(&worker) })
}

/// Passes on what arrives, one call for each message, until the process is killed.
pub fn forward(context: &Context) -> Result<()> {
    let [near, far] = both_sockets(context)?;
    std::thread::scope(|scope| {
        let there = scope.spawn(|| pass_on(&near, &far));
        pass_on(&far, &near)?;
        there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns the forwarder's sockets once both peers are connected.
fn both_sockets(context: &Context) -> Result<[OwnedFd; 2]> {
    let Forwarding { kind, own, peers } = context.arguments()?;
    let failed = || BenchError::io("the forwarder's sockets");
    if kind == SocketKind::Dgram {
        let [near, far] = own.map(UnixDatagram::bind);
        context.ready()?;
        return Ok([connected(near.map_err(failed())?, &peers[0])?, connected(far.map_err(failed())?, &peers[1])?]);
    }
    let listener = if kind == SocketKind::Stream {
        UnixListener::bind(&own[0]).map(OwnedFd::from)
    } else {
        seqpacket_listener(&own[0])
    };
    let listener = listener.map_err(failed())?;
    context.ready()?;
    let next = || rustix::net::accept(&listener).map_err(|why| failed()(why.into()));
    Ok([next()?, next()?])
}

fn seqpacket_listener(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 2)?;
    Ok(socket)
}

/// Connects a datagram socket once its peer exists.
fn connected(socket: UnixDatagram, peer: &Path) -> Result<OwnedFd> {
    let found = interrupt::poll_until(START_LIMIT, || Ok(socket.connect(peer).ok()))?;
    found.ok_or_else(|| no_frames("socket-forwarder")).map(|()| socket.into())
}

fn pass_on(from: &OwnedFd, to: &OwnedFd) -> Result<()> {
    let failed = || BenchError::io("passing on frames");
    let mut room = vec![0; ROOM];
    loop {
        let length = rustix::io::read(from, &mut room[..]).map_err(failed())?;
        let mut rest = &room[..length];
        while !rest.is_empty() {
            let written = rustix::io::write(to, rest).map_err(failed())?;
            rest = &rest[written..];
        }
        if length == 0 {
            return Ok(());
        }
    }
}
