//! Encodes numbers and strings as in RFC 4506: big-endian, in units of four bytes.

use std::net::IpAddr;

/// The bytes encoded so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Xdr(pub Vec<u8>);

impl Xdr {
    pub fn u32(&mut self, n: u32) -> &mut Xdr {
        self.0.extend(n.to_be_bytes());
        self
    }

    pub fn u64(&mut self, n: u64) -> &mut Xdr {
        self.0.extend(n.to_be_bytes());
        self
    }

    /// Appends length, bytes, and zeros up to the next multiple of four.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Xdr {
        self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends sFlow's `address`: its type and its bytes.
    pub fn address(&mut self, address: IpAddr) -> &mut Xdr {
        match address {
            IpAddr::V4(v4) => self.u32(1).0.extend(v4.octets()),
            IpAddr::V6(v6) => self.u32(2).0.extend(v6.octets()),
        }
        self
    }

    /// Appends a structure: format, length, body.
    pub fn structure(&mut self, format: u32, body: &Xdr) -> &mut Xdr {
        self.u32(format).opaque(&body.0)
    }
}
