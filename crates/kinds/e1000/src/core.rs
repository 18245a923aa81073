//! The core of a card, which workers and the control thread share: the controller, the guest's memory, and the guest's
//! interrupt.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netvale_mem::lent::{EntryError, InUse, Lent, LentGuard};
use netvale_mem::notify::Doorbell;
use netvale_port::RingCounters;
use netvale_port::wake::WakeSet;
use rustix::io::Errno;
use rustix::time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::device::{Card, E1000, Effects};
use crate::memory::CardMemory;
use crate::paravirt::Paravirt;
use crate::regs::{CSBAH, CSBAL, ICR_RXT0, ICR_TXDW};
use crate::state::CoreState;
use crate::tx::TxReport;

/// The connection to the guest's interrupt.
struct InterruptLine {
    /// The eventfd that interrupts the guest; `None` while the hypervisor has connected none.
    bell: Option<Doorbell>,
    /// Whether interrupts are messages (MSI), each of which rings the doorbell, instead of a pin (INTx).
    is_message: bool,
    /// For a pin: whether the hypervisor has unmasked it since the doorbell was last rung. If not, the doorbell is not
    /// rung.
    pin_ready: bool,
    timer: OwnedFd,
    /// Number of interrupts sent.
    raised: Arc<AtomicU64>,
    /// Time at which the timer expires, in nanoseconds since the card's creation; `None` if it does not run.
    set: Option<u64>,
}

/// State that one thread at a time uses: a worker for a pass over a ring, the control thread for a register access.
pub struct Core {
    /// The controller.
    pub e1000: E1000,
    /// The guest's memory.
    pub memory: CardMemory,
    /// Number of resets and changes of the memory. Descriptors that were read in an earlier epoch are not written back.
    pub epoch: u64,
    /// The status block in the guest's memory ([`crate::paravirt`]), if the driver uses one.
    paravirt: Option<Paravirt>,
    /// Whether the transmit worker sleeps or is about to sleep.
    asleep: Arc<AtomicBool>,
    /// The causes last written to the status block.
    told: u32,
    line: InterruptLine,
    began: Instant,
}

impl Core {
    fn new(e1000: E1000, began: Instant) -> Result<Core, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let line =
            InterruptLine { bell: None, is_message: false, pin_ready: true, timer, raised: Arc::default(), set: None };
        Ok(Core {
            e1000,
            memory: CardMemory::default(),
            epoch: 0,
            paravirt: None,
            asleep: Arc::default(),
            told: 0,
            line,
            began,
        })
    }

    /// Saves the state for a successor.
    fn state(&self) -> CoreState {
        CoreState {
            e1000: self.e1000.clone(),
            now: self.now(),
            has_block: self.paravirt.is_some(),
            told: self.told,
            pin_ready: self.line.pin_ready,
        }
    }

    /// Attaches a restored guest's memory and interrupt, without ringing a doorbell or writing to the memory. Returns
    /// false if the status block is outside the memory.
    pub fn go_on(&mut self, memory: CardMemory, has_block: bool, bell: Option<Doorbell>, is_message: bool) -> bool {
        self.paravirt = has_block.then(|| memory.paravirt_as_it_is(self.e1000.csb())).flatten();
        self.memory = memory;
        self.line.bell = bell;
        self.line.is_message = is_message;
        self.paravirt.is_some() == has_block
    }

    /// Nanoseconds since the card's creation.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Executes a driver's write of a register.
    pub fn write(&mut self, at: u32, value: u32) -> Effects {
        let before = self.e1000.resets();
        let effects = self.e1000.write(at, value);
        let is_reset = self.e1000.resets() != before;
        self.epoch += u64::from(is_reset);
        if is_reset || at == CSBAL {
            self.find_paravirt();
        }
        self.update();
        effects
    }

    /// Executes a driver's read of a register.
    pub fn read(&mut self, at: u32) -> u32 {
        let value = match at {
            CSBAL | CSBAH if self.paravirt.is_none() => 0,
            at => self.e1000.read(at),
        };
        // Reading ICR may deassert the line.
        self.update();
        value
    }

    /// Replaces the guest's memory. Returns the previous memory. Dropping the previous memory may unmap it, which takes
    /// time: drop it where no worker waits for this core.
    #[must_use]
    pub fn set_memory(&mut self, memory: CardMemory) -> CardMemory {
        let before = std::mem::replace(&mut self.memory, memory);
        self.epoch += 1;
        self.find_paravirt();
        before
    }

    /// Resets the card, as a reset of the machine does.
    pub fn reset(&mut self) {
        self.e1000.reset();
        self.epoch += 1;
        self.find_paravirt();
        self.update();
    }

    /// Locates the status block at the address that the driver has set.
    fn find_paravirt(&mut self) {
        let at = self.e1000.csb();
        let (tx_head, rx_head) = self.e1000.heads();
        self.paravirt = (at != 0).then(|| self.memory.paravirt(at, tx_head, rx_head)).flatten();
        if self.asleep.load(Ordering::SeqCst) {
            self.paravirt.iter().for_each(Paravirt::arm);
        }
        self.told = 0;
    }

    /// The status block, if there is one.
    pub fn paravirt(&self) -> Option<&Paravirt> {
        self.paravirt.as_ref()
    }

    /// Reads the transmit tail from the status block, if there is one. Returns the number of descriptors to send.
    pub fn tx_owned(&mut self) -> u32 {
        if let Some(paravirt) = &self.paravirt {
            self.e1000.set_tx_tail(paravirt.tx_tail());
        }
        self.e1000.tx_owned()
    }

    /// Reads the receive tail from the status block, if there is one.
    pub fn look_for_room(&mut self) {
        if let Some(paravirt) = &self.paravirt {
            self.e1000.set_rx_tail(paravirt.rx_tail());
        }
    }

    /// Marks the first `count` transmit descriptors as done, and reports that to the driver.
    pub fn sent(&mut self, count: u32, report: TxReport) {
        self.e1000.tx.advance(count);
        let how = match &self.paravirt {
            None => report,
            Some(paravirt) => TxReport::of(paravirt.sent(self.e1000.heads().0), true),
        };
        let now = self.now();
        self.e1000.tx_report(how, now);
        self.update();
    }

    /// Reports to the driver that all frames of a batch are in the guest's memory.
    pub fn received(&mut self) {
        let wanted = self.paravirt.as_ref().is_none_or(|paravirt| paravirt.received(self.e1000.heads().1));
        let now = self.now();
        self.e1000.rx_report(wanted, now);
        self.update();
    }

    /// Interrupts the guest if an interrupt is due, and sets the timer for the next update.
    pub fn update(&mut self) {
        let now = self.now();
        let raises = self.e1000.causes.update(now);
        if raises && self.paravirt.is_some() && self.line.is_message {
            self.e1000.causes.clear(ICR_TXDW | ICR_RXT0);
            self.e1000.causes.update(now);
        }
        self.report();
        if raises {
            self.raise();
        }
        let next = self.e1000.causes.deadline();
        if next != self.line.set {
            self.line.set = next;
            self.set_timer(next.map(|at| at.saturating_sub(now).max(1)));
        }
    }

    /// Writes the causes that are set and unmasked to the status block.
    fn report(&mut self) {
        if let Some(paravirt) = &self.paravirt {
            let causes = self.e1000.causes.peek() & self.e1000.causes.mask();
            if std::mem::replace(&mut self.told, causes) != causes {
                paravirt.write_causes(causes);
            }
        }
    }

    fn raise(&mut self) {
        if self.line.is_message || std::mem::take(&mut self.line.pin_ready) {
            self.line.raised.fetch_add(1, Ordering::Relaxed);
            self.line.bell.iter().for_each(Doorbell::ring);
        }
    }

    /// Handles the hypervisor's unmasking of the pin: rings the doorbell again if the line is asserted.
    pub fn unmask_pin(&mut self) {
        self.line.pin_ready = true;
        if self.e1000.causes.line() {
            self.raise();
        }
    }

    /// Disconnects interrupts.
    fn disconnect(&mut self) {
        self.line.is_message = false;
        self.line.bell = None;
    }

    /// Connects interrupts to a doorbell; `None` disconnects them. `is_message` selects MSI instead of the pin.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn connect(&mut self, bell: Option<&Doorbell>, is_message: bool) -> std::io::Result<()> {
        self.line.is_message = is_message;
        self.line.bell = bell.map(Doorbell::try_clone).transpose()?;
        Ok(())
    }

    fn set_timer(&self, after: Option<u64>) {
        let after = after.unwrap_or(0);
        let value = Timespec { tv_sec: (after / 1_000_000_000) as i64, tv_nsec: (after % 1_000_000_000) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Cannot fail: descriptor and time are valid.
        let _ = rustix::time::timerfd_settime(&self.line.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Handles the timer; may be called even if the timer has not expired.
    pub fn tick(&mut self) {
        self.line.set = None;
        let mut count = [0; 8];
        // Reading the count makes the descriptor unreadable until the timer expires again.
        let _ = rustix::io::read(&self.line.timer, &mut count);
        self.update();
    }
}

/// Numbers of register accesses, each of which causes a VM exit, and of interrupts.
#[derive(Debug, Default)]
pub struct Crossings {
    /// Number of registers read.
    pub reads: AtomicU64,
    /// Number of registers written.
    pub writes: AtomicU64,
    /// Number of interrupts sent.
    pub interrupts: Arc<AtomicU64>,
}

/// A card's core, shared by its threads, with the descriptors on which workers sleep.
pub struct SharedCore {
    core: Lent<Core>,
    /// The epoll set on which the transmit worker sleeps.
    pub wake: WakeSet,
    /// Whether the transmit worker sleeps.
    asleep: Arc<AtomicBool>,
    /// A second descriptor of the timer, on which the control thread waits.
    timer: OwnedFd,
    /// Numbers of register accesses and interrupts.
    pub crossings: Crossings,
    /// Counters of frames from the guest.
    pub sent: Arc<RingCounters>,
    /// Counters of frames to the guest.
    pub received: Arc<RingCounters>,
    /// Whether the transmit worker still has to return descriptors of delivered frames.
    owes: AtomicBool,
}

impl SharedCore {
    /// Creates the shared core of a new controller.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn new(e1000: E1000) -> Result<Arc<SharedCore>, Errno> {
        Self::with(Core::new(e1000, Instant::now())?, [0; 3])
    }

    /// Restores another process's controller, which must have the configuration `card`. `crossings` are the numbers of
    /// registers read, registers written, and interrupts.
    ///
    /// # Errors
    /// `EINVAL` if the state is inconsistent; otherwise as for [`SharedCore::new`].
    pub fn continued(card: &Card, state: CoreState, crossings: [u64; 3]) -> Result<Arc<SharedCore>, Errno> {
        let age = Duration::from_nanos(state.now);
        let up = rustix::time::clock_gettime(ClockId::Monotonic);
        let is_possible = age.as_secs() <= up.tv_sec.unsigned_abs() && state.e1000.is_possible(card);
        let began = Instant::now().checked_sub(age).filter(|_| is_possible).ok_or(Errno::INVAL)?;
        let mut core = Core::new(state.e1000, began)?;
        core.told = state.told;
        core.line.pin_ready = state.pin_ready;
        Self::with(core, crossings)
    }

    /// Saves the state for a successor, while the workers of the queues and the control thread are paused.
    ///
    /// # Errors
    /// [`InUse`] if descriptors of delivered frames are not returned yet, or a worker does not return the core in time.
    pub fn state(&self) -> Result<CoreState, InUse> {
        if self.owes.load(Ordering::SeqCst) {
            return Err(InUse);
        }
        self.control(|core| core.state())
    }

    fn with(core: Core, [reads, writes, interrupts]: [u64; 3]) -> Result<Arc<SharedCore>, Errno> {
        core.line.raised.store(interrupts, Ordering::Relaxed);
        let timer = rustix::io::fcntl_dupfd_cloexec(&core.line.timer, 0)?;
        let reads = reads.into();
        let writes = writes.into();
        let crossings = Crossings { reads, writes, interrupts: Arc::clone(&core.line.raised) };
        let asleep = Arc::clone(&core.asleep);
        let (sent, received) = Default::default();
        let core = Lent::with(core);
        let wake = WakeSet::new()?;
        let owes = AtomicBool::new(false);
        Ok(Arc::new(SharedCore { core, wake, asleep, timer, crossings, sent, received, owes }))
    }

    /// Lends the core to a worker for a pass over a ring.
    ///
    /// # Errors
    /// [`EntryError`] if the control thread uses the core for too long.
    #[inline]
    pub fn enter(&self) -> Result<LentGuard<'_, Core>, EntryError> {
        self.core.enter()
    }

    /// Calls `f` with the core, for the control thread.
    ///
    /// # Errors
    /// [`InUse`] if a worker does not return the core in time.
    #[inline]
    pub fn control<R>(&self, f: impl FnOnce(&mut Core) -> R) -> Result<R, InUse> {
        let mut held = self.core.control()?;
        let core = held.as_mut().ok_or(InUse)?;
        Ok(f(core))
    }

    /// Calls `f` with the core. Returns `None`, without a call, if another thread uses the core.
    pub fn look<R>(&self, f: impl FnOnce(&Core) -> R) -> Option<R> {
        self.core.enter_now().ok().map(|core| f(&core))
    }

    /// Resets the card after its machine has disconnected: no memory, no interrupts, and the initial state.
    ///
    /// # Errors
    /// [`InUse`] if a worker does not return the core in time; try again.
    pub fn power_off(&self) -> Result<(), InUse> {
        let memory = self.control(|core| {
            core.reset();
            core.disconnect();
            core.set_memory(CardMemory::default())
        })?;
        drop(memory);
        Ok(())
    }

    /// A descriptor that becomes readable when [`Core::tick`] is due.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Wakes the transmit worker if it sleeps.
    pub fn kick(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.wake.poke();
        }
    }

    /// Records whether the transmit worker still has to return descriptors.
    pub fn set_owes(&self, owes: bool) {
        self.owes.store(owes, Ordering::SeqCst);
    }

    /// Records whether the transmit worker sleeps or is about to sleep.
    pub fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::SeqCst);
    }
}
