//! The part that runs inside the machine: it sends, or asks and waits for answers, when it is told to by a line on the
//! console.

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};

use super::*;

/// The role of [`agent_role`].
pub const AGENT: &str = "guest-agent";
/// Frames a sync in netmap mode.
const BATCH: u32 = 256;
/// Calls between two looks at the clock.
const ROUND: u32 = 16;
/// The longest wait for what comes, between two looks at the clock.
const PAUSE: Duration = Duration::from_millis(20);

/// The work that was done.
struct Done {
    count: u64,
    time: Duration,
}

/// Obeys lines until there are no more: `udp BYTES MILLISECONDS [ADDRESS]`, `messages …`, `trips …`, `rr …`, `tcp …`,
/// `tcpw …`, `tcprr …`, `netmap …`; for what comes, `take …`, `taketcp …`, `taketcpw …`, `takenetmap …`. Each is
/// answered by `done COUNT NANOSECONDS INTERRUPTS`. Others find the usual services meanwhile.
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

/// Does a line's task, if it has one.
fn obey(line: &str) -> Option<Result<Done>> {
    let mut words = line.split_whitespace();
    let what = words.next()?;
    let bytes = words.next()?.parse().unwrap_or(60);
    let window = Duration::from_millis(words.next()?.parse().unwrap_or(100));
    let to = words.next();
    let host = to.unwrap_or(HOST);
    Some(match what {
        "udp" => udp((to.unwrap_or(SINK), DISCARD), payload(bytes), window),
        "messages" => udp((host, DRAIN), bytes, window),
        "take" => take(window),
        "tcp" => stream(host, bytes, NARROW, window),
        "tcpw" => stream(host, bytes, WIDE, window),
        "taketcp" => take_stream(bytes, NARROW, window),
        "taketcpw" => take_stream(bytes, WIDE, window),
        "tcprr" => stream_trips(host, bytes.max(1), window),
        "trips" => trips(host, payload(bytes).max(1), window),
        "rr" => trips(host, bytes.max(1), window),
        "netmap" => netmap(to.unwrap_or(SINK), bytes, window),
        "takenetmap" => take_netmap(window),
        _ => return None,
    })
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
/// Bytes of a write, unless it is said.
const CHUNK: usize = 16 << 10;

fn piece(bytes: usize) -> usize {
    if bytes == 0 { CHUNK } else { bytes }
}

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
fn stream(to: &str, bytes: usize, window_bytes: usize, window: Duration) -> Result<Done> {
    let mut stream = connect(to, DISCARD)?;
    let chunk = vec![0; piece(bytes)];
    services::limit_window(&stream, window_bytes)?;
    during(window, || Ok(stream.write(&chunk).map_err(BenchError::io("writing"))? as u64))
}

/// Bytes that come on a connection to the host, which writes so many at once.
fn take_stream(bytes: usize, window_bytes: usize, window: Duration) -> Result<Done> {
    let failed = || BenchError::io("taking a stream");
    let mut stream = connect(HOST, SOURCE)?;
    for word in [piece(bytes), window_bytes] {
        stream.write_all(&(word as u32).to_be_bytes()).map_err(failed())?;
    }
    stream.set_read_timeout(Some(PAUSE)).map_err(failed())?;
    let mut place = vec![0; 1 << 16];
    during(window, || match stream.read(&mut place) {
        Ok(0) => Err(BenchError::Usage("the host ended the stream".into())),
        Ok(n) => Ok(n as u64),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        Err(e) => Err(failed()(e)),
    })
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
    socket.set_read_timeout(Some(PAUSE)).map_err(opening())?;
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

/// The interface in netmap mode.
fn in_netmap_mode() -> Result<Port> {
    Port::open("netmap:eth0").map_err(|e| netmap_failed(&e))
}

fn netmap_failed(why: &dyn std::fmt::Display) -> BenchError {
    BenchError::Usage(format!("netmap:eth0: {why}"))
}

/// The Ethernet address of a station that was talked to before, as /proc/net/arp has it.
fn ethernet_address(table: &str, station: &str) -> Option<[u8; 6]> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(station))?;
    let bytes = line.split_whitespace().nth(3)?.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    bytes.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// In netmap mode: frames to a station, first line written.
fn netmap(to: &str, bytes: usize, window: Duration) -> Result<Done> {
    let table = std::fs::read_to_string("/proc/net/arp").map_err(BenchError::io("reading the stations"))?;
    let to = ethernet_address(&table, to).ok_or_else(|| netmap_failed(&format!("nobody knows {to}")))?;
    let mut port = in_netmap_mode()?;
    let frame = super::frame_to(to, bytes);
    during(window, || {
        if port.tx().iter().all(|ring| ring.space() == 0) {
            port.wait(Interest::Tx, Some(PAUSE)).map_err(|e| netmap_failed(&e))?;
        }
        let ring = port.tx().first_mut().ok_or_else(|| netmap_failed(&"no ring"))?;
        let sent = (0..BATCH).take_while(|_| ring.send(&frame)).count() as u64;
        ring.sync();
        Ok(sent)
    })
}

/// In netmap mode: frames that come, unread.
fn take_netmap(window: Duration) -> Result<Done> {
    let mut port = in_netmap_mode()?;
    println!("taking");
    during(window, || {
        port.wait(Interest::Rx, Some(PAUSE)).map_err(|e| netmap_failed(&e))?;
        let take = |ring: &mut netvale::RxRing| {
            let _ = ring.sync();
            let count = ring.space();
            ring.advance(count);
            u64::from(count)
        };
        Ok(port.rx().iter_mut().map(take).sum())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a station's address is found in the kernel's table, and no other one's.
    #[test]
    fn addresses() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.1.0.1         0x1         0x2         02:00:00:00:00:0a     *        eth0\n";
        assert_eq!(ethernet_address(table, "10.1.0.1"), Some([2, 0, 0, 0, 0, 10]));
        assert_eq!(ethernet_address(table, "10.1.0.2"), None);
    }
}
