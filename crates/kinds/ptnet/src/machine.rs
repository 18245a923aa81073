//! A virtual machine's memory, shown by two devices: the memory device, and the ptnet device, whose rings lie in it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::Region;
use netvale_mem::mapping::Pages;
use netvale_mem::region::Binding;
use netvale_mem::{Layout, PortMem, RegionError};
use serde::{Deserialize, Serialize};

use crate::header::Config;
use crate::instance::{InstanceError, shape, sizes};

/// Memory numbers in use. A guest with several ptnet devices finds the memory of each by its 16-bit number, which must
/// differ from port to port.
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { last: 0, used: BTreeSet::new() });

struct Numbers {
    last: u16,
    used: BTreeSet<u16>,
}

impl Numbers {
    /// Returns the next unused number; `None` if all 65,535 are used, more than a machine has descriptors for.
    fn take(&mut self) -> Option<u16> {
        let next = (1..=u16::MAX).map(|k| self.last.wrapping_add(k)).find(|n| *n != 0 && !self.used.contains(n))?;
        self.used.insert(next);
        self.last = next;
        Some(next)
    }
}

/// A number, reserved until dropped.
#[derive(Debug)]
struct Number(u16);

impl Number {
    fn new() -> Result<Number, InstanceError> {
        let taken = lock(&NUMBERS).take();
        let none = || InstanceError::Region(RegionError::Exhausted { what: "number for a memory", asked: 1, free: 0 });
        taken.map(Number).ok_or_else(none)
    }

    /// Reserves that number, if it is free.
    fn of(number: u16) -> Option<Number> {
        let mut numbers = lock(&NUMBERS);
        (number != 0 && numbers.used.insert(number)).then(|| {
            numbers.last = numbers.last.max(number);
            Number(number)
        })
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        lock(&NUMBERS).used.remove(&self.0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A virtual machine's memory. It lives while one of its two devices is connected.
#[derive(Default)]
pub struct Machine {
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    memory: Option<(Arc<Region>, Number)>,
    users: u32,
}

impl Machine {
    /// Number and descriptor of its memory, if any.
    pub(crate) fn save(&self) -> std::io::Result<Option<MemoryState>> {
        let shared = lock(&self.shared);
        let Some((region, number)) = &shared.memory else { return Ok(None) };
        let fd = region.fd().ok_or(rustix::io::Errno::BADF)?;
        Ok(Some(MemoryState { number: number.0, file: Fd::copy_of(fd)? }))
    }

    /// Restores another process's machine, which has a device; writes nothing.
    pub(crate) fn restore(config: &Config, memory: MemoryState) -> Result<Machine, BadState> {
        let layout = Layout::bar(sizes(config)).map_err(|e| BadState::new(RegionError::from(e)))?;
        let region = Region::adopt(memory.file.take()?, layout, &[]).map_err(BadState::new)?;
        let number = Number::of(memory.number).ok_or_else(|| BadState::new("a number of memory that is in use"))?;
        Ok(Machine { shared: Mutex::new(Shared { memory: Some((region, number)), users: 0 }) })
    }
}

/// Saved state of a machine's memory.
#[derive(Serialize, Deserialize)]
pub(crate) struct MemoryState {
    number: u16,
    file: Fd,
}

/// A device's share of its machine's memory.
pub(crate) struct Share {
    machine: Arc<Machine>,
    pub(crate) region: Arc<Region>,
    /// Number of the memory.
    pub(crate) number: u16,
}

impl Share {
    /// Creates a share of the memory; the first one creates the memory.
    pub(crate) fn new(machine: &Arc<Machine>, config: &Config) -> Result<Share, InstanceError> {
        let mut shared = lock(&machine.shared);
        if shared.memory.is_none() {
            let region = Region::bar("netvale-ptnet", sizes(config), Pages::Ordinary)?;
            shared.memory = Some((region, Number::new()?));
        }
        let nothing = RegionError::Exhausted { what: "memory", asked: 1, free: 0 };
        let (region, number) = shared.memory.as_ref().map(|(r, n)| (Arc::clone(r), n.0)).ok_or(nothing)?;
        shared.users += 1;
        Ok(Share { machine: Arc::clone(machine), region, number })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shared = lock(&self.machine.shared);
        shared.users = shared.users.saturating_sub(1);
        if shared.users == 0 {
            shared.memory = None;
        }
    }
}

/// Rings and their `netmap_if`, laid out in a machine's memory. Each layout has the same offsets: those that a driver
/// has computed stay right.
pub(crate) struct Laid {
    pub(crate) mem: Arc<PortMem>,
    binding: Binding,
}

impl Laid {
    /// Lays out everything anew, in whatever state the guest left it. The previous layout must be out of use.
    pub(crate) fn new(region: &Region, c: &Config) -> Result<Laid, InstanceError> {
        let mem = Arc::new(region.renewed()?.port(shape(c))?);
        let binding = mem.bind("ptnet", 0..c.tx_rings, 0..c.rx_rings, 0)?;
        Ok(Laid { mem, binding })
    }

    /// The layout of another process; writes nothing.
    pub(crate) fn continued(region: &Region, c: &Config) -> Result<Laid, InstanceError> {
        let mem = Arc::new(region.renewed()?.continue_port(shape(c), (0, 0), 0)?);
        let binding = mem.continue_binding(0, 0)?;
        Ok(Laid { mem, binding })
    }

    /// Offset of the `netmap_if`.
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

    /// Objective: numbers in use are not reserved twice, zero never, and returned ones are reused.
    #[test]
    fn numbers() {
        let mut numbers = Numbers { last: u16::MAX - 2, used: BTreeSet::from([1]) };
        assert_eq!([(); 4].map(|()| numbers.take()), [u16::MAX - 1, u16::MAX, 2, 3].map(Some));
        while numbers.take().is_some() {}
        assert_eq!(numbers.used.len(), usize::from(u16::MAX));
        numbers.used.remove(&7);
        assert_eq!(numbers.take(), Some(7));
    }

    /// Objective: a loss of a machine's memory is attributed to the ptnet device's hypervisor; a loss of a pipe's to
    /// its program.
    #[test]
    fn losses_are_blamed() {
        let config = Config { tx_rings: 1, rx_rings: 1, slots: 16, buf_size: 0, vnet_hdr: false, mac: [0; 6], mtu: 0 };
        let faults = [(); 2].map(|()| Fault::new().unwrap());
        let backend: Arc<dyn Backend> = Arc::new(Seats::new(1, 1).unwrap().0);
        let machine = Arc::<Machine>::default();
        let _device = PtnetDevice::new(&config, &machine, &backend, Box::new(|_| ()), &faults[0]).unwrap();
        Share::new(&machine, &config).unwrap().region.mapping().lose();
        let pipe = PipeBackend::new(&config, faults[1].clone()).unwrap();
        pipe.memory().unwrap().region.mapping().lose();
        assert_eq!(faults.map(|fault| fault.reason()), [Some(LOST.to_owned()), Some(LOST.to_owned())]);
    }

    /// Objective: rings have the same offsets each time, even over nonsense.
    #[test]
    fn same_places() {
        let config = Config { tx_rings: 2, rx_rings: 2, slots: 16, buf_size: 0, vnet_hdr: false, mac: [0; 6], mtu: 0 };
        let share = Share::new(&Arc::default(), &config).unwrap();
        let whole =
            netvale_mem::words::Words::new(share.region.mapping(), 0, share.region.mapping().len() / 4).unwrap();
        let pools = share.region.layout().buf_pool as usize / 4;
        let picture = || {
            let laid = Laid::new(&share.region, &config).unwrap();
            let nifp = laid.nifp() as usize / 4;
            // The offsets of the rings in the netmap_if: two each way, and two of host rings, which do not exist.
            let offsets = (0..6).map(|i| whole.load_wide(nifp + 14 + 2 * i)).collect::<Vec<_>>();
            let slots = laid.mem.tx.iter().chain(&laid.mem.rx).map(|side| side.ring.slot_word(7).buf_idx);
            (laid.nifp(), offsets, slots.collect::<Vec<_>>())
        };
        let before = picture();
        (0..pools).for_each(|i| whole.store(i, !0));
        assert_eq!(before, picture());
    }
}
