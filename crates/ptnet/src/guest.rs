//! What every port tells of the virtual machine that it serves.

/// Name of the threads.
pub(crate) const THREAD: &str = "netvale-ptnet";

/// What is told of a virtual machine.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// Its driver runs the rings, with this many bytes of header before each frame.
    pub running: Option<u32>,
    /// Commands of its driver so far.
    pub commands: u64,
}

impl Guest {
    /// Its driver gave a command, whereafter the rings run, or do not.
    pub(crate) fn obeyed(&mut self, running: Option<u32>) {
        *self = Guest { running, commands: self.commands + 1 };
    }
}
