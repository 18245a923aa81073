//! A guest that sends kicks, but no frames.

use crate::common;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use common::ports::attach_guest;
use common::{Daemon, crosses, frame, until};
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_vhost::frontend::Frontend;
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::started::Kick;
use serde_json::json;

/// Objective: a storm of kicks without work causes no loss of frames at other ports of the same worker, and does not
/// evict these ports.
#[test]
fn a_kick_storm_costs_other_ports_no_frames() {
    let d = Daemon::start("workers = 1");
    let path = attach_guest(&d, "vhost", json!({}));
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);

    let socket = UnixStream::connect(&path).unwrap();
    let stop = Doorbell::new().unwrap();
    let calls = [(); 2].map(|()| Doorbell::new().unwrap());
    let running = Frontend::new(socket.as_fd(), stop.as_fd(), &Fault::new().unwrap())
        .start(DriverOptions::default(), &calls)
        .unwrap();
    let queues = running.pairs;
    let _memory = running.ram;
    let kicks: Vec<_> = queues.into_iter().flat_map(|(rx, tx)| [rx.kick, tx.kick]).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                kicks.iter().for_each(Kick::ring);
            }
        });
        for i in 0..2_000u32 {
            crosses(&mut a, &mut b, &frame(255, 1, i as u8));
        }
        over.store(true, Ordering::Relaxed);
    });
    until("an idle daemon", || {
        d.show("vale0:guest")["notes"][0].as_str().is_some_and(|note| note.contains("2 queues running"))
    });
}
