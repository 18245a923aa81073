//! Memory that others can write, and by which they wake each other.

mod exhaustive;
mod loom;
mod loom_lent;
mod unmapping;
mod watch;
