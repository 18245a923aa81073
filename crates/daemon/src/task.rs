//! What a worker does again and again: forward an ingress, or move frames between the stack and a program's host rings.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use netvale_nic::stack::{StackRx, StackTx};
use netvale_switch::{Forwarder, Passed, PortId, Switch, Work};

/// A piece of work that one worker owns.
pub trait Task: Send {
    /// Does what there is to do, up to a batch.
    fn pass(&mut self, work: &mut Work) -> Passed;

    /// Something waits that nobody will tell of: look again soon.
    fn is_held(&self) -> bool;

    /// For how long the worker may sleep, if nobody wakes it for this task.
    fn nap(&self) -> Option<Duration> {
        None
    }

    /// Asks to be woken. Returns whether there is something to do already.
    fn arm(&mut self) -> bool;

    /// No wake-ups while the worker looks anyway.
    fn disarm(&mut self);

    /// Becomes readable on a wake-up.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Takes back a wake-up.
    fn woken(&mut self);

    /// Whether looking is a mere memory access.
    fn is_cheap(&self) -> bool;

    /// What it forwards comes from another port now. Only forwarders have one.
    fn rehome(&mut self, _switch: Arc<Switch>, _from: PortId) {}
}

impl Task for Forwarder {
    fn pass(&mut self, work: &mut Work) -> Passed {
        Forwarder::pass(self, work)
    }

    fn is_held(&self) -> bool {
        Forwarder::is_held(self)
    }

    fn arm(&mut self) -> bool {
        self.ingress().arm()
    }

    fn disarm(&mut self) {
        self.ingress().disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ingress_ref().wake_fd()
    }

    fn woken(&mut self) {
        self.ingress().woken();
    }

    fn is_cheap(&self) -> bool {
        self.ingress_ref().is_cheap()
    }

    fn rehome(&mut self, switch: Arc<Switch>, from: PortId) {
        Forwarder::rehome(self, switch, from);
    }
}

impl Task for StackTx {
    fn pass(&mut self, _work: &mut Work) -> Passed {
        match StackTx::pass(self) {
            0 if self.is_full() => Passed::Held,
            0 => Passed::Idle,
            n => Passed::Frames(n),
        }
    }

    fn is_held(&self) -> bool {
        self.is_full()
    }

    fn arm(&mut self) -> bool {
        StackTx::arm(self)
    }

    fn disarm(&mut self) {
        StackTx::disarm(self);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(StackTx::wake_fd(self))
    }

    fn woken(&mut self) {
        StackTx::woken(self);
    }

    fn is_cheap(&self) -> bool {
        true
    }
}

impl Task for StackRx {
    fn pass(&mut self, _work: &mut Work) -> Passed {
        match StackRx::pass(self) {
            0 => Passed::Idle,
            n => Passed::Frames(n),
        }
    }

    fn is_held(&self) -> bool {
        false
    }

    fn arm(&mut self) -> bool {
        // The TAP itself wakes a level-triggered sleeper.
        false
    }

    fn disarm(&mut self) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(StackRx::wake_fd(self))
    }

    fn woken(&mut self) {}

    fn is_cheap(&self) -> bool {
        false
    }
}
