//! Services for guests: at the host's end of the network in a process of their own, and in guests in threads of the
//! agent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::*;

/// Name of the worker role [`services`].
pub const SERVICES: &str = "guest-services";

/// Runs echo and discard, each over UDP and TCP, and a source of streams.
pub fn services(context: &Context) -> Result<()> {
    let echo = open(HOST, DISCARD)?;
    context.ready()?;
    answer(&echo);
    Ok(())
}

/// Runs the services of [`services`] in threads of the agent. Datagrams that are only discarded go to the port
/// [`DRAIN`], because datagrams to the port [`DISCARD`] are counted.
pub fn in_threads(address: &'static str) -> Result<()> {
    let echo = open(address, DRAIN)?;
    std::thread::spawn(move || answer(&echo));
    Ok(())
}

/// Opens all sockets, and serves connections in threads. Returns the socket of datagrams to echo.
fn open(address: &str, discarding: u16) -> Result<UdpSocket> {
    let opening = || BenchError::io(format!("opening a socket at {address}"));
    let listen = |port: u16| TcpListener::bind((address, port)).map_err(opening());
    let datagrams = UdpSocket::bind((address, ECHO)).map_err(opening())?;
    let unread = UdpSocket::bind((address, discarding)).map_err(opening())?;
    let echo = listen(ECHO)?;
    let discard = listen(DISCARD)?;
    let source = listen(SOURCE)?;
    std::thread::spawn(move || pour(&source));
    // A failed write is ignored: the next read reports that the peer has closed.
    std::thread::spawn(move || serve(&echo, |stream, bytes| _ = stream.write_all(bytes)));
    std::thread::spawn(move || {
        // This socket receives datagrams until its buffer is full; no thread reads them, and no error is sent.
        let _unread = unread;
        serve(&discard, |_, _| ());
    });
    Ok(datagrams)
}

fn answer(datagrams: &UdpSocket) {
    let mut place = vec![0; 1 << 16];
    loop {
        if let Ok((n, from)) = datagrams.recv_from(&mut place) {
            // A failure is ignored: the requester repeats an unanswered request.
            let _ = datagrams.send_to(place.get(..n).unwrap_or_default(), from);
        }
    }
}

/// Serves one connection after another.
fn serve(listener: &TcpListener, work: impl Fn(&mut TcpStream, &[u8])) {
    let mut place = vec![0; 1 << 16];
    for mut stream in listener.incoming().flatten() {
        let _ = stream.set_nodelay(true);
        while let Ok(n @ 1..) = stream.read(&mut place) {
            work(&mut stream, place.get(..n).unwrap_or_default());
        }
    }
}

/// Maximum time for which the other end of a stream may stop reading.
const DEAF: Duration = Duration::from_secs(5);
/// Maximum number of bytes per write of the stream source.
const LONGEST: usize = 1 << 16;

/// Serves one connection after another: writes to the connection until the peer closes it. The peer first sends two
/// big-endian 32-bit numbers: the bytes per write, and the window.
fn pour(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        let mut words = [[0u8; 4]; 2];
        let told = words.iter_mut().try_for_each(|word| stream.read_exact(word));
        let [length, window] = words.map(|word| u32::from_be_bytes(word) as usize);
        let piece = vec![0; length.min(LONGEST)];
        if told.is_err() || stream.set_write_timeout(Some(DEAF)).is_err() || limit_window(&stream, window).is_err() {
            continue;
        }
        while stream.write_all(&piece).is_ok() {}
    }
}

/// Limits the bytes in flight to `bytes`, by the size of the send buffer.
pub fn limit_window(stream: &TcpStream, bytes: usize) -> Result<()> {
    let sized = rustix::net::sockopt::set_socket_send_buffer_size(stream, bytes);
    sized.map_err(|e| BenchError::io("setting a window")(std::io::Error::from(e)))
}

/// Work that is repeated in a thread until this value is dropped.
pub struct Busy(Arc<AtomicBool>, Option<JoinHandle<Result<()>>>);

impl Busy {
    /// Starts a thread that repeats `work`; an error of `work` ends it early.
    pub fn start(mut work: impl FnMut() -> Result<()> + Send + 'static) -> Busy {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let all = move || {
            while !told.load(Ordering::Relaxed) {
                work()?;
            }
            Ok(())
        };
        Busy(over, Some(std::thread::spawn(all)))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            // An error is ignored: the counter of received frames shows that frames are missing.
            let _ = thread.join();
        }
    }
}
