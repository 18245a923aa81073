//! Passes arbitrary vhost-user messages, with arbitrary descriptors, to netvale's device. The device's queues are used
//! between the messages.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_fuzz::{bell, fuzz_target, memfd};
use netvale_mem::fault::Fault;
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::{Batch, Egress, Ingress, Scratch};
use netvale_vhost::proto::device::{NetConfig, VhostDevice};
use netvale_vhost::proto::message::VhostMessage;
use netvale_virtio::device::live::LiveQueue;
use rustix::event::epoll;

struct VhostUserState {
    memory: OwnedFd,
    wake: Arc<OwnedFd>,
    fault: Fault,
    scratch: Scratch,
}

fn shared() -> Option<VhostUserState> {
    let memory = memfd(0x4000)?;
    let wake = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).ok()?);
    let fault = Fault::new().ok()?;
    Some(VhostUserState { memory, wake, fault, scratch: Scratch::new() })
}

thread_local! {
    static SHARED: std::cell::RefCell<Option<VhostUserState>> = std::cell::RefCell::new(shared());
}

fn fd(shared: &VhostUserState, kind: u8) -> Option<OwnedFd> {
    match kind & 3 {
        0 | 1 => rustix::io::fcntl_dupfd_cloexec(&shared.memory, 0).ok(),
        2 => bell(),
        _ => rustix::io::fcntl_dupfd_cloexec(&*shared.wake, 0).ok(),
    }
}

/// Takes a message from the input: request, flags, number and kind of descriptors, length of the payload, payload.
/// Returns `None` at the end of the input.
fn message(shared: &VhostUserState, data: &mut &[u8]) -> Option<VhostMessage> {
    let [request, flags, fds, len, rest @ ..] = *data else { return None };
    let (payload, rest) = rest.split_at(usize::from(*len).min(rest.len()));
    *data = rest;
    let fds = (0..fds & 7).filter_map(|i| fd(shared, (fds >> 3).wrapping_add(i))).collect();
    Some(VhostMessage { request: u32::from(*request) % 44, flags: u32::from(*flags), payload: payload.to_vec(), fds })
}

fuzz_target!(|data: &[u8]| {
    SHARED.with_borrow_mut(|shared| {
        let Some(shared) = shared else { return };
        let Ok(tx) = Seat::woken() else { return };
        let rx = Arc::<Seat<LiveQueue>>::default();
        let tx = Arc::new(tx);
        let seats = vec![Arc::clone(&rx), Arc::clone(&tx)];
        let config = NetConfig { mac: [2; 6], pairs: 1, mtu: 1500.into() };
        let mut device = VhostDevice::new(config, seats, shared.fault.clone());
        let egress = SeatEgress(rx);
        let mut ingress = SeatIngress::new(tx);
        let mut rest = data;
        let frame = [7u8; 60];
        let mut batch = Batch::new();
        while let Some(m) = message(shared, &mut rest) {
            let request = m.request;
            let is_reply = m.is_reply();
            match device.handle(m) {
                Ok(Some(answer)) => assert!(answer.is_reply() && answer.request == request && !is_reply),
                Ok(None) => {}
                Err(_) => break,
            }
            // SAFETY: no frame is read.
            unsafe { ingress.take(&mut batch) };
            batch.clear();
            ingress.release();
            // SAFETY: the frame outlives the batch.
            unsafe { batch.push(frame.as_ptr(), 60) };
            egress.deliver(&batch, &[0], &mut shared.scratch);
            batch.clear();
        }
        shared.fault.take();
    });
});
