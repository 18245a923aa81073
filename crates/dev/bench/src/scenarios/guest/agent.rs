//! The part that runs inside the machine: it sends, or asks and waits for answers, when it is told to by a line on the
//! console.

mod generator;
mod rings;

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};

use super::*;

/// The role of [`agent_role`].
pub const AGENT: &str = "guest-agent";
/// Calls between two looks at the clock.
const ROUND: u32 = 16;

/// The work that was done.
struct Done {
    count: u64,
    time: Duration,
}

/// Obeys lines until there are no more: a task, bytes, milliseconds, and what else the task needs. Each is answered by
/// `done COUNT NANOSECONDS INTERRUPTS`. Others find the usual services meanwhile.
pub fn agent_role(context: &Context) -> Result<()> {
    services::in_threads("0.0.0.0")?;
    context.ready()?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(BenchError::io("reading the console"))?;
        let mut words = line.split_whitespace();
        let (Some(what), Some(bytes), Some(millis)) = (words.next(), words.next(), words.next()) else { continue };
        let bytes = bytes.parse().unwrap_or(60);
        let window = Duration::from_millis(millis.parse().unwrap_or(100));
        let before = interrupts();
        match carry_out(what, bytes, window, words.next()) {
            Some(Ok(done)) => println!("done {} {} {}", done.count, done.time.as_nanos(), interrupts() - before),
            Some(Err(error)) => println!("failed {error}"),
            None => {}
        }
    }
    Ok(())
}

/// Carries out a task; nothing, if there is none of that name. `more` is the address that it sends to, or the burst.
fn carry_out(what: &str, bytes: usize, window: Duration, more: Option<&str>) -> Option<Result<Done>> {
    let host = more.unwrap_or(HOST);
    let done = match what {
        "udp" => udp((more.unwrap_or(SINK), DISCARD), payload(bytes), window),
        "messages" => udp((host, DRAIN), bytes, window),
        "take" => take(window),
        "tcp" => stream(host, NARROW, window),
        "tcpw" => stream(host, WIDE, window),
        "tcprr" => stream_trips(host, bytes.max(1), window),
        "trips" => trips(host, payload(bytes).max(1), window),
        "rr" => trips(host, bytes.max(1), window),
        "netmap" => rings::send(bytes, 0, more, window),
        "netmap-header" => rings::send(bytes, rings::HEADER, more, window),
        "catch" => rings::take(0, window),
        "catch-header" => rings::take(rings::HEADER, window),
        "pktgen" => generator::send(bytes, more.unwrap_or("1"), window),
        _ => return None,
    };
    Some(done)
}

/// Interrupts of network devices so far.
fn interrupts() -> u64 {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let ours = |line: &&str| ["eth0", "nvptnet", "nve1000", "virtio"].iter().any(|name| line.contains(name));
    let counts = |line: &str| -> u64 { line.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum() };
    text.lines().filter(ours).map(counts).sum()
}

/// Ethernet, IPv4 and UDP headers.
pub const HEADERS: usize = 42;

/// Bytes of a frame that are a datagram's own.
fn payload(frame_bytes: usize) -> usize {
    frame_bytes.saturating_sub(HEADERS)
}

/// A sender's window of the streams.
const NARROW: usize = 64 << 10;
const WIDE: usize = 1 << 20;
/// Bytes of a write.
const CHUNK: usize = 16 << 10;

fn connect(to: &str, port: u16) -> Result<TcpStream> {
    TcpStream::connect((to, port)).map_err(BenchError::io(format!("connecting to {to}")))
}

fn socket(to: (&str, u16)) -> Result<UdpSocket> {
    let made = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect(to).map(|()| socket));
    made.map_err(BenchError::io(format!("opening a socket to {}", to.0)))
}

/// Does it again and again, and adds up.
fn during(window: Duration, mut round: impl FnMut() -> Result<u64>) -> Result<Done> {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < window {
        count += round()?;
    }
    Ok(Done { count, time: start.elapsed() })
}

/// Bytes written to a connection.
fn stream(to: &str, buffer: usize, window: Duration) -> Result<Done> {
    let mut stream = connect(to, DISCARD)?;
    let chunk = vec![0; CHUNK];
    let sized = rustix::net::sockopt::set_socket_send_buffer_size(&stream, buffer);
    sized.map_err(|e| BenchError::io("setting a window")(std::io::Error::from(e)))?;
    during(window, || Ok(stream.write(&chunk).map_err(BenchError::io("writing"))? as u64))
}

/// So many bytes there and back.
fn stream_trips(to: &str, bytes: usize, window: Duration) -> Result<Done> {
    let mut stream = connect(to, ECHO)?;
    let message = vec![0; bytes];
    let mut place = vec![0; bytes];
    stream.set_nodelay(true).map_err(BenchError::io("setting an option"))?;
    during(window, || {
        stream.write_all(&message).map_err(BenchError::io("writing"))?;
        stream.read_exact(&mut place).map_err(BenchError::io("reading"))?;
        Ok(1)
    })
}

/// Datagrams that come.
fn take(window: Duration) -> Result<Done> {
    let opening = || BenchError::io("opening a socket");
    let socket = UdpSocket::bind(("0.0.0.0", DISCARD)).map_err(opening())?;
    socket.set_read_timeout(Some(Duration::from_millis(20))).map_err(opening())?;
    println!("taking");
    let mut place = [0; 2048];
    during(window, || Ok((0..ROUND).map(|_| u64::from(socket.recv(&mut place).is_ok())).sum()))
}

fn udp(to: (&str, u16), bytes: usize, window: Duration) -> Result<Done> {
    let socket = socket(to)?;
    let payload = vec![0; bytes];
    let send = || match socket.send(&payload) {
        Ok(_) => Ok(1),
        // The interface's queue is full: nothing was sent.
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => Ok(0),
        Err(e) => Err(BenchError::io("sending UDP")(e)),
    };
    during(window, || (0..ROUND).map(|_| send()).sum())
}

fn trips(to: &str, bytes: usize, window: Duration) -> Result<Done> {
    let socket = socket((to, ECHO))?;
    let payload = vec![0; bytes];
    let limit = socket.set_read_timeout(Some(Duration::from_secs(1)));
    limit.map_err(BenchError::io("setting a limit"))?;
    let mut place = vec![0; payload.len()];
    during(window, || {
        socket.send(&payload).map_err(BenchError::io("sending UDP"))?;
        match socket.recv(&mut place) {
            Ok(_) => Ok(1),
            // Lost; asked for again.
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(e) => Err(BenchError::io("receiving UDP")(e)),
        }
    })
}
