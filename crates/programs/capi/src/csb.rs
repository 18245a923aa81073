//! The CSB (communication status block) in a program's own memory (netmap.h, `nmreq_opt_csb`): two arrays, each with
//! one entry per bound ring, tx rings first.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use netvale_abi::{NmCsbAtok, NmCsbKtoa};
use rustix::io::Errno;

/// Both arrays of a program's CSB. By netmap's contract, the program keeps them mapped while the port is registered.
#[derive(Debug)]
pub struct UserCsb {
    atok: usize,
    ktoa: usize,
    rings: usize,
}

impl UserCsb {
    /// Checks that both arrays are aligned and mapped.
    ///
    /// # Errors
    /// `EINVAL` if an address is misaligned or zero, or there are no rings; `EFAULT` if memory is unmapped.
    pub fn new(atok: u64, ktoa: u64, rings: usize) -> Result<Self, Errno> {
        const ENTRY: usize = size_of::<NmCsbAtok>();
        if rings == 0 || atok == 0 || ktoa == 0 || !(atok | ktoa).is_multiple_of(ENTRY as u64) {
            return Err(Errno::INVAL);
        }
        crate::user::probe(atok, rings * ENTRY)?;
        crate::user::probe(ktoa, rings * ENTRY)?;
        Ok(UserCsb { atok: atok as usize, ktoa: ktoa as usize, rings })
    }

    fn word(base: usize, ring: usize, offset: usize) -> &'static AtomicU32 {
        // SAFETY: `new` probed memory at every entry, 64 bytes each and aligned to it; the program keeps it while the
        // port is registered; all accesses here are atomic.
        unsafe { AtomicU32::from_ptr((base + ring * 64 + offset) as *mut u32) }
    }

    fn atok(&self, ring: usize, offset: usize) -> &'static AtomicU32 {
        Self::word(self.atok, ring.min(self.rings - 1), offset)
    }

    fn ktoa(&self, ring: usize, offset: usize) -> &'static AtomicU32 {
        Self::word(self.ktoa, ring.min(self.rings - 1), offset)
    }

    /// Initialises a ring's entries in both arrays with the ring's indices, and makes both sides request kicks.
    pub fn init(&self, ring: usize, head: u32, cur: u32, hwcur: u32, hwtail: u32) {
        self.atok(ring, offset_of!(NmCsbAtok, cur)).store(cur, Ordering::Relaxed);
        self.atok(ring, offset_of!(NmCsbAtok, head)).store(head, Ordering::Relaxed);
        self.atok(ring, offset_of!(NmCsbAtok, appl_need_kick)).store(1, Ordering::Relaxed);
        self.atok(ring, offset_of!(NmCsbAtok, sync_flags)).store(1, Ordering::Relaxed);
        self.want_kick(ring, true);
        self.publish(ring, hwcur, hwtail);
    }

    /// Returns the application's `head` and `cur`. The application writes `cur` before `head`, so `head` is read before
    /// `cur`.
    pub fn head_cur(&self, ring: usize) -> (u32, u32) {
        let head = self.atok(ring, offset_of!(NmCsbAtok, head)).load(Ordering::Acquire);
        (head, self.atok(ring, offset_of!(NmCsbAtok, cur)).load(Ordering::Relaxed))
    }

    /// Publishes `hwcur`, then `hwtail`.
    pub fn publish(&self, ring: usize, hwcur: u32, hwtail: u32) {
        self.ktoa(ring, offset_of!(NmCsbKtoa, hwcur)).store(hwcur, Ordering::Release);
        self.ktoa(ring, offset_of!(NmCsbKtoa, hwtail)).store(hwtail, Ordering::Release);
    }

    /// Returns whether the application requests a kick. The fence orders this check after the indices were published.
    pub fn appl_wants_kick(&self, ring: usize) -> bool {
        fence(Ordering::SeqCst);
        self.atok(ring, offset_of!(NmCsbAtok, appl_need_kick)).load(Ordering::Relaxed) != 0
    }

    /// Sets whether the library requests kicks. After a request, the caller must check the ring once more before it
    /// sleeps.
    pub fn want_kick(&self, ring: usize, wanted: bool) {
        self.ktoa(ring, offset_of!(NmCsbKtoa, kern_need_kick)).store(wanted.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}
