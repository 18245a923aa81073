//! The device's part in a guest's migration, and its support for a front end that outlives this process: the dirty log,
//! the in-flight record, the announcement of a guest that has arrived.

use std::sync::Arc;

use netvale_virtio::device::live::WriteLog;
use netvale_virtio::features::RING_PACKED;
use netvale_virtio::queue::MAX_SIZE;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::device::VhostDevice;
use super::message::{FrontEndViolation, VhostMessage};
use crate::features::LOG_ALL;
use crate::inflight::{self, Inflight, InflightShape};
use crate::log::DirtyLog;

/// Maximum size of a log in bytes, enough for guests of 128 TiB.
const MAX_LOG: u64 = 1 << 32;

impl VhostDevice {
    /// SET_LOG_BASE: maps the dirty log. The message has the log's size, its offset in a file, and the file.
    pub(super) fn set_log(&mut self, m: &mut VhostMessage) -> Result<(), FrontEndViolation> {
        let [size, offset] = m.words(0)?;
        if size > MAX_LOG {
            return Err(FrontEndViolation::Value(m.request));
        }
        let fd = m.take_fds(1)?.pop().ok_or(FrontEndViolation::Size(m.request))?;
        self.log = Some(Arc::new(DirtyLog::new(fd, offset, size)?));
        self.tell_logs()
    }

    /// Returns the log; `None` if writes need not be logged.
    pub(super) fn live_log(&self) -> Option<Arc<dyn WriteLog>> {
        let log = self.log.clone().filter(|_| self.features & LOG_ALL != 0);
        log.map(|log| log as Arc<dyn WriteLog>)
    }

    /// Passes the current log to all running queues. A front end may change the log at any time.
    pub(super) fn tell_logs(&self) -> Result<(), FrontEndViolation> {
        for (i, v) in self.vrings.iter().enumerate() {
            if let Some(live) = self.queue(i)?.as_mut() {
                live.log = self.live_log();
                live.log_ring = v.log;
            }
        }
        Ok(())
    }

    /// GET_INFLIGHT_FD: creates the memory for in-flight records. Returns its size and offset, followed by the numbers
    /// of the request.
    pub(super) fn make_inflight(&self, m: &VhostMessage) -> Result<VhostMessage, FrontEndViolation> {
        let (queues, size) = self.inflight_shape(m)?;
        let len = inflight::bytes(queues, size, self.features & RING_PACKED != 0);
        let fd = memfd_create("netvale-inflight", MemfdFlags::CLOEXEC).map_err(FrontEndViolation::System)?;
        ftruncate(&fd, len).map_err(FrontEndViolation::System)?;
        let mut payload = m.payload.clone();
        payload[..8].copy_from_slice(&len.to_le_bytes());
        payload[8..16].fill(0);
        let mut answer = VhostMessage::reply(m.request, payload);
        answer.fds.push(fd);
        Ok(answer)
    }

    /// SET_INFLIGHT_FD: maps memory with in-flight records, which this process or an earlier process created.
    pub(super) fn set_inflight(&mut self, m: &mut VhostMessage) -> Result<(), FrontEndViolation> {
        let (queues, size) = self.inflight_shape(m)?;
        let [len, offset] = m.words(0)?;
        if len > 2 * inflight::bytes(self.vrings.len() as u16, MAX_SIZE, true) {
            return Err(FrontEndViolation::Value(m.request));
        }
        let fd = m.take_fds(1)?.pop().ok_or(FrontEndViolation::Size(m.request))?;
        self.inflight = Some(Arc::new(Inflight::new(fd, InflightShape { len, offset, queues, size })?));
        Ok(())
    }

    /// Returns the number of queues and the number of descriptors per queue, which are at bytes 16 and 18 of the
    /// message's payload.
    fn inflight_shape(&self, m: &VhostMessage) -> Result<(u16, u16), FrontEndViolation> {
        let half = |at: usize| m.payload.get(at..at + 2).and_then(|b| b.first_chunk()).map(|b| u16::from_le_bytes(*b));
        let (Some(queues), Some(size)) = (half(16), half(18)) else { return Err(FrontEndViolation::Size(m.request)) };
        if usize::from(queues) > self.vrings.len() || size > MAX_SIZE {
            return Err(FrontEndViolation::Value(m.request));
        }
        Ok((queues, size))
    }

    /// Clears a queue's in-flight record, which is no longer needed when the front end gets the queue's position or
    /// restarts the queue.
    pub(super) fn close_record(&self, i: usize) -> Result<(), FrontEndViolation> {
        let record = self.queue(i)?.as_mut().and_then(|live| live.inflight.take());
        record.iter().for_each(|record| record.close());
        Ok(())
    }

    /// SEND_RARP: announces to the switch that the guest with this address has moved here.
    pub(super) fn announce(&mut self, m: &VhostMessage) -> Result<(), FrontEndViolation> {
        let mac = m.u64()?.to_le_bytes();
        let frame = rarp([mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]]);
        self.announcement = Some(frame);
        self.deliver_announcement()
    }

    /// Passes the announcement to the first transmit queue once that queue runs.
    pub(super) fn deliver_announcement(&mut self) -> Result<(), FrontEndViolation> {
        let Some(frame) = self.announcement.filter(|_| self.seats.len() > 1) else { return Ok(()) };
        let given = self.queue(1)?.as_mut().filter(|l| l.enabled).map(|live| live.announce = Some(frame.to_vec()));
        self.announcement = self.announcement.filter(|_| given.is_none());
        self.seats[1].poke();
        Ok(())
    }
}

/// Returns a broadcast reverse-ARP request of `mac` for itself (RFC 903), with which QEMU announces guests.
fn rarp(mac: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    // EtherType; Ethernet, IPv4, lengths of their addresses, "request reverse".
    frame[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    frame[22..28].copy_from_slice(&mac);
    frame[32..38].copy_from_slice(&mac);
    frame
}
