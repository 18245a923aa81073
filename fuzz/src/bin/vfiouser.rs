//! Passes arbitrary vfio-user messages, with arbitrary descriptors, to a ptnet device. The device's rings are used
//! between the messages.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_fuzz::{bell, fuzz_target};
use netvale_mem::fault::Fault;
use netvale_mem::mapping::PageKind;
use netvale_mem::{Region, RegionSizes};
use netvale_port::{Batch, Scratch};
use netvale_ptnet::backend::Backend;
use netvale_ptnet::header::PtnetDeviceConfig;
use netvale_ptnet::machine::PtnetMachine;
use netvale_ptnet::published::PtnetDevice;
use netvale_ptnet::seats::{PtnetQueues, Seats};
use netvale_vfio_user::session::DeviceSession;
use netvale_vfio_user::wire::{VfioHeader, VfioMessage, command};

const CONFIG: PtnetDeviceConfig =
    PtnetDeviceConfig { tx_rings: 1, rx_rings: 1, slots: 4, buf_size: 128, vnet_hdr: true, mac: [2; 6], mtu: 1500 };

struct VfioUserState {
    /// A guest's memory.
    memory: Arc<Region>,
    backend: Arc<dyn Backend>,
    queues: PtnetQueues,
    fault: Fault,
    scratch: Scratch,
}

fn shared() -> Option<VfioUserState> {
    let memory = Region::bar("fuzz", RegionSizes::for_port(2, 4, 128, 0, 0), PageKind::Ordinary).ok()?;
    let (seats, queues) = Seats::new(1, 1).ok()?;
    Some(VfioUserState { memory, backend: Arc::new(seats), queues, fault: Fault::new().ok()?, scratch: Scratch::new() })
}

thread_local! {
    static SHARED: std::cell::RefCell<Option<VfioUserState>> = std::cell::RefCell::new(shared());
}

fn fd(memory: &Region, kind: u8) -> Option<OwnedFd> {
    match kind & 1 {
        0 => memory.fd()?.try_clone_to_owned().ok(),
        _ => bell(),
    }
}

/// Takes a message from the input: command and flags, number and kind of descriptors, length of the payload, payload.
/// Returns `None` at the end of the input.
fn message(memory: &Region, data: &mut &[u8]) -> Option<VfioMessage> {
    let [command, fds, len, rest @ ..] = *data else { return None };
    let (payload, rest) = rest.split_at(usize::from(*len).min(rest.len()));
    *data = rest;
    let fds = (0..fds & 3).filter_map(|i| fd(memory, (fds >> 2).wrapping_add(i))).collect();
    let flags = if command & 0x80 != 0 { 1 << 4 } else { 0 };
    let size = 16 + payload.len() as u32;
    let header = VfioHeader { id: 1, command: u16::from(command & 0x1f), size, flags, error: 0 };
    Some(VfioMessage { header, payload: payload.to_vec(), fds })
}

fuzz_target!(|data: &[u8]| {
    SHARED.with_borrow_mut(|shared| {
        let Some(VfioUserState { memory, backend, queues, fault, scratch }) = shared else { return };
        let machine = Arc::<PtnetMachine>::default();
        let Ok(device) = PtnetDevice::new(&CONFIG, &machine, backend, fault) else { return };
        let mut session = DeviceSession::new(device, PtnetDevice::vectors(&CONFIG), fault);
        let hello = VfioHeader { id: 0, command: command::VERSION, size: 20, flags: 0, error: 0 };
        let _ = session.handle(VfioMessage { header: hello, payload: vec![0; 4], fds: vec![] });
        let egress = &queues.0[0];
        let ingress = &mut queues.1[0];
        let mut rest = data;
        let frame = [7u8; 60];
        let mut batch = Batch::new();
        while let Some(m) = message(memory, &mut rest) {
            let header = m.header;
            match session.handle(m) {
                Ok(Some(answer)) => {
                    let back = VfioHeader::parse(answer.bytes.first_chunk().expect("a header"));
                    assert!(!back.is_command() && (back.id, back.command) == (header.id, header.command));
                    assert!(back.size as usize == answer.bytes.len() && header.wants_reply());
                }
                Ok(None) => assert!(!header.wants_reply()),
                Err(_) => break,
            }
            // SAFETY: the frame outlives the batch's use of it.
            unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
            egress.deliver(&batch, &[0], scratch);
            batch.clear();
            // SAFETY: no frame is read.
            unsafe { ingress.take(&mut batch) };
            ingress.release();
            batch.clear();
        }
    });
});
