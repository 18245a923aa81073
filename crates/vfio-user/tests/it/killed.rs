//! A server that was killed, and one that goes on with what was kept: each message is carried out and answered once,
//! whenever the first one ended.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use netvale_fdio::state::{Fd, State};
use netvale_mem::fault::Fault;
use netvale_mem::mapping::{Pages, sealed_memfd};
use netvale_mem::notify::Doorbell;
use netvale_vfio_user::config::{BarKind, ConfigSpace, Identity};
use netvale_vfio_user::ended::Ended;
use netvale_vfio_user::kept::{ClientState, Kept, News, Noting};
use netvale_vfio_user::page::Page;
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::Session;
use netvale_vfio_user::wire::{HEADER, Header, Message, NO_REPLY, command};
use netvale_vfio_user::{Bar, Device, Host};
use serde::Serialize;
use serde::de::DeserializeOwned;

const VECTORS: [u32; 5] = [0, 0, 1, 0, 0];
/// The word of a page that says which message is being answered, and its bit.
const ANSWERING: (usize, u32) = (1, 1 << 16);

/// Counts writes of registers.
struct Counter {
    config: ConfigSpace,
    writes: u32,
}

impl Counter {
    fn new() -> Counter {
        let mut config = ConfigSpace::new(&Identity::default());
        config.bar(0, BarKind::Ports, 256);
        Counter { config, writes: 0 }
    }
}

impl Device for Counter {
    fn config(&mut self) -> &mut ConfigSpace {
        &mut self.config
    }

    fn bar(&self, number: usize) -> Bar<'_> {
        Bar { size: if number == 0 { 256 } else { 0 }, memory: None }
    }

    fn read(&mut self, _bar: usize, _at: u64, data: &mut [u8], _host: &Host) {
        data.copy_from_slice(&self.writes.to_le_bytes()[..data.len()]);
    }

    fn write(&mut self, _bar: usize, _at: u64, _data: &[u8], _host: &Host) {
        self.writes += 1;
    }

    fn reset(&mut self, _host: &Host) {}
}

/// What is kept, by somebody who keeps it immediately.
fn kept() -> (Arc<Kept<u32>>, Arc<AtomicU32>) {
    let (back, count) = (Arc::<OnceLock<Weak<Kept<u32>>>>::default(), Arc::<AtomicU32>::default());
    let (to, counted) = (Arc::clone(&back), Arc::clone(&count));
    let news = News(Arc::new(move || {
        let kept = to.get().and_then(Weak::upgrade).unwrap();
        drop(kept.state());
        kept.is_stored();
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let kept = Arc::new(Kept::new(Page::new(0).unwrap(), 0, news));
    back.set(Arc::downgrade(&kept)).unwrap();
    (kept, count)
}

/// A client's end of a connection, and the server's.
struct Line {
    client: UnixStream,
    server: OwnedFd,
}

impl Line {
    fn new() -> Line {
        let (client, server) = UnixStream::pair().unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        server.set_nonblocking(true).unwrap();
        Line { client, server: server.into() }
    }

    fn send(&mut self, id: u16, command: u16, flags: u32, payload: &[u8]) {
        let header = Header { id, command, flags, ..Header::default() };
        self.client.write_all(&header.question(payload)).unwrap();
    }

    /// Number, command and error of the next answer.
    fn answer(&mut self) -> (u16, u16, u32) {
        use std::io::Read;
        let mut head = [0; HEADER];
        self.client.read_exact(&mut head).unwrap();
        let header = Header::parse(&head);
        let mut rest = vec![0; header.size as usize - HEADER];
        self.client.read_exact(&mut rest).unwrap();
        (header.id, header.command, header.errno())
    }

    /// Serves until `client` has done its part. Returns the session.
    fn served(
        &mut self,
        kept: &Kept<u32>,
        mut session: Session<Counter>,
        client: impl FnOnce(&mut Line),
    ) -> Session<Counter> {
        let (stop, server) = (Doorbell::new().unwrap(), self.server.try_clone().unwrap());
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let noting = Noting::new(kept, &server, |device: &mut Counter| device.writes);
                let ended = serve(server.as_fd(), stop.as_fd(), &mut session, Some(&noting));
                // What a process that is killed does not say.
                std::mem::forget(noting);
                ended
            });
            client(self);
            stop.ring();
            assert!(matches!(served.join().unwrap(), Ended::Stopped));
        });
        session
    }
}

fn version() -> Vec<u8> {
    vec![0, 0, 1, 0]
}

fn window(at: u64) -> Vec<u8> {
    let words = [32u64 | 3 << 32, 0, at, 1 << 16];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn register(data: &[u8]) -> Vec<u8> {
    [&[0; 12][..], &(data.len() as u32).to_le_bytes(), data].concat()
}

/// As it comes over a socket.
fn sent<T: Serialize + DeserializeOwned>(state: T) -> T {
    State::of(&state).unwrap().read().unwrap()
}

/// The session of a process that goes on.
fn next(kept: &Kept<u32>) -> Session<Counter> {
    let (page, client) = kept.state();
    page.restore(0, true).unwrap();
    let ClientState { session, device: writes, .. } = sent(client.unwrap());
    let device = Counter { writes, ..Counter::new() };
    Session::restore(device, VECTORS, &Fault::new().unwrap(), session).unwrap().after_a_kill()
}

/// Objective: what is answered was noted before; what was carried out and noted, but not answered, is not refused when
/// it comes again; what was answered, but is still in the socket, is not carried out, or answered, again; all that is
/// behind it is.
#[test]
fn each_message_once() {
    let ((kept, count), mut line) = (kept(), Line::new());
    let first = line.served(&kept, Session::new(Counter::new(), VECTORS, &Fault::new().unwrap()), |line| {
        line.send(1, command::VERSION, 0, &version());
        assert_eq!(line.answer(), (1, command::VERSION, 0));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        line.send(2, command::REGION_WRITE, NO_REPLY, &register(&[0; 4]));
        line.send(3, command::DMA_MAP, 0, &window(0));
        assert_eq!(line.answer(), (3, command::DMA_MAP, 0));
        assert_eq!(count.load(Ordering::Relaxed), 2, "a posted write changes nothing that is kept");
    });
    // Killed after it was carried out and noted.
    let mut half = first;
    let header = Header { id: 4, command: command::DMA_MAP, ..Header::default() };
    half.handle(Message { header, payload: window(1 << 20), fds: Vec::new() }).unwrap();
    let server = line.server.try_clone().unwrap();
    let noting = Noting::new(&kept, &server, |device: &mut Counter| device.writes);
    netvale_vfio_user::kept::Keeper::note(&noting, &mut half);
    std::mem::forget(noting);
    let second = line.served(&kept, next(&kept), |line| {
        line.send(4, command::DMA_MAP, 0, &window(1 << 20));
        assert_eq!(line.answer(), (4, command::DMA_MAP, 0), "as if it were the first time");
        line.send(5, command::DMA_MAP, 0, &window(1 << 20));
        assert_eq!(line.answer(), (5, command::DMA_MAP, 17), "EEXIST");
    });
    drop(second);
    // Killed when the answer was on its way, but the message still in the socket.
    let page = Page::restore(Fd::shared(kept.page()), 0).unwrap();
    page.words().store(ANSWERING.0, ANSWERING.1 | 6);
    line.send(6, command::REGION_WRITE, 0, &register(&[0; 4]));
    line.send(7, command::REGION_WRITE, 0, &register(&[0; 4]));
    let mut third = line.served(&kept, next(&kept), |line| {
        assert_eq!(line.answer(), (7, command::REGION_WRITE, 0), "only the second one");
    });
    assert_eq!(third.device().0.writes, 2);
    // Killed before a message was looked at, or while it was carried out.
    line.send(8, command::REGION_WRITE, NO_REPLY, &register(&[0; 4]));
    line.send(9, command::REGION_READ, 0, &register(&[])[..12].iter().copied().chain([4, 0, 0, 0]).collect::<Vec<_>>());
    let mut fourth = line.served(&kept, next(&kept), |line| {
        assert_eq!(line.answer(), (9, command::REGION_READ, 0));
    });
    assert_eq!(fourth.device().0.writes, 2, "one was noted, and one came");
    assert_eq!(page.words().load(ANSWERING.0), 0);
}

/// Objective: messages that come in pieces, and many together, with descriptors or without, are served as without
/// anybody who keeps them; what has not been served when the service stops is still in the socket.
#[test]
fn in_pieces() {
    let ((kept, _), mut line) = (kept(), Line::new());
    let (file, ..) = sealed_memfd("guest", 1 << 16, Pages::Ordinary).unwrap();
    let mut session = line.served(&kept, Session::new(Counter::new(), VECTORS, &Fault::new().unwrap()), |line| {
        let bytes = Header { id: 1, command: command::VERSION, ..Header::default() }.question(&version());
        for piece in bytes.chunks(5) {
            line.client.write_all(piece).unwrap();
            std::thread::yield_now();
        }
        assert_eq!(line.answer(), (1, command::VERSION, 0));
        let write = Header { id: 2, command: command::REGION_WRITE, flags: NO_REPLY, ..Header::default() };
        let many: Vec<u8> = (0..1000).flat_map(|_| write.question(&register(&[0; 4]))).collect();
        line.client.write_all(&many).unwrap();
        line.send(3, command::DEVICE_GET_INFO, 0, &[0; 16]);
        assert_eq!(line.answer(), (3, command::DEVICE_GET_INFO, 0));
        let map = Header { id: 4, command: command::DMA_MAP, ..Header::default() }.question(&window(0));
        netvale_fdio::send(&line.client, &map, &[file.as_fd()], rustix::net::SendFlags::empty()).unwrap();
        assert_eq!(line.answer(), (4, command::DMA_MAP, 0));
    });
    assert_eq!(session.device().0.writes, 1000);
    assert_eq!(session.device().1.dma.mapped(), 1);
    line.send(5, command::REGION_WRITE, NO_REPLY, &register(&[0; 4]));
    let state = sent(session.save().unwrap());
    let again = Session::restore(Counter::new(), VECTORS, &Fault::new().unwrap(), state).unwrap();
    let mut again = line.served(&kept, again, |line| {
        line.send(6, command::DEVICE_GET_INFO, 0, &[0; 16]);
        assert_eq!(line.answer(), (6, command::DEVICE_GET_INFO, 0));
    });
    assert_eq!(again.device().0.writes, 1);
}

/// Objective: a page that is none, and one that is newer than what is kept, are refused by name.
#[test]
fn forged() {
    let kept = |changes| Kept::<()>::new(Page::new(4).unwrap(), changes, News(Arc::new(|| ())));
    let is_refused = |fd: Fd, words| {
        let why = Page::restore(fd, words).map(drop).unwrap_err().to_string();
        why.contains("is not what it should be")
    };
    let at_seven = kept(7);
    let page = at_seven.page();
    assert!(Page::restore(Fd::shared(page), 4).is_ok());
    assert!(is_refused(Fd::shared(page), 5000), "another size");
    assert!(is_refused(Doorbell::new().unwrap().into_fd().into(), 4), "no memory");
    page.words().store(2, 7);
    assert!(at_seven.page_state().restore(4, true).is_ok());
    page.words().store(2, 8);
    assert!(at_seven.page_state().restore(4, false).is_ok());
    let newer = at_seven.page_state().restore(4, true).map(drop).unwrap_err().to_string();
    assert!(newer.contains("was not kept in time"), "{newer}");
    page.words().store(0, 7);
    assert!(is_refused(Fd::shared(page), 4), "another form");
}
