//! The program that runs inside the guest. It reads tasks from the console, one per line: to send, to receive, or to
//! make requests and wait for the answers.

mod generator;
mod rings;

use std::io::{BufRead, Read, Write};
use std::net::{TcpStream, UdpSocket};

use super::*;
use crate::error::in_time;

/// Name of the worker role [`agent_role`].
pub const AGENT: &str = "guest-agent";
/// Number of socket calls between two checks of the clock.
const ROUND: u32 = 16;
/// Maximum wait for frames between two checks of the clock.
const PAUSE: Duration = Duration::from_millis(20);

/// The result of a task.
struct Done {
    count: u64,
    time: Duration,
}

/// Executes the console's lines until end of file: each names a task, a length in bytes, a duration in milliseconds,
/// and further parameters of the task. The answer is `done COUNT NANOSECONDS INTERRUPTS` or `failed ERROR`. Meanwhile,
/// the services echo and discard run for other stations.
pub fn agent_role(context: &Context) -> Result<()> {
    services::in_threads("0.0.0.0")?;
    context.ready()?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(BenchError::io("reading the console"))?;
        let before = interrupts();
        match obey(&line) {
            Some(Ok(done)) => println!("done {} {} {}", done.count, done.time.as_nanos(), interrupts() - before),
            Some(Err(error)) => println!("failed {error}"),
            None => {}
        }
    }
    Ok(())
}

/// Executes the task of a line `TASK BYTES MILLISECONDS [ADDRESS-OR-BURST]`. `None` if the line names no known task.
fn obey(line: &str) -> Option<Result<Done>> {
    let mut words = line.split_whitespace();
    let what = words.next()?;
    let bytes = words.next()?.parse().unwrap_or(60);
    let window = Duration::from_millis(words.next()?.parse().unwrap_or(100));
    let more = words.next();
    let host = more.unwrap_or(HOST);
    Some(match what {
        "udp" => udp(more.unwrap_or(SINK), DISCARD, payload(bytes), window),
        "messages" => udp(host, DRAIN, bytes, window),
        "take" => take(window),
        "tcp" => stream(host, bytes, NARROW, window),
        "tcpw" => stream(host, bytes, WIDE, window),
        "taketcp" => take_stream(bytes, NARROW, window),
        "taketcpw" => take_stream(bytes, WIDE, window),
        "tcprr" => stream_trips(host, bytes.max(1), window),
        "trips" => trips(host, payload(bytes).max(1), window),
        "rr" => trips(host, bytes.max(1), window),
        "netmap" => rings::send(bytes, 0, more.unwrap_or(SINK), window),
        "netmap-header" => rings::send(bytes, rings::HEADER, more.unwrap_or(SINK), window),
        "takenetmap" => rings::take(0, window),
        "takenetmap-header" => rings::take(rings::HEADER, window),
        "pktgen" => generator::send(bytes, more.unwrap_or("1"), window),
        _ => return None,
    })
}

/// Returns the number of interrupts of network devices since the guest booted.
fn interrupts() -> u64 {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let ours = |line: &&str| ["eth0", "nvptnet", "nve1000", "virtio"].iter().any(|name| line.contains(name));
    let counts = |line: &str| -> u64 { line.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum() };
    text.lines().filter(ours).map(counts).sum()
}

/// Length of the Ethernet, IPv4 and UDP headers.
pub const HEADERS: usize = 42;

/// Returns the length of a datagram's payload in a frame.
fn payload(frame_bytes: usize) -> usize {
    frame_bytes.saturating_sub(HEADERS)
}

/// TCP window of the tasks `tcp` and `taketcp`, in bytes.
const NARROW: usize = 64 << 10;
/// TCP window of the tasks `tcpw` and `taketcpw`, in bytes.
const WIDE: usize = 1 << 20;
/// Default length of a write in bytes.
const CHUNK: usize = 16 << 10;

fn piece(bytes: usize) -> usize {
    if bytes == 0 { CHUNK } else { bytes }
}

fn connect(to: &str, port: u16) -> Result<TcpStream> {
    TcpStream::connect((to, port)).map_err(BenchError::io(format!("connecting to {to}")))
}

fn socket(to: (&str, u16)) -> Result<UdpSocket> {
    sys::udp_between("0.0.0.0:0", to).map_err(BenchError::io(format!("opening a socket to {}", to.0)))
}

/// Repeats `round` for the given time. Returns the sum of its results, and the time that passed.
fn during(window: Duration, mut round: impl FnMut() -> Result<u64>) -> Result<Done> {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < window {
        count += round()?;
    }
    Ok(Done { count, time: start.elapsed() })
}

/// Writes to a connection. Returns the bytes written.
fn stream(to: &str, bytes: usize, window_bytes: usize, window: Duration) -> Result<Done> {
    let mut stream = connect(to, DISCARD)?;
    let chunk = vec![0; piece(bytes)];
    services::limit_window(&stream, window_bytes)?;
    during(window, || Ok(stream.write(&chunk).map_err(BenchError::io("writing"))? as u64))
}

/// Receives on a connection to the host, which writes `bytes` bytes per call. Returns the bytes received.
fn take_stream(bytes: usize, window_bytes: usize, window: Duration) -> Result<Done> {
    let failed = || BenchError::io("receiving a stream");
    let mut stream = connect(HOST, SOURCE)?;
    for word in [piece(bytes), window_bytes] {
        stream.write_all(&(word as u32).to_be_bytes()).map_err(failed())?;
    }
    stream.set_read_timeout(Some(PAUSE)).map_err(failed())?;
    let mut place = vec![0; 1 << 16];
    during(window, || match in_time(stream.read(&mut place)).map_err(failed())? {
        Some(0) => Err(BenchError::Usage("the host ended the stream".into())),
        came => Ok(came.unwrap_or(0) as u64),
    })
}

/// Sends `bytes` bytes to the host and back, repeatedly. Returns the number of round trips.
fn stream_trips(to: &str, bytes: usize, window: Duration) -> Result<Done> {
    let mut stream = connect(to, ECHO)?;
    let message = vec![0; bytes];
    let mut place = vec![0; bytes];
    stream.set_nodelay(true).map_err(BenchError::io("setting TCP_NODELAY"))?;
    during(window, || {
        stream.write_all(&message).map_err(BenchError::io("writing"))?;
        stream.read_exact(&mut place).map_err(BenchError::io("reading"))?;
        Ok(1)
    })
}

/// Receives datagrams. Returns their number.
fn take(window: Duration) -> Result<Done> {
    let opening = || BenchError::io("opening a socket");
    let socket = UdpSocket::bind(("0.0.0.0", DISCARD)).map_err(opening())?;
    socket.set_read_timeout(Some(PAUSE)).map_err(opening())?;
    println!("taking");
    let mut place = [0; 2048];
    during(window, || Ok((0..ROUND).map(|_| u64::from(socket.recv(&mut place).is_ok())).sum()))
}

fn udp(to: &str, port: u16, bytes: usize, window: Duration) -> Result<Done> {
    let socket = socket((to, port))?;
    let payload = vec![0; bytes];
    let send = || match socket.send(&payload) {
        Ok(_) => Ok(1),
        // The interface's queue is full: the datagram was not sent.
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
        // If the datagram is lost, the next round sends another.
        let came = in_time(socket.recv(&mut place)).map_err(BenchError::io("receiving UDP"))?;
        Ok(came.is_some().into())
    })
}
