//! A daemon with fixed answers: the control protocol's server on a socket of its own.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use netvale_control::dirs::CONTROL_SOCKET;
use netvale_control::error::{ErrorCode, RpcError};
use netvale_control::request::{Reply, Request};
use netvale_control::server::{ControlConnection, RequestHandler};
use netvale_control::types::{
    AllStats, EvictionInfo, Mac, Owner, PortDetails, PortInfo, PortKind, PortState, RegionInfo, RingInfo, RingStats,
    SwitchInfo, TableEntry, WorkerStats,
};

/// A second of the fake daemon's clock, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// A fake daemon, which ends on drop.
pub struct FakeDaemon {
    dir: tempfile::TempDir,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The daemon's answers. The time of each `stats` is one second after the time of the previous `stats`, with 1,000,000
/// more frames of 60 bytes.
struct Answers {
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    seconds: u64,
}

impl FakeDaemon {
    /// Starts a fake daemon in a run directory of its own.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(dir.path().join(CONTROL_SOCKET)).expect("a socket");
        let requests = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Answers { requests: Arc::clone(&requests), stop: Arc::clone(&stop), seconds: 0 };
        let thread = std::thread::spawn(move || serve(&listener, answers));
        Self { dir, requests, stop, thread: Some(thread) }
    }

    /// Returns the daemon's run directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the requests that the daemon received.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no thread panicked").clone()
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes `accept`; fails if the daemon was stopped, in which case no thread waits.
        let _ = UnixStream::connect(self.dir.path().join(CONTROL_SOCKET));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the fake daemon does not panic");
        }
    }
}

/// Serves one connection after another; the listener is closed at the end.
fn serve(listener: &UnixListener, mut answers: Answers) {
    while !answers.stop.load(Ordering::SeqCst) {
        if let Ok((stream, _)) = listener.accept() {
            talk(stream, &mut answers);
        }
    }
}

fn talk(mut stream: UnixStream, answers: &mut Answers) {
    let mut connection = ControlConnection::default();
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        let output = connection.feed(&bytes[..len], answers);
        let ended = answers.stop.load(Ordering::SeqCst);
        if stream.write_all(&output.bytes).is_err() || output.close || ended {
            return;
        }
    }
}

impl RequestHandler for Answers {
    fn call(&mut self, request: Request) -> Result<Reply, RpcError> {
        self.requests.lock().expect("no thread panicked").push(request.clone());
        match request {
            Request::SwitchList => Ok(Reply::Switches(vec![switch()])),
            Request::SwitchTable(of) if of.switch == "vale0" => Ok(Reply::Table(vec![entry()])),
            Request::PortEvicted => Ok(Reply::Evicted(["vale0:c", "vale1:c"].map(evicted).into())),
            Request::PortList(_) => Ok(Reply::Ports(vec![port("vale0:a"), port("vale0:b")])),
            Request::PortShow(of) if of.port == "vale0:a" => {
                Ok(Reply::Port(Box::new(PortInfo { rings: vec![ring()], ..port("vale0:a") })))
            }
            Request::PortAttach(new) if new.port == "taken" => {
                Err(RpcError::new(ErrorCode::Exists, "switch vale0 has a port taken already", "choose another name"))
            }
            Request::PortAttach(_) => Ok(Reply::Port(Box::new(port("vale0:web")))),
            Request::PortDetach(of) if of.port == "a" => Ok(Reply::Done(Default::default())),
            Request::StatsAll(_) => Ok(Reply::AllStats(Box::new(self.stats()))),
            Request::Shutdown => {
                self.stop.store(true, Ordering::SeqCst);
                Ok(Reply::Done(Default::default()))
            }
            _ => {
                Err(RpcError::new(ErrorCode::NotFound, "there is no such thing", "`netvale list` shows what there is"))
            }
        }
    }
}

impl Answers {
    fn stats(&mut self) -> AllStats {
        self.seconds += 1;
        let frames = self.seconds * 1_000_000;
        let rings = |frames| vec![RingStats { frames, bytes: frames * 60, batches: frames / 32 }];
        let sender = PortDetails {
            name: "vale0:a".into(),
            ingress: rings(frames),
            kicks_received: frames / 1000,
            ..PortDetails::default()
        };
        let receiver = PortDetails {
            name: "vale0:b".into(),
            egress: rings(frames - frames / 4),
            out_drops: [("no-room".to_owned(), frames / 4)].into(),
            ..PortDetails::default()
        };
        let worker = WorkerStats { busy_ns: self.seconds * SECOND / 4, ..WorkerStats::default() };
        AllStats {
            now_ns: self.seconds * SECOND,
            ports: vec![sender, receiver],
            workers: vec![worker],
            ..AllStats::default()
        }
    }
}

fn switch() -> SwitchInfo {
    SwitchInfo { name: "vale0".into(), ports: 2, addresses: 1, table_size: 16_384, ..SwitchInfo::default() }
}

fn evicted(port: &str) -> EvictionInfo {
    EvictionInfo { port: port.to_owned(), reason: "its memory is gone".to_owned(), ..EvictionInfo::default() }
}

fn entry() -> TableEntry {
    TableEntry {
        mac: Mac([2, 0, 0, 0, 0, 1]),
        vlan: None,
        port: "vale0:a".into(),
        age_seconds: 3,
        ..TableEntry::default()
    }
}

fn port(name: &str) -> PortInfo {
    PortInfo {
        name: name.into(),
        switch: Some("vale0".into()),
        kind: PortKind::Local,
        state: PortState::Open,
        owner: Some(Owner { uid: 1000, pid: 4242 }),
        region: Some(RegionInfo { id: 2, bytes: 4 << 20, buf_size: 2112, bufs: 1986, huge: false }),
        ..PortInfo::default()
    }
}

fn ring() -> RingInfo {
    RingInfo { slots: 1024, hwtail: 1023, drops: [("bad-buffer".to_owned(), 5)].into(), ..RingInfo::default() }
}
