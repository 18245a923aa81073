//! A rig with which a fuzzer drives the main thread: connections of chosen users, served by the daemon's own code, and
//! checks of invariants between two requests. This module is compiled only for fuzzing (`--cfg fuzzing`).

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use netvale_control::device::DeviceRequest;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use super::{ATTACH, CONTROL, DaemonServer, FAULTS, MAX_CLIENTS, Signals, TUNNELS};
use crate::api::netmap;
use crate::caller::Caller;
use crate::config::ConfigFile;
use crate::daemon::{Daemon, DaemonPort};
use crate::ports;
use crate::ports::tunnel::VxlanPort;
use crate::system::closing;
use crate::system::sockets::ListeningSockets;

/// `NETMAP_REQ_VALE_DELIF`.
const DELIF: u16 = netvale_abi::nmreq::NETMAP_REQ_VALE_DELIF;
/// How long to wait until the memory and descriptors of removed objects are freed.
const LIMIT: Duration = Duration::from_secs(10);

/// The daemon, and the clients' ends of its connections.
pub struct FuzzRig {
    server: DaemonServer,
    theirs: Vec<(u64, u32, OwnedFd)>,
    /// A control connection of root: its number and the client's end.
    roots: Option<(u64, OwnedFd)>,
}

/// Creates both ends of a connection; the daemon's end comes first.
fn pair(of: SocketType) -> Option<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, of, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None).ok()
}

/// Reads and discards answers.
fn drain(end: &OwnedFd) {
    let mut bytes = [0u8; 16 * 1024];
    while matches!(closing::receive(end, &mut bytes), Ok((n, _)) if n > 0) {}
}

impl FuzzRig {
    /// Starts a daemon without sockets from the text of a configuration. Returns `None` if the configuration is
    /// invalid, or no descriptor is left.
    pub fn new(config: &str) -> Option<FuzzRig> {
        let daemon = Daemon::new(ConfigFile::parse(config).ok()?.into_config()).ok()?;
        let nobody = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        let (end, _) = UnixStream::pair().ok()?;
        let sockets = ListeningSockets { lock: nobody()?, attach: nobody()?, control: nobody()?, own: Vec::new() };
        let signals = Signals { end, reload: None };
        Some(FuzzRig { server: DaemonServer::new(daemon, sockets, signals).ok()?, theirs: Vec::new(), roots: None })
    }

    /// Connects as that user, to the attach socket or the control socket. Returns whether the daemon has accepted the
    /// connection.
    pub fn connect(&mut self, uid: u32, attach: bool) -> bool {
        let (kind, of) = if attach { (ATTACH, SocketType::SEQPACKET) } else { (CONTROL, SocketType::STREAM) };
        let caller = Caller { client: self.server.next, uid, pid: 1 };
        if self.server.may_connect(caller).is_err() {
            return false;
        }
        let Some((ours, theirs)) = pair(of) else { return false };
        self.server.add(ours, kind, caller);
        self.theirs.push((caller.client, uid, theirs));
        true
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.theirs.len()
    }

    /// Sends a message on connection number `which`, lets the daemon serve it, and discards the answers.
    pub fn send(&mut self, which: usize, message: &[u8], fds: &[BorrowedFd<'_>]) {
        let Some((id, _, theirs)) = self.theirs.get(which) else { return };
        let id = *id;
        let before = self.tunnels();
        let _ = netvale_fdio::send(theirs, message, fds, SendFlags::DONTWAIT);
        self.server.event(id);
        self.theirs.iter().filter(|(other, ..)| *other == id).for_each(|(_, _, theirs)| drain(theirs));
        self.forget_closed();
        assert_eq!(self.tunnels(), before, "a user without rights has changed a tunnel");
    }

    /// Like [`FuzzRig::send`], for a line on a connection of root, who owns the tunnels. Returns whether the connection
    /// still exists.
    pub fn send_as_root(&mut self, line: &str) -> bool {
        if self.roots.is_none() {
            let caller = Caller { client: self.server.next, uid: 0, pid: 1 };
            let Some((ours, theirs)) = pair(SocketType::STREAM) else { return false };
            self.server.add(ours, CONTROL, caller);
            self.roots = Some((caller.client, theirs));
        }
        let Some((id, theirs)) = &self.roots else { return false };
        let _ = rustix::net::send(theirs, line.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        self.server.event(*id);
        drain(theirs);
        self.server.clients.contains_key(id)
    }

    /// Closes root's connection.
    pub fn hang_up_root(&mut self) {
        if let Some((id, theirs)) = self.roots.take() {
            drop(theirs);
            self.server.event(id);
        }
    }

    /// Returns the port name, the number of VTEPs and the number of configured addresses of each tunnel.
    fn tunnels(&self) -> Vec<(String, usize, usize)> {
        let tunnel = |record: &DaemonPort| {
            let tunnel = &record.behind.get::<VxlanPort>()?.tunnel;
            Some((tunnel.peers().all().len(), tunnel.count_given()))
        };
        let ports = self.server.daemon.ports.iter();
        ports
            .filter_map(|(name, record)| tunnel(record).map(|(peers, given)| (name.to_owned(), peers, given)))
            .collect()
    }

    /// Closes a connection.
    pub fn hang_up(&mut self, which: usize) {
        if which < self.theirs.len() {
            let (id, ..) = self.theirs.swap_remove(which);
            self.server.event(id);
            self.forget_closed();
        }
    }

    /// Lets the daemon evict programs, notify watchers of tunnels, age its tables, and end idle workers.
    pub fn look_around(&mut self) {
        self.server.event(FAULTS);
        self.server.event(TUNNELS);
        self.server.daemon.switches.tick(Instant::now());
        self.server.daemon.workers.tick(Instant::now());
        closing::look();
        self.forget_closed();
    }

    fn forget_closed(&mut self) {
        let clients = &self.server.clients;
        self.theirs.retain(|(id, ..)| clients.contains_key(id));
    }

    /// Checks the invariants between two requests.
    ///
    /// # Panics
    /// Panics if an invariant is violated.
    pub fn check(&self, users: &[u32]) {
        let d = &self.server.daemon;
        let s = &self.server;
        assert!(s.running, "a user without rights ended the daemon");
        assert!(s.clients.len() <= MAX_CLIENTS);
        let quota = &d.config.quota;
        for &uid in users {
            let ports = d.ports.iter().filter(|(_, record)| record.owner.uid == uid).count();
            let pipes = d.pipes.iter().filter(|(_, pipe)| pipe.uid == uid).count();
            let connections = s.clients.values().filter(|(_, caller)| caller.uid == uid).count();
            assert!(ports + pipes <= quota.ports, "{ports} ports and {pipes} pipes of user {uid}");
            assert!(connections <= quota.connections, "{connections} connections of user {uid}");
            assert!(d.switches.count_of(uid) <= quota.switches, "switches of user {uid}");
            assert!(d.regions.bytes_of(uid) <= quota.memory_mib << 20, "memory of user {uid}");
        }
        for (name, record) in d.ports.iter() {
            let is_roots = record.owner.uid == 0 && record.behind.get::<VxlanPort>().is_some();
            assert!(is_roots || users.contains(&record.owner.uid), "{name} is owned by {}", record.owner.uid);
            assert!(record.persistent || !record.is_idle(), "{name} is held by nobody");
        }
        for switch in d.switches.iter() {
            assert!(!switch.ports().is_empty(), "{} has no ports", switch.name());
        }
    }

    /// Closes all connections, and removes the remaining ports by requests of root. After that, checks that the users
    /// have left no port, pipe, switch, monitor or region, and that there are no more descriptors than `before`.
    ///
    /// # Panics
    /// Panics if anything is left.
    pub fn end(&mut self, users: &[u32], before: Option<usize>) {
        while !self.theirs.is_empty() {
            self.hang_up(self.theirs.len() - 1);
        }
        self.hang_up_root();
        assert!(self.server.clients.is_empty(), "a connection outlives its socket");
        self.look_around();
        let d = &mut self.server.daemon;
        let lasting: BTreeSet<String> = d.ports.iter().map(|(name, _)| name.to_owned()).collect();
        for name in lasting.iter().filter(|name| d.ports.get(name).is_some_and(|record| !record.persistent)) {
            panic!("{name} outlives its connection");
        }
        assert!(d.pipes.iter().next().is_none(), "a pipe outlives its connections");
        for name in &lasting {
            let _ = ports::detach(d, name, "the end");
        }
        let root = Caller { client: 1, uid: 0, pid: 1 };
        let kept: Vec<String> = d.ports.iter().map(|(name, _)| name.to_owned()).collect();
        for name in kept {
            let name = name.strip_prefix("netmap:").unwrap_or(&name).to_owned();
            let done = netmap::request(d, &DeviceRequest { reqtype: DELIF, name, ..DeviceRequest::default() }, root);
            assert_eq!(done.status, 0, "{} cannot be removed", done.name);
        }
        assert!(d.ports.iter().next().is_none() && d.persistent.count() == 0, "ports are left");
        assert_eq!(d.switches.count(), 0, "switches are left");
        let began = Instant::now();
        while !self.is_clean(users, before) {
            assert!(began.elapsed() < LIMIT, "memory or descriptors are left: {:?}, {before:?} before", descriptors());
            std::thread::sleep(Duration::from_micros(200));
            self.look_around();
        }
    }

    fn is_clean(&self, users: &[u32], before: Option<usize>) -> bool {
        let d = &self.server.daemon;
        users.iter().all(|&uid| closing::pending(uid) == 0 && d.regions.bytes_of(uid) == 0)
            && before.is_none_or(|before| descriptors().is_none_or(|now| now <= before))
    }
}

/// Returns the number of this process's descriptors; `None` if `/proc` cannot be read.
pub fn descriptors() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count())
}
