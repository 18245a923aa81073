//! Tests of memory that other processes can write, and of the wake-ups between users of the memory.

mod exhaustive;
mod loom;
mod loom_lent;
mod unmapping;
mod watch;
