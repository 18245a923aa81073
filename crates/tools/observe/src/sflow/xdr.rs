//! Numbers and strings as RFC 4506 has them: big-endian, in units of four bytes.

use std::net::IpAddr;

/// Bytes in the making.
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

    /// Its length, itself, and zeros up to the next multiple of four.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Xdr {
        self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// sFlow's `address`: its kind, and as many bytes as that has.
    pub fn address(&mut self, address: IpAddr) -> &mut Xdr {
        match address {
            IpAddr::V4(v4) => self.u32(1).0.extend(v4.octets()),
            IpAddr::V6(v6) => self.u32(2).0.extend(v6.octets()),
        }
        self
    }

    /// A structure of that format, with its length before it.
    pub fn structure(&mut self, format: u32, body: &Xdr) -> &mut Xdr {
        self.u32(format).opaque(&body.0)
    }
}
