//! A queue of an interface on a switch. It has its own memory, half of it for receiving and half for sending.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use netvale_afxdp::socket::{BufferLayout, XdpReceiver, XdpSender};
use netvale_afxdp::{Nic, OpenNicQueue};
use netvale_fdio::state::{BadState, Fd};
use netvale_mem::Mapping;
use netvale_mem::layout::DEFAULT_BUF_SIZE;
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_nic::continued::{PausedIngress, check_sending, find_free, find_taken};
use netvale_nic::egress::NicEgress;
use netvale_nic::ingress::NicIngress;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// The part of a queue that the port's backend keeps. The ingress belongs to a worker.
pub(super) struct SwitchQueue {
    number: u32,
    /// Whether a frame may span several buffers.
    multi_buffer: bool,
    opened: OpenNicQueue,
    memory: OwnedFd,
    pub(super) egress: Arc<NicEgress>,
    settled: Arc<Mutex<PausedIngress>>,
}

/// The state from which another process restores the queue.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NicQueueState {
    number: u32,
    memory: Fd,
    socket: Fd,
    /// Whether a frame may span several buffers.
    multi_buffer: bool,
    /// Numbers of free send buffers. `None` if the state was saved while workers ran: the values of this field and the
    /// next two are then derived from the socket's rings.
    free: Option<Vec<u32>>,
    /// Buffers that the ingress has taken and will return.
    taken: Vec<u32>,
    /// Offset and length of each fragment of an incomplete frame.
    pieces: Vec<(u64, u32)>,
}

/// How long to wait until the kernel has sent the frames that the predecessor put into the tx ring.
const QUIET: Duration = Duration::from_millis(300);

/// Returns the layout of the buffers. Buffer 0 is not used, because the headroom that the kernel uses before a frame
/// would begin before the memory.
fn buffers(entries: u32) -> BufferLayout {
    BufferLayout { first: 0, stride: DEFAULT_BUF_SIZE, count: 1 + 2 * entries }
}

fn bytes(buffers: &BufferLayout) -> usize {
    (buffers.count as usize * buffers.stride as usize).next_multiple_of(4096)
}

impl SwitchQueue {
    /// Opens a queue for a port on a switch. Returns the backend's part and the ingress.
    ///
    /// # Errors
    /// [`Refusal`] if the daemon is out of memory, or if the kernel refuses the socket.
    pub(super) fn open(nic: &Arc<Nic>, number: u32, entries: u32) -> Result<(SwitchQueue, NicIngress), Refusal> {
        let name = &nic.interface().name;
        let buffers = buffers(entries);
        // The memory is a file, so that another process can take it over.
        let made = sealed_memfd("netvale-queue", bytes(&buffers) as u64, PageKind::Ordinary);
        let missing = |e| Refusal::new(e, format!("no memory for {} frames of interface {name}: {e}", buffers.count));
        let (file, memory, _) = made.map_err(missing)?;
        let memory = Arc::new(memory);
        let opened = nic.queue(number, entries, &memory, buffers)?;
        opened.receive()?;
        let (receiver, sender) = halves(&opened, name)?;
        let got = opened.bind()?;
        let queue = Arc::clone(&opened.queue);
        let sends = 1 + entries..buffers.count;
        let egress = NicEgress::new(sender, Arc::clone(&memory), buffers, sends, got.multi_buffer, queue);
        let queue = Arc::clone(&opened.queue);
        let ingress = NicIngress::new(receiver, memory, buffers, 1..1 + entries, queue);
        let egress = Arc::new(egress);
        let settled = ingress.settled();
        let multi_buffer = got.multi_buffer;
        Ok((SwitchQueue { number, multi_buffer, opened, memory: file, egress, settled }, ingress))
    }

    /// Saves the descriptors, but not the state that changes with frames.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    pub(super) fn save(&self) -> std::io::Result<NicQueueState> {
        Ok(NicQueueState {
            number: self.number,
            memory: Fd::copy_of(&self.memory)?,
            socket: Fd::copy_of(self.opened.socket.as_fd())?,
            multi_buffer: self.multi_buffer,
            free: None,
            taken: Vec::new(),
            pieces: Vec::new(),
        })
    }

    /// Saves the exact state while the workers are parked. Returns `None` if a worker still has buffers in use.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    pub(super) fn save_parked(&self) -> std::io::Result<Option<NicQueueState>> {
        let Some((free, multi_buffer)) = self.egress.free() else { return Ok(None) };
        let PausedIngress { taken, pieces } = self.settled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Some(NicQueueState { multi_buffer, free: Some(free), taken, pieces, ..self.save()? }))
    }

    /// Restores a queue whose socket's rings have `entries` entries.
    ///
    /// # Errors
    /// [`Refusal`] if a descriptor is not of the expected type, or a buffer does not occur exactly once.
    pub(super) fn restore(
        nic: &Arc<Nic>,
        entries: u32,
        state: NicQueueState,
    ) -> Result<(SwitchQueue, NicIngress), Refusal> {
        let NicQueueState { number, memory, socket, multi_buffer, free, taken, pieces } = state;
        if entries > *netvale_mem::layout::RING_SLOTS_RANGE.end() {
            return Err(BadState::new("invalid number of ring entries").into());
        }
        let name = &nic.interface().name;
        let buffers = buffers(entries);
        let file = memory.take()?;
        let wrong = |e: Errno| Refusal::new(e, format!("cannot use the memory of queue {number}: {e}"));
        let memory = Arc::new(Mapping::map(file.as_fd(), bytes(&buffers)).map_err(wrong)?);
        let opened = nic.continue_queue(number, entries, &memory, buffers, socket.take()?)?;
        let (mut receiver, sender) = halves(&opened, name)?;
        let settled = PausedIngress { taken, pieces };
        let receives = 1..1 + entries;
        let sends = 1 + entries..buffers.count;
        let free = match free {
            Some(free) => {
                settled.check(&receiver, &buffers, receives)?;
                check_sending(&free, &sender, &buffers, sends)?;
                free
            }
            None => {
                find_taken(&mut receiver, &buffers, receives)?;
                find_free(&sender, &buffers, sends, QUIET)?
            }
        };
        let queue = Arc::clone(&opened.queue);
        let egress = Arc::new(NicEgress::new(sender, Arc::clone(&memory), buffers, free, multi_buffer, queue));
        let queue = Arc::clone(&opened.queue);
        let ingress = NicIngress::continued(receiver, memory, buffers, &settled, queue)?;
        let settled = ingress.settled();
        Ok((SwitchQueue { number, multi_buffer, opened, memory: file, egress, settled }, ingress))
    }

    /// Whether the driver accesses the buffers directly (zero copy).
    pub(super) fn is_zero_copy(&self) -> bool {
        self.opened.socket.is_zero_copy()
    }
}

fn halves(opened: &OpenNicQueue, name: &str) -> Result<(XdpReceiver, XdpSender), Refusal> {
    let halves = opened.socket.receiver().and_then(|receiver| Ok((receiver, opened.socket.sender()?)));
    halves.map_err(|e| Refusal::new(e, format!("{name}: cannot map the socket's rings: {e}")))
}
