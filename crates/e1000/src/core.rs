//! The controller as workers and the control thread share it: its state, the guest's memory, and how the guest is interrupted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use netvale_mem::notify::Doorbell;
use netvale_port::RingCounters;
use netvale_port::ear::Ear;
use netvale_port::slot::{Inside, Slot};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::device::{E1000, Effects};
use crate::memory::Memory;

/// How the guest is interrupted.
struct Line {
    /// Led to what the hypervisor gave.
    bell: Arc<Doorbell>,
    /// By message: each time; by pin: once, until the hypervisor says that the pin is looked at again.
    is_message: bool,
    pin_ready: bool,
    timer: OwnedFd,
    /// When the timer runs out, if it runs.
    set: Option<u64>,
}

/// What one thread at a time is at.
pub struct Core {
    /// The controller.
    pub e1000: E1000,
    /// The guest's memory.
    pub memory: Memory,
    /// Counts resets and changes of the memory: what was read before one is not written back after it.
    pub epoch: u64,
    line: Line,
    began: Instant,
}

impl Core {
    fn new(e1000: E1000) -> Result<Core, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let bell = Arc::new(Doorbell::new()?);
        let line = Line { bell, is_message: false, pin_ready: true, timer, set: None };
        Ok(Core { e1000, memory: Memory::default(), epoch: 0, line, began: Instant::now() })
    }

    /// Nanoseconds since the card was made.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The driver writes a register.
    pub fn write(&mut self, at: u32, value: u32) -> Effects {
        let before = self.e1000.resets();
        let effects = self.e1000.write(at, value);
        self.epoch += u64::from(self.e1000.resets() != before);
        self.update();
        effects
    }

    /// Interrupts the guest if it is to be, and has the timer run out when that may change.
    pub fn update(&mut self) {
        let now = self.now();
        if self.e1000.causes.update(now) {
            self.raise();
        }
        let next = self.e1000.causes.deadline();
        if next != self.line.set {
            self.line.set = next;
            self.set_timer(next.map(|at| at.saturating_sub(now).max(1)));
        }
    }

    fn raise(&mut self) {
        if self.line.is_message || std::mem::take(&mut self.line.pin_ready) {
            self.line.bell.ring();
        }
    }

    /// The hypervisor looks at the pin again: it is told if the line is up.
    pub fn unmask_pin(&mut self) {
        self.line.pin_ready = true;
        if self.e1000.causes.line() {
            self.raise();
        }
    }

    /// Interrupts go there from now on; nowhere without a descriptor.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn connect(&mut self, bell: Option<BorrowedFd<'_>>, is_message: bool) -> Result<(), Errno> {
        self.line.is_message = is_message;
        match bell {
            Some(bell) => self.line.bell.lead_to(bell),
            None => Doorbell::new().and_then(|nobody| self.line.bell.lead_to(nobody.as_fd())),
        }
    }

    fn set_timer(&self, after: Option<u64>) {
        let after = after.unwrap_or(0);
        let value = Timespec { tv_sec: (after / 1_000_000_000) as i64, tv_nsec: (after % 1_000_000_000) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Fails for no descriptor of ours.
        let _ = rustix::time::timerfd_settime(&self.line.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// The timer ran out, or may have.
    pub fn tick(&mut self) {
        self.line.set = None;
        let mut count = [0; 8];
        // Takes the edge; that there is none is no matter.
        let _ = rustix::io::read(&self.line.timer, &mut count);
        self.update();
    }
}

/// The controller, and what workers sleep on.
pub struct Shared {
    slot: Slot<Core>,
    /// What the worker sleeps on that sends.
    pub ear: Ear,
    /// It sleeps.
    asleep: AtomicBool,
    /// A second handle to the timer, to wait on.
    timer: OwnedFd,
    /// Frames, bytes, drops, from the guest.
    pub sent: Arc<RingCounters>,
    /// And to it.
    pub received: Arc<RingCounters>,
}

impl Shared {
    /// One that nobody drives yet.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new(e1000: E1000) -> Result<Arc<Shared>, Errno> {
        let core = Core::new(e1000)?;
        let timer = rustix::io::fcntl_dupfd_cloexec(&core.line.timer, 0)?;
        let slot = Slot::default();
        *slot.enter() = Some(core);
        let (sent, received) = Default::default();
        Ok(Arc::new(Shared { slot, ear: Ear::new()?, asleep: AtomicBool::new(false), timer, sent, received }))
    }

    /// Goes in, as soon as nobody else is.
    pub fn enter(&self) -> Inside<'_, Core> {
        self.slot.enter()
    }

    /// Readable when [`Core::tick`] is due.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// There is something to send.
    pub fn kick(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.ear.poke();
        }
    }

    /// The worker is about to sleep, or awake.
    pub fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::SeqCst);
    }
}
