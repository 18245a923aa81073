//! Senders and receivers of frames on a switch: a program, or a guest's driver.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use netvale::{Interest, Port};
use netvale_e1000::driver::CardDriverOptions;
use netvale_e1000::driver::remote::SimulatedGuest;
use netvale_port::Ingress;

use crate::common::card::{frames_at, send_from};
use crate::common::published::Driver;
use crate::common::{self, frame, receive, until};

/// A sender and receiver of frames.
pub trait End {
    /// Sends a frame.
    fn send(&mut self, frame: &[u8]);

    /// Receives the next frame. If there is none, waits as a driver or a program does.
    fn receive(&mut self) -> Vec<u8>;

    /// Makes the device send the frames that Send Combining holds back. A driver does the same when it handles an
    /// interrupt. Returns `false` if the device never holds frames back.
    fn push(&mut self) -> bool {
        false
    }

    /// Whether a frame arrives within a moment.
    fn is_coming(&mut self) -> bool {
        true
    }
}

impl End for Port {
    fn send(&mut self, frame: &[u8]) {
        until("there is room", || {
            self.tx()[0].send(frame) || {
                self.wait(Interest::Tx, Some(Duration::from_secs(1))).unwrap();
                false
            }
        });
        self.tx()[0].sync();
    }

    fn receive(&mut self) -> Vec<u8> {
        receive(self)
    }

    fn is_coming(&mut self) -> bool {
        self.wait(Interest::Rx, Some(Duration::from_millis(1))).unwrap()
    }
}

impl End for Driver<'_> {
    fn send(&mut self, frame: &[u8]) {
        Driver::send(self, 0, frame);
    }

    fn receive(&mut self) -> Vec<u8> {
        Driver::receive(self)
    }
}

/// An e1000 driver, and the frames that it has received.
pub struct Card(pub SimulatedGuest, pub VecDeque<Vec<u8>>);

impl Card {
    pub fn new(path: &Path, options: CardDriverOptions) -> Card {
        Card(SimulatedGuest::new(path, options).unwrap(), VecDeque::new())
    }
}

impl End for Card {
    fn send(&mut self, frame: &[u8]) {
        send_from(&self.0, frame);
    }

    fn receive(&mut self) -> Vec<u8> {
        let Card(guest, came) = self;
        until("a frame", || {
            if came.is_empty() && !guest.ingress.arm() {
                common::is_readable(guest.ingress.wake_fd().unwrap(), Duration::from_secs(10));
            }
            guest.ingress.woken();
            guest.ingress.disarm();
            came.extend(frames_at(guest));
            !came.is_empty()
        });
        came.pop_front().unwrap()
    }

    fn push(&mut self) -> bool {
        self.0.ingress.woken();
        true
    }
}

/// Number of frames in each direction in a round.
pub const BURST: u32 = 16;

/// Runs rounds, each with the number of its first frame, while `during` acts on another thread. The argument of
/// `during` is a function that waits until the given number of further rounds has passed.
pub fn rounds_while(mut round: impl FnMut(u32), during: impl FnOnce(&dyn Fn(u32)) + Send) {
    let rounds = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            during(&|more| {
                let from = rounds.load(Ordering::Relaxed);
                until("frames pass", || rounds.load(Ordering::Relaxed) >= from + more);
            });
        });
        let mut number = 0;
        while !acting.is_finished() {
            round(number);
            number += BURST;
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        acting.join().unwrap();
    });
}

/// Creates a numbered frame.
pub fn numbered(from: u8, number: u32) -> [u8; 60] {
    let mut frame = frame(255, from, 0);
    frame[14..18].copy_from_slice(&number.to_le_bytes());
    frame
}

/// Returns the number in a frame, which must be an unchanged frame of the sender `name`.
fn number(name: u8, frame: &[u8]) -> u32 {
    let number = u32::from_le_bytes(frame[14..18].try_into().unwrap());
    assert_eq!(frame[..60], numbered(name, number), "a frame is not as it was sent");
    number
}

/// Number of frames that have arrived repeatedly.
#[derive(Default)]
pub struct Again(pub u32);

impl Again {
    /// Sends a burst of frames of the sender `name`. All must arrive in order, except that earlier frames may arrive
    /// again.
    pub fn burst(&mut self, name: u8, from: &mut dyn End, to: &mut dyn End, number_of_first: u32) {
        let all = number_of_first..number_of_first + BURST;
        all.clone().for_each(|n| from.send(&numbered(name, n)));
        let mut next = all.start;
        while next < all.end {
            until("it arrives", || !from.push() || to.is_coming());
            let n = number(name, &to.receive());
            assert!(n <= next, "frame {next} is lost: {n} came");
            self.0 += u32::from(n < next);
            next = next.max(n + 1);
        }
    }

    /// Sends a burst of frames in each direction.
    pub fn both_ways(&mut self, one: &mut dyn End, other: &mut dyn End, number_of_first: u32) {
        self.burst(1, one, other, number_of_first);
        self.burst(2, other, one, number_of_first);
    }
}
