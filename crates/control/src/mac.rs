//! An Ethernet address as text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An Ethernet address; `02:00:00:00:00:0a` as text and in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

/// A text that is not an Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an Ethernet address, e.g. 02:00:00:00:00:0a")]
pub struct BadMac;

impl Mac {
    /// Derives a locally administered unicast address from a name; equal names give equal addresses. `kind` separates
    /// the addresses of different kinds of ports.
    #[must_use]
    pub fn of_name(kind: u8, name: &str) -> Mac {
        // The FNV-1a hash of the name.
        let sum = name.bytes().fold(0x811c_9dc5u32, |sum, b| (sum ^ u32::from(b)).wrapping_mul(0x0100_0193));
        let [a, b, c, d] = sum.to_be_bytes();
        Mac([0x02, kind, a, b, c, d])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let mut parts = text.split(':');
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let digits = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(digits.ok_or(BadMac)?, 16).map_err(|_| BadMac)?;
        }
        parts.next().map_or(Ok(Mac(bytes)), |_| Err(BadMac))
    }
}

impl TryFrom<String> for Mac {
    type Error = BadMac;

    fn try_from(text: String) -> Result<Self, BadMac> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Objective: an address written as text parses to the same address, and no text makes the parser panic.
        #[test]
        fn an_address_survives_its_text(bytes: [u8; 6], text: String) {
            prop_assert_eq!(Mac(bytes).to_string().parse(), Ok(Mac(bytes)));
            let _ = text.parse::<Mac>();
        }
    }

    /// Objective: texts that are not addresses are refused.
    #[test]
    fn texts_that_are_not_addresses_are_refused() {
        for bad in
            ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02:00:00:00:00:0g", "+2:00:00:00:00:00"]
        {
            assert_eq!(bad.parse::<Mac>(), Err(BadMac), "{bad}");
        }
    }
}
