//! Workers and what they are asked for.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use netvale_daemon::worker::{Polling, Worker};
use netvale_mem::notify::Doorbell;
use netvale_port::{Batch, Ingress, RingCounters};
use netvale_switch::{Forwarder, Port, Switch};

/// An ingress that has to be asked for through its descriptor, and never has anything.
struct Silent(Doorbell, Arc<RingCounters>);

impl Ingress for Silent {
    fn take(&mut self, _batch: &mut Batch) {}

    fn release(&mut self) {}

    fn arm(&mut self) -> bool {
        false
    }

    fn disarm(&mut self) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.1
    }
}

/// Objective: a request is carried out at whatever moment of a worker's falling asleep it comes.
#[test]
fn no_request_is_lost() {
    let switch = Switch::with_table_size("vale0", 16);
    let port = switch.attach(Port { name: "a".into(), egresses: Vec::new(), lossless: false }).unwrap();
    for spin in [0, 5, 20] {
        let worker = Worker::start(0, None, Polling::Spin(Duration::from_micros(spin))).unwrap();
        let silent = Silent(Doorbell::new().unwrap(), Arc::default());
        worker.add(1, Box::new(Forwarder::new(Arc::clone(&switch), port, 0, Box::new(silent))));
        for request in 0..20_000u32 {
            // Not always at the same moment.
            (0..request % 64).for_each(|_| std::hint::spin_loop());
            let done = worker.drain(1).recv_timeout(Duration::from_secs(20));
            assert_eq!(done, Ok(()), "request {request} with a spin budget of {spin} us");
        }
        worker.remove(1);
    }
}
