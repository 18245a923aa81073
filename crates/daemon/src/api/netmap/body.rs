//! The body of a netmap request: netmap's structure as bytes. The daemon reads the fields of the structure one by one,
//! and overwrites fields with the answer.

use netvale_control::device::BODY_LEN;

/// The bytes of a request's netmap structure.
pub(crate) struct NetmapBody(pub(crate) [u8; BODY_LEN]);

impl NetmapBody {
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }
    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.get(at))
    }
    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.get(at))
    }
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(field) = self.0.get_mut(at..at + N) {
            field.copy_from_slice(&bytes);
        }
    }
    pub(crate) fn put16(&mut self, at: usize, v: u32) {
        self.put(at, u16::try_from(v).unwrap_or(u16::MAX).to_le_bytes());
    }
    pub(crate) fn put32(&mut self, at: usize, v: u32) {
        self.put(at, v.to_le_bytes());
    }
    pub(crate) fn put64(&mut self, at: usize, v: u64) {
        self.put(at, v.to_le_bytes());
    }
}
