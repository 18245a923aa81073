//! Ports of programs, through a daemon.

mod long_frames;
mod waiting;
