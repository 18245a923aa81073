//! The card under its driver.

mod driver;
mod exhaustive;
mod queues;
mod traces;
