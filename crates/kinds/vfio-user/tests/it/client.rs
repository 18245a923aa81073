//! Tests of the server with a toy device, which is used by another implementation's client, by netvale's own client,
//! and by clients that violate the protocol.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use netvale_fdio::state::State;
use netvale_mem::fault::Fault;
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_mem::notify::Doorbell;
use netvale_mem::words::Words;
use netvale_vfio_user::config::{BarKind, ConfigSpace, Identity};
use netvale_vfio_user::ended::ConnectionEnd;
use netvale_vfio_user::irqs::{KINDS, MSIX};
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::{ClientViolation, DeviceSession};
use netvale_vfio_user::wire::{HEADER, NO_REPLY, VfioHeader, VfioMessage, command};
use netvale_vfio_user::{Bar, Device, DeviceHost};
use proptest::prelude::*;

const MEMORY: u64 = 1 << 16;

/// A device whose BAR 0 stores writes. A write at offset 0 also triggers the interrupt vector whose number is written.
/// A write at offset 4 of an address in the guest's memory also copies the word at that address to the next word. The
/// byte at offset 8 counts resets.
struct Toy {
    config: ConfigSpace,
    registers: [u8; 256],
    memory: OwnedFd,
    resets: u32,
}

impl Toy {
    fn new() -> (Toy, netvale_mem::Mapping) {
        let (memory, map, _) = sealed_memfd("toy", MEMORY, PageKind::Ordinary).unwrap();
        let mut config = ConfigSpace::new(&Identity { id: (0x1b36, 0x000c), ..Identity::default() });
        config.bar(0, BarKind::Ports, 256);
        config.bar(1, BarKind::Memory, MEMORY);
        config.bar(2, BarKind::Memory, 4096);
        config.msix(4, 2, 0, 0x800);
        (Toy { config, registers: [0; 256], memory, resets: 0 }, map)
    }
}

impl Device for Toy {
    fn config(&mut self) -> &mut ConfigSpace {
        &mut self.config
    }

    fn bar(&self, number: usize) -> Bar<'_> {
        match number {
            0 => Bar { size: 256, memory: None },
            1 => Bar { size: MEMORY, memory: Some((self.memory.as_fd(), 0)) },
            2 => Bar { size: 4096, memory: None },
            _ => Bar::default(),
        }
    }

    fn read(&mut self, bar: usize, at: u64, data: &mut [u8], _host: &DeviceHost) {
        if bar == 0 {
            data.copy_from_slice(&self.registers[at as usize..at as usize + data.len()]);
        }
    }

    fn write(&mut self, bar: usize, at: u64, data: &[u8], host: &DeviceHost) {
        if bar != 0 {
            return;
        }
        self.registers[at as usize..at as usize + data.len()].copy_from_slice(data);
        let value = u32::from_le_bytes(data.try_into().unwrap_or_default());
        match at {
            0 => host.irqs.bell(MSIX, value as usize).into_iter().for_each(Doorbell::ring),
            4 => {
                let Some((map, from)) = host.dma.find(value.into(), 8) else { return };
                if let Some(words) = Words::new(map, from, 2) {
                    words.store(1, words.load(0));
                }
            }
            _ => {}
        }
    }

    fn reset(&mut self, _host: &DeviceHost) {
        self.resets += 1;
        self.registers = [0; 256];
        self.registers[8] = self.resets as u8;
    }
}

const VECTORS: [u32; KINDS] = [0, 0, 4, 0, 0];

struct Server {
    dir: tempfile::TempDir,
    stop: Arc<Doorbell>,
    ended: Arc<Mutex<Vec<ConnectionEnd>>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server that serves clients one after another.
    fn start() -> Server {
        let dir = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        let stop = Arc::new(Doorbell::new().unwrap());
        let ended = Arc::<Mutex<Vec<ConnectionEnd>>>::default();
        let stopped = Arc::clone(&stop);
        let list = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            loop {
                let (socket, _) = listener.accept().unwrap();
                socket.set_nonblocking(true).unwrap();
                let mut session = DeviceSession::new(Toy::new().0, VECTORS, &Fault::new().unwrap());
                let end = serve(socket.as_fd(), stopped.as_fd(), &mut session);
                let over = matches!(end, ConnectionEnd::Stopped);
                list.lock().unwrap().push(end);
                if over {
                    return;
                }
            }
        });
        Server { dir, stop, ended, thread: Some(thread) }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.ring();
        // Wakes the server in case it waits for a client.
        let _last = std::os::unix::net::UnixStream::connect(self.path());
        let _ = self.thread.take().unwrap().join();
    }
}

/// Objective: another implementation's client finds the device, maps the device's memory, reads and writes registers,
/// receives interrupts, grants and withdraws access to guest memory, and resets the device.
#[test]
fn another_implementations_client_is_served() {
    let server = Server::start();
    let mut client = vfio_user::Client::new(&server.path()).unwrap();
    let sizes: Vec<u64> = (0..9).map(|i| client.region(i).unwrap().size).collect();
    assert_eq!(sizes, [256, MEMORY, 4096, 0, 0, 0, 0, 256, 0]);
    let region = client.region(1).unwrap();
    assert_eq!((region.sparse_areas.len(), region.sparse_areas[0].size), (1, MEMORY));
    assert!(region.file_offset.is_some());
    let mut id = [0; 4];
    client.region_read(7, 0, &mut id).unwrap();
    assert_eq!(u32::from_le_bytes(id), 0x000c_1b36);
    assert_eq!(client.get_irq_info(2).unwrap().count, 4);

    let bells: Vec<Doorbell> = (0..4).map(|_| Doorbell::new().unwrap()).collect();
    let fds: Vec<i32> = bells.iter().map(|bell| bell.as_fd().as_raw_fd()).collect();
    client.set_irqs(2, 4 | 1 << 5, 0, 4, &fds).unwrap();
    client.region_write(0, 0, &2u32.to_le_bytes()).unwrap();
    assert_eq!(bells.iter().map(Doorbell::drain).collect::<Vec<_>>(), [false, false, true, false]);

    let (memory, map, _) = sealed_memfd("guest", 1 << 20, PageKind::Ordinary).unwrap();
    let map = Arc::new(map);
    let words = Words::new(&map, 0x2000, 2).unwrap();
    words.store(0, 77);
    client.dma_map(0x1000, 0x10_0000, 0x8000, memory.as_raw_fd()).unwrap();
    client.region_write(0, 4, &0x10_1000u32.to_le_bytes()).unwrap();
    assert_eq!(words.load(1), 77);
    client.dma_unmap(0x10_0000, 0x8000).unwrap();
    words.store(0, 78);
    client.region_write(0, 4, &0x10_1000u32.to_le_bytes()).unwrap();
    assert_eq!(words.load(1), 77, "memory after its removal");

    client.region_write(0, 100, &[9; 8]).unwrap();
    client.reset().unwrap();
    let mut registers = [0; 104];
    client.region_read(0, 4, &mut registers).unwrap();
    assert!(registers[4] == 1 && registers[100] == 0);
}

fn message(command: u16, payload: &[u8], fds: Vec<OwnedFd>) -> VfioMessage {
    let header = VfioHeader { id: 1, command, size: 16 + payload.len() as u32, flags: 0, error: 0 };
    VfioMessage { header, payload: payload.to_vec(), fds }
}

fn greeted() -> DeviceSession<Toy> {
    let mut session = DeviceSession::new(Toy::new().0, VECTORS, &Fault::new().unwrap());
    session.handle(message(command::VERSION, &[0, 0, 1, 0], vec![])).unwrap();
    session
}

/// Objective: a protocol violation ends the connection, and the violation is the reason; a request that is valid but
/// impossible is answered with an error number.
#[test]
fn a_breach_ends_the_connection_with_its_reason() {
    let refused =
        |m: VfioMessage| DeviceSession::new(Toy::new().0, VECTORS, &Fault::new().unwrap()).handle(m).unwrap_err();
    assert_eq!(refused(message(command::DEVICE_GET_INFO, &[], vec![])), ClientViolation::NotAVersion(4));
    assert_eq!(refused(message(command::VERSION, &[1, 0, 0, 0], vec![])), ClientViolation::Version(1));
    assert_eq!(refused(message(command::VERSION, &[0], vec![])), ClientViolation::Short(1));
    let mut session = greeted();
    let reply =
        VfioMessage { header: VfioHeader { flags: 1, ..message(9, &[], vec![]).header }, payload: vec![], fds: vec![] };
    assert_eq!(session.handle(reply).unwrap_err(), ClientViolation::Reply(9));
    let errno = |session: &mut DeviceSession<Toy>, command, payload: &[u8]| {
        let answer = session.handle(message(command, payload, vec![])).unwrap().unwrap();
        VfioHeader::parse(answer.bytes.first_chunk().unwrap()).error
    };
    assert_eq!(errno(&mut session, command::REGION_WRITE_MULTI, &[0; 64]), 95);
    assert_eq!(errno(&mut session, 999, &[]), 95);
    let access = |at: u64, region: u32, count: u32| {
        [&at.to_ne_bytes()[..], &region.to_ne_bytes(), &count.to_ne_bytes(), &[0; 8]].concat()
    };
    for (at, region, count) in [(0, 9, 1), (255, 0, 2), (u64::MAX, 0, 2), (0, 3, 1), (0, 1, 1 << 20), (256, 7, 1)] {
        assert_eq!(errno(&mut session, command::REGION_READ, &access(at, region, count)), 22);
    }
    assert_eq!(errno(&mut session, command::DEVICE_GET_REGION_INFO, &[0xff; 32]), 22);
    assert_eq!(errno(&mut session, command::DEVICE_GET_IRQ_INFO, &[0xff; 16]), 22);
    let short = session.handle(message(command::REGION_WRITE, &access(0, 0, 9), vec![]));
    assert_eq!(short.unwrap_err(), ClientViolation::Short(10));
}

/// Objective: netvale's own client reads back its writes in order, whether posted or not, and gets an error for a
/// refused request.
#[test]
fn our_client_reads_its_own_writes() {
    let server = Server::start();
    let mut client = netvale_vfio_user::client::VfioUserClient::connect(&server.path()).unwrap();
    let mut value = [0; 4];
    for i in 0..200u32 {
        client.post(0, 100, &i.to_ne_bytes()).unwrap();
        if i % 3 == 0 {
            client.write(0, 100, &(i + 1).to_ne_bytes()).unwrap();
        }
        client.read(0, 100, &mut value).unwrap();
        assert_eq!(u32::from_ne_bytes(value), if i % 3 == 0 { i + 1 } else { i });
    }
    assert_eq!(client.read(0, 1 << 40, &mut value).unwrap_err().raw_os_error(), Some(22));
    assert_eq!(client.unmap(0x1000, 0).unwrap_err().raw_os_error(), Some(22));
    // Removing an absent window is not an error.
    client.unmap(0x1000, 0x1000).unwrap();
}

/// Objective: a client that never pauses, with messages that fill each read, does not prevent the server from stopping.
#[test]
fn a_flood_does_not_keep_the_server_from_ending() {
    use std::io::Write;
    let (mut client, ours) = std::os::unix::net::UnixStream::pair().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&client, 1 << 20).unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut session = greeted();
    let stop = Doorbell::new().unwrap();
    let numbers = |all: &[u32]| all.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<_>>();
    // The first vector rings the doorbell that stops the server.
    let fds = vec![stop.as_fd().try_clone_to_owned().unwrap()];
    session.handle(message(command::DEVICE_SET_IRQS, &numbers(&[20, 4 | 1 << 5, 2, 0, 1]), fds)).unwrap();
    let write = |at: u32, first: u32| {
        let payload = [numbers(&[at, 0, 0, 32, first]), vec![0; 28]].concat();
        VfioHeader { command: command::REGION_WRITE, flags: NO_REPLY, ..VfioHeader::default() }.question(&payload)
    };
    let many: Vec<u8> = (0..2000).flat_map(|i| write(100, i)).collect();
    client.write_all(&[write(0, 0), many].concat()).unwrap();
    assert!(matches!(serve(ours.as_fd(), stop.as_fd(), &mut session), ConnectionEnd::Stopped));
    let last = u32::from_ne_bytes(*session.device().0.registers[100..].first_chunk().unwrap());
    assert!(last < 1999, "it went on to the end");
}

/// Objective: a connection ends if a message's length is out of range or the client stops mid-message; the next client
/// is served.
#[test]
fn a_bad_length_ends_only_that_connection() {
    use std::io::{Read, Write};
    let server = Server::start();
    for size in [0u32, 15, 1 << 30, u32::MAX] {
        let mut socket = std::os::unix::net::UnixStream::connect(server.path()).unwrap();
        let mut bytes = [0u8; 16];
        bytes[2] = 1;
        bytes[4..8].copy_from_slice(&size.to_ne_bytes());
        socket.write_all(&bytes).unwrap();
        assert_eq!(socket.read(&mut bytes).unwrap_or(0), 0);
    }
    assert!(server.ended.lock().unwrap().iter().all(|end| matches!(end, ConnectionEnd::Length(_))));
    vfio_user::Client::new(&server.path()).unwrap();
}

proptest! {
    /// Objective: no sequence of messages makes the session panic.
    #[test]
    fn no_messages_make_the_session_panic(
        messages in proptest::collection::vec(
            (0u16..20, proptest::collection::vec(any::<u8>(), 0..80), 0usize..3),
            0..40,
        ),
    ) {
        let mut session = greeted();
        for (command, payload, fds) in messages {
            let (fd, ..) = sealed_memfd("any", 4096, PageKind::Ordinary).unwrap();
            let fds = (0..fds).map(|_| fd.try_clone().unwrap()).collect();
            if session.handle(message(command, &payload, fds)).is_err() {
                session = greeted();
            }
        }
    }
}

/// Objective: a client that stops mid-message does not prevent the server from stopping.
#[test]
fn stopped_in_the_middle() {
    use std::io::Write;
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let stop = Doorbell::new().unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            serve(ours.as_fd(), stop.as_fd(), &mut DeviceSession::new(Toy::new().0, VECTORS, &Fault::new().unwrap()))
        });
        theirs.write_all(&[0; 5]).unwrap();
        let start = std::time::Instant::now();
        stop.ring();
        assert!(matches!(served.join().unwrap(), ConnectionEnd::Stopped));
        assert!(start.elapsed() < std::time::Duration::from_secs(4));
    });
}

/// Returns the ID, the command and the error number of the next answer.
fn answer(client: &mut std::os::unix::net::UnixStream) -> (u16, u16, u32) {
    use std::io::Read;
    let mut head = [0; HEADER];
    client.read_exact(&mut head).unwrap();
    let header = VfioHeader::parse(&head);
    client.read_exact(&mut vec![0; header.size as usize - HEADER]).unwrap();
    (header.id, header.command, header.errno())
}

/// Serves a session while `client` runs. Returns the session.
fn served(ours: &OwnedFd, mut session: DeviceSession<Toy>, client: impl FnOnce()) -> DeviceSession<Toy> {
    let stop = Doorbell::new().unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(ours.as_fd(), stop.as_fd(), &mut session));
        client();
        stop.ring();
        assert!(matches!(served.join().unwrap(), ConnectionEnd::Stopped));
    });
    session
}

/// Objective: messages that arrive in pieces or in groups, with or without descriptors, are served. Messages that are
/// not served when the service stops are served by the restored session.
#[test]
fn messages_in_pieces_are_served() {
    use std::io::Write;
    let (mut client, ours) = std::os::unix::net::UnixStream::pair().unwrap();
    client.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    ours.set_nonblocking(true).unwrap();
    let ours = OwnedFd::from(ours);
    let (file, ..) = sealed_memfd("guest", 1 << 16, PageKind::Ordinary).unwrap();
    let header = |id, command| VfioHeader { id, command, ..VfioHeader::default() };
    let write = |at: u32, data: u32| {
        let numbers = [at, 0, 0, 4, data].map(u32::to_ne_bytes).concat();
        VfioHeader { flags: NO_REPLY, ..header(2, command::REGION_WRITE) }.question(&numbers)
    };
    let new = DeviceSession::new(Toy::new().0, VECTORS, &Fault::new().unwrap());
    let mut session = served(&ours, new, || {
        for piece in header(1, command::VERSION).question(&[0, 0, 1, 0]).chunks(5) {
            client.write_all(piece).unwrap();
            std::thread::yield_now();
        }
        assert_eq!(answer(&mut client), (1, command::VERSION, 0));
        client.write_all(&(0..1000).flat_map(|i| write(100, i)).collect::<Vec<_>>()).unwrap();
        client.write_all(&header(3, command::DEVICE_GET_INFO).question(&[0; 16])).unwrap();
        assert_eq!(answer(&mut client), (3, command::DEVICE_GET_INFO, 0));
        let window = [32u64 | 3 << 32, 0, 0, 1 << 16].map(u64::to_ne_bytes).concat();
        let map = header(4, command::DMA_MAP).question(&window);
        netvale_fdio::send(&client, &map, &[file.as_fd()], rustix::net::SendFlags::empty()).unwrap();
        assert_eq!(answer(&mut client), (4, command::DMA_MAP, 0));
        // Sends only the start of another message.
        client.write_all(&write(104, 7)[..20]).unwrap();
    });
    assert_eq!(session.device().0.registers[100..104], 999u32.to_le_bytes());
    assert_eq!(session.device().1.dma.mapped(), 1);
    let state = State::of(&session.save().unwrap()).unwrap().read().unwrap();
    let next = DeviceSession::restore(Toy::new().0, VECTORS, &Fault::new().unwrap(), state).unwrap();
    let mut next = served(&ours, next, || {
        client.write_all(&write(104, 7)[20..]).unwrap();
        client.write_all(&header(6, command::DEVICE_GET_INFO).question(&[0; 16])).unwrap();
        assert_eq!(answer(&mut client), (6, command::DEVICE_GET_INFO, 0));
    });
    assert_eq!(next.device().0.registers[100..108], [0, 0, 0, 0, 7, 0, 0, 0]);
    assert_eq!(next.device().1.dma.mapped(), 1);
}
