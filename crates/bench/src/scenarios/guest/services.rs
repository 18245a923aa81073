//! The services at the host's end of the network, until dropped.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{DISCARD, ECHO, HOST};
use crate::error::{BenchError, Result};
use crate::sys::netns::Netns;

/// The time within which a thread notices the end.
const LOOK: Duration = Duration::from_millis(200);
/// Between two looks for a connection.
const PAUSE: Duration = Duration::from_millis(5);

/// Echo and discard, each by UDP and TCP.
pub struct Services {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Takes datagrams as far as there is room for them: nobody reads them, and nobody complains.
    _discard: UdpSocket,
}

impl Services {
    /// Starts them in a namespace.
    ///
    /// # Errors
    /// An address is not there.
    pub fn start(hub: &Netns) -> Result<Services> {
        let opening = || BenchError::io("opening a socket at the host's end");
        let over = Arc::new(AtomicBool::new(false));
        let datagrams = hub.inside(|| UdpSocket::bind((HOST, ECHO)).map_err(opening()))?;
        datagrams.set_read_timeout(Some(LOOK)).map_err(opening())?;
        let discard = hub.inside(|| UdpSocket::bind((HOST, DISCARD)).map_err(opening()))?;
        let mut threads = Vec::new();
        let told = Arc::clone(&over);
        threads.push(std::thread::spawn(move || answer(&datagrams, &told)));
        for (port, work) in [(ECHO, echo as fn(&mut TcpStream, usize, &mut [u8])), (DISCARD, |_, _, _| ())] {
            let listener = hub.inside(|| TcpListener::bind((HOST, port)).map_err(opening()))?;
            listener.set_nonblocking(true).map_err(opening())?;
            let told = Arc::clone(&over);
            threads.push(std::thread::spawn(move || serve(&listener, work, &told)));
        }
        Ok(Services { over, threads, _discard: discard })
    }
}

fn answer(socket: &UdpSocket, over: &AtomicBool) {
    let mut place = [0; 2048];
    while !over.load(Ordering::Relaxed) {
        if let Ok((n, from)) = socket.recv_from(&mut place) {
            // One that is lost is asked for again.
            let _ = socket.send_to(place.get(..n).unwrap_or_default(), from);
        }
    }
}

/// One connection after the other.
fn serve(listener: &TcpListener, work: fn(&mut TcpStream, usize, &mut [u8]), over: &AtomicBool) {
    let mut place = vec![0; 1 << 16];
    while !over.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        // Without these a connection would only be slower to end.
        let _ = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(LOOK)));
        let _ = stream.set_nodelay(true);
        while !over.load(Ordering::Relaxed) {
            match stream.read(&mut place) {
                Ok(0) => break,
                Ok(n) => work(&mut stream, n, &mut place),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
    }
}

fn echo(stream: &mut TcpStream, n: usize, place: &mut [u8]) {
    // A peer that is gone is seen by the next read.
    let _ = stream.write_all(place.get(..n).unwrap_or_default());
}

impl Drop for Services {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic was reported by the runtime.
            let _ = thread.join();
        }
    }
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
