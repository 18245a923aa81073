//! The services at the host's end of the network, a process of their own, and in guests, threads of their agent's.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::*;

/// The role of [`services`].
pub const SERVICES: &str = "guest-services";

/// Echo and discard, each by UDP and TCP, and a source of streams.
pub fn services(context: &Context) -> Result<()> {
    let echo = open(HOST, DISCARD)?;
    context.ready()?;
    answer(&echo);
    Ok(())
}

/// The same in threads. Datagrams to be discarded have a port of their own, as the usual one's are counted.
pub fn in_threads(address: &'static str) -> Result<()> {
    let echo = open(address, DRAIN)?;
    std::thread::spawn(move || answer(&echo));
    Ok(())
}

/// Opens all, and serves connections in threads. Returns the socket of datagrams that are to be echoed.
fn open(address: &str, discarding: u16) -> Result<UdpSocket> {
    let opening = || BenchError::io(format!("opening a socket of {address}"));
    let listen = |port: u16| TcpListener::bind((address, port)).map_err(opening());
    let datagrams = UdpSocket::bind((address, ECHO)).map_err(opening())?;
    let unread = UdpSocket::bind((address, discarding)).map_err(opening())?;
    let echo = listen(ECHO)?;
    let discard = listen(DISCARD)?;
    let source = listen(SOURCE)?;
    std::thread::spawn(move || pour(&source));
    // A peer that is gone is seen by the next read.
    std::thread::spawn(move || serve(&echo, |stream, bytes| _ = stream.write_all(bytes)));
    std::thread::spawn(move || {
        // Takes datagrams as far as there is room for them: nobody reads them, and nobody complains.
        let _unread = unread;
        serve(&discard, |_, _| ());
    });
    Ok(datagrams)
}

fn answer(datagrams: &UdpSocket) {
    let mut place = vec![0; 1 << 16];
    loop {
        if let Ok((n, from)) = datagrams.recv_from(&mut place) {
            // One that is lost is asked for again.
            let _ = datagrams.send_to(place.get(..n).unwrap_or_default(), from);
        }
    }
}

/// One connection after the other.
fn serve(listener: &TcpListener, work: impl Fn(&mut TcpStream, &[u8])) {
    let mut place = vec![0; 1 << 16];
    for mut stream in listener.incoming().flatten() {
        let _ = stream.set_nodelay(true);
        while let Ok(n @ 1..) = stream.read(&mut place) {
            work(&mut stream, place.get(..n).unwrap_or_default());
        }
    }
}

/// The longest that a stream's other end may be deaf.
const DEAF: Duration = Duration::from_secs(5);
/// The longest piece of a stream.
const LONGEST: usize = 1 << 16;

/// Writes to one connection after the other until it ends, in pieces of a length and with a window that it begins with.
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

/// Sets how many bytes may be under way.
pub fn limit_window(stream: &TcpStream, bytes: usize) -> Result<()> {
    let sized = rustix::net::sockopt::set_socket_send_buffer_size(stream, bytes);
    sized.map_err(|e| BenchError::io("setting a window")(std::io::Error::from(e)))
}

/// Does something over and over in a thread, until dropped.
pub struct Busy(Arc<AtomicBool>, Option<JoinHandle<Result<()>>>);

impl Busy {
    /// Starts with it.
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
            // Frames that did not come are found out by who counts them.
            let _ = thread.join();
        }
    }
}
