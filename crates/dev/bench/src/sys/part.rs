//! The processes of a set-up: each can be stopped where it is.

use std::rc::Rc;

use crate::error::Result;
use crate::sys::child::Child;

/// Processes that belong together.
pub trait Part {
    /// The processes that are stopped, and let go on.
    fn children(&self) -> Vec<&Child>;

    /// Its pinned threads, as `(pid, tid)`.
    fn threads(&self) -> Vec<(u32, u32)> {
        Vec::new()
    }

    /// All its processes.
    fn pids(&self) -> Vec<u32> {
        self.children().into_iter().map(Child::pid).collect()
    }

    /// Stops it where it is.
    fn freeze(&self) -> Result<()> {
        self.children().into_iter().try_for_each(Child::freeze)
    }

    /// Lets it go on.
    fn thaw(&self) -> Result<()> {
        self.children().into_iter().try_for_each(Child::thaw)
    }
}

impl Part for Child {
    fn children(&self) -> Vec<&Child> {
        vec![self]
    }
}

/// This process, which works only while it measures.
pub struct ThisProcess;

impl Part for ThisProcess {
    fn children(&self) -> Vec<&Child> {
        Vec::new()
    }

    fn pids(&self) -> Vec<u32> {
        vec![std::process::id()]
    }
}

/// Parts in the order in which they are stopped.
pub type Parts = Vec<Rc<dyn Part>>;
