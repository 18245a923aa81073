//! Compares ring arithmetic with counting one slot at a time, for every ring of up to sixteen slots and every position
//! in it.

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
fn arithmetic_holds_at_the_top_of_the_range() {
    let n = u32::MAX;
    assert_eq!(ring_next(n - 1, n), 0);
    assert_eq!(ring_space(n - 1, 1, n), 2);
}
