//! Other users, who make what is theirs slow: the memory of a port, its wake-up, its rules, and who hears a TAP.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use netvale::{Options, Port};
use netvale_control::client::{Bringing, Client};
use netvale_control::types::{AttachParams, PortOptions};
use netvale_harness::attacks::bells::{Watchers, watch};
use netvale_harness::attacks::filters::{LONGEST, Listeners, rule};
use netvale_harness::attacks::holes::{Hole, Hollow};
use netvale_tap::{Tap, TapOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::super::own::{self, Daemon, failed};
use super::super::traffic::{SLOTS, address, frame};
use super::company::{Company, as_stranger};
use super::programs::{AGAIN, NAME, drain, open_as, stranger_to};
use super::{BESIDE, NOBODY, announce};
use crate::error::{BenchError, Result};
use crate::sys::netns::Netns;

/// Buffers whose pages a hole takes away: some 64 MiB.
const BUFFERS: u32 = 32_000;
/// Watches of a wake-up. It takes less than what costs the port.
const WATCHES: usize = 100_000;
/// Sockets that hear a TAP.
const SOCKETS: usize = 400;
/// The station that its user sends to.
const PARTNER: u16 = BESIDE + 1;

/// How often somebody who is refused a port asks again.
const PATIENCE: Duration = Duration::from_millis(100);

/// Somebody who loses a port again and again.
struct ReopenedPort {
    dir: PathBuf,
    asked: Option<Instant>,
    /// A port of root's, in the meantime: frames for a station that nobody has go to everybody.
    stand_in: Option<Port>,
}

impl ReopenedPort {
    fn of(daemon: &Daemon) -> ReopenedPort {
        ReopenedPort { dir: daemon.dir().into(), asked: None, stand_in: None }
    }

    /// A new port, if it is time, and the daemon gives one. It may not have noticed yet that the one before is closed,
    /// and a user who made a worker wait gets none for a while.
    fn open(&mut self, extra_bufs: u32) -> Option<Port> {
        if self.asked.is_some_and(|at| at.elapsed() < PATIENCE) {
            return None;
        }
        self.stand_in = None;
        let options = Options { run_dir: Some(self.dir.clone()), slots: SLOTS, extra_bufs, ..Options::default() };
        let port = open_as(NAME, BESIDE, &options).ok();
        if port.is_none() {
            self.stand_in = self.stands_in();
        }
        self.asked = Some(Instant::now());
        port
    }

    fn stands_in(&self) -> Option<Port> {
        let mut port = own::open(&self.dir, "vale0:stand-in", SLOTS).ok()?;
        announce(&mut port, BESIDE).ok()?;
        Some(port)
    }
}

/// Takes the memory of its port away, by a thread that the measurement keeps from its processor.
struct Hollows {
    again: ReopenedPort,
    // Waited for before the memory is unmapped.
    hole: Option<Hole>,
    port: Option<Port>,
}

/// Makes holes.
pub fn makes_holes(daemon: &Daemon) -> Result<Box<dyn Company>> {
    Ok(Box::new(Hollows { again: ReopenedPort::of(daemon), hole: None, port: None }))
}

impl Company for Hollows {
    fn turn(&mut self) -> Result<()> {
        if self.hole.as_ref().is_some_and(|hole| !hole.is_made()) {
            return Ok(());
        }
        self.hole = None;
        self.port = None;
        let Some(port) = self.again.open(BUFFERS) else { return Ok(()) };
        let region = Hollow::longest().map_err(BenchError::io("finding a region"))?;
        region.fill();
        self.hole = Some(region.begin());
        self.port = Some(port);
        Ok(())
    }
}

/// Is woken for each frame that comes.
struct WokenPort {
    again: ReopenedPort,
    watches: usize,
    port: Option<Port>,
    _watchers: Option<Watchers>,
    looked: Instant,
}

/// Whether the daemon has closed it.
fn is_closed(port: &Port) -> bool {
    let mut one: Vec<_> = port.connection().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into_iter().collect();
    poll(&mut one, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn woken(daemon: &Daemon, watches: usize) -> Result<Box<dyn Company>> {
    Ok(Box::new(WokenPort {
        again: ReopenedPort::of(daemon),
        watches,
        port: None,
        _watchers: None,
        looked: Instant::now(),
    }))
}

/// Its wake-up is watched by very many.
pub fn is_watched(daemon: &Daemon) -> Result<Box<dyn Company>> {
    woken(daemon, WATCHES)
}

/// Its wake-up is watched by one.
pub fn is_woken(daemon: &Daemon) -> Result<Box<dyn Company>> {
    woken(daemon, 1)
}

impl Company for WokenPort {
    fn turn(&mut self) -> Result<()> {
        if self.looked.elapsed() > AGAIN {
            self.port = self.port.take().filter(|port| !is_closed(port));
            self.looked = Instant::now();
        }
        if self.port.is_none() {
            let Some(mut port) = self.again.open(0) else { return Ok(()) };
            let watchers = as_stranger(|| watch(port.rx()[0].wake_fd(), self.watches));
            self._watchers = Some(watchers.map_err(BenchError::io("watching a wake-up"))?);
            self.port = Some(port);
        }
        if let Some(port) = &mut self.port {
            drain(&mut port.rx()[0]);
            port.rx()[0].arm();
        }
        Ok(())
    }
}

/// Sends to nobody.
pub fn has_no_rules(daemon: &Daemon) -> Result<Box<dyn Company>> {
    stranger_to(daemon, address(NOBODY))
}

/// The same, with as many instructions for each frame as a user may have.
pub fn has_rules(daemon: &Daemon) -> Result<Box<dyn Company>> {
    let flood = stranger_to(daemon, address(NOBODY))?;
    let rules = json!({ "filter_in": [rule("pass", LONGEST)] });
    let set = |mut client: Client| client.set(NAME, rules.as_object().cloned().unwrap_or_default());
    as_stranger(|| Client::connect(daemon.dir()).and_then(set)).map_err(|e| failed(&e))?;
    Ok(flood)
}

/// A TAP in a network of its own, and who hears it.
struct Tapped {
    flood: Box<dyn Company>,
    _listeners: Listeners,
    _network: Netns,
}

impl Company for Tapped {
    fn turn(&mut self) -> Result<()> {
        self.flood.turn()
    }
}

/// Sends to a TAP of its own, which that many sockets hear.
fn tapped(daemon: &Daemon, sockets: usize) -> Result<Box<dyn Company>> {
    let network = Netns::new()?;
    let made = || {
        let options = TapOptions { name: "beside".into(), up: true, ..TapOptions::default() };
        let tap = Tap::open(&options).map_err(|e| failed(&e))?;
        let listeners = Listeners::at("beside", sockets).map_err(BenchError::io("listening at a TAP"))?;
        Ok((tap, listeners))
    };
    let (tap, listeners) = network.inside(made)?;
    let options = PortOptions { name: Some("tapped".into()), ..PortOptions::default() };
    let params = AttachParams { switch: "vale0".into(), port: "tap:beside".into(), options };
    let queues = tap.into_queues();
    let brought = as_stranger(|| Bringing::connect(daemon.dir())?.attach(params, &queues));
    brought.map_err(|e| failed(&e))?;
    // The switch is to know where its station is.
    listeners.say(&frame(NOBODY, PARTNER, 60)).map_err(BenchError::io("sending by a TAP"))?;
    let flood = stranger_to(daemon, address(PARTNER))?;
    Ok(Box::new(Tapped { flood, _listeners: listeners, _network: network }))
}

/// Four hundred, with filters that take long.
pub fn is_heard(daemon: &Daemon) -> Result<Box<dyn Company>> {
    tapped(daemon, SOCKETS)
}

/// One.
pub fn is_alone(daemon: &Daemon) -> Result<Box<dyn Company>> {
    tapped(daemon, 1)
}
