//! Buffers by number: free, ours with a frame in them, or the device's. Kept in private memory.

/// What the driver knows of its buffers.
#[derive(Debug)]
pub struct Ids {
    free: Vec<u16>,
    /// The buffer behind this one in its chain; [`NONE`] at its end.
    link: Box<[u16]>,
    /// Whether the device has the chain that begins here.
    posted: Box<[bool]>,
}

/// No buffer.
pub const NONE: u16 = u16::MAX;

impl Ids {
    /// `n` free buffers.
    pub fn new(n: u16) -> Ids {
        Ids {
            // The last is taken first: from 0 on.
            free: (0..n).rev().collect(),
            link: vec![NONE; usize::from(n)].into_boxed_slice(),
            posted: vec![false; usize::from(n)].into_boxed_slice(),
        }
    }

    /// Free buffers.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes `count` buffers as one chain. Returns the first; none when there are not so many.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<u16> {
        if count == 0 || self.free.len() < count {
            return None;
        }
        let mut first = NONE;
        for _ in 0..count {
            let id = self.free.pop()?;
            *self.link.get_mut(usize::from(id))? = first;
            first = id;
        }
        Some(first)
    }

    /// The buffer behind `id` in its chain.
    #[inline]
    pub fn next(&self, id: u16) -> Option<u16> {
        self.link.get(usize::from(id)).copied().filter(|next| *next != NONE)
    }

    /// The chain that begins at `id` is the device's now.
    #[inline]
    pub fn give(&mut self, id: u16) {
        if let Some(p) = self.posted.get_mut(usize::from(id)) {
            *p = true;
        }
    }

    /// The device gives it back. Returns whether it had it.
    #[inline]
    pub fn get_back(&mut self, id: u16) -> bool {
        self.posted.get_mut(usize::from(id)).is_some_and(|p| std::mem::replace(p, false))
    }

    /// The whole chain is free again.
    #[inline]
    pub fn recycle(&mut self, first: u16) {
        let mut at = Some(first);
        while let Some(id) = at {
            at = self.next(id);
            self.free.push(id);
        }
    }
}
