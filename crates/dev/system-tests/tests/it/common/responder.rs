//! A host with one address, 10.9.0.1 at 02:00:00:0a:09:01, that answers ARP.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netvale::{Interest, Options, Port};

use crate::common::up::Up;

const MAC: [u8; 6] = [2, 0, 0, 10, 9, 1];
const IP: [u8; 4] = [10, 9, 0, 1];

/// A program at a port, in a thread of its own, until dropped.
pub struct PortThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PortThread {
    /// Opens a port, and calls `answer` when frames arrive, and at the latest 20 ms after the previous call.
    pub fn start(run_dir: &Path, name: &str, answer: fn(&mut Port)) -> PortThread {
        let options = Options { run_dir: Some(run_dir.into()), ..Options::default() };
        let mut port = Port::open_with(name, &options).expect("the port opens");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let _ = port.wait(Interest::Rx, Some(Duration::from_millis(20)));
                answer(&mut port);
            }
        });
        PortThread { stop, thread: Some(thread) }
    }

    /// Starts the host that answers ARP at 10.9.0.1, at the port `name`.
    pub fn host(up: &Up, name: &str) -> PortThread {
        PortThread::start(up.dir(), name, answer)
    }
}

impl Drop for PortThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(port: &mut Port) {
    let mut frame = [0; 2048];
    while let Some(n) = port.rx()[0].recv(&mut frame) {
        if let Some(reply) = reply_to(&frame[..n]) {
            port.tx()[0].send_now(&reply, Duration::from_secs(1));
        }
    }
    let _ = port.rx()[0].sync();
}

/// Returns the reply to an ARP request for the host's address (RFC 826); `None` for any other frame.
fn reply_to(frame: &[u8]) -> Option<Vec<u8>> {
    let is_request = frame.len() >= 42 && frame[12..14] == [8, 6] && frame[20..22] == [0, 1] && frame[38..42] == IP;
    is_request.then(|| {
        let sender = &frame[22..32];
        [&sender[..6], &MAC, &frame[12..20], &[0, 2], &MAC, &IP, sender, &[0; 18]].concat()
    })
}
