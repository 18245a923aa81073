//! Tasks that rest. If a worker has many tasks, the tasks without frames are armed, as for a sleep of the worker, and
//! take no part in its rounds until their descriptors become readable. Two busy ports are then not slowed down by
//! thousands of idle ports.

use super::rounds::{TaskEntry, WorkerLoop, noting};

/// Whether the task's descriptor alone can wake the worker from a sleep.
fn may_rest(e: &TaskEntry) -> bool {
    let is_quiet = !(e.worked || e.held || e.awake || e.broken.is_some());
    is_quiet && e.cheap && e.task.wake_fd().is_some() && e.task.nap().is_none()
}

impl WorkerLoop {
    /// Whether any tasks rest.
    #[inline]
    pub(super) fn has_resting(&self) -> bool {
        self.live < self.entries.len()
    }

    /// Whether the worker must check epoll, because some tasks are expensive to poll or rest.
    #[inline]
    pub(super) fn has_descriptors(&self) -> bool {
        self.needs_epoll || self.has_resting()
    }

    /// Lets those tasks rest that had no frames since the last call.
    #[cold]
    pub(super) fn let_rest(&mut self) {
        if self.always || self.awake {
            return;
        }
        let mut at = 0;
        while at < self.live {
            let WorkerLoop { entries, panicked, .. } = self;
            let Some(e) = entries.get_mut(at) else { return };
            let rests = noting(panicked, at, || {
                // Frames may have arrived just before the task was armed.
                let has_work = may_rest(e) && e.task.arm();
                if has_work {
                    e.task.disarm();
                }
                may_rest(e) && !has_work
            });
            e.worked = false;
            if rests {
                self.exclude(at);
            } else {
                at += 1;
            }
        }
    }

    /// Makes the task at index `at`, whose descriptor has become readable, take part in rounds again.
    pub(super) fn rouse(&mut self, at: usize) {
        if at < self.live {
            return;
        }
        let at = self.include(at);
        let WorkerLoop { entries, panicked, .. } = self;
        let Some(e) = entries.get_mut(at) else { return };
        e.worked = true;
        noting(panicked, at, || e.task.disarm());
    }

    /// Lets all tasks take part in rounds again.
    pub(super) fn rouse_all(&mut self) {
        while self.has_resting() {
            self.rouse(self.live);
        }
    }

    /// Moves the task at index `at` to the tasks that take part in rounds. Returns the task's new index.
    pub(super) fn include(&mut self, at: usize) -> usize {
        if at < self.live {
            return at;
        }
        self.entries.swap(at, self.live);
        self.live += 1;
        self.live - 1
    }

    /// Moves the task at index `at` to the tasks that rest. Returns the task's new index.
    pub(super) fn exclude(&mut self, at: usize) -> usize {
        if at >= self.live {
            return at;
        }
        self.live -= 1;
        self.entries.swap(at, self.live);
        self.live
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::time::{Duration, Instant};

    use netvale_mem::fault::Fault;
    use netvale_mem::notify::Doorbell;
    use netvale_port::domain::TimeDomain;
    use netvale_port::{PassResult, Task};
    use netvale_switch::ForwardMemory;

    use crate::worker::rounds::{MANY, REST_EVERY};
    use crate::worker::{Polling, Worker};

    /// The shared side of a task: a sender puts a frame into it, and rings the bell if the task is armed.
    struct Inbox {
        bell: Doorbell,
        is_armed: AtomicBool,
        frames: AtomicU64,
        passes: AtomicU64,
    }

    impl Inbox {
        fn new() -> Arc<Inbox> {
            let bell = Doorbell::new().unwrap();
            Arc::new(Inbox { bell, is_armed: false.into(), frames: 0.into(), passes: 0.into() })
        }

        fn send(&self) {
            self.frames.fetch_add(1, Ordering::SeqCst);
            if self.is_armed.load(Ordering::SeqCst) {
                self.bell.ring();
            }
        }
    }

    struct InboxTask {
        inbox: Arc<Inbox>,
        served: mpsc::Sender<()>,
    }

    impl Task<ForwardMemory> for InboxTask {
        fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
            self.inbox.passes.fetch_add(1, Ordering::Relaxed);
            match self.inbox.frames.swap(0, Ordering::SeqCst) {
                0 => PassResult::Idle,
                frames => {
                    (0..frames).for_each(|_| self.served.send(()).unwrap());
                    PassResult::Frames(frames as usize)
                }
            }
        }

        fn arm(&mut self) -> bool {
            self.inbox.is_armed.store(true, Ordering::SeqCst);
            self.inbox.frames.load(Ordering::SeqCst) > 0
        }

        fn disarm(&mut self) {
            self.inbox.is_armed.store(false, Ordering::SeqCst);
        }

        fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
            Some(self.inbox.bell.as_fd())
        }

        fn woken(&mut self) {
            self.inbox.bell.drain();
        }
    }

    /// A task that always has a frame, so that the worker never sleeps.
    struct BusyTask;

    impl Task<ForwardMemory> for BusyTask {
        fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
            PassResult::Frames(1)
        }
    }

    fn wait_until(what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::yield_now();
        }
    }

    /// Objective: if there are many tasks besides a busy task, idle tasks rest; each of them is served when it gets a
    /// frame, and then rests again. Tasks can be removed while they rest. If there are only a few tasks, none of them
    /// rests.
    #[test]
    fn idle_tasks_rest_and_are_served() {
        for count in [MANY / 2, 3 * MANY] {
            let worker =
                Worker::start(0, None, Polling::Spin(Duration::ZERO), Fault::new().unwrap(), TimeDomain::TRUSTED)
                    .unwrap();
            let (served, serves) = mpsc::channel();
            let inboxes: Vec<_> = (0..count).map(|_| Inbox::new()).collect();
            worker.add(0, Box::new(BusyTask));
            for (id, inbox) in (1..).zip(&inboxes) {
                worker.add(id, Box::new(InboxTask { inbox: Arc::clone(inbox), served: served.clone() }));
            }
            let rests = |inbox: &Inbox| inbox.is_armed.load(Ordering::SeqCst);
            for _ in 0..3 {
                if count > MANY {
                    wait_until("most tasks rest", || inboxes.iter().filter(|inbox| rests(inbox)).count() > count / 2);
                } else {
                    let passes = || inboxes[0].passes.load(Ordering::Relaxed);
                    let before = passes();
                    wait_until("rounds pass", || passes() > before + 3 * u64::from(REST_EVERY));
                    assert!(!inboxes.iter().any(|inbox| rests(inbox)));
                }
                inboxes.iter().for_each(|inbox| inbox.send());
                for _ in 0..count {
                    serves.recv_timeout(Duration::from_secs(60)).expect("every task is served");
                }
            }
            let gone: Vec<_> = (1..=count as u64).map(|id| worker.remove(id)).collect();
            // The channel is closed when the task is dropped.
            let is_gone = |gone: &mpsc::Receiver<()>| gone.recv_timeout(Duration::from_secs(60));
            assert!(gone.iter().all(|gone| is_gone(gone) == Err(RecvTimeoutError::Disconnected)));
        }
    }
}
