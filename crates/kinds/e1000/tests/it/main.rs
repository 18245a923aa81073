//! Tests of the card as drivers use it.

mod driver;
mod exhaustive;
mod queues;
mod traces;
