//! XDR encoding (RFC 4506): numbers are big-endian, and each item is padded to a multiple of four bytes.

use std::net::IpAddr;

/// The bytes that have been encoded.
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

    /// Appends the number of bytes, the bytes, and zeros up to a multiple of four bytes.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Xdr {
        self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends an sFlow `address`: a type, and the bytes of the IP address.
    pub fn address(&mut self, address: IpAddr) -> &mut Xdr {
        match address {
            IpAddr::V4(v4) => self.u32(1).0.extend(v4.octets()),
            IpAddr::V6(v6) => self.u32(2).0.extend(v6.octets()),
        }
        self
    }

    /// Appends an sFlow record: format, length, body.
    pub fn structure(&mut self, format: u32, body: &Xdr) -> &mut Xdr {
        self.u32(format).opaque(&body.0)
    }
}
