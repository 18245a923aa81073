//! Tests of memory that others can write, and of the wake-ups between its users.

mod exhaustive;
mod loom;
mod loom_lent;
mod unmapping;
mod watch;
