//! netmap's own ptnet, which differs from netvale's, driven by a program in the guest. It consists of two PCI devices:
//! one has the registers, the other netmap's memory.
//!
//! The CSBs (communication status blocks) are in two locked pages of this program, whose physical addresses are written
//! to the device; only root can find out these addresses. The kernel must not move the pages while the device is in
//! use: `vm.compact_unevictable_allowed` should be 0, although the kernel moves no locked pages as long as memory is
//! not scarce.

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_abi::ptnet::published::{CREATE, DELETE, MEMORY_DEVICE, VENDOR, memory as mem, reg};
use netvale_control::attach::{AttachReply, Role};
use netvale_mem::Mapping;
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::csb::Csb;
use netvale_mem::notify::{Doorbell, disarm};
use netvale_mem::region::RingSide;
use netvale_mem::ring::{RingMem, RingPlace};
use netvale_mem::words::Words;

use crate::GuestError;
use crate::bus::{self, ticking};

const PAGE: usize = 4096;
/// Size of a ring's entry in a CSB, in bytes.
const CSB: u64 = 64;

/// A device's registers, which are in I/O ports and accessed through sysfs.
struct IoPorts(File);

impl IoPorts {
    fn open(folder: &Path) -> Result<IoPorts, GuestError> {
        std::fs::write(folder.join("enable"), "1").map_err(GuestError::system("enable the device"))?;
        let file = OpenOptions::new().read(true).write(true).open(folder.join("resource0"));
        file.map(IoPorts).map_err(GuestError::system("open the device's registers"))
    }

    fn read(&self, at: u64) -> Result<u32, GuestError> {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, at).map_err(GuestError::system("read the device's registers"))?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn write(&self, at: u64, value: u32) -> Result<(), GuestError> {
        let done = self.0.write_all_at(&value.to_le_bytes(), at);
        done.map_err(GuestError::system("write the device's registers"))
    }
}

/// Finds the memory device whose memory has the netmap memory ID `id`.
fn memory_device(id: u32) -> Result<(PathBuf, IoPorts), GuestError> {
    let none = GuestError::Device("the ptnet device has no memory device: the virtual machine needs both devices");
    let Ok(all) = std::fs::read_dir("/sys/bus/pci/devices") else { return Err(none) };
    for folder in all.flatten().map(|entry| entry.path()) {
        if bus::id(&folder) != Some((VENDOR, MEMORY_DEVICE)) {
            continue;
        }
        let registers = IoPorts::open(&folder)?;
        if registers.read(mem::ID)? == id {
            return Ok((folder, registers));
        }
    }
    Err(none)
}

/// Owner of everything that must exist as long as the rings are used. Dropping it stops the rings.
struct RingOwner {
    registers: Arc<IoPorts>,
}

impl Drop for RingOwner {
    fn drop(&mut self) {
        // A drop has no caller to which an error could be reported.
        let _ = self.registers.write(reg::CONTROL, DELETE);
    }
}

/// A ring, and a periodic timer on whose descriptor a program waits, since the ring has no interrupt.
pub type TickingRing = (AppRing, Doorbell);

/// A device with running rings.
pub struct PublishedDevice {
    /// Description of the port.
    pub reply: AttachReply,
    /// Memory of the device.
    pub map: Arc<Mapping>,
    /// Tx rings.
    pub tx: Vec<TickingRing>,
    /// Rx rings.
    pub rx: Vec<TickingRing>,
    /// Owner of everything that must exist as long as the rings are used.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// Opens the rings of the ptnet device in `folder` of sysfs.
///
/// # Errors
/// [`GuestError::System`] if a step fails; [`GuestError::Device`] if the devices contradict each other;
/// [`GuestError::Refused`] if the host refuses.
pub(crate) fn open(folder: &Path, hdr_len: u32) -> Result<PublishedDevice, GuestError> {
    let registers = Arc::new(IoPorts::open(folder)?);
    let r = |at| registers.read(at);
    let (memory_folder, memory) = memory_device(r(reg::MEMORY_ID)?)?;
    // netmap's memory is behind base address register 1 of the memory device.
    let map = bus::mapped(&memory_folder, 1, None)?;
    let tx_rings = r(reg::TX_RINGS)?;
    let rx_rings = r(reg::RX_RINGS)?;
    if tx_rings == 0 || rx_rings == 0 || tx_rings.saturating_add(rx_rings) > 32 {
        return Err(GuestError::Device("the device has an invalid number of rings"));
    }
    let csbs = Arc::new(Mapping::private(2 * PAGE).ok_or(GuestError::Device("out of memory"))?);
    let addresses = locked(&csbs)?;
    registers.write(reg::FEATURES, u32::from(hdr_len > 0))?;
    if r(reg::FEATURES)? != u32::from(hdr_len > 0) {
        let text = "the host offers no virtio-net header: attach the port there with --vnet-hdr".to_owned();
        return Err(GuestError::Refused { errno: rustix::io::Errno::IO.raw_os_error(), text });
    }
    registers.write(reg::HEADER_LEN, hdr_len)?;
    for (half, at) in addresses.iter().flat_map(|a| [(a >> 32) as u32, *a as u32]).zip(reg::CSB.step_by(4)) {
        registers.write(at, half)?;
    }
    registers.write(reg::CONTROL, CREATE)?;
    GuestError::check_start(r(reg::CONTROL)?)?;
    let keep = RingOwner { registers: Arc::clone(&registers) };
    let reply = AttachReply {
        role: Role::Switch,
        memsize: map.len() as u64,
        nifp: r(reg::NIFP)?.into(),
        buf_pool: memory.read(mem::BUF_OFFSET)?.into(),
        num_bufs: memory.read(mem::BUF_NUMBER)?,
        buf_size: memory.read(mem::BUF_SIZE)?,
        tx_rings,
        rx_rings,
        tx_slots: r(reg::TX_SLOTS)?,
        rx_slots: r(reg::RX_SLOTS)?,
        tx_bound: 0..tx_rings,
        rx_bound: 0..rx_rings,
        hdr_len,
        alone: true,
        ..AttachReply::default()
    };
    let (tx, rx) = rings(&reply, &map, &csbs, &registers)?;
    Ok(PublishedDevice { reply, map, tx, rx, keep: Arc::new(keep) })
}

/// Locks the two pages of a mapping into memory. Returns their physical addresses.
fn locked(pages: &Mapping) -> Result<[u64; 2], GuestError> {
    pages.lock().map_err(GuestError::system("lock memory"))?;
    let table = File::open("/proc/self/pagemap").map_err(GuestError::system("open the page table"))?;
    let mut found = [0; 2];
    for (i, place) in found.iter_mut().enumerate() {
        let mut entry = [0; 8];
        let number = pages.start().as_ptr() as u64 / PAGE as u64 + i as u64;
        table.read_exact_at(&mut entry, 8 * number).map_err(GuestError::system("read the page table"))?;
        // Bit 63: the page is present; lower 55 bits: its page frame number, which reads as 0 in unprivileged
        // processes.
        let entry = u64::from_le_bytes(entry);
        let frame = entry & ((1 << 55) - 1);
        if entry >> 63 == 0 || frame == 0 {
            return Err(GuestError::Device("physical addresses are visible only to root"));
        }
        *place = frame * PAGE as u64;
    }
    Ok(found)
}

fn rings(
    reply: &AttachReply,
    map: &Arc<Mapping>,
    csbs: &Arc<Mapping>,
    registers: &Arc<IoPorts>,
) -> Result<(Vec<TickingRing>, Vec<TickingRing>), GuestError> {
    let n_tx = reply.tx_rings;
    let n_rx = reply.rx_rings;
    // After the fixed fields of the `netmap_if`: the offsets of the tx rings, of an absent host ring, of the rx rings,
    // and of another absent host ring (netmap.h).
    let count = 2 * (n_tx + n_rx + 2) as usize;
    let offsets = Words::new(map, reply.nifp.saturating_add(56), count).ok_or(GuestError::Device("no netmap_if"))?;
    let side = |csb: u32, entry: u32, slots: u32| -> Result<RingSide, GuestError> {
        let ring = reply.nifp.wrapping_add(offsets.load_wide(2 * entry as usize));
        let place = RingPlace { ring, slots, bufs: reply.buf_pool, num_bufs: reply.num_bufs, buf_size: reply.buf_size };
        let ring = RingMem::new(map, place).ok_or(GuestError::Device("a ring is outside the memory"))?;
        let at = CSB * u64::from(csb);
        let csb_block = Csb::new(csbs, at, PAGE as u64 + at).ok_or(GuestError::Device("a ring has no status block"))?;
        // No interrupts are requested: without a driver, they would not reach this program.
        disarm(csb_block.appl_need_kick());
        Ok(RingSide { ring, csb: csb_block, csb_index: csb, offsets: Arc::default() })
    };
    let bell = |i: u32| -> Result<Doorbell, GuestError> {
        let file = registers.0.try_clone().map_err(GuestError::system("copy a descriptor"))?;
        Doorbell::file(file.into(), reg::KICKS + 4 * u64::from(i)).map_err(GuestError::system("make a doorbell"))
    };
    let wake = || ticking().map_err(GuestError::system("make a timer"));
    let mut tx = Vec::new();
    let mut rx = Vec::new();
    for i in 0..n_tx {
        let ring = AppRing::new(side(i, i, reply.tx_slots)?, Dir::Tx, bell(i)?);
        tx.push((ring, wake()?));
    }
    for i in 0..n_rx {
        let ring = AppRing::new(side(n_tx + i, n_tx + 1 + i, reply.rx_slots)?, Dir::Rx, bell(n_tx + i)?);
        rx.push((ring, wake()?));
    }
    Ok((tx, rx))
}
