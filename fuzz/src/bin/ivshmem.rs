//! Runs a ptnet device with a guest that writes arbitrary values to the device's memory (header page and rings), even
//! during calls.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::mem::offset_of;
use std::sync::Arc;

use netvale_abi::ptnet::{PtnetHeader, word};
use netvale_fuzz::{FuzzInput, bounded, copied, fuzz_target, meddle, words};
use netvale_mem::Mapping;
use netvale_mem::fault::Fault;
use netvale_port::{Batch, Scratch};
use netvale_ptnet::backend::Backend;
use netvale_ptnet::header::PtnetDeviceConfig;
use netvale_ptnet::instance::PtnetInstance;
use netvale_ptnet::ivshmem;
use netvale_ptnet::pipe::PipeBackend;
use netvale_ptnet::seats::{PtnetQueues, Seats};

const CONFIG: PtnetDeviceConfig =
    PtnetDeviceConfig { tx_rings: 1, rx_rings: 1, slots: 8, buf_size: 128, vnet_hdr: true, mac: [2; 6], mtu: 1500 };
/// Maximum number of reads of shared memory by one command, since a command may set up each slot and each extra buffer.
const A_COMMAND: u64 = 1 << 16;
/// Maximum number of reads of shared memory for one batch, which has at most as many frames as a ring has slots.
const A_BATCH: u64 = 512;

/// A backend, its queues, and memory for deliveries, all of which are reused for all inputs.
type BackendParts = (Arc<dyn Backend>, PtnetQueues, Scratch);

thread_local! {
    static SEATS: std::cell::RefCell<Option<BackendParts>> = std::cell::RefCell::new(
        Seats::new(1, 1).ok().map(|(seats, queues)| (Arc::new(seats) as Arc<dyn Backend>, queues, Scratch::new()))
    );
}

fuzz_target!(|data: &[u8]| {
    let [kind, rest @ ..] = data else { return };
    let Ok(fault) = Fault::new() else { return };
    if kind & 1 != 0 {
        let Ok(pipe) = PipeBackend::new(&CONFIG, fault.clone()) else { return };
        return serve(&(Arc::new(pipe) as Arc<dyn Backend>), None, &fault, rest);
    }
    SEATS.with_borrow_mut(|rig| {
        let Some((backend, queues, scratch)) = rig else { return };
        serve(backend, Some((queues, scratch)), &fault, rest);
    });
});

fn serve(backend: &Arc<dyn Backend>, mut queues: Option<(&mut PtnetQueues, &mut Scratch)>, fault: &Fault, rest: &[u8]) {
    let Ok(mut device) = PtnetInstance::new(&CONFIG, backend, fault) else { return };
    let greeting = ivshmem::greeting(&device).expect("a memory to show");
    assert_eq!(greeting.len(), 3 + 2 * CONFIG.vectors() as usize);
    let Some(Ok(fd)) = device.memory().map(|fd| fd.try_clone_to_owned()) else { return };
    let len = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_size) as usize;
    let Ok(map) = Mapping::map(std::os::fd::AsFd::as_fd(&fd), len).map(Arc::new) else { return };
    let memory = words(&map);
    let mut input = FuzzInput(meddle(rest, &memory, 0, len / 4));
    let frame = [7u8; 60];
    let mut batch = Batch::new();
    let mut number = 0;
    while !input.is_empty() {
        match input.byte() % 6 {
            // The guest issues a command, in most cases with a new number.
            0 => {
                number += u32::from(input.byte() != 0);
                memory.store(word(offset_of!(PtnetHeader, command)), u32::from(input.byte() % 4));
                memory.store(word(offset_of!(PtnetHeader, wanted)), u32::from(input.byte() % 3));
                memory.store(word(offset_of!(PtnetHeader, wanted_bufs)), input.index(8));
                memory.store(word(offset_of!(PtnetHeader, number)), number);
            }
            1 => memory.store(input.below(84), input.word()),
            2 => memory.store(usize::from(input.half()) % (len / 4), input.word()),
            3 => memory.store(1024 + input.below(32), input.index(8)),
            4 => {
                if bounded(A_COMMAND, "a command", || device.obey()).is_err() {
                    break;
                }
            }
            _ => {
                let Some((queues, scratch)) = &mut queues else { continue };
                let egress = &queues.0[0];
                let ingress = &mut queues.1[0];
                // SAFETY: the frame outlives the batch's use of it.
                unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
                bounded(A_BATCH, "deliver", || egress.deliver(&batch, &[0], scratch));
                batch.clear();
                // SAFETY: frames are read before `release`.
                bounded(A_BATCH, "take", || unsafe { ingress.take(&mut batch) });
                copied(&batch, drop);
                batch.clear();
                ingress.release();
            }
        }
    }
    assert!(matches!(device.hdr_len(), None | Some(0 | 12)));
    netvale_mem::probe::unwatch();
}
