//! Integration tests of the client library, on pipes inside the program.

mod long_frames;
mod waiting;
