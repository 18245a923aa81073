//! PCI configuration space (PCI 3.0 §6): its bytes, and masks of the guest-writable bits.

/// Size of configuration space in bytes.
pub const SIZE: usize = 256;
/// Offset of the first capability.
const FIRST_CAPABILITY: usize = 0x40;

/// The identity of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity {
    /// Vendor ID and device ID.
    pub id: (u16, u16),
    /// Subsystem vendor ID and subsystem ID.
    pub subsystem: (u16, u16),
    /// Class, subclass, programming interface.
    pub class: (u8, u8, u8),
    /// Revision.
    pub revision: u8,
    /// Whether the device has the interrupt pin INTA.
    pub intx: bool,
}

/// The kind of a base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// I/O ports.
    Ports,
    /// Memory, at an address below 4 GiB.
    Memory,
    /// Prefetchable memory, at a 64-bit address. Takes two registers.
    Prefetchable64,
}

/// Configuration space: stores the device's description and the guest's writes. The hypervisor decodes addresses and
/// implements the MSI-X table.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: [u8; SIZE],
    writable: [u8; SIZE],
    next: usize,
    last: usize,
}

impl ConfigSpace {
    /// Creates the configuration space of a device without capabilities.
    pub fn new(who: &Identity) -> ConfigSpace {
        let mut this = ConfigSpace { bytes: [0; SIZE], writable: [0; SIZE], next: FIRST_CAPABILITY, last: 0 };
        this.put(0x00, &who.id.0.to_le_bytes());
        this.put(0x02, &who.id.1.to_le_bytes());
        this.put(0x08, &[who.revision, who.class.2, who.class.1, who.class.0]);
        this.put(0x2c, &who.subsystem.0.to_le_bytes());
        this.put(0x2e, &who.subsystem.1.to_le_bytes());
        this.put(0x3d, &[u8::from(who.intx)]);
        // Command register: I/O space, memory space, bus master, parity, SERR, interrupt disable.
        this.let_write(0x04, &[0x47, 0x05]);
        this.let_write(0x0c, &[0xff]);
        this.let_write(0x3c, &[0xff]);
        this
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn let_write(&mut self, at: usize, mask: &[u8]) {
        if let Some(place) = self.writable.get_mut(at..at + mask.len()) {
            place.copy_from_slice(mask);
        }
    }

    /// Declares that base address register `number` has `size` bytes (a power of two, at least 16).
    pub fn bar(&mut self, number: usize, kind: BarKind, size: u64) {
        let at = 0x10 + 4 * number;
        let (flags, keep) = match kind {
            BarKind::Ports => (0x1u8, 0x3u64),
            BarKind::Memory => (0x0, 0xf),
            BarKind::Prefetchable64 => (0xc, 0xf),
        };
        self.put(at, &[flags]);
        // The bits below the size read as zero, which tells the guest the size.
        let mask = !(size.max(16) - 1) & !keep;
        self.let_write(at, &(mask as u32).to_le_bytes());
        if kind == BarKind::Prefetchable64 {
            self.let_write(at + 4, &((mask >> 32) as u32).to_le_bytes());
        }
    }

    /// Adds a capability with ID `id`; `body` follows the pointer to the next capability, and `writable` is the mask of
    /// the body's guest-writable bits. Returns the capability's offset; `None` if configuration space has no room for
    /// it.
    pub fn capability(&mut self, id: u8, body: &[u8], writable: &[u8]) -> Option<usize> {
        let at = self.next;
        let len = 2 + body.len();
        if at + len > SIZE {
            return None;
        }
        self.put(at, &[id, 0]);
        self.put(at + 2, body);
        self.let_write(at + 2, writable);
        let link = if self.last == 0 { 0x34 } else { self.last + 1 };
        self.put(link, &[at as u8]);
        // Status: a capability list is present.
        self.bytes[0x06] |= 0x10;
        self.last = at;
        self.next = (at + len).next_multiple_of(4);
        Some(at)
    }

    /// Adds an MSI-X capability (PCI 3.0 §6.8.2): `count` vectors, with the table at offset `table` and the pending
    /// bits at offset `pending` of `bar`.
    pub fn msix(&mut self, count: u16, bar: u8, table: u32, pending: u32) {
        let mut body = Vec::new();
        body.extend_from_slice(&(count - 1).to_le_bytes());
        body.extend_from_slice(&(table | u32::from(bar)).to_le_bytes());
        body.extend_from_slice(&(pending | u32::from(bar)).to_le_bytes());
        // Guest-writable: MSI-X enable, function mask.
        self.capability(0x11, &body, &[0x00, 0xc0]);
    }

    /// Adds an MSI capability with 64-bit addresses and one vector (PCI 3.0 §6.8.1).
    pub fn msi(&mut self) {
        let mut body = [0u8; 12];
        body[0] = 0x80;
        let mut writable = [0u8; 12];
        writable[0] = 0x01;
        writable[2] = 0xfc;
        writable[3..12].fill(0xff);
        self.capability(0x05, &body, &writable);
    }

    /// Reads at offset `at`. Bytes outside configuration space read as all ones.
    pub fn read(&self, at: u64, data: &mut [u8]) {
        let start = usize::try_from(at).unwrap_or(SIZE).min(SIZE);
        for (i, place) in data.iter_mut().enumerate() {
            *place = self.bytes.get(start + i).copied().unwrap_or(0xff);
        }
    }

    /// Writes the guest-writable bits at offset `at`; all other bits keep their values.
    pub fn write(&mut self, at: u64, data: &[u8]) {
        let start = usize::try_from(at).unwrap_or(SIZE).min(SIZE);
        for ((place, mask), byte) in self.bytes[start..].iter_mut().zip(&self.writable[start..]).zip(data) {
            *place = *place & !mask | byte & mask;
        }
    }

    /// Resets configuration space to its initial state: guest-writable bits become zero.
    pub fn reset(&mut self) {
        for (byte, mask) in self.bytes.iter_mut().zip(&self.writable) {
            *byte &= !mask;
        }
    }

    /// Returns the command register.
    pub fn command(&self) -> u16 {
        u16::from_le_bytes([self.bytes[4], self.bytes[5]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> ConfigSpace {
        let who = Identity { id: (0x1b36, 0x000d), class: (2, 0, 0), intx: true, ..Identity::default() };
        let mut c = ConfigSpace::new(&who);
        c.bar(0, BarKind::Ports, 256);
        c.bar(2, BarKind::Prefetchable64, 1 << 33);
        c.msix(3, 1, 0, 0x800);
        c.msi();
        c
    }

    fn word(c: &ConfigSpace, at: u64) -> u32 {
        let mut bytes = [0; 4];
        c.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Objective: a guest finds identity, sizes and the capability list as PCI defines them.
    #[test]
    fn what_a_guest_finds() {
        let mut c = space();
        assert_eq!(word(&c, 0), 0x000d_1b36);
        assert_eq!(word(&c, 8) >> 16, 0x0200);
        for at in [0x10, 0x14, 0x18, 0x1c] {
            c.write(at, &[0xff; 4]);
        }
        assert_eq!((word(&c, 0x10), word(&c, 0x14)), (0xffff_ff01, 0));
        assert_eq!((word(&c, 0x18), word(&c, 0x1c)), (0xc, 0xffff_fffe));
        let first = word(&c, 0x34) as u64;
        assert_eq!((word(&c, first) & 0xff, word(&c, first) >> 16), (0x11, 2));
        assert_eq!((word(&c, first + 4), word(&c, first + 8)), (1, 0x801));
        let second = u64::from(word(&c, first) >> 8 & 0xff);
        assert_eq!(word(&c, second) & 0xffff, 0x05);
    }

    /// Objective: read-only bits keep their values, bytes outside configuration space read as all ones, and a reset
    /// undoes all writes.
    #[test]
    fn what_a_guest_writes() {
        let mut c = space();
        let before = c.clone();
        c.write(0, &[0xff; SIZE]);
        assert_eq!(word(&c, 0), 0x000d_1b36);
        assert_eq!(c.command(), 0x0547);
        c.write(u64::MAX, &[0; 4]);
        c.write(250, &[0xff; 16]);
        assert_eq!(word(&c, 254) >> 16, 0xffff);
        c.reset();
        assert_eq!(c.bytes, before.bytes);
    }
}
