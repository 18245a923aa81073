//! The protocol against another implementation: the front end of the `vhost` crate, the base of small VMMs.

use crate::common;
use crate::common::raw;

use std::os::fd::AsRawFd;

use common::{End, take, until};
use netvale_vhost::features::{LOG_ALL, PROTOCOL_FEATURES};
use netvale_vhost::port::{VhostMode, VhostOptions, VhostPort};
use netvale_virtio::driver::ram::DriverRam;
use netvale_virtio::driver::{DriverFeatures, DriverQueue, addresses};
use netvale_virtio::features::{MQ, VERSION_1};
use raw::rig;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures as Protocol,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

const OURS: Protocol = Protocol::MQ
    .union(Protocol::REPLY_ACK)
    .union(Protocol::LOG_SHMFD)
    .union(Protocol::RARP)
    .union(Protocol::MTU)
    .union(Protocol::CONFIG)
    .union(Protocol::INFLIGHT_SHMFD)
    .union(Protocol::RESET_DEVICE)
    .union(Protocol::CONFIGURE_MEM_SLOTS)
    .union(Protocol::STATUS);

/// Negotiates all of netvale's features, and requests an answer to everything.
fn negotiated(path: &std::path::Path, queues: u64) -> Frontend {
    let mut front = Frontend::connect(path, queues).unwrap();
    front.set_owner().unwrap();
    let features = front.get_features().unwrap();
    assert_ne!(features & PROTOCOL_FEATURES, 0);
    front.set_features(VERSION_1 | PROTOCOL_FEATURES | (features & MQ)).unwrap();
    let protocol = front.get_protocol_features().unwrap();
    front.set_protocol_features(protocol & OURS).unwrap();
    front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    front
}

/// Objective: a front end that requests features before it owns the device, like QEMU, is not offered a configuration
/// space, about which QEMU would warn. Other front ends are offered one, as they read the Ethernet address from it.
#[test]
fn an_early_front_end_is_offered_no_configuration() {
    for owned in [false, true] {
        let rig = rig();
        let mut front = Frontend::connect(&rig.path, 2).unwrap();
        if owned {
            front.set_owner().unwrap();
        }
        let features = front.get_features().unwrap();
        front.set_features(features).unwrap();
        let told = front.get_protocol_features().unwrap();
        assert_eq!(told.contains(Protocol::CONFIG), owned);
        assert!(told.contains(Protocol::REPLY_ACK));
    }
}

/// Objective: a driver set up by the `vhost` crate's front end sends frames, whether it passes its memory as one table
/// or as hot-plugged slots; each request of this front end gets the expected answer.
#[test]
fn a_queue_by_the_other_front_end() {
    for slots in [false, true] {
        let mut rig = rig();
        let mut front = negotiated(&rig.path, 2);
        assert!(front.get_max_mem_slots().unwrap() >= 32);
        let (_, config) = front.get_config(0, 12, VhostUserConfigFlags::WRITABLE, &[0; 12]).unwrap();
        assert_eq!(config[..8], [2, 2, 2, 2, 2, 2, 1, 0], "address, link");
        let (ram, mut queues) = DriverRam::new(&[8, 8]).unwrap();
        let spec = ram.spec();
        let fd = ram.file().unwrap();
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: spec.guest,
            memory_size: spec.size,
            userspace_addr: spec.user,
            mmap_offset: 0,
            mmap_handle: fd.as_raw_fd(),
        };
        if slots {
            front.add_mem_region(&region).unwrap();
        } else {
            front.set_mem_table(&[region]).unwrap();
        }
        let shape = VhostUserInflight { num_queues: 2, queue_size: 8, ..VhostUserInflight::default() };
        let (shape, file) = front.get_inflight_fd(&shape).unwrap();
        assert!(shape.mmap_size >= 2 * (16 + 16 * 8));
        front.set_inflight_fd(&shape, file.as_raw_fd()).unwrap();
        let queue_ram = queues.remove(1);
        let mut queue = DriverQueue::new(&queue_ram, DriverFeatures::default());
        let at = addresses(&queue_ram);
        let config = VringConfigData {
            queue_max_size: 8,
            queue_size: 8,
            flags: 0,
            desc_table_addr: at.desc,
            used_ring_addr: at.used,
            avail_ring_addr: at.avail,
            log_addr: None,
        };
        let kick = EventFd::new(0).unwrap();
        let call = EventFd::new(0).unwrap();
        front.set_vring_num(1, 8).unwrap();
        front.set_vring_addr(1, &config).unwrap();
        front.set_vring_base(1, 0).unwrap();
        front.set_vring_call(1, &call).unwrap();
        front.set_vring_kick(1, &kick).unwrap();
        front.set_vring_enable(1, true).unwrap();
        for _ in 0..5 {
            let id = queue.take(1).unwrap();
            queue.post(&queue_ram, id, |_| false, |_| 12 + 60);
        }
        queue.publish();
        let mut got = 0;
        until("frames arrive", || {
            got += take(&mut rig.end, |(bytes, _)| assert_eq!(bytes.len(), 60));
            got == 5
        });
        assert_eq!(front.get_vring_base(1).unwrap(), 5);
        if slots {
            front.remove_mem_region(&region).unwrap();
        }
        front.reset_device().unwrap();
        assert_eq!(rig.device.state().last_error, None);
    }
}

/// Objective: a dirty log set up by the `vhost` crate's front end is accepted.
#[test]
fn a_log_by_the_other_front_end() {
    let rig = rig();
    let front = negotiated(&rig.path, 2);
    let log = raw::file();
    let region = VhostUserDirtyLogRegion { mmap_size: 4096, mmap_offset: 0, mmap_handle: log.as_raw_fd() };
    front.set_log_base(0, Some(region)).unwrap();
    front.set_features(VERSION_1 | PROTOCOL_FEATURES | LOG_ALL).unwrap();
    assert_eq!(rig.device.state().last_error, None);
}

/// Objective: the port offers the number of queue pairs that its options state.
#[test]
fn the_number_of_queue_pairs_is_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let options = VhostOptions { site: path.clone().into(), mode: VhostMode::Server, pairs: 3, mac: [2; 6], mtu: 1500 };
    let (_device, queues) = VhostPort::new(&options).unwrap();
    let _end = End::first(queues);
    assert_eq!(negotiated(&path, 6).get_queue_num().unwrap(), 3);
}
