//! A virtual machine's memory, which two devices share: the memory device exposes it, and the ptnet device's rings are
//! in it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::Region;
use netvale_mem::mapping::PageKind;
use netvale_mem::region::Binding;
use netvale_mem::{Layout, PortMem, RegionError};
use serde::{Deserialize, Serialize};

use crate::header::PtnetDeviceConfig;
use crate::instance::{InstanceError, shape, sizes};

/// Memory numbers in use. A guest with several ptnet devices finds the memory of each device by its 16-bit number, so
/// numbers are unique across ports.
static NUMBERS: Mutex<MachineNumbers> = Mutex::new(MachineNumbers { last: 0, used: BTreeSet::new() });

struct MachineNumbers {
    last: u16,
    used: BTreeSet<u16>,
}

impl MachineNumbers {
    /// Returns the next unused number; `None` if all 65,535 are in use, more than a process has descriptors for.
    fn take(&mut self) -> Option<u16> {
        let next = (1..=u16::MAX).map(|k| self.last.wrapping_add(k)).find(|n| *n != 0 && !self.used.contains(n))?;
        self.used.insert(next);
        self.last = next;
        Some(next)
    }
}

/// A memory number, reserved until dropped.
#[derive(Debug)]
struct MachineNumber(u16);

impl MachineNumber {
    fn new() -> Result<MachineNumber, InstanceError> {
        let taken = lock(&NUMBERS).take();
        let none = || InstanceError::Region(RegionError::Exhausted { what: "number for a memory", asked: 1, free: 0 });
        taken.map(MachineNumber).ok_or_else(none)
    }

    /// Reserves `number`; returns `None` if it is 0 or in use.
    fn of(number: u16) -> Option<MachineNumber> {
        let mut numbers = lock(&NUMBERS);
        (number != 0 && numbers.used.insert(number)).then(|| {
            numbers.last = numbers.last.max(number);
            MachineNumber(number)
        })
    }
}

impl Drop for MachineNumber {
    fn drop(&mut self) {
        lock(&NUMBERS).used.remove(&self.0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A virtual machine's memory, which exists while one of its two devices is connected.
#[derive(Default)]
pub struct PtnetMachine {
    shared: Mutex<MachineMemory>,
}

#[derive(Default)]
struct MachineMemory {
    memory: Option<(Arc<Region>, MachineNumber)>,
    users: u32,
}

impl PtnetMachine {
    /// Returns number and descriptor of the memory, if there is one.
    pub(crate) fn save(&self) -> std::io::Result<Option<MemoryState>> {
        let shared = lock(&self.shared);
        let Some((region, number)) = &shared.memory else { return Ok(None) };
        let fd = region.fd().ok_or(rustix::io::Errno::BADF)?;
        Ok(Some(MemoryState { number: number.0, file: Fd::copy_of(fd)? }))
    }

    /// Restores a predecessor's machine, which has a connected device; writes nothing.
    pub(crate) fn restore(config: &PtnetDeviceConfig, memory: MemoryState) -> Result<PtnetMachine, BadState> {
        let layout = Layout::bar(sizes(config)).map_err(|e| BadState::new(RegionError::from(e)))?;
        let region = Region::adopt(memory.file.take()?, layout, &[]).map_err(BadState::new)?;
        let number =
            MachineNumber::of(memory.number).ok_or_else(|| BadState::new("the memory number is already in use"))?;
        Ok(PtnetMachine { shared: Mutex::new(MachineMemory { memory: Some((region, number)), users: 0 }) })
    }
}

/// Saved state of a machine's memory.
#[derive(Serialize, Deserialize)]
pub(crate) struct MemoryState {
    number: u16,
    file: Fd,
}

/// One device's reference to a machine's memory, which is freed with the last reference.
pub(crate) struct MachineShare {
    machine: Arc<PtnetMachine>,
    pub(crate) region: Arc<Region>,
    /// Number by which the guest's driver finds the memory.
    pub(crate) number: u16,
}

impl MachineShare {
    /// Creates a share of the memory; the first share creates the memory.
    pub(crate) fn new(machine: &Arc<PtnetMachine>, config: &PtnetDeviceConfig) -> Result<MachineShare, InstanceError> {
        let mut shared = lock(&machine.shared);
        if shared.memory.is_none() {
            let region = Region::bar("netvale-ptnet", sizes(config), PageKind::Ordinary)?;
            shared.memory = Some((region, MachineNumber::new()?));
        }
        let nothing = RegionError::Exhausted { what: "memory", asked: 1, free: 0 };
        let (region, number) = shared.memory.as_ref().map(|(r, n)| (Arc::clone(r), n.0)).ok_or(nothing)?;
        shared.users += 1;
        Ok(MachineShare { machine: Arc::clone(machine), region, number })
    }
}

impl Drop for MachineShare {
    fn drop(&mut self) {
        let mut shared = lock(&self.machine.shared);
        shared.users = shared.users.saturating_sub(1);
        if shared.users == 0 {
            shared.memory = None;
        }
    }
}

/// Rings and their `netmap_if`, laid out in a machine's memory. Every layout has the same offsets, so offsets that a
/// driver has computed remain valid.
pub(crate) struct RingsLayout {
    pub(crate) mem: Arc<PortMem>,
    binding: Binding,
}

impl RingsLayout {
    /// Lays out the rings and the `netmap_if` again, regardless of the state in which the guest left it. The previous
    /// layout must be out of use.
    pub(crate) fn new(region: &Region, c: &PtnetDeviceConfig) -> Result<RingsLayout, InstanceError> {
        let mem = Arc::new(region.renewed()?.port(shape(c))?);
        let binding = mem.bind("ptnet", 0..c.tx_rings, 0..c.rx_rings, 0)?;
        Ok(RingsLayout { mem, binding })
    }

    /// Returns a predecessor's layout; writes nothing.
    pub(crate) fn continued(region: &Region, c: &PtnetDeviceConfig) -> Result<RingsLayout, InstanceError> {
        let mem = Arc::new(region.renewed()?.continue_port(shape(c), 0, 0, 0)?);
        let binding = mem.continue_binding(0, 0)?;
        Ok(RingsLayout { mem, binding })
    }

    /// Returns the offset of the `netmap_if`.
    pub(crate) fn nifp(&self) -> u64 {
        self.binding.nifp()
    }
}

#[cfg(test)]
mod tests {
    use netvale_mem::fault::{Fault, LOST};

    use super::*;
    use crate::backend::Backend;
    use crate::pipe::PipeBackend;
    use crate::published::PtnetDevice;
    use crate::seats::Seats;

    /// Objective: numbers in use are not reserved twice, zero is never reserved, and released numbers are reused.
    #[test]
    fn numbers_in_use_are_not_reserved_twice() {
        let mut numbers = MachineNumbers { last: u16::MAX - 2, used: BTreeSet::from([1]) };
        assert_eq!([(); 4].map(|()| numbers.take()), [u16::MAX - 1, u16::MAX, 2, 3].map(Some));
        while numbers.take().is_some() {}
        assert_eq!(numbers.used.len(), usize::from(u16::MAX));
        numbers.used.remove(&7);
        assert_eq!(numbers.take(), Some(7));
    }

    /// Objective: the loss of a machine's memory sets the fault of the ptnet device's hypervisor; the loss of a pipe's
    /// memory sets the fault of its program.
    #[test]
    fn losses_are_blamed() {
        let config = PtnetDeviceConfig {
            tx_rings: 1,
            rx_rings: 1,
            slots: 16,
            buf_size: 0,
            vnet_hdr: false,
            mac: [0; 6],
            mtu: 0,
        };
        let faults = [(); 2].map(|()| Fault::new().unwrap());
        let backend: Arc<dyn Backend> = Arc::new(Seats::new(1, 1).unwrap().0);
        let machine = Arc::<PtnetMachine>::default();
        let _device = PtnetDevice::new(&config, &machine, &backend, &faults[0]).unwrap();
        MachineShare::new(&machine, &config).unwrap().region.mapping().lose();
        let pipe = PipeBackend::new(&config, faults[1].clone()).unwrap();
        pipe.memory().unwrap().region.mapping().lose();
        assert_eq!(faults.map(|fault| fault.reason()), [Some(LOST.to_owned()), Some(LOST.to_owned())]);
    }

    /// Objective: rings have the same offsets each time they are laid out, even in memory that the guest has
    /// overwritten.
    #[test]
    fn rings_have_the_same_places_each_time() {
        let config = PtnetDeviceConfig {
            tx_rings: 2,
            rx_rings: 2,
            slots: 16,
            buf_size: 0,
            vnet_hdr: false,
            mac: [0; 6],
            mtu: 0,
        };
        let share = MachineShare::new(&Arc::default(), &config).unwrap();
        let whole =
            netvale_mem::words::Words::new(share.region.mapping(), 0, share.region.mapping().len() / 4).unwrap();
        let pools = share.region.layout().buf_pool as usize / 4;
        let picture = || {
            let laid = RingsLayout::new(&share.region, &config).unwrap();
            let nifp = laid.nifp() as usize / 4;
            // Offsets of the rings in the netmap_if: two in each direction, then two of absent host rings.
            let offsets = (0..6).map(|i| whole.load_wide(nifp + 14 + 2 * i)).collect::<Vec<_>>();
            let slots = laid.mem.tx.iter().chain(&laid.mem.rx).map(|side| side.ring.slot_word(7).buf_idx);
            (laid.nifp(), offsets, slots.collect::<Vec<_>>())
        };
        let before = picture();
        (0..pools).for_each(|i| whole.store(i, !0));
        assert_eq!(before, picture());
    }
}
