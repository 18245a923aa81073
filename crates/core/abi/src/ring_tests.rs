//! Ring arithmetic and rules, compared with a walk of one slot at a time, for every ring of up to sixteen slots and
//! every position in it.

use super::*;

const MAX_SLOTS: u32 = if cfg!(miri) { 4 } else { 16 };

/// The model: the number of plain steps from `from` to `to`.
fn steps(from: u32, to: u32, n: u32) -> u32 {
    let mut at = from;
    let mut count = 0;
    while at != to {
        at = (at + 1) % n;
        count += 1;
    }
    count
}

/// The model of [`ring_between`]: whether the walk from `from` to `to` meets `i`.
fn met(from: u32, i: u32, to: u32, n: u32) -> bool {
    (0..=steps(from, to, n)).any(|k| (from + k) % n == i)
}

#[test]
fn next_is_the_step_of_the_model() {
    for n in 1..=MAX_SLOTS {
        for i in 0..n {
            assert_eq!(ring_next(i, n), (i + 1) % n);
        }
    }
}

#[test]
fn space_counts_the_steps_from_head_to_tail() {
    for n in 1..=MAX_SLOTS {
        for head in 0..n {
            for tail in 0..n {
                assert_eq!(ring_space(head, tail, n), steps(head, tail, n), "{head} {tail} {n}");
            }
        }
    }
}

#[test]
fn advance_undoes_space() {
    for n in 1..=MAX_SLOTS {
        for i in 0..n {
            for count in 0..=n {
                assert_eq!(ring_advance(i, count, n), (i + count) % n);
            }
        }
    }
}

#[test]
fn arithmetic_holds_at_the_top_of_the_range() {
    let n = u32::MAX;
    assert_eq!(ring_next(n - 1, n), 0);
    assert_eq!(ring_space(n - 1, 1, n), 2);
    assert_eq!(ring_advance(n - 1, n, n), n - 1);
    assert!(ring_between(n - 2, n - 1, 0, n));
}

#[test]
fn between_is_met_on_the_walk() {
    for n in 1..=MAX_SLOTS {
        for from in 0..n {
            for to in 0..n {
                for i in 0..n {
                    assert_eq!(ring_between(from, i, to, n), met(from, i, to, n), "{from} {i} {to} {n}");
                }
            }
        }
    }
}

/// The model of the checks: walks the ring, and returns the first of the four rules that is broken.
fn rule(head: u32, cur: u32, first: u32, tail: u32, n: u32) -> Result<u32, RingError> {
    match () {
        () if head >= n => Err(RingError::HeadOutOfRange { head, num_slots: n }),
        () if cur >= n => Err(RingError::CurOutOfRange { cur, num_slots: n }),
        () if !met(first, head, tail, n) => Err(RingError::HeadNotOwned { head, first, tail }),
        () if !met(head, cur, tail, n) => Err(RingError::CurNotOwned { cur, head, tail }),
        () => Ok(head),
    }
}

#[test]
fn tx_and_rx_checks_follow_the_rule_everywhere() {
    for n in 1..=MAX_SLOTS {
        for first in 0..n {
            for tail in 0..n {
                for head in 0..n + 2 {
                    for cur in 0..n + 2 {
                        let want = rule(head, cur, first, tail, n);
                        assert_eq!(tx_check(head, cur, first, tail, n), want, "{head} {cur} {first} {tail} {n}");
                        assert_eq!(rx_check(head, cur, first, tail, n), want, "{head} {cur} {first} {tail} {n}");
                    }
                }
            }
        }
    }
}

#[test]
fn checks_take_any_word_an_application_may_write() {
    for wild in [4, 5, u32::MAX - 1, u32::MAX] {
        assert_eq!(tx_check(wild, 0, 0, 3, 4), Err(RingError::HeadOutOfRange { head: wild, num_slots: 4 }));
        assert_eq!(rx_check(0, wild, 0, 3, 4), Err(RingError::CurOutOfRange { cur: wild, num_slots: 4 }));
    }
}

#[test]
fn errors_name_the_rule_that_was_broken() {
    extern crate std;
    use std::string::ToString;
    let text = rx_check(3, 3, 0, 2, 4).unwrap_err().to_string();
    assert_eq!(text, "head 3 is outside 0..=2, the slots the application owned");
}

#[test]
fn a_fresh_tx_ring_takes_all_but_one_slot() {
    let n = 8;
    let tail = 7;
    assert_eq!(ring_space(0, tail, n), n - 1);
    assert_eq!(tx_check(tail, tail, 0, tail, n), Ok(tail));
    assert!(tx_check(tail, 0, 0, tail, n).is_err());
}
