//! Exhaustive test of leases of small rings: every sequence of producer and receiver steps, with every `head` that a
//! receiver can write.
#![cfg(all(not(loom), not(miri)))]

use netvale_mem::lease::{BadHead, Lease, Leases};

/// Number of steps in a sequence.
const DEPTH: usize = 6;

/// One step of a sequence.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Reserves slots: their number, and the receiver's `head` at that time.
    Reserve(u32, u32),
    /// Completes the open lease with this index, counted from the oldest.
    Complete(usize),
    /// Gives back slots of the open lease with this index, counted from the oldest; keeps this many of its first slots.
    GiveBack(usize, u32),
}

/// The model: positions as plain numbers, which count slots from the start and never wrap.
#[derive(Default)]
struct Model {
    consumed: u64,
    published: u64,
    reserved: u64,
    /// Leases that are not published, oldest first: number of slots, and whether the lease is completed.
    open: Vec<(u64, bool)>,
}

impl Model {
    /// The expected result of [`Leases::reserve`]: a number of slots, or a bad head.
    fn reserve(&mut self, n: u64, want: u64, head: u64) -> Result<u64, ()> {
        let room = |consumed: u64, reserved: u64| n - 1 - (reserved - consumed);
        if room(self.consumed, self.reserved) < want {
            let to = (self.consumed..=self.published).find(|at| at % n == head).ok_or(())?;
            self.consumed = to;
        }
        let count = want.min(room(self.consumed, self.reserved));
        self.reserved += count;
        if count > 0 {
            self.open.push((count, false));
        }
        Ok(count)
    }

    /// Returns how many slots of the lease remain; all of them if another lease follows.
    fn give_back(&mut self, which: usize, used: u64) -> u64 {
        let (count, _) = self.open[which];
        if which + 1 < self.open.len() || used >= count {
            return count;
        }
        self.reserved -= count - used;
        self.open[which].0 = used;
        if used == 0 {
            self.open.pop();
        }
        used
    }

    fn complete(&mut self, which: usize) {
        self.open[which].1 = true;
        while let Some((count, true)) = self.open.first().copied() {
            self.published += count;
            self.open.remove(0);
        }
    }
}

/// Runs a sequence of steps on leases and the model. Returns whether all steps were possible.
fn run(n: u32, steps: &[Step]) -> bool {
    let leases = Leases::new(n);
    let mut model = Model::default();
    let mut held = Vec::<Option<Lease>>::new();
    for &step in steps {
        match step {
            Step::Reserve(want, head) => {
                let got = leases.reserve(want, |room| room, || head);
                let known = model.reserve(n.into(), want.into(), head.into());
                let counts = got.as_ref().map(|lease| lease.as_ref().map_or(0, |lease| u64::from(lease.count)));
                assert_eq!(counts.map_err(|bad| *bad), known.map_err(|()| BadHead(head)), "{n} slots: {steps:?}");
                held.extend(got.ok().flatten().map(Some));
            }
            Step::Complete(which) | Step::GiveBack(which, _) => {
                let open: Vec<usize> = (0..held.len()).filter(|&i| held[i].is_some()).collect();
                let Some(&i) = open.get(which) else { return false };
                let place = model.open.iter().enumerate().filter(|(_, (_, done))| !done).nth(which).map(|(i, _)| i);
                let lease = held[i].take().unwrap();
                if let Step::GiveBack(_, used) = step {
                    held[i] = leases.give_back(lease, used);
                    let left = held[i].as_ref().map_or(0, |lease| u64::from(lease.count));
                    assert_eq!(left, model.give_back(place.unwrap(), used.into()), "{n} slots: {steps:?}");
                } else {
                    leases.complete(lease, |_, _| ());
                    model.complete(place.unwrap());
                }
                assert_eq!(u64::from(leases.tail()), model.published % u64::from(n), "{n} slots: {steps:?}");
            }
        }
    }
    true
}

/// Objective: in rings of two to four slots, producers get all free slots that they request and no more, with any
/// `head` of the receiver and any order of completion; a `head` is bad exactly if it is outside the receiver's slots.
#[test]
fn producers_get_all_free_slots_and_no_more() {
    let mut ran = 0u64;
    for n in 2..=4u32 {
        let heads = (0..=n).chain([u32::MAX]);
        let reserve = heads.flat_map(|head| [1, n - 1].map(|want| Step::Reserve(want, head)));
        let given_back = [0, 1].map(|which| Step::GiveBack(which, which as u32));
        let all: Vec<Step> = reserve.chain([0, 1].map(Step::Complete)).chain(given_back).collect();
        let mut steps = [all[0]; DEPTH];
        for k in 0..all.len().pow(DEPTH as u32) {
            let mut rest = k;
            for step in &mut steps {
                *step = all[rest % all.len()];
                rest /= all.len();
            }
            ran += u64::from(run(n, &steps));
        }
    }
    assert!(ran > 100_000, "{ran} sequences");
}
