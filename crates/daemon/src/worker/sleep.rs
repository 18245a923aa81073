//! The idle worker: it polls as long as polling pays off, then sleeps in epoll until one of its tasks has work.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use netvale_port::PassResult;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::clock::add;
use super::rounds::{BELL, TaskEntry, WorkerLoop, noting};

/// epoll data of a doorbell that a receiver rings when there is room for held frames. Task numbers are smaller than
/// this value.
const ROOM: u64 = u64::MAX - 1;
/// If a worker that never sleeps has had no work for this time, it yields the CPU between polls.
const ALONE: Duration = Duration::from_micros(5);
/// Length of the first sleep while frames wait for a receiver that may not signal room. If there is still no room after
/// a sleep, the next sleep is twice as long.
const HELD_NAP: Duration = Duration::from_micros(50);
/// Maximum length of a sleep while frames wait for a receiver that may not signal room.
const MOST_HELD_NAP: Duration = Duration::from_millis(1);
/// Time for which a descriptor with an error is out of the epoll set. A TAP whose interface no longer exists reports an
/// error forever; other descriptors may recover from an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Sets the events for which epoll waits on the descriptor of an ingress whose frames wait for room. While there are
/// frames in the ingress after the held frames, the descriptor stays readable, and would keep the worker awake.
fn listen_to(epoll: &OwnedFd, e: &TaskEntry, events: epoll::EventFlags) {
    if !e.held || e.cheap {
        return;
    }
    if let Some(fd) = e.task.wake_fd() {
        // This fails only if the descriptor is not in the set.
        let _ = epoll::modify(epoll, fd, epoll::EventData::new_u64(e.id), events);
    }
}

/// Stops waiting for a descriptor that has an error, because it would wake the worker repeatedly. The task still polls
/// that descriptor.
#[cold]
fn give_up(epoll: &OwnedFd, e: &mut TaskEntry) {
    if let Some(fd) = e.task.wake_fd() {
        let _ = epoll::delete(epoll, fd);
        e.broken = Some(Instant::now());
    }
}

impl WorkerLoop {
    /// Handles a round without work: checks descriptors, and after that polls again or sleeps.
    pub(super) fn idle(&mut self) {
        if self.needs_epoll && self.look(Some(Duration::ZERO)) {
            return;
        }
        let idle_for = self.clock.idle(&self.shared.stats);
        if self.always || self.awake {
            // The thread that would send frames may be waiting for the CPU of this worker.
            return if idle_for > ALONE { std::thread::yield_now() } else { std::hint::spin_loop() };
        }
        if self.naps > 0 || !self.spin.go_on() {
            self.sleep();
        }
    }

    fn sleep(&mut self) {
        // If a command was sent before this point, the doorbell has been rung, and epoll reports it immediately.
        if !self.arm() {
            let nap = self.nap();
            self.clock.before_sleep(&self.shared.stats);
            let woken = self.look(nap);
            let slept = self.clock.after_sleep(&self.shared.stats);
            if self.entries.iter().any(|e| e.held) {
                add(&self.shared.stats.waited_ns, slept);
            }
            // If a nap ended without work, polling again is pointless.
            self.naps = if woken || nap.is_none() { 0 } else { self.naps.saturating_add(1) };
        }
        self.disarm();
    }

    /// Arms all wake-ups. Returns whether work has already arrived.
    fn arm(&mut self) -> bool {
        let WorkerLoop { entries, live, work, epoll, panicked, .. } = self;
        let mut news = false;
        for (at, e) in entries.iter_mut().take(*live).enumerate() {
            news |= noting(panicked, at, || {
                if !e.held {
                    return e.task.arm();
                }
                if let Some(bell) = e.task.ask_for_room() {
                    // If two tasks wait for the same receiver, the receiver's doorbell is already in the set.
                    let _ = epoll::add(&*epoll, bell, epoll::EventData::new_u64(ROOM), epoll::EventFlags::IN);
                }
                // There may have been room just before the doorbell was armed.
                e.held = e.task.pass(work) == PassResult::Held;
                listen_to(epoll, e, epoll::EventFlags::empty());
                !e.held
            });
        }
        news
    }

    fn disarm(&mut self) {
        let WorkerLoop { entries, live, epoll, panicked, .. } = self;
        for (at, e) in entries.iter_mut().take(*live).enumerate() {
            noting(panicked, at, || {
                e.task.disarm();
                e.task.stop_asking(&mut |bell| {
                    // If another task waited for the same receiver, it may already have removed the doorbell.
                    let _ = epoll::delete(&*epoll, bell);
                });
                listen_to(epoll, e, epoll::EventFlags::IN);
            });
        }
    }

    /// Returns the longest permitted sleep, or `None` if the worker may sleep until it is woken.
    fn nap(&self) -> Option<Duration> {
        // A task that knows the time at which its frames are due is not polled before that time.
        let held = self.entries.iter().any(|e| e.held && e.task.nap().is_none());
        let held = held.then(|| (HELD_NAP * (1 << self.naps.min(8))).min(MOST_HELD_NAP));
        let broken = self.entries.iter().any(|e| e.broken.is_some()).then_some(AFTER_ERROR);
        held.into_iter().chain(broken).chain(self.entries.iter().filter_map(|e| e.task.nap())).min()
    }

    /// Returns descriptors to the epoll set when `AFTER_ERROR` has passed since their error.
    fn listen_again(&mut self) {
        for e in &mut self.entries {
            if e.broken.is_some_and(|since| since.elapsed() >= AFTER_ERROR)
                && let Some(fd) = e.task.wake_fd()
            {
                e.broken = None;
                // This fails only if the descriptor is closed.
                let _ = epoll::add(&self.epoll, fd, epoll::EventData::new_u64(e.id), epoll::EventFlags::IN);
            }
        }
    }

    /// Waits until a descriptor is ready, for at most `limit`. poll(2) measures the limit precisely, whereas epoll
    /// rounds it up to milliseconds. The kernel may be late by a thousandth of the wait, so the wait is shortened by
    /// 1/512, and the worker waits again for the remaining time.
    fn wait(&self, limit: Duration) {
        let limit = limit - limit / 512;
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        // This fails only if a signal arrives.
        let _ = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&limit));
    }

    /// Waits until a descriptor is ready, for at most `limit` (`None`: no limit). Returns whether an ingress or the
    /// doorbell is ready. The doorbell announces commands, so if this returns true, the caller must not sleep.
    pub(super) fn look(&mut self, limit: Option<Duration>) -> bool {
        self.listen_again();
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 64];
        if let Some(limit) = limit.filter(|limit| !limit.is_zero()) {
            self.wait(limit);
        }
        let limit = limit.map(|_| Timespec { tv_sec: 0, tv_nsec: 0 });
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], limit.as_ref()) else { return false };
        let mut any = false;
        for event in events.iter() {
            let id = event.data.u64();
            if id == BELL {
                self.shared.bell.drain();
                any = true;
            } else if id == ROOM {
                any = true;
            } else if let Some((at, e)) = self.entries.iter_mut().enumerate().find(|(_, e)| e.id == id) {
                noting(&mut self.panicked, at, || e.task.woken());
                if { event.flags }.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
                    give_up(&self.epoll, e);
                }
                e.ready = true;
                any |= !e.held;
                self.rouse(at);
            }
        }
        any
    }
}
