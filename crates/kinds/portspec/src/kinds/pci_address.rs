//! The text after the colon of kinds that drive PCI devices.

use std::fmt;

use super::{AfterColon, AttachNeeds, fitting};
use crate::cursor::{Cursor, SpecResult};
use crate::text::Ident;

/// A PCI function's address, `[domain:]bus:device.function` in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    /// 0 to 31.
    device: u8,
    /// 0 to 7.
    function: u8,
}

impl AfterColon for PciAddress {
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let has_domain = cursor.rest().matches(':').count() > 1;
        let domain = if has_domain {
            let domain = byte_or(cursor, u64::from(u32::MAX), "a PCI domain")?;
            cursor.expect(":", "':' and the bus after the domain")?;
            domain
        } else {
            0
        };
        let bus = byte_or(cursor, 0xff, "a PCI address such as 0000:00:03.0")?;
        cursor.expect(":", "':' and the device after the bus")?;
        let device = byte_or(cursor, 31, "a PCI device")?;
        cursor.expect(".", "'.' and the function after the device")?;
        let function = byte_or(cursor, 7, "a PCI function")?;
        Ok(Self { domain, bus, device, function })
    }

    fn port_name(&self, _prefix: &str) -> Ident {
        fitting(&format!("pci_{self}").replace('.', "_"))
    }

    fn needs(&self) -> AttachNeeds<'_> {
        AttachNeeds::Trust("devices of the machine")
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// Reads a hexadecimal number from 0 to `max`. The caller picks a `T` that can hold `max`.
fn byte_or<T: TryFrom<u64>>(cursor: &mut Cursor<'_>, max: u64, what: &str) -> SpecResult<T> {
    let start = cursor.pos();
    let value = cursor.number(16, 0..=max, what)?;
    T::try_from(value).map_err(|_| cursor.fail_at(start, what))
}
