//! A device's interrupts (`struct vfio_irq_set`): the client connects each vector to an eventfd, which the device
//! rings.

use std::os::fd::OwnedFd;

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use rustix::io::Errno;

/// Interrupt kind: the pin, INTx.
pub const INTX: usize = 0;
/// Interrupt kind: MSI.
pub const MSI: usize = 1;
/// Interrupt kind: MSI-X.
pub const MSIX: usize = 2;
/// Number of interrupt kinds (vfio's IRQ indices). Besides the kinds above, one kind reports errors, and one requests
/// that the hypervisor release the device.
pub const KINDS: usize = 5;
/// Maximum number of vectors per kind.
pub const MAX_VECTORS: u32 = 64;

const DATA_NONE: u32 = 1;
const DATA_BOOL: u32 = 1 << 1;
const DATA_EVENTFD: u32 = 1 << 2;
const ACTION_MASK: u32 = 1 << 3;
const ACTION_UNMASK: u32 = 1 << 4;
const ACTION_TRIGGER: u32 = 1 << 5;

/// A client's request to connect, trigger or mask interrupts (`struct vfio_irq_set`).
#[derive(Clone, Copy, Debug)]
pub struct IrqRequest {
    /// Bits that select the action (trigger, mask, unmask) and the type of its data.
    pub flags: u32,
    /// Interrupt kind, e.g. [`MSIX`].
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// Number of vectors.
    pub count: u32,
}

/// The effect of a client's request on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqEffect {
    /// Vectors may have been connected or disconnected.
    Bells,
    /// The guest masked or unmasked the interrupt pin.
    Pin,
    /// The device need not handle anything.
    Nothing,
}

/// The interrupt vectors of all kinds, each with its eventfd if connected.
#[derive(Debug)]
pub struct Irqs {
    vectors: [Vec<Option<Doorbell>>; KINDS],
    /// The fault of the hypervisor's connection, which is set if a write to one of the hypervisor's eventfds would
    /// block.
    fault: Fault,
    /// Whether the guest has masked the interrupt pin.
    pub masked: bool,
}

impl Irqs {
    /// Creates `counts[kind]` unconnected vectors of each kind. `fault`, which belongs to the hypervisor's connection,
    /// is set if a write to one of the hypervisor's eventfds would block.
    pub fn new(counts: [u32; KINDS], fault: &Fault) -> Irqs {
        let vectors = counts.map(|n| (0..n.min(MAX_VECTORS)).map(|_| None).collect());
        Irqs { vectors, fault: fault.clone(), masked: false }
    }

    /// Returns the number of vectors of a kind.
    pub fn count(&self, kind: usize) -> u32 {
        self.vectors.get(kind).map_or(0, |v| v.len() as u32)
    }

    /// Returns the doorbell of a vector; `None` if the vector is not connected.
    pub fn bell(&self, kind: usize, vector: usize) -> Option<&Doorbell> {
        self.vectors.get(kind)?.get(vector)?.as_ref()
    }

    /// Returns the connected vectors: kind, number, doorbell.
    pub fn connected(&self) -> impl Iterator<Item = (usize, usize, &Doorbell)> {
        let of = |(kind, vectors): (usize, &'_ Vec<Option<Doorbell>>)| (kind, vectors.len());
        let all =
            self.vectors.iter().enumerate().map(of).flat_map(|(kind, n)| (0..n).map(move |vector| (kind, vector)));
        all.filter_map(|(kind, vector)| Some((kind, vector, self.bell(kind, vector)?)))
    }

    /// Connects a vector to an eventfd.
    ///
    /// # Errors
    /// `EINVAL` if the vector does not exist or the descriptor is not an eventfd.
    pub fn connect(&mut self, kind: usize, vector: usize, fd: OwnedFd) -> Result<(), Errno> {
        let place = self.vectors.get_mut(kind).and_then(|vectors| vectors.get_mut(vector)).ok_or(Errno::INVAL)?;
        *place = Some(Doorbell::given(fd, &self.fault)?);
        Ok(())
    }

    /// Executes a client's request. Returns the request's effect on the device.
    ///
    /// # Errors
    /// `EINVAL` if the request is invalid, or a descriptor is not an eventfd.
    pub fn set(&mut self, set: IrqRequest, data: &[u8], fds: Vec<OwnedFd>) -> Result<IrqEffect, Errno> {
        let kind = usize::try_from(set.index).map_err(|_| Errno::INVAL)?;
        let vectors = self.vectors.get_mut(kind).ok_or(Errno::INVAL)?;
        let start = set.start as usize;
        let count = set.count as usize;
        let all = count == 0 && start == 0 && set.flags & DATA_NONE != 0;
        let range = if all { 0..vectors.len() } else { start..start.saturating_add(count) };
        let chosen = vectors.get_mut(range.clone()).ok_or(Errno::INVAL)?;
        match (
            set.flags & (ACTION_MASK | ACTION_UNMASK | ACTION_TRIGGER),
            set.flags & !(ACTION_MASK | ACTION_UNMASK | ACTION_TRIGGER),
        ) {
            (ACTION_TRIGGER, DATA_NONE) if all => chosen.iter_mut().for_each(|v| *v = None),
            (ACTION_TRIGGER, DATA_NONE) => {
                chosen.iter().flatten().for_each(Doorbell::ring);
                return Ok(IrqEffect::Nothing);
            }
            (ACTION_TRIGGER, DATA_BOOL) if data.len() == count => {
                chosen
                    .iter()
                    .zip(data)
                    .filter(|(_, on)| **on != 0)
                    .filter_map(|(v, _)| v.as_ref())
                    .for_each(Doorbell::ring);
                return Ok(IrqEffect::Nothing);
            }
            (ACTION_TRIGGER, DATA_EVENTFD) if fds.is_empty() => chosen.iter_mut().for_each(|v| *v = None),
            (ACTION_TRIGGER, DATA_EVENTFD) if fds.len() == count => {
                let bells = fds.into_iter().map(|fd| Doorbell::given(fd, &self.fault));
                let bells = bells.collect::<Result<Vec<_>, _>>()?;
                chosen.iter_mut().zip(bells).for_each(|(vector, bell)| *vector = Some(bell));
            }
            (action @ (ACTION_MASK | ACTION_UNMASK), DATA_NONE | DATA_BOOL) if kind == INTX => {
                self.masked = action == ACTION_MASK;
                return Ok(IrqEffect::Pin);
            }
            // An eventfd with which the client would mask or unmask is ignored, as the server never reads eventfds.
            (ACTION_MASK | ACTION_UNMASK, DATA_EVENTFD) => return Ok(IrqEffect::Nothing),
            _ => return Err(Errno::INVAL),
        }
        Ok(IrqEffect::Bells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Objective: a vector rings its connected eventfd until the vector is disconnected; out-of-range and inconsistent
    /// requests are refused.
    #[test]
    fn a_vector_rings_its_connected_eventfd() {
        let mut irqs = Irqs::new([1, 0, 4, 0, 0], &Fault::new().unwrap());
        let bells: Vec<Doorbell> = (0..2).map(|_| Doorbell::new().unwrap()).collect();
        let fds = || bells.iter().map(|b| b.as_fd().try_clone_to_owned().unwrap()).collect::<Vec<_>>();
        let set = |flags, start, count| IrqRequest { flags, index: 2, start, count };
        let connect = DATA_EVENTFD | ACTION_TRIGGER;
        assert_eq!(irqs.set(set(connect, 1, 2), &[], fds()), Ok(IrqEffect::Bells));
        irqs.bell(MSIX, 1).unwrap().ring();
        assert!(irqs.bell(MSIX, 3).is_none() && irqs.bell(9, 9).is_none());
        assert!(bells[0].drain() && !bells[1].drain());
        irqs.set(set(DATA_BOOL | ACTION_TRIGGER, 1, 2), &[0, 1], vec![]).unwrap();
        assert!(!bells[0].drain() && bells[1].drain());
        irqs.set(set(connect, 2, 1), &[], vec![]).unwrap();
        assert!(irqs.bell(MSIX, 1).is_some() && irqs.bell(MSIX, 2).is_none());
        irqs.set(set(DATA_NONE | ACTION_TRIGGER, 0, 0), &[], vec![]).unwrap();
        assert!(irqs.bell(MSIX, 1).is_none());
        for bad in [
            set(connect, 3, 2),
            set(connect, u32::MAX, 2),
            set(connect, 0, 3),
            set(0, 0, 1),
            set(!0, 0, 1),
            set(DATA_BOOL | ACTION_TRIGGER, 0, 1),
        ] {
            assert_eq!(irqs.set(bad, &[], fds()), Err(Errno::INVAL), "{bad:?}");
        }
        assert_eq!(irqs.set(IrqRequest { index: 77, ..set(connect, 0, 1) }, &[], vec![]), Err(Errno::INVAL));
        let pin = IrqRequest { index: 0, ..set(DATA_NONE | ACTION_MASK, 0, 1) };
        assert_eq!(irqs.set(pin, &[], vec![]), Ok(IrqEffect::Pin));
        assert!(irqs.masked);
        let pipe = rustix::pipe::pipe().unwrap().1;
        assert_eq!(irqs.set(set(connect, 0, 1), &[], vec![pipe]), Err(Errno::INVAL), "no eventfd");
    }
}
