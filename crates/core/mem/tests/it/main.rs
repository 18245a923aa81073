//! Memory that others can write, and the wake-ups between its users.

mod exhaustive;
mod loom;
mod loom_lent;
mod unmapping;
mod watch;
