//! The ports that a capture watches.
//!
//! Each port is watched by a monitor, which gets copies of the port's frames in its own ring. If the capture reads too
//! slowly, the ring fills up; further copies are dropped, and the monitor counts them. The port is unaffected.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use netvale::{Interest, Options, Port, RxRing, slot};
use netvale_control::client::Client;
use netvale_control::types::{self, PortInfo, PortKind};
use netvale_pcapport::{CaptureInterface, PcapDirection};
use netvale_portspec::PortSpec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{CliContext, CliError};

/// Maximum length of a frame in bytes.
const LONGEST: usize = 65_550;
/// Interval at which the counts of lost frames are requested from the daemon. They are requested during the capture
/// because a monitor's count is lost once its port has ended.
const ASK: Duration = Duration::from_millis(500);

/// A frame that passed a port.
#[derive(Clone, Copy, Debug)]
pub struct CapturedFrame<'a> {
    /// Index of the port.
    pub port: usize,
    /// Time stamp, since 1970.
    pub time: Duration,
    /// The frame, without a virtio-net header.
    pub frame: &'a [u8],
    /// The direction in which the frame passed the port.
    pub direction: PcapDirection,
}

/// An event that ends a wait for frames: poll events of a descriptor. `ERR` and `HUP` end the wait even if they are not
/// among the poll events.
#[derive(Clone, Copy, Debug)]
pub struct WaitEvent<'a>(pub BorrowedFd<'a>, pub PollFlags);

impl WaitEvent<'_> {
    /// Returns whether the event has happened.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.is_there_within(Duration::ZERO)
    }

    /// Returns whether the event happens within `limit`.
    #[must_use]
    pub fn is_there_within(&self, limit: Duration) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.0, self.1)];
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        poll(&mut fds, Some(&limit)).is_ok_and(|count| count > 0)
    }
}

/// The ports whose frames are captured.
pub struct CapturePorts {
    ports: Vec<CapturePort>,
    client: Option<Client>,
    asked: Instant,
    buffer: Vec<u8>,
}

struct CapturePort {
    port: Port,
    rings: Vec<RxRing>,
    /// The two possible names of the monitor, without suffixes; the more likely name comes first.
    names: [String; 2],
    is_monitor: bool,
    /// The monitor's name in the daemon, once found.
    known_as: Option<String>,
    lost: Option<u64>,
}

impl CapturePorts {
    /// Opens ports by name.
    ///
    /// # Errors
    /// A port cannot be opened.
    pub fn open(names: &[String], ctx: &CliContext) -> Result<CapturePorts, CliError> {
        let ports = names.iter().map(|name| CapturePort::open(name, ctx)).collect::<Result<Vec<_>, _>>()?;
        let client = Client::connect(&ctx.dir()).ok();
        let mut sources = CapturePorts { ports, client, asked: Instant::now(), buffer: vec![0; LONGEST] };
        sources.find();
        sources.ask();
        Ok(sources)
    }

    /// Describes the ports as interfaces of a capture file. Filter and snapshot length are the same for all ports.
    pub fn interfaces(&self, filter: Option<&str>, snaplen: u32) -> Vec<CaptureInterface> {
        let interface = |watched: &CapturePort| CaptureInterface {
            name: watched.names[0].clone(),
            description: format!("netvale port {}", watched.port.name()),
            filter: filter.map(str::to_owned),
            snaplen,
        };
        self.ports.iter().map(interface).collect()
    }

    /// Returns the number of a port's frames that were lost because the capture did not read them in time; `None` if
    /// the number is unknown.
    #[must_use]
    pub fn lost(&self, port: usize) -> Option<u64> {
        self.ports[port].lost()
    }

    /// Waits until frames arrive, one of the events `also` happens, or `limit` has passed.
    ///
    /// # Errors
    /// A port has ended and all its frames have been read.
    pub fn wait(&mut self, limit: Duration, also: &[WaitEvent<'_>]) -> Result<(), CliError> {
        if self.asked.elapsed() >= ASK {
            self.ask();
        }
        if self.rings().any(RxRing::is_ready) {
            return Ok(());
        }
        let ready = self.rings().any(RxRing::arm);
        let ended = if ready { Ok(false) } else { self.sleep(limit.min(ASK), also) };
        self.rings().for_each(|ring| ring.disarm());
        if ended? { self.check() } else { Ok(()) }
    }

    fn rings(&mut self) -> impl Iterator<Item = &mut RxRing> {
        self.ports.iter_mut().flat_map(|watched| &mut watched.rings)
    }

    /// Passes all available frames to `each` until `each` returns `false`.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn drain<E>(&mut self, mut each: impl FnMut(CapturedFrame<'_>) -> Result<bool, E>) -> Result<(), E> {
        let time = super::now();
        for (number, watched) in self.ports.iter_mut().enumerate() {
            let header = watched.port.info().hdr_len as usize;
            for ring in &mut watched.rings {
                // This makes frames available that have arrived since the last check; they must be read now, since this
                // may be the last call.
                let _ = ring.is_ready();
                while ring.space() > 0 {
                    let sent = watched.is_monitor && ring.slot(ring.at(0)).flags & slot::NS_TXMON != 0;
                    let Some(len) = ring.recv(&mut self.buffer) else { break };
                    let frame = self.buffer[..len].get(header..).unwrap_or_default();
                    let direction = if sent { PcapDirection::Out } else { PcapDirection::In };
                    let goes_on = each(CapturedFrame { port: number, time, frame, direction });
                    if !matches!(goes_on, Ok(true)) {
                        // The sync releases the frames that have been read. Without it, the next program that opens the
                        // port would get these frames again.
                        let _ = ring.sync();
                        return goes_on.map(drop);
                    }
                }
                let _ = ring.sync();
            }
        }
        Ok(())
    }

    /// Waits for frames. Returns whether the connection of a port has an event, so that the port may have ended.
    fn sleep(&self, limit: Duration, also: &[WaitEvent<'_>]) -> Result<bool, CliError> {
        let connections = self.ports.iter().filter_map(|watched| watched.port.connection());
        let mut fds: Vec<_> = connections.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let of_ports = fds.len();
        let rings = self.ports.iter().flat_map(|watched| &watched.rings).map(RxRing::wake_fd);
        fds.extend(rings.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(also.iter().map(|event| PollFd::from_borrowed_fd(event.0, event.1)));
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut fds, Some(&limit)) {
            Ok(_) => Ok(fds[..of_ports].iter().any(|fd| !fd.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(e) => Err(CliError::failed(format!("cannot wait for frames: {e}"), "check `ulimit -a`")),
        }
    }

    /// Checks that all ports are still open.
    fn check(&mut self) -> Result<(), CliError> {
        for watched in &mut self.ports {
            let there = watched.port.wait(Interest::Rx, Some(Duration::ZERO));
            there.map_err(|e| crate::ctx::port_error(watched.port.name(), &e))?;
        }
        Ok(())
    }

    /// Finds the names under which the daemon lists this process's monitors.
    fn find(&mut self) {
        let known = self.client.as_mut().and_then(|client| client.ports(None).ok()).unwrap_or_default();
        let own = |info: &&PortInfo| info.owner.is_some_and(|owner| owner.pid.unsigned_abs() == std::process::id());
        let mut monitors: Vec<_> = known.iter().filter(|info| info.kind == PortKind::Monitor).filter(own).collect();
        for watched in &mut self.ports {
            if !watched.is_monitor {
                let mut is_known = |name: &&String| self.client.as_mut().is_some_and(|c| c.show(name).is_ok());
                watched.known_as = watched.names.iter().find(&mut is_known).cloned();
                continue;
            }
            let [first, second] = watched.names.each_ref().map(|name| format!("{name}/monitor-"));
            let of = |prefix: &str| monitors.iter().position(|info| info.name.starts_with(prefix));
            let at = of(&first).or_else(|| of(&second));
            watched.known_as = at.map(|at| monitors.swap_remove(at).name.clone());
        }
    }

    /// Requests the counts of lost frames. If the daemon does not answer, the previous counts remain.
    pub fn ask(&mut self) {
        self.asked = Instant::now();
        let Some(client) = &mut self.client else { return };
        for watched in &mut self.ports {
            let info = watched.known_as.as_ref().and_then(|name| client.show(name).ok());
            watched.lost = info.as_ref().map(no_room).or(watched.lost);
        }
    }
}

/// Returns the number of frames that were dropped for lack of room in a port's rings.
fn no_room(info: &PortInfo) -> u64 {
    let out = info.rings.iter().filter(|ring| ring.dir == types::Direction::Out);
    out.filter_map(|ring| ring.drops.get("no-room")).sum()
}

/// Opens a monitor of both directions instead of a port that another program has open or that no program can open, such
/// as a TAP. If the monitor is refused as well, returns the error for the port.
fn watched_instead(name: &str, options: &Options, refused: netvale::Error) -> (String, Result<Port, netvale::Error>) {
    let refused = (name.to_owned(), Err(refused));
    let is_port_alone = PortSpec::parse(name).is_ok_and(|spec| spec == PortSpec::from(spec.name.clone()));
    if !is_port_alone {
        return refused;
    }
    let copy = format!("{name}/rt");
    match Port::open_with(&copy, options) {
        Ok(port) => {
            netvale_control::note!(
                "{name} cannot be opened here: capturing {copy}, a copy of the frames it sends and receives"
            );
            (copy, Ok(port))
        }
        Err(_) => refused,
    }
}

impl CapturePort {
    fn open(name: &str, ctx: &CliContext) -> Result<CapturePort, CliError> {
        let options = Options { run_dir: ctx.run_dir.clone(), ..Options::default() };
        let (name, opened) = match Port::open_with(name, &options) {
            Err(refused @ netvale::Error::Refused { .. }) => watched_instead(name, &options, refused),
            opened => (name.to_owned(), opened),
        };
        let name = name.as_str();
        let mut port = opened.map_err(|e| crate::ctx::port_error(name, &e))?;
        let spec = PortSpec::parse(name).ok();
        let names =
            spec.as_ref().map_or([name.to_owned(), name.to_owned()], |spec| spec.names().map(ToString::to_string));
        let is_monitor = spec.is_some_and(|spec| spec.flags.monitor.is_some());
        let (_, rings) = port.take_rings();
        Ok(CapturePort { port, rings, names, is_monitor, known_as: None, lost: None })
    }

    fn lost(&self) -> Option<u64> {
        let interface: u64 = self.rings.iter().flat_map(RxRing::drops).map(|(_, count)| count).sum();
        if interface > 0 { Some(interface + self.lost.unwrap_or(0)) } else { self.lost }
    }
}
