//! Every interleaving of workers and the control thread at a lent queue, with loom:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p netvale-mem --test it loom_lent`.
//!
//! The contents are loom's cells: loom reports an error if two threads use a cell without synchronisation.
#![cfg(loom)]
#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use netvale_mem::lent::{Borrower, EntryError, InUse, Lent, Loan, ManyWorkers, OneWorker};
use std::sync::atomic::AtomicU32 as StdAtomicU32;

/// A queue that records its uses in a loom cell.
struct Queue {
    work: UnsafeCell<u32>,
    /// Written during each use, so that loom can run another thread at that point.
    steps: AtomicU32,
    dropped: Arc<AtomicU32>,
}

// SAFETY: the models test the exclusion of concurrent uses, and loom reports any concurrent use.
unsafe impl Sync for Queue {}

impl Queue {
    fn new(dropped: &Arc<AtomicU32>) -> Queue {
        Queue { work: UnsafeCell::new(0), steps: AtomicU32::new(0), dropped: dropped.clone() }
    }

    fn change(&self) {
        // SAFETY: loom checks that no other thread uses the cell meanwhile.
        self.work.with_mut(|n| unsafe { *n += 1 });
        self.steps.store(1, Ordering::Relaxed);
        self.steps.store(2, Ordering::Relaxed);
    }

    fn look(&self) -> u32 {
        // SAFETY: loom checks that no other thread changes the cell meanwhile.
        let work = self.work.with(|n| unsafe { *n });
        self.steps.store(3, Ordering::Relaxed);
        work
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.change();
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Outcomes of a model's control thread. A model in which the control thread always succeeds, or always fails, proves
/// nothing.
#[derive(Default)]
struct Outcomes {
    got_in: StdAtomicU32,
    gave_up: StdAtomicU32,
}

impl Outcomes {
    fn note<T>(&self, result: &Result<T, InUse>) {
        let count = if result.is_ok() { &self.got_in } else { &self.gave_up };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Outcomes {
    fn drop(&mut self) {
        let both = [&self.got_in, &self.gave_up].map(|count| count.load(Ordering::Relaxed));
        assert!(std::thread::panicking() || both.iter().all(|n| *n > 0), "got in, gave up: {both:?}");
    }
}

type Cell<M> = std::sync::Arc<Lent<Queue, M>>;

/// Returns a cell with a queue, and the number of queues dropped.
fn lent<M>() -> (Cell<M>, Arc<AtomicU32>)
where
    M: netvale_mem::lent::LentMode,
{
    let dropped = Arc::new(AtomicU32::new(0));
    (std::sync::Arc::new(Lent::with(Queue::new(&dropped))), dropped)
}

/// Objective: two workers in mode `OneWorker` never use the queue together, whether they stay inside or visit.
#[test]
fn one_worker_at_a_time() {
    loom::model(|| {
        let (lent, _) = lent::<OneWorker>();
        let other = {
            let mut worker = Borrower::new(lent.clone());
            thread::spawn(move || {
                let done = worker.enter().map(|queue| queue.change()).is_ok();
                worker.leave();
                u32::from(done)
            })
        };
        let mine = u32::from(lent.enter().map(|queue| queue.change()).is_ok());
        let theirs = other.join().unwrap();
        assert_eq!(lent.take().unwrap().map(|queue| queue.look()), Some(mine + theirs));
    });
}

/// Objective: if the control thread takes the queue out and puts another queue in while a worker stays inside across
/// calls, the two threads never use the queue together, and see each other's work.
#[test]
fn control_and_worker_never_use_the_queue_together() {
    let outcomes = std::sync::Arc::new(Outcomes::default());
    loom::model(move || {
        let (lent, dropped) = lent::<OneWorker>();
        let worker = {
            let mut worker = Borrower::new(lent.clone());
            thread::spawn(move || {
                worker.enter().map(|queue| queue.change()).ok();
                let stayed = worker.content().map(|queue| queue.change()).is_some();
                worker.leave();
                if stayed { 2 } else { 0 }
            })
        };
        let taken = lent.take();
        outcomes.note(&taken);
        if let Ok(queue) = &taken {
            let seen = queue.as_ref().map(Queue::look);
            assert!(matches!(seen, Some(0 | 2)), "taken in the middle of it: {seen:?}");
            let _ = lent.put(Queue::new(&dropped));
        }
        let work = worker.join().unwrap();
        match taken {
            Ok(old) => {
                let new = lent.take().unwrap().map_or(0, |queue| queue.look());
                assert_eq!(old.map_or(0, |queue| queue.look()) + new, work);
            }
            Err(InUse) => assert_eq!(lent.take().map(|queue| queue.is_none()), Ok(true)),
        }
        assert!(dropped.load(Ordering::Relaxed) >= 1);
    });
}

/// Objective: a queue whose worker does not leave in time is retired: a worker that enters after `take` gave up never
/// uses the queue, the queue is dropped exactly once, and the next queue is used.
#[test]
fn retired_while_a_worker_is_inside() {
    let outcomes = std::sync::Arc::new(Outcomes::default());
    loom::model(move || {
        let (lent, dropped) = lent::<OneWorker>();
        let worker = {
            let mut worker = Borrower::new(lent.clone());
            thread::spawn(move || {
                worker.enter().map(|queue| queue.change()).ok();
                worker.leave();
                worker
            })
        };
        let taken = lent.take().map(drop);
        outcomes.note(&taken);
        if taken.is_err() {
            let late = lent.enter().map(|_| ()).err();
            assert_eq!(late, Some(EntryError::Empty), "used after it was retired");
        }
        let mut worker = worker.join().unwrap();
        assert_eq!(worker.enter().err(), Some(EntryError::Empty));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        lent.put(Queue::new(&dropped)).unwrap();
        assert!(worker.enter().is_ok());
    });
}

/// Objective: in mode `ManyWorkers` two workers use the queue together, and the control thread changes the queue only
/// after both workers have left.
#[test]
fn control_changes_the_queue_after_all_workers_left() {
    loom::model(|| {
        let (lent, dropped) = lent::<ManyWorkers>();
        let work = |lent: &Lent<Queue, ManyWorkers>| lent.enter().map(|queue| queue.look()).is_ok();
        let other = {
            let lent = lent.clone();
            thread::spawn(move || work(&lent))
        };
        if let Ok(control) = lent.control() {
            control.iter().for_each(Queue::change);
        }
        work(&lent);
        other.join().unwrap();
        assert!(work(&lent));
        drop(lent.take().unwrap());
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

/// Objective: of two workers that find a retired queue in mode `ManyWorkers`, only one worker drops the queue, and not
/// while the other worker uses it.
#[test]
fn two_workers_drop_a_retired_queue_once() {
    let outcomes = std::sync::Arc::new(Outcomes::default());
    loom::model(move || {
        let (lent, dropped) = lent::<ManyWorkers>();
        let other = {
            let lent = lent.clone();
            thread::spawn(move || {
                lent.enter().map(|queue| queue.look()).ok();
                lent.enter().map(|queue| queue.look()).ok();
            })
        };
        let taken = lent.take().map(drop);
        outcomes.note(&taken);
        assert!(lent.enter().is_err(), "used after it was retired");
        other.join().unwrap();
        assert!(taken.is_ok() || dropped.load(Ordering::Relaxed) <= 1);
        assert_eq!(lent.take().map(|queue| queue.is_none()), Ok(true));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

/// Objective: a worker that visits a queue, for example to arm it before sleeping, never uses the queue together with
/// the control thread that takes the queue out: the worker visits before the `take`, or fails to enter. A queue that
/// the worker leaves too late is dropped once.
#[test]
fn a_visitor_never_uses_a_queue_taken_out() {
    let outcomes = std::sync::Arc::new(Outcomes::default());
    loom::model(move || {
        let (lent, dropped) = lent::<OneWorker>();
        let other = {
            let mut worker = Borrower::new(lent.clone());
            thread::spawn(move || worker.visit(|queue| queue.change()).is_ok())
        };
        let taken = lent.take();
        outcomes.note(&taken);
        let seen = taken.as_ref().ok().and_then(Option::as_ref).map(Queue::look);
        let looked_in = other.join().unwrap();
        assert!(seen.is_none_or(|seen| seen == u32::from(looked_in)), "{seen:?} after a look in: {looked_in}");
        drop(taken);
        assert_eq!(lent.take().map(|queue| queue.is_none()), Ok(true));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

/// Objective: of two control threads, one changes the queue in place and the other takes the queue out, never at the
/// same time.
#[test]
fn two_control_threads_never_change_it_together() {
    loom::model(|| {
        let (lent, _) = lent::<OneWorker>();
        let other = {
            let lent = lent.clone();
            thread::spawn(move || lent.control().map(|control| control.iter().for_each(Queue::change)).is_ok())
        };
        let mine = lent.control().map(|control| control.iter().for_each(Queue::change)).is_ok();
        let theirs = other.join().unwrap();
        let sum = u32::from(mine) + u32::from(theirs);
        assert_eq!(lent.take().unwrap().map(|queue| queue.look()), Some(sum));
        assert!(lent.enter().is_err_and(|away| !away.is_busy()), "nobody is inside any more");
    });
}

/// Objective: a worker that turns its guard into a loan is inside until the loan is dropped, and leaves once.
#[test]
fn a_worker_on_loan_is_inside_until_it_ends() {
    let outcomes = std::sync::Arc::new(Outcomes::default());
    loom::model(move || {
        let (lent, dropped) = lent::<ManyWorkers>();
        let other = {
            let lent = lent.clone();
            thread::spawn(move || {
                let loan = lent.enter().ok().map(Loan::from);
                loan.map(|loan| loan.look()).is_some()
            })
        };
        let taken = lent.take().map(drop);
        outcomes.note(&taken);
        other.join().unwrap();
        assert_eq!(lent.take().map(|queue| queue.is_none()), Ok(true));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        lent.put(Queue::new(&dropped)).unwrap();
        assert_eq!(Loan::from(lent.enter().unwrap()).look(), 0);
        assert!(lent.control().is_ok(), "somebody is still inside");
    });
}
