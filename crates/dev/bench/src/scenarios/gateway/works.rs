//! What is measured with each gateway.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use super::network::{Network, PORT, SERVER};
use super::roles::{ASKER, CLOSER, ClientCalls, HOLDER, KEEPER, NAMES, OPENER};
use super::*;
use crate::contender::Measurement;
use crate::counted::counted;
use crate::error::in_time;
use crate::peers::iperf::Iperf;
use crate::peers::pingpong::{self, Game, Side};
use crate::scenarios::idle::{cpu_time, sum_of_kib};

/// Connections that are open while memory is measured.
const OPEN: u64 = 10_000;
/// Time limit for opening these connections.
const OPENING: Duration = Duration::from_secs(120);
/// Time after which a message counts as lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// A name that the server outside resolves.
const NAME: &str = "www.example.test";

/// A gateway whose case is measured.
pub struct MeasuredGateway<'a> {
    /// The contender's name.
    pub who: &'static str,
    /// The case.
    pub case: &'a Case,
    /// The CPUs.
    pub cores: Cores,
    /// The network around the gateway.
    pub network: &'a Network,
    /// The gateway.
    pub gateway: RunningGateway,
}

impl MeasuredGateway<'_> {
    /// Returns a session that measures the case.
    pub fn session(self) -> Result<Session> {
        let Self { who, case, cores, network, .. } = self;
        let pids: Vec<u32> = self.gateway.parts.iter().flat_map(|part| part.pids()).collect();
        let session = match case.unit {
            Unit::Gbps => self.throughput(pids)?,
            Unit::SecondsPerGb => {
                let own = pids.clone();
                let used = move || own.iter().map(|pid| cpu_time(*pid)).sum::<Result<Duration>>();
                self.throughput(pids)?.wrapped(move |inner, window| per_gb(inner, window, &used))
            }
            Unit::Micros if case.variant.starts_with("udp") => udp(who, cores, network, pids)?,
            Unit::Micros => tcp(who, cores, network, pids)?,
            Unit::Kib => memory(cores, network, pids)?,
            _ if case.variant.starts_with("dns") => self.dns(pids)?,
            _ => self.connections(pids)?,
        };
        Ok(session.with_all(self.gateway.parts))
    }

    /// Returns whether connections come from outside, to the guest's published port.
    fn is_in(&self) -> bool {
        self.case.variant.contains("-in")
    }

    /// Measures TCP streams, from or to the guest.
    fn throughput(&self, pids: Vec<u32>) -> Result<Session> {
        let [guest, outside] = [self.network.guest.again()?, self.network.outside.again()?];
        let ends = if self.is_in() { [outside, guest] } else { [guest, outside] };
        let address = if self.is_in() { self.gateway.inbound } else { SERVER };
        let streams = if self.case.variant.ends_with("-4") { 4 } else { 1 };
        let iperf = Iperf::start(ends, address, Cores(self.cores.0, self.cores.0), pids)?;
        Ok(iperf.with_streams(streams).session(words(self.cores)))
    }

    /// Counts connections that are opened and closed.
    fn connections(&self, pids: Vec<u32>) -> Result<Session> {
        let Network { guest, outside, .. } = self.network;
        let gateway = &self.gateway;
        let (inside, client, address, to) = match self.is_in() {
            true => (guest, outside, gateway.guest, gateway.inbound),
            false => (outside, guest, SERVER, SERVER),
        };
        let core = Some(self.cores.0);
        let server = Worker::spawn(Wrapper::Network(inside), CLOSER, core, &format!("{address}:{PORT}"))?;
        let calls = ClientCalls { to: format!("{to}:{PORT}"), count: 0, name: String::new() };
        let client = Worker::spawn(Wrapper::Network(client), OPENER, core, &calls)?;
        self.flow([client, server], pids)
    }

    /// Counts the answers to queries for a name: either a name that the gateway itself resolves, or a name for which
    /// the gateway must ask the server.
    fn dns(&self, pids: Vec<u32>) -> Result<Session> {
        let Network { guest, outside, .. } = self.network;
        let core = Some(self.cores.0);
        let server = Worker::spawn(Wrapper::Network(outside), NAMES, core, &format!("{SERVER}:53"))?;
        let name = if self.case.variant == OWN_NAMES { self.gateway.own_name } else { NAME };
        let calls = ClientCalls { to: format!("{}:53", self.gateway.names), count: 0, name: name.into() };
        let client = Worker::spawn(Wrapper::Network(guest), ASKER, core, &calls)?;
        self.flow([client, server], pids)
    }

    /// Returns a session whose figure is the client's count. Samples also have the number of failures.
    fn flow(&self, [client, server]: [Rc<Worker>; 2], mut pids: Vec<u32>) -> Result<Session> {
        let who = self.who;
        let first = || Ok((client.count(FRAMES) > 0).then_some(()));
        interrupt::poll_until(Duration::from_secs(10), first)?.ok_or_else(|| BenchError::NoTraffic(who.into()))?;
        pids.extend([client.pid(), server.pid()]);
        let how = CountOptions { settle: SETTLE, pids: Some(pids), who: Some(who), ..CountOptions::default() };
        // The failure counts before and after the window. Failures outside the window do not count, because time limits
        // pass while everything is stopped.
        let failures = Rc::new(std::cell::Cell::new([0; 2]));
        let counts = Rc::clone(&client);
        let seen = Rc::clone(&failures);
        let measuring = counted(self.case, how, move || {
            seen.set([seen.get()[1], counts.count(WRONG)]);
            Ok(counts.tally())
        });
        let session = Session::new(words(self.cores), true, measuring).wrapped(move |inner, window| {
            let sample = inner(window)?;
            let [before, after] = failures.get();
            Ok(sample.fact(&format!("{who}_failures"), after - before))
        });
        Ok(session.with(&client).with(&server))
    }
}

fn words(cores: Cores) -> String {
    format!("client and server on CPU {}, gateway on CPU {}", cores.0, cores.1)
}

/// Measures the CPU time per GB, where `inner` measures Gbit/s, and `used` returns the CPU time used so far.
fn per_gb(inner: &mut Measurement, window: Duration, used: impl Fn() -> Result<Duration>) -> Result<Sample> {
    let before = used()?;
    let sample = inner(window)?;
    let seconds = (used()?.saturating_sub(before)).as_secs_f64();
    // iperf3 counts whole seconds.
    let bytes = sample.value / 8.0 * window.as_secs_f64().ceil().max(1.0);
    Ok(Sample { value: seconds / bytes, ..sample })
}

/// Measures a message's way to the server and back over one TCP connection.
fn tcp(who: &'static str, cores: Cores, network: &Network, processes: Vec<u32>) -> Result<Session> {
    let failed = || BenchError::io("opening the connection for round trips");
    let listener = network.outside.inside(|| TcpListener::bind((SERVER, PORT)).map_err(failed()))?;
    let near = network.guest.inside(|| TcpStream::connect((SERVER, PORT)).map_err(failed()))?;
    let (far, _) = listener.accept().map_err(failed())?;
    for stream in [&near, &far] {
        stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).map_err(failed())?;
    }
    Ok(round_trips(who, cores, processes, Stream(near), Stream(far)))
}

/// Measures a datagram's way to the server and back.
fn udp(who: &'static str, cores: Cores, network: &Network, processes: Vec<u32>) -> Result<Session> {
    let failed = || BenchError::io("opening the sockets for round trips");
    let bind = |address: &str, port| {
        let socket = UdpSocket::bind((address, port)).map_err(failed())?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed()).map(|()| socket)
    };
    let far = network.outside.inside(|| bind(SERVER, PORT))?;
    let near = network.guest.inside(|| bind("0.0.0.0", 0))?;
    let server = SocketAddr::from(([198, 51, 100, 1], PORT));
    let [near, far] = [Datagrams { socket: near, to: Some(server) }, Datagrams { socket: far, to: None }];
    Ok(round_trips(who, cores, processes, near, far))
}

fn round_trips(
    who: &'static str,
    cores: Cores,
    processes: Vec<u32>,
    near: impl Side + 'static,
    far: impl Side + 'static,
) -> Session {
    let Cores(first, second) = cores;
    let words = format!("client on CPU {first}, server on CPU {second}, gateway on CPU {second}");
    let game = Game { who, cores: Some(cores), processes };
    Session::new(words, true, pingpong::round_trips(game, near, far))
}

/// The message of round trips.
const MESSAGE: [u8; 64] = [1; 64];

/// Returns whether a message came in time.
fn came(result: std::io::Result<()>) -> Result<bool> {
    in_time(result).map(|done| done.is_some()).map_err(BenchError::io("receiving a message"))
}

/// An end of a TCP connection.
struct Stream(TcpStream);

impl Side for Stream {
    fn send(&mut self) -> Result<()> {
        self.0.write_all(&MESSAGE).map_err(BenchError::io("sending a message"))
    }

    fn wait(&mut self) -> Result<bool> {
        came(self.0.read_exact(&mut [0; MESSAGE.len()]))
    }
}

/// A UDP socket, which answers the sender of the last datagram.
struct Datagrams {
    socket: UdpSocket,
    to: Option<SocketAddr>,
}

impl Side for Datagrams {
    fn send(&mut self) -> Result<()> {
        let sent = self.to.map(|to| self.socket.send_to(&MESSAGE, to)).transpose();
        sent.map(drop).map_err(BenchError::io("sending a message"))
    }

    fn wait(&mut self) -> Result<bool> {
        let to = &mut self.to;
        came(self.socket.recv_from(&mut [0; MESSAGE.len()]).map(|(_, from)| *to = Some(from)))
    }
}

/// Measures, only once, by how much the gateway's memory grows while the guest opens connections, all of which stay
/// open.
fn memory(cores: Cores, network: &Network, pids: Vec<u32>) -> Result<Session> {
    let core = Some(cores.0);
    let at = format!("{SERVER}:{PORT}");
    let server = Worker::spawn(Wrapper::Network(&network.outside), KEEPER, core, &at)?;
    let before = sum_of_kib(&pids, "status", "VmRSS:")?;
    let calls = ClientCalls { to: at, count: OPEN, name: String::new() };
    let client = Worker::spawn(Wrapper::Network(&network.guest), HOLDER, core, &calls)?;
    let all = interrupt::poll_until(OPENING, || Ok((client.count(FRAMES) == OPEN).then_some(())))?;
    let short = || BenchError::Usage(format!("{} of {OPEN} connections were opened", client.count(FRAMES)));
    all.ok_or_else(short)?;
    let grown = sum_of_kib(&pids, "status", "VmRSS:")? - before;
    let measuring = move |window| {
        let watch = Watch::start(&pids, &[]);
        interrupt::sleep(window)?;
        Ok(Sample::new(grown, watch.finish()))
    };
    Ok(Session::new(words(cores), false, measuring).with(&client).with(&server))
}
