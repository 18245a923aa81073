//! Ports of programs, over a daemon.

mod long_frames;
mod waiting;
