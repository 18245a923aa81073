use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

/// A limit short enough for tests that reach it.
const SHORT: Duration = Duration::from_millis(5);

/// A content that counts its drops.
struct Content(Arc<AtomicU64>);

impl Drop for Content {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Objective: workers find a content from `put` until `take`, and an empty cell before and after.
#[test]
fn a_content_is_found_only_while_put_in() {
    let lent = Lent::<u32>::default();
    assert_eq!(lent.enter().unwrap_err(), EntryError::Empty);
    lent.put(1).unwrap();
    *lent.enter().unwrap() += 1;
    lent.control().unwrap().iter_mut().for_each(|n| *n += 1);
    assert_eq!(lent.take(), Ok(Some(3)));
    assert_eq!(lent.enter().unwrap_err(), EntryError::Empty);
    assert_eq!(lent.take(), Ok(None));
}

/// Objective: a borrower stays inside across calls, keeps other workers out meanwhile, and leaves when it is dropped.
#[test]
fn a_borrower_stays() {
    let lent = Arc::new(Lent::with(1));
    let mut one = Borrower::new(Arc::clone(&lent));
    let mut other = Borrower::new(Arc::clone(&lent));
    assert_eq!(one.content(), None);
    *one.enter().unwrap() += 1;
    assert_eq!((one.enter().copied(), one.content().copied(), one.is_inside()), (Ok(2), Some(2), true));
    assert_eq!(other.enter(), Err(EntryError::Busy));
    assert_eq!(lent.control_within(SHORT, 0).map(|_| ()), Err(InUse));
    one.leave();
    assert_eq!((one.content(), other.enter().copied()), (None, Ok(2)));
    drop(other);
    assert_eq!(lent.take(), Ok(Some(2)));
}

/// Objective: dropping a loan lets the worker leave, once, on any thread; a loan of a plain reference involves no cell.
#[test]
fn a_loan_stays() {
    let lent = Lent::<u32, ManyWorkers>::with(1);
    let loan = Loan::from(lent.enter().unwrap());
    let own = 2;
    assert_eq!((*loan, *Loan::from(&own)), (1, 2));
    assert_eq!(lent.take_within(SHORT), Err(InUse));
    std::thread::scope(|s| s.spawn(move || drop(loan)).join().unwrap());
    assert_eq!(lent.take(), Ok(None), "the content was retired while it was on loan");
    lent.put(3).unwrap();
    drop(Loan::from(lent.enter().unwrap()));
    assert_eq!(lent.take(), Ok(Some(3)));
}

/// Objective: a worker waits only briefly for a control thread that stays inside, and then gets `Busy`, not `Empty`, as
/// there may be a content.
#[test]
fn the_control_thread_stays() {
    let lent = Lent::<u32>::with(1);
    let control = lent.control().unwrap();
    assert_eq!(lent.enter().unwrap_err(), EntryError::Busy);
    drop(control);
    assert_eq!(*lent.enter().unwrap(), 1);
    let lent = Lent::<u32, ManyWorkers>::with(1);
    let control = lent.control().unwrap();
    assert_eq!(lent.enter().unwrap_err(), EntryError::Busy);
    drop(control);
    assert_eq!(*lent.enter().unwrap(), 1);
}

/// Objective: several workers are inside together in mode `ManyWorkers`, and the control thread enters when the last
/// worker has left.
#[test]
fn many_workers_are_inside_together() {
    let lent = Lent::<u32, ManyWorkers>::with(1);
    let one = lent.enter().unwrap();
    let other = lent.enter().unwrap();
    assert_eq!((*one, *other), (1, 1));
    drop(one);
    assert_eq!(lent.control_within(SHORT, 0).map(|_| ()), Err(InUse));
    assert!(lent.enter().is_ok(), "a failed entry of the control thread leaves no trace");
    drop(other);
    assert_eq!(lent.take(), Ok(Some(1)));
}

/// Objective: a content that could not be taken out within the limit is not used again; the next thread to enter, a
/// worker, drops the content.
#[test]
fn a_worker_drops_what_is_retired() {
    let lent = Arc::new(Lent::<_>::default());
    let dropped = Arc::<AtomicU64>::default();
    lent.put(Content(Arc::clone(&dropped))).unwrap();
    let mut worker = Borrower::new(Arc::clone(&lent));
    worker.enter().unwrap();
    assert!(lent.take_within(SHORT).is_err() && worker.is_wanted());
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "a worker still uses it");
    worker.leave();
    assert_eq!(worker.enter().err(), Some(EntryError::Empty));
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    lent.put(Content(Arc::clone(&dropped))).unwrap();
    assert!(worker.enter().is_ok(), "the next content is used");
}

/// Objective: in mode `ManyWorkers`, a content that could not be taken out is not used again; here the control thread
/// is the next to enter, and drops it.
#[test]
fn the_control_thread_drops_what_is_retired() {
    let lent = Lent::<_, ManyWorkers>::default();
    let dropped = Arc::<AtomicU64>::default();
    lent.put(Content(Arc::clone(&dropped))).unwrap();
    let worker = lent.enter().unwrap();
    assert!(lent.take_within(SHORT).is_err());
    assert_eq!(lent.enter().err(), Some(EntryError::Empty), "a worker is still inside");
    assert_eq!(lent.take_within(SHORT).err(), Some(InUse));
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(worker);
    assert!(lent.take().unwrap().is_none());
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    lent.put(Content(Arc::clone(&dropped))).unwrap();
    assert!(lent.enter().is_ok());
}

/// A count that two threads must not change together, with a flag that is set once the count was taken out.
struct Tally {
    count: u64,
    total: Arc<AtomicU64>,
    gone: Arc<AtomicBool>,
}

impl Tally {
    fn work(&mut self) {
        assert!(!self.gone.load(Ordering::Relaxed), "used after it was taken out");
        self.count += 1;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.total.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// Objective: while workers that stay and workers that visit use the cell constantly, a content is taken out and put
/// back 10,000 times: no work on the content is lost, the content is not used after it was taken out, no thread waits
/// forever, and the control thread waits no longer than its limit.
#[test]
fn taken_away_and_put_back() {
    let rounds = if cfg!(miri) { 50 } else { 10_000 };
    let lent = Arc::new(Lent::<Tally>::default());
    let total = Arc::<AtomicU64>::default();
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let mut longest = Duration::ZERO;
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut worker = Borrower::new(Arc::clone(&lent));
            while !stop.load(Ordering::Relaxed) {
                if let Ok(tally) = worker.enter() {
                    tally.work();
                    worker.content().into_iter().for_each(Tally::work);
                    done.fetch_add(2, Ordering::Relaxed);
                    worker.leave();
                }
                std::thread::yield_now();
            }
        });
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if let Ok(mut tally) = lent.enter() {
                    tally.work();
                    done.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::yield_now();
            }
        });
        for _ in 0..rounds {
            let gone = Arc::<AtomicBool>::default();
            let began = Instant::now();
            lent.put(Tally { count: 0, total: Arc::clone(&total), gone: Arc::clone(&gone) }).unwrap();
            longest = longest.max(began.elapsed());
            std::thread::yield_now();
            let began = Instant::now();
            let tally = lent.take().unwrap();
            longest = longest.max(began.elapsed());
            gone.store(true, Ordering::Relaxed);
            drop(tally);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(total.load(Ordering::Relaxed), done.load(Ordering::Relaxed));
    assert!(done.load(Ordering::Relaxed) > 0 && longest < LIMIT, "{longest:?}");
}

/// Objective: while several workers are inside together, a content is taken out and put back 10,000 times, and no work
/// on the content is lost.
#[test]
fn taken_away_from_many() {
    let rounds = if cfg!(miri) { 50 } else { 10_000 };
    let lent = Lent::<_, ManyWorkers>::default();
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let total = std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(count) = lent.enter() {
                        let count: &AtomicU64 = &count;
                        count.fetch_add(1, Ordering::Relaxed);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            });
        }
        let mut total = 0;
        for _ in 0..rounds {
            lent.put(AtomicU64::new(0)).unwrap();
            std::thread::yield_now();
            total += lent.take().unwrap().map_or(0, AtomicU64::into_inner);
        }
        stop.store(true, Ordering::Relaxed);
        total
    });
    assert_eq!(total, done.load(Ordering::Relaxed));
    assert!(total > 0);
}
