//! Ports that successors restore from nothing but what a socket can carry.
#![allow(dead_code, reason = "each test program uses a part")]

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use netvale_fdio::state::{BadState, Fd, State};
use netvale_port::service::PausedService;
use netvale_vhost::frontend::BackEnd;
use netvale_vhost::port::state::VhostState;
use netvale_vhost::port::{VhostMode, VhostOptions, VhostPort};
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;
use netvale_virtio::driver::port::state::DriverState;
use netvale_wire::offload::Offload;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::common::{End, LIMIT, frame, give, take, until};

/// A port that is repeatedly restored.
pub struct Device {
    pub options: VhostOptions,
    pub port: VhostPort,
    pub end: End,
    _dir: tempfile::TempDir,
}

pub const PAUSE: Duration = Duration::from_millis(1);

/// Retries `give` until it succeeds: on a loaded machine, the port's thread may not pause in time.
fn patiently<T>(mut give: impl FnMut() -> Option<T>) -> T {
    let mut given = None;
    until("the port's thread pauses", || {
        given = give();
        given.is_some()
    });
    given.expect("waited for")
}

/// Returns the state as sent over a socket: its text, and its descriptors.
pub fn written(state: &impl Serialize) -> (Value, Vec<OwnedFd>) {
    let (said, fds) = State::of(state).unwrap().into_parts();
    (said, Fd::take_all(fds).unwrap())
}

/// Returns the state as received from a socket.
pub fn sent<T: Serialize + DeserializeOwned>(state: &T) -> T {
    let (said, fds) = written(state);
    State::from_parts(said, fds).read().unwrap()
}

impl Device {
    pub fn new(pairs: u16) -> Device {
        let dir = tempfile::tempdir().unwrap();
        let options =
            VhostOptions { site: dir.path().join("s").into(), mode: VhostMode::Server, pairs, mac: [2; 6], mtu: 1500 };
        let (port, queues) = VhostPort::new(&options).unwrap();
        Device { options, port, end: End::first(queues), _dir: dir }
    }

    pub fn path(&self) -> PathBuf {
        self.options.site.path().to_owned()
    }

    pub fn given(&self) -> (VhostState, PausedService) {
        patiently(|| self.port.save_parked().unwrap())
    }

    /// Replaces the port by a successor, which gets the state as sent over a socket.
    pub fn succeed(&mut self) {
        let (state, paused) = self.given();
        let (port, queues, begins) = VhostPort::restore(&self.options, sent(&state)).unwrap();
        let old = std::mem::replace(&mut self.port, port);
        let old_end = std::mem::replace(&mut self.end, End::first(queues));
        // The predecessor ends without notice.
        std::mem::forget((old, old_end, paused));
        drop(begins);
    }

    /// Starts a successor that ends before it resumes.
    pub fn fail(&mut self) {
        let (state, paused) = self.given();
        let (port, queues, begins) = VhostPort::restore(&self.options, sent(&state)).unwrap();
        drop((port, queues));
        assert!(self.path().exists(), "the socket is not the successor's to remove");
        drop(paused);
        drop(begins);
    }
}

/// A sequence of numbered frames that are sent from one end of the connection to the other end.
#[derive(Default)]
pub struct Stream {
    pub sent: u32,
    pub got: u32,
}

impl Stream {
    pub fn send(&mut self, from: &End, count: u32) {
        let one = |i: u32| {
            let mut bytes = frame(60 + (i as usize * 97) % 1400, i as u8);
            bytes[..4].copy_from_slice(&i.to_le_bytes());
            (bytes, Offload::None)
        };
        let frames: Vec<_> = (self.sent..self.sent + count).map(one).collect();
        self.sent += give(from, &frames) as u32;
    }

    pub fn receive(&mut self, at: &mut End) {
        take(at, |(bytes, _)| {
            assert_eq!(u32::from_le_bytes(*bytes.first_chunk().unwrap()), self.got);
            assert_eq!(bytes.len(), 60 + (self.got as usize * 97) % 1400);
            self.got += 1;
        });
    }

    #[track_caller]
    pub fn receive_all(&mut self, at: &mut End) {
        let arrived = netvale_harness::until(LIMIT, PAUSE, || {
            self.receive(at);
            self.got == self.sent
        });
        assert!(arrived, "{} of {} arrived", self.got, self.sent);
    }
}

pub fn connected(device: &Device, options: DriverOptions) -> (VirtioPort, End) {
    let (driver, queues) = VirtioPort::new(BackEnd(device.path().into()), options).unwrap();
    let mut end = End::first(queues);
    let queues = 2 * usize::from(options.pairs);
    until("both run", || driver.state().now.running && device.port.state().now.queues == queues);
    take(&mut end, |_| ());
    (driver, end)
}

pub fn all_options() -> impl Iterator<Item = DriverOptions> {
    (0..32u16).map(|bits| {
        let on = |bit: u16| bits & bit != 0;
        let size = if on(8) { 32 } else { 256 };
        let packed = on(1);
        let mergeable = on(2);
        let event_idx = on(4);
        let in_order = on(16);
        DriverOptions { packed, mergeable, event_idx, size, in_order, ..DriverOptions::default() }
    })
}

/// A driver that is repeatedly restored.
pub struct Driver {
    path: PathBuf,
    options: DriverOptions,
    pub port: VirtioPort,
    pub end: End,
}

impl Driver {
    pub fn new(device: &Device, options: DriverOptions) -> Driver {
        let (port, end) = connected(device, options);
        Driver { path: device.path(), options, port, end }
    }

    pub fn given(&self) -> (DriverState, PausedService) {
        patiently(|| self.port.save_parked().unwrap())
    }

    pub fn restored(
        &self,
        state: DriverState,
    ) -> Result<(VirtioPort, netvale_virtio::VirtioQueues, PausedService), BadState> {
        VirtioPort::restore(BackEnd(self.path.clone().into()), self.options, state)
    }

    pub fn succeed(&mut self) {
        let (state, paused) = self.given();
        let (port, queues, begins) = self.restored(sent(&state)).unwrap();
        let old = std::mem::replace(&mut self.port, port);
        let old_end = std::mem::replace(&mut self.end, End::first(queues));
        std::mem::forget((old, old_end, paused));
        drop(begins);
    }

    pub fn fail(&mut self) {
        let (state, paused) = self.given();
        let (port, queues, begins) = self.restored(sent(&state)).unwrap();
        drop((port, queues));
        drop(paused);
        drop(begins);
    }
}

/// Returns the options of another port, whose socket is in the same folder as the socket of `device`.
pub fn other(device: &Device) -> VhostOptions {
    VhostOptions { site: device.options.site.beside("-other"), ..device.options.clone() }
}
