//! Other users who make accesses to their own resources slow: a port's memory, its doorbell, its filter rules, and
//! listeners on a TAP.

use netvale_control::client::{BringConnection, Client};
use netvale_control::types::AttachParams;
use netvale_harness::attacks::bells::watch;
use netvale_harness::attacks::filters::{LONGEST, Listeners, rule};
use netvale_harness::attacks::holes::{Hole, HollowRegion};
use netvale_tap::{Tap, TapOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::company::{Company, as_stranger};
use super::programs::{AGAIN, NAME, drain, open_as, stranger_to};
use super::*;

/// Number of buffers whose pages a hole in the file removes: some 64 MiB.
const BUFFERS: u32 = 32_000;
/// Number of watches of a doorbell: fewer than would cost the user its port.
pub const WATCHES: usize = 100_000;
/// Sockets that listen on a TAP, with slow filters.
pub const SOCKETS: usize = 50;
/// The station to which the user sends.
const PARTNER: u16 = BESIDE + 1;

/// Interval at which a user whose port was refused tries again.
const PATIENCE: Duration = Duration::from_millis(100);

/// A port that its user loses repeatedly.
struct ReopenedPort {
    dir: PathBuf,
    asked: Option<Instant>,
    /// A port with the address of the user's port, which root opens while the user has no port: otherwise frames to the
    /// address would be flooded.
    stand_in: Option<Port>,
}

impl ReopenedPort {
    fn of(daemon: &Daemon) -> ReopenedPort {
        ReopenedPort { dir: daemon.dir().into(), asked: None, stand_in: None }
    }

    /// Opens a new port, unless the last attempt was too recent or the daemon refuses. The daemon may not have noticed
    /// yet that the old port is closed, and it refuses ports for a while to a user who made a worker wait.
    fn open(&mut self, extra_bufs: u32) -> Option<Port> {
        if self.asked.is_some_and(|at| at.elapsed() < PATIENCE) {
            return None;
        }
        self.stand_in = None;
        let options = Options { run_dir: Some(self.dir.clone()), slots: SLOTS, extra_bufs, ..Options::default() };
        let port = open_as(NAME, BESIDE, &options).ok();
        if port.is_none() {
            let stand_in = own::open(&self.dir, "vale0:stand-in", SLOTS).ok();
            self.stand_in = stand_in.and_then(|mut port| announce(&mut port, BESIDE).ok().map(|()| port));
        }
        self.asked = Some(Instant::now());
        port
    }
}

/// Starts a program that removes the memory of its port, in a thread that runs on none of the measurement's CPUs.
pub fn makes_holes(daemon: &Daemon) -> Result<Company> {
    let mut again = ReopenedPort::of(daemon);
    // The hole must be complete before the memory is unmapped.
    let mut hollow: Option<(Hole, Port)> = None;
    Ok(Box::new(move || {
        if hollow.as_ref().is_some_and(|(hole, _)| !hole.is_made()) {
            return Ok(());
        }
        drop(hollow.take());
        let Some(port) = again.open(BUFFERS) else { return Ok(()) };
        let region = HollowRegion::longest().map_err(BenchError::io("finding a region"))?;
        region.fill();
        hollow = Some((region.begin(), port));
        Ok(())
    }))
}

/// Returns whether the daemon has closed the port.
fn is_closed(port: &Port) -> bool {
    let mut one: Vec<_> = port.connection().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into_iter().collect();
    poll(&mut one, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Starts a program that is woken for each frame, with `watches` watches on its doorbell.
pub fn is_woken(daemon: &Daemon, watches: usize) -> Result<Company> {
    let mut again = ReopenedPort::of(daemon);
    let mut looked = Instant::now();
    let mut port = None;
    let mut watchers = None;
    Ok(Box::new(move || {
        if looked.elapsed() > AGAIN {
            port = port.take().filter(|port| !is_closed(port));
            looked = Instant::now();
        }
        if port.is_none() {
            let Some(mut new) = again.open(0) else { return Ok(()) };
            let by = as_stranger(|| watch(new.rx()[0].wake_fd(), watches));
            drop(watchers.replace(by.map_err(BenchError::io("watching a doorbell"))?));
            port = Some(new);
        }
        if let Some(port) = &mut port {
            drain(&mut port.rx()[0]);
            port.rx()[0].arm();
        }
        Ok(())
    }))
}

/// Starts a program that sends to an unknown address, through filter rules with the maximum number of instructions that
/// a user may have.
pub fn has_rules(daemon: &Daemon) -> Result<Company> {
    let flood = stranger_to(daemon, address(NOBODY))?;
    let dir = daemon.dir();
    let rules = json!({ "filter_in": [rule("pass", LONGEST)] });
    let set = |mut client: Client| client.set(NAME, rules.as_object().cloned().unwrap_or_default());
    as_stranger(|| Client::connect(dir).and_then(set)).map_err(|e| failed(&e))?;
    Ok(flood)
}

/// Starts a program that sends to the user's TAP, on which `sockets` sockets listen.
pub fn is_heard(daemon: &Daemon, sockets: usize) -> Result<Company> {
    let network = Netns::new()?;
    let dir = daemon.dir();
    let made = || {
        let options = TapOptions { name: "beside".into(), up: true, ..TapOptions::default() };
        let tap = Tap::open(&options).map_err(|e| failed(&e))?;
        let listeners = Listeners::at("beside", sockets).map_err(BenchError::io("opening packet sockets on a TAP"))?;
        Ok((tap, listeners))
    };
    let (tap, listeners) = network.inside(made)?;
    let options = PortOptions { name: Some("tapped".into()), ..PortOptions::default() };
    let params = AttachParams { switch: "vale0".into(), port: "tap:beside".into(), options };
    let queues = tap.into_queues();
    let brought = as_stranger(|| BringConnection::connect(dir)?.attach(params, &queues));
    brought.map_err(|e| failed(&e))?;
    // A frame teaches the switch where the station is.
    listeners.say(&frame(NOBODY, PARTNER, 60)).map_err(BenchError::io("sending through a TAP"))?;
    let mut flood = stranger_to(daemon, address(PARTNER))?;
    Ok(Box::new(move || {
        let _ = (&listeners, &network);
        flood()
    }))
}
