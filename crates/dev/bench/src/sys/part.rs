//! The processes of a set-up, each of which can be stopped.

use std::rc::Rc;

use crate::error::Result;
use crate::sys::child::Child;

/// Processes that belong together.
pub trait Part {
    /// Returns the processes that are stopped and continued.
    fn children(&self) -> Vec<&Child>;

    /// Returns the part's pinned threads, as `(pid, tid)`.
    fn threads(&self) -> Vec<(u32, u32)> {
        Vec::new()
    }

    /// Returns the process ids of the part.
    fn pids(&self) -> Vec<u32> {
        self.children().into_iter().map(Child::pid).collect()
    }

    /// Stops the part's processes until [`Part::thaw`].
    fn freeze(&self) -> Result<()> {
        self.children().into_iter().try_for_each(Child::freeze)
    }

    /// Continues the part's processes.
    fn thaw(&self) -> Result<()> {
        self.children().into_iter().try_for_each(Child::thaw)
    }
}

impl Part for Child {
    fn children(&self) -> Vec<&Child> {
        vec![self]
    }
}

/// This process, which need not be stopped, because it works only during measurements.
pub struct ThisProcess;

impl Part for ThisProcess {
    fn children(&self) -> Vec<&Child> {
        Vec::new()
    }

    fn pids(&self) -> Vec<u32> {
        vec![std::process::id()]
    }
}

/// Parts, in the order in which they are stopped.
pub type Parts = Vec<Rc<dyn Part>>;
